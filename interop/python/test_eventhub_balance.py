"""The unmodified consumer clients and checkpoint store of the SDK on one broker: clients share the partitions evenly,
take over from a killed client, and continue at its checkpoints.
"""

import collections
import pathlib
import subprocess
import sys
import threading
import time

import pytest
from azure.eventhub import EventData, EventHubProducerClient
from azure.eventhub.extensions.checkpointstoreblob import BlobCheckpointStore
from azure.storage.blob import ContainerClient

from api import Api
from balance_worker import CHECKPOINT_EVERY, GROUP
from broker import Broker
from hubs import Hubs
from names import fresh

WORKER = pathlib.Path(__file__).parent / "balance_worker.py"
PARTITIONS = [str(number) for number in range(16)]
# Each partition gets events for two checkpoints, and some after the last.
BEFORE_COUNT, AFTER_COUNT = 25, 10
LAST_CHECKPOINT = BEFORE_COUNT // CHECKPOINT_EVERY * CHECKPOINT_EVERY - 1
PATIENCE_SECONDS = 100


class Worker:
    """A consumer client in a separate process, with its output."""

    def __init__(self, *arguments):
        self.process = subprocess.Popen([sys.executable, str(WORKER), *arguments], stdout=subprocess.PIPE, text=True)
        self.news = []
        self.listener = threading.Thread(target=self.listen, daemon=True)
        self.listener.start()

    def listen(self):
        for line in self.process.stdout:
            self.news.append(line.rstrip("\n").split(" ", 2))

    def events(self):
        return [(partition, int(number)) for what, partition, number in self.told("event")]

    def told(self, what):
        return [item for item in list(self.news) if item[0] == what]

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.listener.join()


@pytest.fixture(scope="module")
def blob_broker(tmp_path_factory):
    broker = Broker(tmp_path_factory.mktemp("blobs"), blob_port="127.0.0.1:0").start()
    yield broker
    broker.stop()


@pytest.fixture
def workers():
    started = []
    yield started
    for worker in started:
        worker.kill()


def owned(store, broker, hub):
    """Returns the number of partitions per owner."""
    found = store.list_ownership(broker.address, hub, GROUP)
    return collections.Counter(ownership["owner_id"] for ownership in found if ownership["owner_id"])


def publish(broker, hub, count):
    with EventHubProducerClient.from_connection_string(broker.connection_string, eventhub_name=hub) as producer:
        for partition in PARTITIONS:
            producer.send_batch([EventData("reading") for _ in range(count)], partition_id=partition)


def until(condition, what):
    """Waits for the condition. It polls rarely, because each poll lists the store, and the workers need the machine."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"timed out after {PATIENCE_SECONDS} s waiting for: {what}"
        time.sleep(0.3)


@pytest.mark.timeout(4 * PATIENCE_SECONDS)
@pytest.mark.parametrize("flavour", ["sync", "asyncio"])
def test_three_clients_share_sixteen_partitions(blob_broker, workers, flavour):
    hub, container = Hubs(Api(blob_broker)).create(len(PARTITIONS)), fresh("balance")
    ContainerClient.from_connection_string(blob_broker.storage_connection_string, container).create_container()
    store = BlobCheckpointStore.from_connection_string(blob_broker.storage_connection_string, container)

    def spread():
        return sorted(owned(store, blob_broker, hub).values())

    places = [blob_broker.connection_string, blob_broker.storage_connection_string, hub, container]
    workers += [Worker(flavour, *places) for _ in range(3)]
    until_settled(spread, [5, 5, 6], "all partitions owned, spread within one")

    claimed = claims(workers)
    publish(blob_broker, hub, BEFORE_COUNT)
    every = {(partition, number) for partition in PARTITIONS for number in range(BEFORE_COUNT)}
    until(lambda: every <= received(workers), "every event to be read")
    until(lambda: checkpoints(workers) == {partition: LAST_CHECKPOINT for partition in PARTITIONS}, "the checkpoints")
    read = collections.Counter(event for worker in workers for event in worker.events())
    moved = {partition for partition in PARTITIONS if claims(workers)[partition] != claimed[partition]}
    # On a machine that is too busy to renew in time, partitions can move although no client starts or stops.
    assert {partition for (partition, _), count in read.items() if count > 1} <= moved, "an event of a partition that did not move was read twice"
    until_settled(spread, [5, 5, 6], "an even spread")

    victim, *others = workers
    victim.kill()
    orphans = {partition for partition, _ in victim.events()} - {partition for partition, _ in received(others)}
    assert 1 <= len(orphans) <= 6
    seen = {worker: len(worker.events()) for worker in others}
    publish(blob_broker, hub, AFTER_COUNT)
    every = {(partition, number) for partition in PARTITIONS for number in range(BEFORE_COUNT + AFTER_COUNT)}
    until(lambda: every <= received(workers), "the others to take over and read every event")
    until_settled(spread, [8, 8], "the partitions of the killed client to be shared")

    for partition in PARTITIONS:
        for worker in workers:
            runs = runs_of(worker.events(), partition)
            assert all(run[0] % CHECKPOINT_EVERY == 0 for run in runs), f"{partition} does not continue at a checkpoint: {runs}"
    for partition in orphans:
        starts = {run[0] for worker in others for run in runs_of(worker.events()[seen[worker] :], partition)}
        assert LAST_CHECKPOINT + 1 in starts, f"partition {partition} does not continue at the checkpoint of the killed client: {starts}"


def until_settled(look, wanted, what):
    """Waits until several polls in a row agree, because clients take partitions from each other for a while."""
    agreed = 0

    def is_settled():
        nonlocal agreed
        agreed = agreed + 1 if look() == wanted else 0
        return agreed >= 4

    until(is_settled, what)


def claims(workers):
    return collections.Counter(item[1] for worker in workers for item in worker.told("claim"))


def runs_of(events, partition):
    """Returns the event numbers of a partition as runs without gaps."""
    runs = []
    for _, number in (event for event in events if event[0] == partition):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return runs


def received(workers):
    return {event for worker in workers for event in worker.events()}


def checkpoints(workers):
    return {partition: int(number) for worker in workers for _, partition, number in worker.told("checkpoint")}
