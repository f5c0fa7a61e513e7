package frameworks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"peeklock/interop/broker"
)

// patience is the timeout of every wait; only a failing test reaches it.
const patience = 2 * time.Minute

var (
	shared *broker.Broker
	names  atomic.Int64
)

func TestMain(m *testing.M) {
	os.Exit(broker.Run(m, &shared))
}

// A bench has two queues of a broker, and a client that sends to one and receives from the other.
type bench struct {
	*testing.T
	ctx      context.Context
	broker   *broker.Broker
	from, to string
	client   *azservicebus.Client
	log      lines
}

func newBench(t *testing.T, on *broker.Broker, settings string) *bench {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	number := names.Add(1)
	b := &bench{T: t, ctx: ctx, broker: on, from: fmt.Sprintf("orders-%d", number), to: fmt.Sprintf("totals-%d", number)}
	b.api(http.MethodPut, b.from, settings)
	b.api(http.MethodPut, b.to, "{}")
	retries := azservicebus.RetryOptions{MaxRetries: 200, RetryDelay: 20 * time.Millisecond, MaxRetryDelay: 300 * time.Millisecond}
	client, err := azservicebus.NewClientFromConnectionString(on.ConnectionString(), &azservicebus.ClientOptions{RetryOptions: retries})
	b.must(err)
	b.client = client
	t.Cleanup(func() { _ = client.Close(context.Background()) })
	return b
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatalf("%v\nthe pipeline logged:\n%s", err, b.log.text())
	}
}

// A queue has the counts from the broker's API.
type queue struct{ ActiveCount, LockedCount, DeadLetterCount, MessageCount int }

func (b *bench) api(method, name, body string) (shown queue) {
	b.Helper()
	request, err := http.NewRequestWithContext(b.ctx, method, "http://"+b.broker.HTTPAddress()+"/api/queues/"+name, strings.NewReader(body))
	b.must(err)
	request.SetBasicAuth(broker.KeyName, broker.Key)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	b.must(err)
	defer response.Body.Close()
	if response.StatusCode >= 300 {
		b.Fatalf("%s %s: %s", method, name, response.Status)
	}
	b.must(json.NewDecoder(response.Body).Decode(&shown))
	return shown
}

func (b *bench) until(what string, holds func() bool) {
	b.Helper()
	for !holds() {
		if b.ctx.Err() != nil {
			b.Fatalf("timed out waiting for %s; the pipeline logged:\n%s", what, b.log.text())
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (b *bench) url(scheme, address, key string) string {
	return fmt.Sprintf("%s://%s:%s@%s", scheme, broker.KeyName, key, address)
}

// run runs the pipeline in the background until the end of the test.
func (b *bench) run(settings map[string]string, work func(context.Context) error) {
	b.Helper()
	all := map[string]string{"PLACE": b.url("amqp", b.broker.Address(), broker.Key), "FROM": b.from, "TO": b.to}
	maps.Copy(all, settings)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, all, slog.New(slog.NewTextHandler(&b.log, nil)), work) }()
	b.Cleanup(func() {
		stop()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			b.Error(err)
		}
	})
}

func nothing(context.Context) error { return nil }

func (b *bench) send(bodies ...string) {
	b.Helper()
	sender, err := b.client.NewSender(b.from, nil)
	b.must(err)
	for _, body := range bodies {
		b.must(sender.SendMessage(b.ctx, &azservicebus.Message{Body: []byte(body)}, nil))
	}
}

// totals receives until that many orders have arrived, and returns the total of each; an order may arrive twice.
func (b *bench) totals(count int) map[string]int {
	b.Helper()
	receiver, err := b.client.NewReceiverForQueue(b.to, nil)
	b.must(err)
	totals := map[string]int{}
	for len(totals) < count {
		messages, err := receiver.ReceiveMessages(b.ctx, count, nil)
		b.must(err)
		for _, message := range messages {
			var order struct{ Total int }
			b.must(json.Unmarshal(message.Body, &order))
			totals[message.ApplicationProperties["order"].(string)] = order.Total
			b.must(receiver.CompleteMessage(b.ctx, message, nil))
		}
	}
	return totals
}

func (b *bench) sendOrders(first, count int) {
	b.Helper()
	for id := first; id < first+count; id++ {
		b.send(fmt.Sprintf(`{"id": %d, "price": %d, "count": 2}`, id, id))
	}
}

func (b *bench) assertTotals(count int) {
	b.Helper()
	for id, total := range b.totals(count) {
		if id != fmt.Sprint(total/2) {
			b.Fatalf("the total of order %s is %d", id, total)
		}
	}
	b.until("every order to be settled", func() bool { return b.api(http.MethodGet, b.from, "").MessageCount == 0 })
}

