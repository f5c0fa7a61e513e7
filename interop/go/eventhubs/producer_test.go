package eventhubs

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
)

func TestABatchGoesToOnePartitionInOrder(t *testing.T) {
	h := newHub(t, 3)
	h.send(h.producer(nil), "1", "a", "b", "c")
	events := h.read("1", earliest, 3)
	equalAll(t, "bodies", bodies(events), []string{"a", "b", "c"})
	for number, event := range events {
		equal(t, "sequence number", event.SequenceNumber, int64(number))
		equal(t, "offset", event.Offset, fmt.Sprint(number))
		if event.PartitionKey != nil || event.EnqueuedTime == nil {
			t.Fatalf("key %v, time %v", event.PartitionKey, event.EnqueuedTime)
		}
	}
}

func TestAKeySelectsOnePartition(t *testing.T) {
	h := newHub(t, 8)
	producer := h.producer(nil)
	for _, body := range []string{"a", "b", "c"} {
		sendBatch(t, producer, &azeventhubs.EventDataBatchOptions{PartitionKey: to.Ptr("home-7")}, body)
	}
	filled := filledPartitions(t, producer)
	equal(t, "partitions with events", len(filled), 1)
	events := h.read(filled[0].PartitionID, earliest, 3)
	equalAll(t, "bodies", bodies(events), []string{"a", "b", "c"})
	for _, event := range events {
		equal(t, "key", *event.PartitionKey, "home-7")
	}
}

func TestBatchesWithoutPartitionAreSpread(t *testing.T) {
	h := newHub(t, 2)
	producer := h.producer(nil)
	for range 4 {
		sendBatch(t, producer, nil, "somewhere")
	}
	filled := filledPartitions(t, producer)
	equal(t, "partitions with events", len(filled), 2)
	equal(t, "events", filled[0].LastEnqueuedSequenceNumber+filled[1].LastEnqueuedSequenceNumber, 2)
}

func TestAnEventArrivesWithAllProperties(t *testing.T) {
	h := newHub(t, 1)
	producer, ctx := h.producer(nil), waiting(t)
	batch, err := producer.NewEventDataBatch(ctx, nil)
	must(t, err)
	sent := map[string]any{
		"text": "größe", "int": int32(-7), "long": int64(1) << 40, "double": 1.5, "yes": true, "bytes": []byte{0, 1, 255},
		"time": time.UnixMilli(1_700_000_000_123), "short": int16(-3), "byte": uint8(200), "ulong": uint64(1) << 63,
	}
	must(t, batch.AddEventData(&azeventhubs.EventData{
		Body: []byte{0, 255}, Properties: sent, ContentType: to.Ptr("application/x"), CorrelationID: "c-1", MessageID: to.Ptr("m-1"),
	}, nil))
	must(t, producer.SendEventDataBatch(ctx, batch, nil))
	event := h.read("0", earliest, 1)[0]
	equal(t, "body", string(event.Body), "\x00\xff")
	equal(t, "content type", *event.ContentType, "application/x")
	equal(t, "correlation id", event.CorrelationID, "c-1")
	equal(t, "message id", *event.MessageID, "m-1")
	equal(t, "properties", fmt.Sprintf("%#v", event.Properties), fmt.Sprintf("%#v", sent))
}

func TestABodyCanBeAValueOrASequence(t *testing.T) {
	h := newHub(t, 1)
	producer, ctx := h.producer(nil), waiting(t)
	batch, err := producer.NewEventDataBatch(ctx, nil)
	must(t, err)
	for _, body := range []azeventhubs.AMQPAnnotatedMessageBody{
		{Value: map[string]any{"temperature": 21.5}},
		{Sequence: [][]any{{"one", int64(2)}}},
		{Data: [][]byte{[]byte("two "), []byte("pieces")}},
	} {
		message := &azeventhubs.AMQPAnnotatedMessage{Body: body, Properties: &azeventhubs.AMQPAnnotatedMessageProperties{}}
		must(t, batch.AddAMQPAnnotatedMessage(message, nil))
	}
	must(t, producer.SendEventDataBatch(ctx, batch, nil))
	events := h.read("0", earliest, 3)
	equal(t, "value", fmt.Sprint(events[0].RawAMQPMessage.Body.Value), "map[temperature:21.5]")
	equal(t, "sequence", fmt.Sprint(events[1].RawAMQPMessage.Body.Sequence), "[[one 2]]")
	equal(t, "pieces", fmt.Sprintf("%s", events[2].RawAMQPMessage.Body.Data), "[two  pieces]")
}

