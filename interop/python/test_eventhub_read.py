"""Where reading starts, who reads what, and what has gone before it was read."""

import datetime
import time

import pytest
from azure.eventhub import EventData
from azure.eventhub.exceptions import EventHubError

from hubs import EARLIEST, LATEST, bodies, numbers, publish, read, reading, refusal, seconds_since

MOMENT = datetime.timedelta(milliseconds=1)


@pytest.fixture
def filled(producer):
    """Ten events, each enqueued at a time of its own."""
    for number in range(10):
        producer.send_event(EventData(str(number)))
        time.sleep(0.005)
    return producer


def rest(flavour, broker, hub, first, **options):
    """From where reading starts, up to the last of the ten."""
    return numbers(read(flavour, broker.connection_string, hub, 10 - first, **options))


def test_every_start_position(flavour, broker, hub, filled):
    all_events = read(flavour, broker.connection_string, hub, 10, starting_position=EARLIEST)
    assert numbers(all_events) == list(range(10))
    seventh = all_events[7]
    # The time is told to the millisecond, and is the same for whoever asks.
    positions = [seventh.offset, seventh.sequence_number, seventh.enqueued_time]
    for position in positions:
        for inclusive, first in ((True, 7), (False, 8)):
            where = {"starting_position": position, "starting_position_inclusive": inclusive}
            assert rest(flavour, broker, hub, first, **where) == list(range(first, 10)), where
    before = {"starting_position": seventh.enqueued_time - MOMENT}
    assert rest(flavour, broker, hub, 7, **before) == [7, 8, 9]
    assert rest(flavour, broker, hub, 0, starting_position=-1) == list(range(10)), "the number before the first"


def test_from_the_end_on(flavour, broker, hub, filled):
    last = {"offset": "9", "number": 9, "latest": LATEST, "time": datetime.datetime.now(datetime.timezone.utc)}
    for name, position in last.items():
        with reading(flavour, broker.connection_string, hub, starting_position=position) as reader:
            # Nobody says when the reader is there, so more events are sent until it has one.
            probe(filled, reader)
            first = reader.events[0][1].sequence_number
            assert first >= 10, name
            reader.wait(lambda: len(reader.events) >= 3, "the next events")
            assert numbers(reader.receive(3))[:3] == [first, first + 1, first + 2]


def probe(producer, reader):
    deadline = time.monotonic() + 10
    while len(reader.events) < 3 and reader.errors == []:
        assert time.monotonic() < deadline, f"the reader from the end gets nothing: {reader}"
        producer.send_event(EventData("probe"))
        time.sleep(0.05)


def test_beyond_the_end(broker, hub, filled):
    for position in ("17", 17):
        error = refusal(broker.connection_string, hub, starting_position=position)
        assert isinstance(error, EventHubError) and "17" in str(error)


def test_what_is_no_position(broker, hub):
    error = refusal(broker.connection_string, hub, starting_position="yesterday")
    assert "yesterday" in str(error)


def test_a_group_that_is_not_there(broker, hub):
    assert "nobody" in str(refusal(broker.connection_string, hub, group="nobody"))


def test_a_hub_that_is_not_there(broker):
    assert "could not be found" in str(refusal(broker.connection_string, "no-such-hub"))


def test_groups_know_nothing_of_each_other(flavour, broker, hubs):
    hub = hubs.create(consumer_groups=["one", "two"])
    with flavour.producer(broker.connection_string, hub) as producer:
        publish(producer, "a", "b", "c")
    with reading(flavour, broker.connection_string, hub, group="one", owner_level=5) as one:
        assert bodies(one.receive(3)) == ["a", "b", "c"]
        # Another group, another owner; and names of groups have no case.
        assert bodies(read(flavour, broker.connection_string, hub, 3, group="TWO", owner_level=0)) == ["a", "b", "c"]
        assert bodies(read(flavour, broker.connection_string, hub, 3)) == ["a", "b", "c"]
        assert one.errors == []


def test_reading_takes_nothing_away(flavour, broker, hub, filled):
    for _ in range(3):
        assert rest(flavour, broker, hub, 0) == list(range(10))


def test_news_come_as_they_are_sent(flavour, broker, hub, producer):
    with reading(flavour, broker.connection_string, hub) as reader:
        for number in range(5):
            publish(producer, str(number))
            assert bodies(reader.receive(number + 1)) == [str(each) for each in range(number + 1)]


def test_more_than_the_reader_prefetches(flavour, broker, hub, producer):
    for start in range(0, 3000, 1000):
        publish(producer, *(str(number) for number in range(start, start + 1000)))
    events = read(flavour, broker.connection_string, hub, 3000, prefetch=100)
    assert bodies(events) == [str(number) for number in range(3000)]


def test_what_the_partition_has_last_comes_with_each_event(flavour, broker, hub, producer):
    publish(producer, "a", "b", "c")
    seen = []
    client = flavour.consumer(broker.connection_string, hub)

    def look(partition, event):
        seen.append(partition.last_enqueued_event_properties)

    options = {"starting_position": EARLIEST, "track_last_enqueued_event_properties": True, "partition_id": "0"}
    finish = flavour.in_background(client.receive, on_event=flavour.callback(look), **options)
    deadline = time.monotonic() + 10
    while len(seen) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    client.close()
    finish()
    assert [(shown["sequence_number"], shown["offset"]) for shown in seen] == [(2, "2")] * 3
    assert all(-1 < seconds_since(shown[name]) < 10 for shown in seen for name in ("enqueued_time", "retrieval_time"))


def test_what_is_older_than_the_retention_goes(flavour, broker, hubs, api):
    hub = hubs.create(retention_ms=1000)
    lenient = hubs.create(retention_ms=1000, expired_position="earliest")
    for name in (hub, lenient):
        with flavour.producer(broker.connection_string, name) as producer:
            publish(producer, "old", "older")
            wait_until_gone(producer)
            api.put("hubs", name, retentionHours=24)
            publish(producer, "new")
            shown = producer.get_partition_properties("0")
            assert (shown["beginning_sequence_number"], shown["last_enqueued_sequence_number"]) == (2, 2)
    assert bodies(read(flavour, broker.connection_string, hub, 1)) == ["new"]
    # The event before the first may be named: whoever has read it goes on with the first.
    assert bodies(read(flavour, broker.connection_string, hub, 1, starting_position="1")) == ["new"]
    assert bodies(read(flavour, broker.connection_string, lenient, 1, starting_position="0")) == ["new"]
    error = refusal(broker.connection_string, hub, starting_position="0")
    assert "retention" in str(error).lower()


def wait_until_gone(producer):
    deadline = time.monotonic() + 15
    while not producer.get_partition_properties("0")["is_empty"]:
        assert time.monotonic() < deadline, "what is older than the retention stays"
        time.sleep(0.2)
