package eventhubs

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
)

func TestAReaderStartsAtEveryPosition(t *testing.T) {
	h := newHub(t, 1)
	all := h.eventsOfDifferentTimes(4)
	second := all[1]
	for what, position := range map[string]azeventhubs.StartPosition{
		"sequence number": {SequenceNumber: &second.SequenceNumber},
		"offset":          {Offset: &second.Offset},
		"enqueued time":   {EnqueuedTime: second.EnqueuedTime},
	} {
		equalAll(t, what, bodies(h.read("0", position, 2)), bodies(all[2:]))
		position.Inclusive = true
		equalAll(t, what+", inclusive", bodies(h.read("0", position, 3)), bodies(all[1:]))
	}
	equalAll(t, "earliest", bodies(h.read("0", earliest, 4)), bodies(all))
	equalAll(t, "before the first number", bodies(h.read("0", azeventhubs.StartPosition{SequenceNumber: to.Ptr(int64(-1))}, 4)), bodies(all))
	long := azeventhubs.StartPosition{EnqueuedTime: to.Ptr(time.UnixMilli(1)), Inclusive: true}
	equalAll(t, "a time long ago", bodies(h.read("0", long, 4)), bodies(all))
}

// clockLagMs is more than the clock of the broker can be behind that of the test: it counts from its start in whole milliseconds.
const clockLagMs = 10

// eventsOfDifferentTimes sends until the broker has stamped that many events with different times.
func (h hub) eventsOfDifferentTimes(count int) []*azeventhubs.ReceivedEventData {
	h.t.Helper()
	producer := h.producer(nil)
	reader := partitionOf(h.t, h.consumer(nil), "0", earliest, nil)
	var all []*azeventhubs.ReceivedEventData
	for number := range count {
		if number > 0 {
			last := *all[number-1].EnqueuedTime
			until(h.t, "the next millisecond", func() bool { return time.Now().UnixMilli() > last.UnixMilli()+clockLagMs })
		}
		h.send(producer, "0", fmt.Sprintf("event %d", number))
		all = append(all, receive(h.t, reader, 1)...)
	}
	return all
}

func TestAReaderAtTheLatestPositionGetsOnlyLaterEvents(t *testing.T) {
	for _, inclusive := range []bool{false, true} {
		t.Run(fmt.Sprintf("inclusive=%v", inclusive), func(t *testing.T) {
			h := newHub(t, 1)
			producer := h.producer(nil)
			h.send(producer, "0", "old")
			position := azeventhubs.StartPosition{Latest: to.Ptr(true), Inclusive: inclusive}
			reader := partitionOf(t, h.consumer(nil), "0", position, nil)
			came := receiving(reader, waiting(t), 2)
			h.waitForReaders(1)
			h.send(producer, "0", "new", "newer")
			found := <-came
			must(t, found.err)
			equalAll(t, "latest", bodies(found.events), []string{"new", "newer"})
		})
	}
}

type received struct {
	events []*azeventhubs.ReceivedEventData
	err    error
}

// receiving receives events in the background.
func receiving(reader *azeventhubs.PartitionClient, ctx context.Context, count int) <-chan received {
	came := make(chan received, 1)
	go func() {
		events, err := reader.ReceiveEvents(ctx, count, nil)
		came <- received{events, err}
	}()
	return came
}

func TestAPositionBeyondTheEndIsRejected(t *testing.T) {
	h := newHub(t, 1)
	h.send(h.producer(nil), "0", "only")
	consumer := h.consumer(nil)
	for _, position := range []azeventhubs.StartPosition{{SequenceNumber: to.Ptr(int64(100))}, {Offset: to.Ptr("100")}} {
		_, err := partitionOf(t, consumer, "0", position, nil).ReceiveEvents(waiting(t), 1, nil)
		refused(t, err, "com.microsoft:argument-out-of-range", "the position 100 is beyond the end of partition 0")
	}
}

func TestAReaderStopsAndContinues(t *testing.T) {
	h := newHub(t, 1)
	producer := h.producer(nil)
	h.send(producer, "0", "a", "b", "c")
	reader := partitionOf(t, h.consumer(nil), "0", earliest, nil)
	equalAll(t, "first", bodies(receive(t, reader, 2)), []string{"a", "b"})
	equalAll(t, "then", bodies(receive(t, reader, 1)), []string{"c"})
	ctx, cancel := context.WithCancel(context.Background())
	came := receiving(reader, ctx, 1)
	cancel()
	if found := <-came; !errors.Is(found.err, context.Canceled) {
		t.Fatal(found.err)
	}
	h.send(producer, "0", "d")
	equalAll(t, "after the cancellation", bodies(receive(t, reader, 1)), []string{"d"})
}

func TestAReaderWithoutPrefetchGetsAllEvents(t *testing.T) {
	h := newHub(t, 1)
	producer := h.producer(nil)
	h.send(producer, "0", "a", "b", "c", "d", "e")
	options := &azeventhubs.PartitionClientOptions{StartPosition: earliest, Prefetch: -1}
	reader, err := h.consumer(nil).NewPartitionClient("0", options)
	must(t, err)
	defer reader.Close(context.Background())
	equalAll(t, "two", bodies(receive(t, reader, 2)), []string{"a", "b"})
	equalAll(t, "three", bodies(receive(t, reader, 3)), []string{"c", "d", "e"})
}

func TestConsumerGroupsReadIndependently(t *testing.T) {
	h := newHub(t, 1)
	h.send(h.producer(nil), "0", "a", "b")
	for _, group := range []string{azeventhubs.DefaultConsumerGroup, "audit", "AUDIT"} {
		consumer := h.consumerWith(h.broker.ConnectionString(), group, nil)
		equalAll(t, group, bodies(receive(t, partitionOf(t, consumer, "0", earliest, nil), 2)), []string{"a", "b"})
	}
}
