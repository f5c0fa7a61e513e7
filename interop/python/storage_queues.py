"""Fixtures of the Queue Storage tests: a broker that serves it, the SDK client, and a queue."""

import pytest

from broker import Broker
from names import fresh

ACCOUNT = "devstoreaccount1"


@pytest.fixture(scope="module")
def storage(tmp_path_factory):
    broker = Broker(tmp_path_factory.mktemp("storage"), queue_port="127.0.0.1:0").start()
    yield broker
    broker.stop()


@pytest.fixture
def storage_clock(storage):
    yield storage.clock
    storage.clock.reset()


@pytest.fixture
def service(flavour, storage):
    with flavour.storage_queues(storage.storage_connection_string) as service:
        yield service


@pytest.fixture
def queue(service):
    name = fresh("storage")
    service.create_queue(name)
    return service.get_queue_client(name)


def take(queue, **options):
    return [message for message in queue.receive_messages(**options)]


def contents(messages):
    return [message.content for message in messages]
