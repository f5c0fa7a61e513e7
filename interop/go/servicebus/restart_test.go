package servicebus

import (
	"fmt"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"peeklock/interop/broker"
)

// impatient retries approximately as long as the default, with shorter pauses.
var impatient = &azservicebus.ClientOptions{RetryOptions: azservicebus.RetryOptions{MaxRetries: 100, RetryDelay: 50 * time.Millisecond, MaxRetryDelay: 200 * time.Millisecond}}

func mortal(t *testing.T) (*broker.Broker, *suite) {
	t.Parallel()
	address, err := broker.FixedAddress()
	must(t, err)
	mortal := broker.New(t.TempDir(), "--listen", address, "--queue", "jobs,lock-duration=5m")
	must(t, mortal.Start())
	t.Cleanup(func() { must(t, mortal.Stop()) })
	return mortal, &suite{T: t, ctx: t.Context(), client: newClient(t, mortal.ConnectionString(), impatient)}
}

func TestTheSameClientsWorkAfterARestart(t *testing.T) {
	for _, how := range []string{"kill", "stop"} {
		t.Run(how, func(t *testing.T) {
			mortal, s := mortal(t)
			sender, receiver := s.sender("jobs"), s.receiver("jobs", nil)
			send := func(body string) { s.must(sender.SendMessage(s.ctx, &azservicebus.Message{Body: []byte(body)}, nil)) }
			send("before")
			s.must(receiver.CompleteMessage(s.ctx, s.receiveOne(receiver), nil))
			send("kept")
			if how == "kill" {
				mortal.Kill()
			} else {
				s.must(mortal.Stop())
			}
			s.must(mortal.Start())
			send("after")
			messages := s.receive(receiver, 2)
			equal(t, "messages", bodies(messages), "kept after")
			for _, message := range messages {
				s.must(receiver.CompleteMessage(s.ctx, message, nil))
			}
		})
	}
}

// The broker is killed while a sender sends: the sender continues, and all confirmed messages are stored.
func TestNothingConfirmedIsLostUnderAKill(t *testing.T) {
	mortal, s := mortal(t)
	const count = 200
	sender := s.sender("jobs")
	half, killed := make(chan struct{}), make(chan error, 1)
	go func() {
		<-half
		mortal.Kill()
		killed <- mortal.Start()
	}()
	for number := range count {
		if number == count/2 {
			close(half)
		}
		s.must(sender.SendMessage(s.ctx, &azservicebus.Message{Body: fmt.Append(nil, number)}, nil))
	}
	s.must(<-killed)
	receiver := s.receiver("jobs", nil)
	seen := map[string]bool{}
	for len(seen) < count {
		for _, message := range s.receive(receiver, 1) {
			seen[string(message.Body)] = true
			s.must(receiver.CompleteMessage(s.ctx, message, nil))
		}
	}
}
