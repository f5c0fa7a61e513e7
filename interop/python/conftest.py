"""What every test has at hand: a broker per worker process, entities of its own, and clients of either flavour."""

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
    """The broker's clock, for a test to move. Afterwards it shows the real time again: other tests share the broker."""
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
    """Creates a queue with settings of its own."""
    return management.create_queue


@pytest.fixture(scope="session")
def api(broker):
    return Api(broker)


@pytest.fixture(scope="session")
def hubs(api):
    return Hubs(api)


@pytest.fixture
def hub(hubs):
    """With a single partition, so that all events are in one order."""
    return hubs.create()


@pytest.fixture(scope="session")
def topics(broker):
    """Topics with their subscriptions and rules, made with the SDK."""
    # Lives long: the broker may close a connection that was idle just as the next request is on its way. Then one tries again.
    options = {"connection_verify": broker.certificate, "retry_total": 1}
    return Topics(flavours.Sync().admin(broker.connection_string, **options))


@pytest.fixture
def admin(flavour, broker):
    """Every port of the broker answers TLS and HTTP beside AMQP, so the SDK gets the same connection string."""
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
