// One of several consumer clients that share a hub through a blob checkpoint store. It runs in its own process, so that
// it can be killed. Arguments: connection string, connection string of the store, hub, container. Each line of its
// output reports one event: `event PARTITION NUMBER`, `checkpoint PARTITION NUMBER`, `error PARTITION TEXT`.
import { EventHubConsumerClient, earliestEventPosition } from "@azure/event-hubs";
import { BlobCheckpointStore } from "@azure/eventhubs-checkpointstore-blob";
import { ContainerClient } from "@azure/storage-blob";

const CHECKPOINT_EVERY = 10;
// The expiry is long enough for a busy machine: a client that does not renew in time loses partitions although it is
// alive.
const loadBalancingOptions = { strategy: "greedy", updateIntervalInMs: 500, partitionOwnershipExpirationIntervalInMs: 8000 };

const [connectionString, storage, hub, container] = process.argv.slice(2);
const store = new BlobCheckpointStore(new ContainerClient(storage, container));
const client = new EventHubConsumerClient("$Default", connectionString, hub, store, { loadBalancingOptions });
const say = (...words) => process.stdout.write(`${words.join(" ")}\n`);

client.subscribe(
  {
    processEvents: async (events, context) => {
      for (const event of events) {
        say("event", context.partitionId, event.sequenceNumber);
        if ((event.sequenceNumber + 1) % CHECKPOINT_EVERY !== 0) continue;
        await context.updateCheckpoint(event);
        say("checkpoint", context.partitionId, event.sequenceNumber);
      }
    },
    processError: async (error, context) => say("error", context.partitionId, `${error.code} ${error.message}`.replaceAll("\n", " ")),
  },
  { startPosition: earliestEventPosition, maxBatchSize: 5, maxWaitTimeInSeconds: 1 },
);
