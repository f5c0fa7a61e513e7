"""One of several consumers that share the partitions of a hub. It adds up readings by home and minute, and writes the sums to files.

Who reads which partition, the consumers settle among themselves by way of the checkpoint store. One that is killed loses nothing: another
takes its partitions over and goes on at the last file. SIGTERM or Ctrl-C lets it write what it has, and hand its partitions over.
"""

import asyncio
import json
import logging
import signal
import sys
import time

from azure.eventhub import CloseReason
from azure.eventhub.aio import EventHubConsumerClient
from azure.eventhub.extensions.checkpointstoreblobaio import BlobCheckpointStore

from tally import Tally

GROUP = "$Default"
# Of a size for a story that is told in a minute or two; the SDK's own are 30 s, and six times that.
BALANCING = {"load_balancing_interval": 1, "partition_ownership_expiration_interval": 6}
BATCH_COUNT_MAX = 2000
PREFETCH_COUNT = 4000
WRITE_EVERY_SECONDS = 3


class Consumer:
    def __init__(self, folder):
        self.folder = folder
        self.tallies = {}
        self.written_at = {}

    async def on_claim(self, partition):
        tally = Tally(self.folder, partition.partition_id)
        self.tallies[partition.partition_id] = tally
        self.written_at[partition.partition_id] = time.monotonic()
        say("claim", partition.partition_id, tally.number)

    async def on_events(self, partition, events):
        tally = self.tallies[partition.partition_id]
        for event in events:
            tally.add(event.sequence_number, json.loads(event.body_as_str()))
        # An idle partition is written at once; a busy one now and then, for it is written whole.
        if not events or time.monotonic() - self.written_at[partition.partition_id] > WRITE_EVERY_SECONDS:
            await self.write(partition, tally)

    async def write(self, partition, tally):
        if tally.number == tally.written:
            return
        tally.write()
        self.written_at[partition.partition_id] = time.monotonic()
        # The file first: a checkpoint without it would skip what nobody has counted.
        await partition.update_checkpoint()
        say("count", partition.partition_id, tally.number)

    async def on_close(self, partition, reason):
        tally = self.tallies.pop(partition.partition_id)
        # Whoever has the partition now counts for himself, and has a later checkpoint.
        if reason is CloseReason.SHUTDOWN:
            await self.write(partition, tally)
        say("close", partition.partition_id, reason.name)

    async def on_error(self, partition, error):
        say("error", partition.partition_id if partition else "-", type(error).__name__, str(error).replace("\n", " "))


def say(*words):
    # In one piece: a consumer that is killed must not leave half a line.
    print("\t".join(map(str, words)), flush=True)


async def main(connection_string, storage, container, hub, folder):
    consumer = Consumer(folder)
    store = BlobCheckpointStore.from_connection_string(storage, container)
    create = EventHubConsumerClient.from_connection_string
    client = create(connection_string, GROUP, eventhub_name=hub, checkpoint_store=store, **BALANCING)
    async with store, client:
        reading = asyncio.create_task(
            client.receive_batch(
                consumer.on_events,
                on_partition_initialize=consumer.on_claim,
                on_partition_close=consumer.on_close,
                on_error=consumer.on_error,
                max_batch_size=BATCH_COUNT_MAX,
                prefetch=PREFETCH_COUNT,
                max_wait_time=0.5,
                starting_position="-1",
            )
        )
        stopping = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stopping.set)
        await stopping.wait()
    reading.cancel()


if __name__ == "__main__":
    # That a partition has gone to somebody else is news and no warning; `on_error` tells it.
    logging.getLogger("azure.eventhub").setLevel(logging.ERROR)
    asyncio.run(main(*sys.argv[1:]))