func TestOrdersAreChangedSentAndSettled(t *testing.T) {
	t.Parallel()
	b := newBench(t, shared, "{}")
	b.sendOrders(0, 50)
	b.run(nil, nothing)
	b.sendOrders(50, 50)
	b.assertTotals(100)
}

func TestOrdersPassOverTLS(t *testing.T) {
	t.Parallel()
	b := newBench(t, shared, "{}")
	address := strings.Replace(shared.TLSAddress(), "127.0.0.1", "localhost", 1)
	b.run(map[string]string{"PLACE": b.url("amqps", address, broker.Key), "TLS": "true", "CERTIFICATE": shared.Certificate()}, nothing)
	b.sendOrders(0, 5)
	b.assertTotals(5)
}

func TestAnOrderThatCannotBeChangedBecomesADeadLetter(t *testing.T) {
	t.Parallel()
	b := newBench(t, shared, `{"maxDeliveryCount": 3}`)
	b.run(nil, nothing)
	b.send("no JSON")
	b.sendOrders(0, 5)
	b.assertDeadLetter("no JSON")
	b.totals(5)
}

func (b *bench) assertDeadLetter(body string) {
	b.Helper()
	options := &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter}
	receiver, err := b.client.NewReceiverForQueue(b.from, options)
	b.must(err)
	messages, err := receiver.ReceiveMessages(b.ctx, 1, nil)
	b.must(err)
	letter := messages[0]
	if string(letter.Body) != body || *letter.DeadLetterReason != "MaxDeliveryCountExceeded" || letter.DeliveryCount != 4 {
		b.Errorf("%s: %s, delivery count %d", letter.Body, *letter.DeadLetterReason, letter.DeliveryCount)
	}
	b.must(receiver.CompleteMessage(b.ctx, letter, nil))
}

// The broker's own stamps show two renewals.
func TestALockIsRenewedDuringTheWork(t *testing.T) {
	t.Parallel()
	b := newBench(t, shared, `{"lockDuration": "15s"}`)
	done := make(chan struct{})
	b.run(map[string]string{"RENEW": "true"}, func(context.Context) error {
		<-done
		return nil
	})
	b.sendOrders(7, 1)
	receiver, err := b.client.NewReceiverForQueue(b.from, nil)
	b.must(err)
	ends := map[time.Time]bool{}
	b.until("two renewals", func() bool {
		messages, err := receiver.PeekMessages(b.ctx, 1, &azservicebus.PeekMessagesOptions{FromSequenceNumber: new(int64)})
		b.must(err)
		if len(messages) == 1 && messages[0].LockedUntil != nil {
			ends[*messages[0].LockedUntil] = true
		}
		return len(ends) == 3
	})
	close(done)
	b.assertTotals(1)
}

func TestNothingIsLostWhenTheBrokerIsKilled(t *testing.T) {
	t.Parallel()
	address, err := broker.FixedAddress()
	if err != nil {
		t.Fatal(err)
	}
	mortal := broker.New(t.TempDir(), "--listen", address)
	if err := mortal.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mortal.Stop() })
	// Orders in flight are delivered again when their locks expire.
	b := newBench(t, mortal, `{"lockDuration": "5s"}`)
	var once sync.Once
	began, ended := make(chan struct{}), make(chan struct{})
	b.sendOrders(0, 20)
	b.run(nil, func(context.Context) error {
		once.Do(func() { close(began) })
		<-ended
		return nil
	})
	<-began
	mortal.Kill()
	close(ended)
	b.must(mortal.Start())
	b.sendOrders(20, 20)
	b.assertTotals(40)
}

func TestAMissingQueueIsLogged(t *testing.T) {
	t.Parallel()
	b := newBench(t, shared, "{}")
	b.run(map[string]string{"FROM": "nowhere"}, nothing)
	b.logs("amqp:not-found", "nowhere' could not be found", "peeklock queue create nowhere")
}

// A SASL rejection has no text, so the pipeline gets a code, and the broker's log has the reason.
func TestAWrongKeyIsLogged(t *testing.T) {
	t.Parallel()
	b := newBench(t, shared, "{}")
	b.run(map[string]string{"PLACE": b.url("amqp", shared.Address(), "wrong")}, nothing)
	b.logs("SASL PLAIN auth failed with code 0x1")
	b.until("the reason", func() bool {
		log, err := os.ReadFile(shared.LogPath())
		b.must(err)
		return bytes.Contains(log, []byte("the name or the secret of its key is wrong"))
	})
}

func (b *bench) logs(sentences ...string) {
	b.Helper()
	for _, sentence := range sentences {
		b.until("the sentence: "+sentence, func() bool { return strings.Contains(b.log.text(), sentence) })
	}
}

// lines has the log lines of a pipeline.
type lines struct {
	mutex  sync.Mutex
	buffer bytes.Buffer
}

func (l *lines) Write(line []byte) (int, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.buffer.Write(line)
}

func (l *lines) text() string {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.buffer.String()
}
