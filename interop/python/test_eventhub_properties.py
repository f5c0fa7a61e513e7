"""Properties of a hub and of its partitions, compared exactly."""

import datetime

import pytest
from azure.eventhub.exceptions import EventHubError

from hubs import publish, seconds_since

# The time that the service reports for the last event of a partition that never had one.
NEVER = datetime.datetime.min.replace(tzinfo=datetime.timezone.utc)


@pytest.fixture
def hub(hubs):
    return hubs.create(3, consumer_groups=["audit"])


@pytest.fixture
def consumer(flavour, broker, hub):
    with flavour.consumer(broker.connection_string, hub, "audit") as consumer:
        yield consumer


def test_a_hub_has_properties(hub, producer, consumer):
    for client in (producer, consumer):
        shown = client.get_eventhub_properties()
        assert 0 <= seconds_since(shown.pop("created_at")) < 3600
        assert shown == {"eventhub_name": hub, "partition_ids": ["0", "1", "2"]}
        assert client.get_partition_ids() == ["0", "1", "2"]


def test_an_empty_partition_has_properties(hub, producer):
    assert producer.get_partition_properties("1") == {
        "eventhub_name": hub,
        "id": "1",
        "beginning_sequence_number": -1,
        "last_enqueued_sequence_number": -1,
        "last_enqueued_offset": "-1",
        "is_empty": True,
        "last_enqueued_time_utc": NEVER,
    }


def test_a_partition_with_events_has_properties(hub, producer, consumer):
    publish(producer, "a", "b", "c", partition_id="2")
    shown = consumer.get_partition_properties("2")
    assert -1 < seconds_since(shown.pop("last_enqueued_time_utc")) < 3600
    assert shown == {
        "eventhub_name": hub,
        "id": "2",
        "beginning_sequence_number": 0,
        "last_enqueued_sequence_number": 2,
        "last_enqueued_offset": "2",
        "is_empty": False,
    }
    assert consumer.get_partition_properties("0")["is_empty"]


def test_missing_partitions_and_hubs_are_errors(flavour, broker, hub):
    with flavour.producer(broker.connection_string, hub, retry_total=0) as producer:
        for unknown in ("3", "XYZ"):
            with pytest.raises(EventHubError, match="The specified partition is invalid .* between 0 and 2"):
                producer.get_partition_properties(unknown)
    with flavour.producer(broker.connection_string, "no-such-hub", retry_total=0) as producer:
        with pytest.raises(EventHubError, match="could not be found"):
            producer.get_eventhub_properties()


def test_a_hub_grows_and_never_shrinks(api, hub, producer):
    api.put("hubs", hub, partitionCount=5)
    assert producer.get_partition_ids() == ["0", "1", "2", "3", "4"]
    publish(producer, "in the new one", partition_id="4")
    assert producer.get_partition_properties("4")["last_enqueued_sequence_number"] == 0
