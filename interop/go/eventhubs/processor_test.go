package eventhubs

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2/checkpoints"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
)

const (
	sharedPartitions = 6
	// Each partition gets events for two checkpoints, and some after the last.
	beforeCount, afterCount = 25, 10
	lastCheckpoint          = beforeCount/checkpointEvery*checkpointEvery - 1
)

// A worker is a processor in its own process, and its output.
type worker struct {
	process *exec.Cmd
	ended   chan struct{}
	mutex   sync.Mutex
	said    []news
}

func startWorker(t *testing.T, at place) *worker {
	t.Helper()
	text, err := json.Marshal(at)
	must(t, err)
	w := &worker{process: exec.Command(os.Args[0]), ended: make(chan struct{})}
	w.process.Env = append(os.Environ(), workerVariable+"="+string(text))
	w.process.Stderr = os.Stderr
	output, err := w.process.StdoutPipe()
	must(t, err)
	must(t, w.process.Start())
	go w.listen(output)
	t.Cleanup(w.kill)
	return w
}

func (w *worker) listen(output io.Reader) {
	for lines := bufio.NewScanner(output); lines.Scan(); {
		var item news
		if json.Unmarshal(lines.Bytes(), &item) == nil {
			w.mutex.Lock()
			w.said = append(w.said, item)
			w.mutex.Unlock()
		}
	}
	_ = w.process.Wait()
	close(w.ended)
}

func (w *worker) kill() {
	_ = w.process.Process.Kill()
	<-w.ended
}

func (w *worker) told(what string) []news {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return slices.DeleteFunc(slices.Clone(w.said), func(item news) bool { return item.What != what })
}

// An event is identified by its place.
type event struct {
	partition string
	number    int64
}

func told(workers []*worker, what string) map[event]int {
	counts := map[event]int{}
	for _, worker := range workers {
		for _, item := range worker.told(what) {
			counts[event{item.Partition, item.Number}]++
		}
	}
	return counts
}

func newContainer(t *testing.T, h hub) (place, *checkpoints.BlobStore) {
	t.Helper()
	at := place{h.name, h.broker.ConnectionString(), h.broker.StorageConnectionString(), fresh("checkpoints")}
	blobs, err := container.NewClientFromConnectionString(at.Storage, at.Container, nil)
	must(t, err)
	_, err = blobs.Create(waiting(t), nil)
	must(t, err)
	store, err := checkpoints.NewBlobStore(blobs, nil)
	must(t, err)
	return at, store
}

// spread returns the number of partitions of each owner.
func spread(t *testing.T, h hub, store *checkpoints.BlobStore) string {
	t.Helper()
	found, err := store.ListOwnership(waiting(t), h.broker.Address(), h.name, azeventhubs.DefaultConsumerGroup, nil)
	must(t, err)
	counts := map[string]int{}
	for _, ownership := range found {
		if ownership.OwnerID != "" {
			counts[ownership.OwnerID]++
		}
	}
	var numbers []int
	for _, count := range counts {
		numbers = append(numbers, count)
	}
	slices.Sort(numbers)
	return fmt.Sprint(numbers)
}

func (h hub) fill(count int) {
	h.t.Helper()
	producer := h.producer(nil)
	for partition := range sharedPartitions {
		h.send(producer, strconv.Itoa(partition), slices.Repeat([]string{"reading"}, count)...)
	}
}

func untilRead(t *testing.T, workers []*worker, count int64) {
	t.Helper()
	until(t, "every event to be read", func() bool {
		read := told(workers, "event")
		for partition := range sharedPartitions {
			for number := range count {
				if read[event{strconv.Itoa(partition), number}] == 0 {
					return false
				}
			}
		}
		return true
	})
}

func TestProcessorsShareThePartitionsAndTakeOverFromAKilledOne(t *testing.T) {
	h := newHub(t, sharedPartitions)
	at, store := newContainer(t, h)
	var workers []*worker
	for range 3 {
		workers = append(workers, startWorker(t, at))
	}
	until(t, "two partitions for each", func() bool { return spread(t, h, store) == "[2 2 2]" })
	h.fill(beforeCount)
	untilRead(t, workers, beforeCount)
	until(t, "the checkpoints", func() bool { return checkpointed(t, h, store) == sharedPartitions })

	victim, others := workers[0], workers[1:]
	victim.kill()
	before := map[*worker]int{}
	for _, worker := range others {
		before[worker] = len(worker.told("event"))
	}
	h.fill(afterCount)
	untilRead(t, workers, beforeCount+afterCount)
	until(t, "three partitions for each", func() bool { return spread(t, h, store) == "[3 3]" })
	takenOverAtCheckpoint(t, victim, others, before)
	for _, worker := range workers {
		if errors := worker.told("error"); len(errors) > 0 {
			t.Fatal(errors)
		}
	}
}