func TestAFullBatchLeavesTheRestForTheNext(t *testing.T) {
	h := newHub(t, 1)
	producer, ctx := h.producer(nil), waiting(t)
	event := &azeventhubs.EventData{Body: []byte(strings.Repeat("x", 100_000))}
	for range 2 {
		batch, err := producer.NewEventDataBatch(ctx, nil)
		must(t, err)
		for err == nil {
			err = batch.AddEventData(event, nil)
		}
		if !errors.Is(err, azeventhubs.ErrEventDataTooLarge) {
			t.Fatal(err)
		}
		equal(t, "events of 100 kB in 1 MiB", batch.NumEvents(), 10)
		must(t, producer.SendEventDataBatch(ctx, batch, nil))
	}
	for _, event := range h.read("0", earliest, 20) {
		equal(t, "length", len(event.Body), 100_000)
	}
}

func TestAnEventThatIsTooLargeIsRejected(t *testing.T) {
	h := newHub(t, 1)
	producer, ctx := h.producer(nil), waiting(t)
	batch, err := producer.NewEventDataBatch(ctx, nil)
	must(t, err)
	err = batch.AddEventData(&azeventhubs.EventData{Body: make([]byte, 1<<20)}, nil)
	if !errors.Is(err, azeventhubs.ErrEventDataTooLarge) {
		t.Fatal(err)
	}
	_, err = producer.NewEventDataBatch(ctx, &azeventhubs.EventDataBatchOptions{MaxBytes: 1<<20 + 1})
	if err == nil || !strings.Contains(err.Error(), "1048576") {
		t.Fatalf("the error does not name the limit of the link: %v", err)
	}
	must(t, batch.AddEventData(&azeventhubs.EventData{Body: make([]byte, 1<<20-1024)}, nil))
	must(t, producer.SendEventDataBatch(ctx, batch, nil))
	equal(t, "length", len(h.read("0", earliest, 1)[0].Body), 1<<20-1024)
}

func TestHubsAndPartitionsHaveProperties(t *testing.T) {
	h := newHub(t, 3)
	started := time.Now().Add(-time.Minute)
	producer, ctx := h.producer(nil), waiting(t)
	shown, err := producer.GetEventHubProperties(ctx, nil)
	must(t, err)
	equal(t, "name", shown.Name, h.name)
	equalAll(t, "partitions", shown.PartitionIDs, []string{"0", "1", "2"})
	equal(t, "geo-replication", shown.GeoReplicationEnabled, false)
	if shown.CreatedOn.Before(started) {
		t.Fatalf("created on %v", shown.CreatedOn)
	}
	empty, err := h.consumer(nil).GetPartitionProperties(ctx, "2", nil)
	must(t, err)
	equal(t, "is empty", empty.IsEmpty, true)
	equal(t, "last number", empty.LastEnqueuedSequenceNumber, -1)

	h.send(producer, "2", "a", "b")
	last := h.read("2", earliest, 2)[1]
	filled, err := producer.GetPartitionProperties(ctx, "2", nil)
	must(t, err)
	equal(t, "is empty", filled.IsEmpty, false)
	equal(t, "partition", filled.PartitionID, "2")
	equal(t, "hub", filled.EventHubName, h.name)
	equal(t, "first number", filled.BeginningSequenceNumber, 0)
	equal(t, "last number", filled.LastEnqueuedSequenceNumber, last.SequenceNumber)
	equal(t, "last offset", filled.LastEnqueuedOffset, last.Offset)
	equal(t, "last time", filled.LastEnqueuedOn.UnixMilli(), last.EnqueuedTime.UnixMilli())
}

func filledPartitions(t *testing.T, producer *azeventhubs.ProducerClient) []azeventhubs.PartitionProperties {
	t.Helper()
	shown, err := producer.GetEventHubProperties(waiting(t), nil)
	must(t, err)
	var filled []azeventhubs.PartitionProperties
	for _, partition := range shown.PartitionIDs {
		found, err := producer.GetPartitionProperties(waiting(t), partition, nil)
		must(t, err)
		if !found.IsEmpty {
			filled = append(filled, found)
		}
	}
	return filled
}
