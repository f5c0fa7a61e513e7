package eventhubs

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2/checkpoints"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
)

const (
	workerVariable  = "PEEKLOCK_WORKER"
	checkpointEvery = 10
	interval        = 500 * time.Millisecond
	// The expiry is long enough for a busy machine: an instance that renews late loses partitions.
	expiry = 10 * time.Second
)

// place has the addresses that a worker needs.
type place struct{ Hub, Namespace, Storage, Container string }

// news is one line of a worker's output.
type news struct {
	What      string
	Partition string
	Number    int64
	Text      string
}

func say(item news) {
	line, _ := json.Marshal(item)
	// One write per line, so that a killed process does not leave half a line.
	_, _ = os.Stdout.Write(append(line, '\n'))
}

// work is the program of a user who processes a hub with several instances, until it is killed.
func work(text string) {
	var at place
	if err := json.Unmarshal([]byte(text), &at); err != nil {
		panic(err)
	}
	ctx := context.Background()
	processor, err := newProcessor(at, azeventhubs.ProcessorOptions{UpdateInterval: interval, PartitionExpirationDuration: expiry})
	if err != nil {
		panic(err)
	}
	go func() {
		for {
			partition := processor.NextPartitionClient(ctx)
			say(news{What: "claim", Partition: partition.PartitionID()})
			go process(ctx, partition)
		}
	}()
	if err := processor.Run(ctx); err != nil {
		say(news{What: "error", Text: err.Error()})
	}
}

// newProcessor returns a processor that reads each partition without a checkpoint from its first event.
func newProcessor(at place, options azeventhubs.ProcessorOptions) (*azeventhubs.Processor, error) {
	blobs, err := container.NewClientFromConnectionString(at.Storage, at.Container, nil)
	if err != nil {
		return nil, err
	}
	store, err := checkpoints.NewBlobStore(blobs, nil)
	if err != nil {
		return nil, err
	}
	client, err := azeventhubs.NewConsumerClientFromConnectionString(at.Namespace, at.Hub, azeventhubs.DefaultConsumerGroup, nil)
	if err != nil {
		return nil, err
	}
	options.StartPositions = azeventhubs.StartPositions{Default: earliest}
	return azeventhubs.NewProcessor(client, store, &options)
}

// process reads a partition until another instance owns it.
func process(ctx context.Context, partition *azeventhubs.ProcessorPartitionClient) {
	defer partition.Close(ctx)
	for {
		events, err := partition.ReceiveEvents(ctx, 1, nil)
		if err != nil {
			say(news{What: fmt.Sprintf("end %s", codeOf(err)), Partition: partition.PartitionID(), Text: err.Error()})
			return
		}
		number := events[0].SequenceNumber
		say(news{What: "event", Partition: partition.PartitionID(), Number: number})
		if (number+1)%checkpointEvery != 0 {
			continue
		}
		if err := partition.UpdateCheckpoint(ctx, events[0], nil); err != nil {
			say(news{What: "error", Partition: partition.PartitionID(), Text: err.Error()})
			return
		}
		say(news{What: "checkpoint", Partition: partition.PartitionID(), Number: number})
	}
}