// takenOverAtCheckpoint asserts that a partition that only the victim read continues right after its last checkpoint.
func takenOverAtCheckpoint(t *testing.T, victim *worker, others []*worker, before map[*worker]int) {
	t.Helper()
	orphans := map[string]bool{}
	for _, item := range victim.told("event") {
		orphans[item.Partition] = true
	}
	for _, worker := range others {
		for _, item := range worker.told("event")[:before[worker]] {
			delete(orphans, item.Partition)
		}
	}
	if len(orphans) == 0 {
		t.Fatal("the victim had no partition to itself")
	}
	for _, worker := range others {
		for _, item := range worker.told("event")[before[worker]:] {
			if orphans[item.Partition] {
				equal(t, "first number in partition "+item.Partition, item.Number, lastCheckpoint+1)
				delete(orphans, item.Partition)
			}
		}
	}
	equal(t, "partitions without a new owner", len(orphans), 0)
}

// checkpointed returns how many partitions have the expected last checkpoint.
func checkpointed(t *testing.T, h hub, store *checkpoints.BlobStore) int {
	t.Helper()
	found, err := store.ListCheckpoints(waiting(t), h.broker.Address(), h.name, azeventhubs.DefaultConsumerGroup, nil)
	must(t, err)
	count := 0
	for _, checkpoint := range found {
		if *checkpoint.SequenceNumber == lastCheckpoint && *checkpoint.Offset == strconv.Itoa(lastCheckpoint) {
			count++
		}
	}
	return count
}

func TestAStoppedProcessorGivesUpItsPartitions(t *testing.T) {
	h := newHub(t, 2)
	at, store := newContainer(t, h)
	// The first round claims all partitions and no second round follows. A processor that stops while a round renews
	// a claim has no record of the new etag, and keeps that partition until the claim expires.
	processor, err := newProcessor(at, azeventhubs.ProcessorOptions{
		LoadBalancingStrategy: azeventhubs.ProcessorStrategyGreedy, UpdateInterval: time.Hour,
	})
	must(t, err)
	ctx, stop := context.WithCancel(waiting(t))
	ended := make(chan error, 1)
	go func() { ended <- processor.Run(ctx) }()
	for range 2 {
		partition := processor.NextPartitionClient(ctx)
		h.send(h.producer(nil), partition.PartitionID(), "a")
		events, err := partition.ReceiveEvents(ctx, 1, nil)
		must(t, err)
		must(t, partition.UpdateCheckpoint(ctx, events[0], nil))
	}
	equal(t, "owned", spread(t, h, store), "[2]")
	stop()
	must(t, <-ended)
	equal(t, "owned after the end", spread(t, h, store), "[]")
}

func TestAnOwnershipIsClaimedOnce(t *testing.T) {
	h := newHub(t, 1)
	_, store := newContainer(t, h)
	ctx := waiting(t)
	claim := azeventhubs.Ownership{
		ConsumerGroup: azeventhubs.DefaultConsumerGroup, EventHubName: h.name, FullyQualifiedNamespace: h.broker.Address(), PartitionID: "0",
	}
	claim.OwnerID = "first"
	won, err := store.ClaimOwnership(ctx, []azeventhubs.Ownership{claim}, nil)
	must(t, err)
	equal(t, "claims", len(won), 1)
	claim.OwnerID = "second"
	lost, err := store.ClaimOwnership(ctx, []azeventhubs.Ownership{claim}, nil)
	must(t, err)
	equal(t, "claims with a late etag", len(lost), 0)
	renewed, err := store.ClaimOwnership(ctx, won, nil)
	must(t, err)
	equal(t, "renewals", len(renewed), 1)
	old, err := store.ClaimOwnership(ctx, won, nil)
	must(t, err)
	equal(t, "renewals with an old etag", len(old), 0)
}

func TestAProcessorWithoutItsContainerEndsWithTheReason(t *testing.T) {
	h := newHub(t, 1)
	at := place{h.name, h.broker.ConnectionString(), h.broker.StorageConnectionString(), "nowhere"}
	processor, err := newProcessor(at, azeventhubs.ProcessorOptions{})
	must(t, err)
	err = processor.Run(waiting(t))
	says(t, err, "ContainerNotFound")
	if strings.Count(err.Error(), "\n") == 0 {
		t.Fatalf("the error does not contain the whole answer: %v", err)
	}
}
