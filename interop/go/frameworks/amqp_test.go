package frameworks

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/Azure/go-amqp"

	"peeklock/interop/broker"
)

// session opens a session with go-amqp alone, the library below the SDKs and Redpanda Connect.
func (b *bench) session() *amqp.Session {
	b.Helper()
	connection, err := amqp.Dial(b.ctx, b.url("amqp", b.broker.Address(), broker.Key), nil)
	b.must(err)
	b.Cleanup(func() { _ = connection.Close() })
	session, err := connection.NewSession(b.ctx, nil)
	b.must(err)
	return session
}

func (b *bench) sendPlain(session *amqp.Session, bodies ...string) {
	b.Helper()
	sender, err := session.NewSender(b.ctx, b.from, nil)
	b.must(err)
	for _, body := range bodies {
		receipt, err := sender.SendWithReceipt(b.ctx, amqp.NewMessage([]byte(body)), nil)
		b.must(err)
		state, err := receipt.Wait(b.ctx)
		b.must(err)
		if _, ok := state.(*amqp.StateAccepted); !ok {
			b.Fatalf("%#v", state)
		}
	}
}

// The receiver waits for the broker's settlement of every outcome.
func TestAPlainReceiverSettlesWithEveryOutcome(t *testing.T) {
	t.Parallel()
	b := newBench(t, shared, "{}")
	session := b.session()
	b.sendPlain(session, "order")
	receiver, err := session.NewReceiver(b.ctx, b.from, &amqp.ReceiverOptions{SettlementMode: amqp.ReceiverSettleModeSecond.Ptr()})
	b.must(err)
	steps := []struct {
		count  uint32
		settle func(*amqp.Message) error
	}{
		{0, func(message *amqp.Message) error { return receiver.ReleaseMessage(b.ctx, message) }},
		{0, func(message *amqp.Message) error {
			return receiver.ModifyMessage(b.ctx, message, &amqp.ModifyMessageOptions{DeliveryFailed: true, Annotations: amqp.Annotations{"why": "busy"}})
		}},
		{1, func(message *amqp.Message) error {
			if message.ApplicationProperties["why"] != "busy" {
				return fmt.Errorf("application properties: %v", message.ApplicationProperties)
			}
			return receiver.RejectMessage(b.ctx, message, &amqp.Error{Condition: "com.microsoft:dead-letter", Info: map[string]any{"DeadLetterReason": "no use"}})
		}},
	}
	for number, step := range steps {
		message, err := receiver.Receive(b.ctx, nil)
		b.must(err)
		if message.Header.DeliveryCount != step.count {
			t.Fatalf("step %d: delivery count %d", number, message.Header.DeliveryCount)
		}
		b.must(step.settle(message))
	}
	letters, err := session.NewReceiver(b.ctx, b.from+"/$DeadLetterQueue", nil)
	b.must(err)
	letter, err := letters.Receive(b.ctx, nil)
	b.must(err)
	if letter.ApplicationProperties["DeadLetterReason"] != "no use" {
		t.Fatal(letter.ApplicationProperties)
	}
	b.must(letters.AcceptMessage(b.ctx, letter))
	b.until("an empty queue", func() bool { return b.api(http.MethodGet, b.from, "").MessageCount == 0 })
}

// Messages after the drain stay in the queue until there is credit again.
func TestAPlainDrainReturnsItsCredit(t *testing.T) {
	t.Parallel()
	b := newBench(t, shared, "{}")
	session := b.session()
	b.sendPlain(session, "a", "b")
	receiver, err := session.NewReceiver(b.ctx, "/"+b.from, &amqp.ReceiverOptions{Credit: -1})
	b.must(err)
	for _, bodies := range [][]string{{"a", "b"}, {"c"}} {
		b.must(receiver.IssueCredit(10))
		for _, body := range bodies {
			message, err := receiver.Receive(b.ctx, nil)
			b.must(err)
			if string(message.GetData()) != body {
				t.Fatalf("received %s", message.GetData())
			}
			b.must(receiver.AcceptMessage(b.ctx, message))
		}
		b.must(receiver.DrainCredit(b.ctx, nil))
		b.sendPlain(session, "c")
		if shown := b.api(http.MethodGet, b.from, ""); shown.LockedCount != 0 {
			t.Fatalf("a message was delivered on a link without credit: %+v", shown)
		}
	}
}

// Credit that is not renewed limits the deliveries, and settled deliveries are gone.
func TestAPlainReceiverGetsSettledDeliveries(t *testing.T) {
	t.Parallel()
	b := newBench(t, shared, "{}")
	session := b.session()
	b.sendPlain(session, "a", "b", "c")
	options := &amqp.ReceiverOptions{Credit: -1, RequestedSenderSettleMode: amqp.SenderSettleModeSettled.Ptr()}
	receiver, err := session.NewReceiver(b.ctx, b.from, options)
	b.must(err)
	b.must(receiver.IssueCredit(2))
	for _, body := range []string{"a", "b"} {
		message, err := receiver.Receive(b.ctx, nil)
		b.must(err)
		if string(message.GetData()) != body {
			t.Fatalf("received %s", message.GetData())
		}
	}
	b.until("one message left", func() bool { return b.api(http.MethodGet, b.from, "").MessageCount == 1 })
}
