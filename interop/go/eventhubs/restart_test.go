package eventhubs

import (
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"peeklock/interop/broker"
)

// mortal starts a broker that belongs to one test, and keeps its address.
func mortal(t *testing.T) *broker.Broker {
	t.Helper()
	t.Parallel()
	address, err := broker.FixedAddress()
	must(t, err)
	b := broker.New(t.TempDir(), "--listen", address)
	must(t, b.Start())
	t.Cleanup(func() { _ = b.Stop() })
	return b
}

func TestTheSameClientsContinueAfterARestart(t *testing.T) {
	b := mortal(t)
	h := newHubOn(t, b, 1)
	producer := h.producer(&azeventhubs.ProducerClientOptions{RetryOptions: persistent})
	reader := partitionOf(t, h.consumer(&azeventhubs.ConsumerClientOptions{RetryOptions: persistent}), "0", earliest, nil)
	wanted := []string{"before"}
	h.send(producer, "0", "before")
	equalAll(t, "before", bodies(receive(t, reader, 1)), wanted)
	for _, end := range []func(){b.Kill, func() { must(t, b.Stop()) }} {
		waits := receiving(reader, waiting(t), 1)
		h.waitForReaders(1)
		end()
		must(t, b.Start())
		// A new client requests the properties, because the SDK never reopens the link for properties after a lost connection.
		before, err := h.producer(nil).GetPartitionProperties(waiting(t), "0", nil)
		must(t, err)
		equal(t, "last number", before.LastEnqueuedSequenceNumber, int64(len(wanted)-1))
		h.send(producer, "0", "after")
		wanted = append(wanted, "after")
		found := <-waits
		must(t, found.err)
		equalAll(t, "events after the restart", bodies(found.events), []string{"after"})
	}
	equalAll(t, "stored events", bodies(h.read("0", earliest, 3)), wanted)
}

// The sender gets an error for the unconfirmed send.
func TestAnAbsentBrokerIsALostConnection(t *testing.T) {
	b := mortal(t)
	h := newHubOn(t, b, 1)
	producer := h.producer(&azeventhubs.ProducerClientOptions{RetryOptions: impatient})
	h.send(producer, "0", "first")
	batch, err := producer.NewEventDataBatch(waiting(t), nil)
	must(t, err)
	must(t, batch.AddEventData(&azeventhubs.EventData{Body: []byte("second")}, nil))
	b.Kill()
	err = producer.SendEventDataBatch(waiting(t), batch, nil)
	equal(t, "code", codeOf(err), azeventhubs.ErrorCodeConnectionLost)
	must(t, b.Start())
	equalAll(t, "stored events", bodies(h.read("0", earliest, 1)), []string{"first"})
}
