"""Fixtures of all tests: a broker per worker process, separate entities for each test, and clients of either flavour.
"""

import pytest

import flavour as flavours
from api import Api
from broker import Broker, QueuePool
from hubs import Hubs
from plain import Management
from topics import Topics

SEND_KEY = ("send-only", "secret-of-the-sender")
LISTEN_KEY = ("listen-only", "secret-of-the-listener")


@pytest.fixture(scope="session")
def broker(tmp_path_factory):
    keys = [f"{SEND_KEY[0]}={SEND_KEY[1]}:Send", f"{LISTEN_KEY[0]}={LISTEN_KEY[1]}:Listen"]
    folder = tmp_path_factory.mktemp("broker")
    broker = Broker(folder, QueuePool.declarations(), keys, listen_tls="127.0.0.1:0", http="127.0.0.1:0").start()
    yield broker
    broker.stop()


@pytest.fixture
def clock(broker):
    """The broker's clock, for a test to move. It is reset to real time afterwards, because other tests share the
    broker.
    """
    yield broker.clock
    broker.clock.reset()


@pytest.fixture(scope="session")
def pool():
    return QueuePool()


@pytest.fixture(scope="session")
def management(broker):
    return Management(broker)


@pytest.fixture
def create(management):
    """Creates a queue with the given settings."""
    return management.create_queue


@pytest.fixture(scope="session")
def api(broker):
    return Api(broker)


@pytest.fixture(scope="session")
def hubs(api):
    return Hubs(api)


@pytest.fixture
def hub(hubs):
    """A hub with a single partition, so that all events have one order."""
    return hubs.create()


@pytest.fixture(scope="session")
def topics(broker):
    """Topics with their subscriptions and rules, created with the SDK."""
    # This client is long-lived, and the broker can close its idle connection just as the next request is sent. One
    # retry covers that.
    options = {"connection_verify": broker.certificate, "retry_total": 1}
    return Topics(flavours.Sync().admin(broker.connection_string, **options))


@pytest.fixture
def admin(flavour, broker):
    """An administration client. Every port of the broker accepts TLS and HTTP besides AMQP, so the connection string is
    the same.
    """
    with flavour.admin(broker.connection_string, connection_verify=broker.certificate) as admin:
        yield admin


@pytest.fixture
def queue(pool):
    return pool.take()


@pytest.fixture(params=["sync", "asyncio"])
def flavour(request):
    flavour = flavours.Sync() if request.param == "sync" else flavours.Asyncio()
    yield flavour
    flavour.close()


@pytest.fixture
def client(flavour, broker):
    with flavour.client(broker.connection_string) as client:
        yield client


@pytest.fixture
def producer(flavour, broker, hub):
    with flavour.producer(broker.connection_string, hub) as producer:
        yield producer


@pytest.fixture
def sender(client, queue):
    with client.get_queue_sender(queue) as sender:
        yield sender


@pytest.fixture
def receiver(client, queue):
    with client.get_queue_receiver(queue, max_wait_time=20) as receiver:
        yield receiver
