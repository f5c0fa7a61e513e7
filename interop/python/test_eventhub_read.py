"""Start positions, consumer groups, and events that expire before they are read."""

import collections
import time

import pytest
from azure.eventhub import EventData
from azure.eventhub.exceptions import EventHubError

from flavour import Sync
from hubs import EARLIEST, LATEST, READ_TIMEOUT_SECONDS, bodies, numbers, publish, read, reading, refusal, seconds_since
from steps import until

# Behaviour of the broker, independent of the SDK, is tested with one flavour.
SYNC = Sync()


@pytest.fixture
def filled(broker, hub):
    """Yields a producer for a hub that contains three events."""
    with SYNC.producer(broker.connection_string, hub) as producer:
        publish(producer, "0", "1", "2")
        yield producer


def position_of(event, kind):
    return {"offset": event.offset, "number": event.sequence_number, "time": event.enqueued_time}[kind]


# Position, whether it is inclusive, and the number of the first event that arrives. A position by offset, number or
# time is that of event 7.
STARTS = [
    (EARLIEST, False, 0),
    (-1, False, 0),
    ("offset", True, 7),
    ("offset", False, 8),
    ("number", True, 7),
    ("number", False, 8),
    ("time", True, 7),
    ("time", False, 8),
]


def test_a_reader_can_start_at_every_position(flavour, broker, hubs):
    """Each partition contains the same ten events and is read from another position."""
    hub = hubs.create(len(STARTS))
    partitions = [str(number) for number in range(len(STARTS))]
    with flavour.producer(broker.connection_string, hub) as producer:
        for number in range(10):
            for partition in partitions:
                publish(producer, str(number), partition_id=partition)
    events = collections.defaultdict(list)
    with reading(flavour, broker.connection_string, hub) as reader:
        reader.receive(10 * len(partitions))
        for partition, event in reader.events:
            events[partition].append(event)
    assert all(numbers(events[partition]) == list(range(10)) for partition in partitions)
    where = {"starting_position": {}, "starting_position_inclusive": {}}
    for partition, (position, is_inclusive, _) in zip(partitions, STARTS):
        is_kind = position in ("offset", "number", "time")
        where["starting_position"][partition] = position_of(events[partition][7], position) if is_kind else position
        where["starting_position_inclusive"][partition] = is_inclusive
    expected = {partition: list(range(first, 10)) for partition, (_, _, first) in zip(partitions, STARTS)}
    with reading(flavour, broker.connection_string, hub, **where) as reader:
        reader.receive(sum(map(len, expected.values())))
        found = {partition: [event.sequence_number for at, event in reader.events if at == partition] for partition in partitions}
    assert found == expected


def test_a_reader_at_the_end_receives_only_later_events(flavour, broker, hub, filled):
    for position in ("2", LATEST):
        with reading(flavour, broker.connection_string, hub, starting_position=position) as reader:
            # The SDK does not report when the reader is attached, so events are sent until the reader receives some.
            probe(filled, reader)
            first, *rest = numbers(reader.receive(2))
            assert first >= 3
            assert rest[0] == first + 1


def probe(producer, reader):
    deadline = time.monotonic() + READ_TIMEOUT_SECONDS
    while len(reader.events) < 2 and reader.errors == []:
        assert time.monotonic() < deadline, f"the reader at the end receives nothing: {reader}"
        producer.send_event(EventData("probe"))
        # The synchronous SDK does not call back while further events arrive within 0.2 s.
        time.sleep(0.4)


def test_a_position_after_the_end_is_rejected(broker, hub, filled):
    for position in ("17", 17):
        error = refusal(broker.connection_string, hub, starting_position=position)
        assert isinstance(error, EventHubError) and "17" in str(error)


def test_an_invalid_position_is_rejected(broker, hub):
    error = refusal(broker.connection_string, hub, starting_position="yesterday")
    assert "yesterday" in str(error)


