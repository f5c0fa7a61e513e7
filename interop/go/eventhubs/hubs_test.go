// Package eventhubs runs azeventhubs, Microsoft's Event Hubs SDK for Go, against a broker.
package eventhubs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"peeklock/interop/broker"
)

// patience is the timeout of every wait; only a failing test reaches it.
const patience = 2 * time.Minute

// impatient makes clients fail at once: the SDK's default is three retries, at least four seconds apart.
var impatient = azeventhubs.RetryOptions{MaxRetries: -1}

// persistent makes clients outlast a restart of the broker on a busy machine.
var persistent = azeventhubs.RetryOptions{MaxRetries: 200, RetryDelay: 20 * time.Millisecond, MaxRetryDelay: 300 * time.Millisecond}

var names atomic.Int64

func fresh(kind string) string {
	return fmt.Sprintf("%s-%d", kind, names.Add(1))
}

// A hub is an event hub that belongs to one test.
type hub struct {
	t      *testing.T
	broker *broker.Broker
	name   string
}

func newHub(t *testing.T, partitions int) hub {
	t.Parallel()
	return newHubOn(t, shared, partitions)
}

func newHubOn(t *testing.T, on *broker.Broker, partitions int) hub {
	t.Helper()
	h := hub{t, on, fresh("hub")}
	h.api(http.MethodPut, fmt.Sprintf(`{"partitionCount": %d, "consumerGroups": ["audit"]}`, partitions), nil)
	return h
}

// api calls the broker's own API for this hub.
func (h hub) api(method, body string, answer any) {
	h.t.Helper()
	h.apiBelow("", method, body, answer)
}

func (h hub) apiBelow(path, method, body string, answer any) {
	h.t.Helper()
	request, err := http.NewRequest(method, "http://"+h.broker.HTTPAddress()+"/api/hubs/"+h.name+path, bytes.NewBufferString(body))
	must(h.t, err)
	request.SetBasicAuth(broker.KeyName, broker.Key)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	must(h.t, err)
	defer response.Body.Close()
	if response.StatusCode >= 300 {
		h.t.Fatalf("%s %s: %s", method, h.name, response.Status)
	}
	if answer != nil {
		must(h.t, json.NewDecoder(response.Body).Decode(answer))
	}
}

// waitForReaders returns when the broker reports that many readers of the hub.
func (h hub) waitForReaders(count int) {
	h.t.Helper()
	until(h.t, fmt.Sprintf("%d readers", count), func() bool {
		var shown struct{ Runtime struct{ ReaderCount int } }
		h.api(http.MethodGet, "", &shown)
		return shown.Runtime.ReaderCount == count
	})
}

func (h hub) producer(options *azeventhubs.ProducerClientOptions) *azeventhubs.ProducerClient {
	h.t.Helper()
	return h.producerWith(h.broker.ConnectionString(), options)
}

func (h hub) producerWith(place string, options *azeventhubs.ProducerClientOptions) *azeventhubs.ProducerClient {
	h.t.Helper()
	client, err := azeventhubs.NewProducerClientFromConnectionString(place, h.name, options)
	must(h.t, err)
	h.t.Cleanup(func() { _ = client.Close(context.Background()) })
	return client
}

func (h hub) consumer(options *azeventhubs.ConsumerClientOptions) *azeventhubs.ConsumerClient {
	h.t.Helper()
	return h.consumerWith(h.broker.ConnectionString(), azeventhubs.DefaultConsumerGroup, options)
}

func (h hub) consumerWith(place, group string, options *azeventhubs.ConsumerClientOptions) *azeventhubs.ConsumerClient {
	h.t.Helper()
	client, err := azeventhubs.NewConsumerClientFromConnectionString(place, h.name, group, options)
	must(h.t, err)
	h.t.Cleanup(func() { _ = client.Close(context.Background()) })
	return client
}

// send sends one batch to a partition.
func (h hub) send(producer *azeventhubs.ProducerClient, partition string, bodies ...string) {
	h.t.Helper()
	sendBatch(h.t, producer, &azeventhubs.EventDataBatchOptions{PartitionID: &partition}, bodies...)
}

func sendBatch(t *testing.T, producer *azeventhubs.ProducerClient, options *azeventhubs.EventDataBatchOptions, bodies ...string) {
	t.Helper()
	ctx := waiting(t)
	batch, err := producer.NewEventDataBatch(ctx, options)
	must(t, err)
	for _, body := range bodies {
		must(t, batch.AddEventData(&azeventhubs.EventData{Body: []byte(body)}, nil))
	}
	must(t, producer.SendEventDataBatch(ctx, batch, nil))
}

// read returns the first events of a partition from a position.
func (h hub) read(partition string, from azeventhubs.StartPosition, count int) []*azeventhubs.ReceivedEventData {
	h.t.Helper()
	client := h.consumer(nil)
	events := receive(h.t, partitionOf(h.t, client, partition, from, nil), count)
	// The client is closed at once, because a consumer group accepts only five readers of a partition.
	must(h.t, client.Close(context.Background()))
	return events
}

var earliest = azeventhubs.StartPosition{Earliest: to.Ptr(true)}

func partitionOf(t *testing.T, client *azeventhubs.ConsumerClient, partition string, from azeventhubs.StartPosition, level *int64) *azeventhubs.PartitionClient {
	t.Helper()
	reader, err := client.NewPartitionClient(partition, &azeventhubs.PartitionClientOptions{StartPosition: from, OwnerLevel: level})
	must(t, err)
	t.Cleanup(func() { _ = reader.Close(context.Background()) })
	return reader
}

func receive(t *testing.T, reader *azeventhubs.PartitionClient, count int) []*azeventhubs.ReceivedEventData {
	t.Helper()
	events, err := reader.ReceiveEvents(waiting(t), count, nil)
	must(t, err)
	if len(events) != count {
		t.Fatalf("received %d events: %v", len(events), bodies(events))
	}
	return events
}

func bodies(events []*azeventhubs.ReceivedEventData) []string {
	var texts []string
	for _, event := range events {
		texts = append(texts, string(event.Body))
	}
	return texts
}

func waiting(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting for %s", what)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func equal[T comparable](t *testing.T, what string, found, wanted T) {
	t.Helper()
	if found != wanted {
		t.Fatalf("%s: %v, not %v", what, found, wanted)
	}
}

func equalAll[T comparable](t *testing.T, what string, found, wanted []T) {
	t.Helper()
	if !slices.Equal(found, wanted) {
		t.Fatalf("%s: %v, not %v", what, found, wanted)
	}
}

// codeOf returns the SDK's own error code, if there is one.
func codeOf(err error) azeventhubs.ErrorCode {
	var typed *azeventhubs.Error
	if errors.As(err, &typed) {
		return typed.Code
	}
	return ""
}
