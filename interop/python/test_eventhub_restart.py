"""A broker is killed and restarted: the events are kept, their numbers continue, and the same clients keep working."""

import pytest
from azure.eventhub import EventData

from api import Api
from broker import Broker, free_fixed_port
from hubs import Hubs, bodies, numbers, publish, read, reading


@pytest.fixture
def mortal(tmp_path):
    broker = Broker(tmp_path, listen=f"127.0.0.1:{free_fixed_port()}").start()
    yield broker
    broker.stop()


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_events_and_numbers_survive_a_kill(flavour, mortal, how):
    hub = Hubs(Api(mortal)).create(2, consumer_groups=["audit"])
    with flavour.producer(mortal.connection_string, hub) as producer:
        publish(producer, "a", "b", "c", partition_id="0")
        publish(producer, "d", partition_id="1")
        before = producer.get_partition_properties("0")
        with reading(flavour, mortal.connection_string, hub, group="audit", partition_id="0") as reader:
            assert bodies(reader.receive(3)) == ["a", "b", "c"]
            getattr(mortal, how)()
            mortal.start()
            assert producer.get_partition_properties("0") == before
            producer.send_event(EventData("e"), partition_id="0")
            assert bodies(reader.receive(4)) == ["a", "b", "c", "e"], "the reader does not continue at its position"
    events = read(flavour, mortal.connection_string, hub, 4, partition_id="0")
    assert (bodies(events), numbers(events)) == (["a", "b", "c", "e"], [0, 1, 2, 3])
    assert numbers(read(flavour, mortal.connection_string, hub, 1, partition_id="1")) == [0]