def test_a_missing_consumer_group_is_rejected(broker, hub):
    assert "nobody" in str(refusal(broker.connection_string, hub, group="nobody"))


def test_a_missing_hub_is_rejected(broker):
    assert "could not be found" in str(refusal(broker.connection_string, "no-such-hub"))


def test_consumer_groups_are_independent(broker, hubs):
    hub = hubs.create(consumer_groups=["one", "two"])
    with SYNC.producer(broker.connection_string, hub) as producer:
        publish(producer, "a", "b", "c")
    with reading(SYNC, broker.connection_string, hub, group="one", owner_level=5) as one:
        assert bodies(one.receive(3)) == ["a", "b", "c"]
        # Owner levels apply within one consumer group, and group names are case-insensitive.
        assert bodies(read(SYNC, broker.connection_string, hub, 3, group="TWO", owner_level=0)) == ["a", "b", "c"]
        assert bodies(read(SYNC, broker.connection_string, hub, 3)) == ["a", "b", "c"]
        assert one.errors == []


def test_reading_removes_nothing(broker, hub, filled):
    for _ in range(3):
        assert bodies(read(SYNC, broker.connection_string, hub, 3)) == ["0", "1", "2"]


def test_new_events_arrive_as_they_are_sent(flavour, broker, hub, producer):
    with reading(flavour, broker.connection_string, hub) as reader:
        for number in range(5):
            publish(producer, str(number))
            assert bodies(reader.receive(number + 1)) == [str(each) for each in range(number + 1)]


def test_a_backlog_can_be_larger_than_the_prefetch_count(flavour, broker, hub, producer):
    for start in range(0, 3000, 1000):
        publish(producer, *(str(number) for number in range(start, start + 1000)))
    events = read(flavour, broker.connection_string, hub, 3000, prefetch=100)
    assert bodies(events) == [str(number) for number in range(3000)]


def test_each_event_carries_the_last_enqueued_properties(flavour, broker, hub, producer):
    publish(producer, "a", "b", "c")
    seen = []
    client = flavour.consumer(broker.connection_string, hub)

    def look(partition, event):
        seen.append(partition.last_enqueued_event_properties)

    options = {"starting_position": EARLIEST, "track_last_enqueued_event_properties": True, "partition_id": "0"}
    finish = flavour.in_background(client.receive, on_event=flavour.callback(look), **options)
    until(lambda: len(seen) >= 3, "three events")
    client.close()
    finish()
    assert [(shown["sequence_number"], shown["offset"]) for shown in seen] == [(2, "2")] * 3
    assert all(-1 < seconds_since(shown[name]) < 3600 for shown in seen for name in ("enqueued_time", "retrieval_time"))


def test_events_older_than_the_retention_are_removed(broker, clock, hubs, api):
    strict = hubs.create(retention_ms=60_000)
    lenient = hubs.create(retention_ms=60_000, expired_position="earliest")
    place = broker.connection_string
    for hub in (strict, lenient):
        with SYNC.producer(place, hub) as producer:
            publish(producer, "old", "older")
            clock.advance(61)
            wait_until_gone(producer)
            api.put("hubs", hub, retentionHours=24)
            publish(producer, "new")
            shown = producer.get_partition_properties("0")
            assert (shown["beginning_sequence_number"], shown["last_enqueued_sequence_number"]) == (2, 2)
    # The event before the first is a valid position: a client that has read it continues with the first.
    for position in (EARLIEST, "1"):
        assert bodies(read(SYNC, place, strict, 1, starting_position=position)) == ["new"]
    assert "retention" in str(refusal(place, strict, starting_position="0")).lower()
    assert bodies(read(SYNC, place, lenient, 1, starting_position="0")) == ["new"]


def wait_until_gone(producer):
    deadline = time.monotonic() + READ_TIMEOUT_SECONDS
    while not producer.get_partition_properties("0")["is_empty"]:
        assert time.monotonic() < deadline, "events older than the retention are still stored"
        time.sleep(0.2)
