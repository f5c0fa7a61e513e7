package eventhubs

import (
	"errors"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/go-amqp"
)

const readersWithoutLevelMax = 5

// stolen asserts the error of a reader whose partition another reader took over.
func stolen(t *testing.T, found received, sentences ...string) {
	t.Helper()
	equal(t, "code", codeOf(found.err), azeventhubs.ErrorCodeOwnershipLost)
	equal(t, "events", len(found.events), 0)
	says(t, found.err, append(sentences, "amqp:link:stolen")...)
}

func says(t *testing.T, err error, sentences ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("there is no error")
	}
	for _, sentence := range sentences {
		if !strings.Contains(err.Error(), sentence) {
			t.Fatalf("'%s' is not in: %v", sentence, err)
		}
	}
}

func (h hub) owner(level *int64) *azeventhubs.PartitionClient {
	h.t.Helper()
	return partitionOf(h.t, h.consumer(&azeventhubs.ConsumerClientOptions{RetryOptions: impatient}), "0", earliest, level)
}

func TestAHigherOrEqualLevelTakesOver(t *testing.T) {
	h := newHub(t, 1)
	producer := h.producer(nil)
	h.send(producer, "0", "first")
	low := h.owner(to.Ptr(int64(1)))
	receive(t, low, 1)
	waits := receiving(low, waiting(t), 1)
	high := h.owner(to.Ptr(int64(2)))
	equalAll(t, "the new owner", bodies(receive(t, high, 1)), []string{"first"})
	stolen(t, <-waits, "with higher epoch of '2' is created hence current receiver", "with epoch '1' is getting disconnected")

	waits = receiving(high, waiting(t), 1)
	equalAll(t, "the equal one", bodies(receive(t, h.owner(to.Ptr(int64(2))), 1)), []string{"first"})
	stolen(t, <-waits)
}

func TestAStolenReaderGetsTheErrorAtItsNextCall(t *testing.T) {
	h := newHub(t, 1)
	producer := h.producer(nil)
	h.send(producer, "0", "first")
	low := h.owner(to.Ptr(int64(0)))
	receive(t, low, 1)
	receive(t, h.owner(to.Ptr(int64(7))), 1)
	events, err := low.ReceiveEvents(waiting(t), 1, nil)
	stolen(t, received{events, err})
}

func TestALowerLevelIsRejected(t *testing.T) {
	h := newHub(t, 1)
	producer := h.producer(nil)
	h.send(producer, "0", "first")
	high := h.owner(to.Ptr(int64(2)))
	receive(t, high, 1)
	for sentence, level := range map[string]*int64{
		"with a higher epoch '2' already exists":                      to.Ptr(int64(1)),
		"with epoch of '2', and so non-epoch receiver is not allowed": nil,
	} {
		_, err := h.owner(level).ReceiveEvents(waiting(t), 1, nil)
		says(t, err, sentence)
	}
	h.send(producer, "0", "second")
	equalAll(t, "the owner goes on", bodies(receive(t, high, 1)), []string{"second"})
}

func TestFiveReadersWithoutLevelAreTheLimit(t *testing.T) {
	h := newHub(t, 1)
	h.send(h.producer(nil), "0", "first")
	var readers []*azeventhubs.PartitionClient
	for range readersWithoutLevelMax {
		reader := h.owner(nil)
		receive(t, reader, 1)
		readers = append(readers, reader)
	}
	_, err := h.owner(nil).ReceiveEvents(waiting(t), 1, nil)
	says(t, err, "maximum number of allowed receivers per partition in a consumer group which is 5")
	var typed *amqp.Error
	if !errors.As(err, &typed) || typed.Condition != amqp.ErrCondResourceLimitExceeded {
		t.Fatalf("%#v", err)
	}
	receive(t, h.owner(to.Ptr(int64(0))), 1)
	for _, reader := range readers {
		events, err := reader.ReceiveEvents(waiting(t), 1, nil)
		stolen(t, received{events, err})
	}
}
