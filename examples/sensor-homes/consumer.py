"""One of several consumers that share the partitions of a hub. It adds up readings by home and minute, and writes the
sums to files.

The consumers divide the partitions among themselves through the checkpoint store. A killed consumer loses nothing:
another takes its partitions over and continues at the last file. SIGTERM or Ctrl-C writes the present sums and
releases the partitions.
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
# Short intervals for a story of a minute or two; the SDK's defaults are 30 s, and six times that.
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
        # An idle partition is written at once; a busy one only at intervals, because each write contains the whole tally.
        if not events or time.monotonic() - self.written_at[partition.partition_id] > WRITE_EVERY_SECONDS:
            await self.write(partition, tally)

    async def write(self, partition, tally):
        if tally.number == tally.written:
            return
        tally.write()
        self.written_at[partition.partition_id] = time.monotonic()
        # The file is written first: a checkpoint without it would skip uncounted events.
        await partition.update_checkpoint()
        say("count", partition.partition_id, tally.number)

    async def on_close(self, partition, reason):
        tally = self.tallies.pop(partition.partition_id)
        # If the partition was lost, its new owner counts for itself, and has a later checkpoint.
        if reason is CloseReason.SHUTDOWN:
            await self.write(partition, tally)
        say("close", partition.partition_id, reason.name)

    async def on_error(self, partition, error):
        say("error", partition.partition_id if partition else "-", type(error).__name__, str(error).replace("\n", " "))


def say(*words):
    # One write per line, so that a killed consumer does not leave half a line.
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
    # A partition that moved to another consumer is no reason for a warning; `on_error` reports it.
    logging.getLogger("azure.eventhub").setLevel(logging.ERROR)
    asyncio.run(main(*sys.argv[1:]))
