"""One of several consumer clients that share a hub through a blob checkpoint store. It is a separate process, so that a
test can kill it.

Arguments: flavour, connection string, connection string of the store, hub, container. Each output line is one report:
`claim PARTITION`, `event PARTITION NUMBER`, `checkpoint PARTITION NUMBER`, `error PARTITION TEXT`.
"""

import asyncio
import sys

from azure import eventhub
from azure.eventhub import aio
from azure.eventhub.extensions.checkpointstoreblob import BlobCheckpointStore
from azure.eventhub.extensions.checkpointstoreblobaio import BlobCheckpointStore as AsyncBlobCheckpointStore

GROUP = "$Default"
CHECKPOINT_EVERY = 10
INTERVAL_SECONDS = 0.5
# The expiry is long enough for a busy machine: a client that does not renew in time loses partitions although it is
# alive.
EXPIRY_SECONDS = 8
BALANCING = {"load_balancing_interval": INTERVAL_SECONDS, "partition_ownership_expiration_interval": EXPIRY_SECONDS}


def say(*words):
    # One write per line, so that a killed process does not leave half a line.
    print(" ".join(map(str, words)), flush=True)


def is_due(event):
    return (event.sequence_number + 1) % CHECKPOINT_EVERY == 0


def run(connection_string, store, hub, container):
    store = BlobCheckpointStore.from_connection_string(store, container)
    create = eventhub.EventHubConsumerClient.from_connection_string
    client = create(connection_string, GROUP, eventhub_name=hub, checkpoint_store=store, **BALANCING)

    def on_event(partition, event):
        say("event", partition.partition_id, event.sequence_number)
        if is_due(event):
            partition.update_checkpoint(event)
            say("checkpoint", partition.partition_id, event.sequence_number)

    with client:
        client.receive(
            on_event=on_event,
            on_partition_initialize=lambda partition: say("claim", partition.partition_id),
            on_error=lambda partition, error: say("error", partition and partition.partition_id, repr(error)),
            starting_position="-1",
        )


async def run_async(connection_string, store, hub, container):
    store = AsyncBlobCheckpointStore.from_connection_string(store, container)
    create = aio.EventHubConsumerClient.from_connection_string
    client = create(connection_string, GROUP, eventhub_name=hub, checkpoint_store=store, **BALANCING)

    async def on_event(partition, event):
        say("event", partition.partition_id, event.sequence_number)
        if is_due(event):
            await partition.update_checkpoint(event)
            say("checkpoint", partition.partition_id, event.sequence_number)

    async def on_claim(partition):
        say("claim", partition.partition_id)

    async def on_error(partition, error):
        say("error", partition and partition.partition_id, repr(error))

    async with client:
        await client.receive(on_event=on_event, on_partition_initialize=on_claim, on_error=on_error, starting_position="-1")


if __name__ == "__main__":
    flavour, *places = sys.argv[1:]
    if flavour == "asyncio":
        asyncio.run(run_async(*places))
    else:
        run(*places)
