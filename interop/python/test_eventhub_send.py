"""Events reach the right partition and are received unchanged."""

import collections
import datetime
import uuid

import pytest
from azure.eventhub import EventData
from azure.eventhub.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType, AmqpMessageHeader, AmqpMessageProperties
from azure.eventhub.exceptions import EventDataSendError, EventHubError

from hubs import bodies, numbers, publish, read, reading, seconds_since
from steps import until

# Key and partition of a hub with four partitions: the hash of the service, as its SDKs publish it. The SDK treats the
# first key as no key and would not send it.
VECTORS = {
    "a": "0",
    "ab": "1",
    "abc": "1",
    "abcd": "2",
    "abcde": "1",
    "abcdefg": "0",
    "abcdefgh": "2",
    "abcdefghijk": "0",
    "abcdefghijkl": "1",
    "abcdefghijklm": "3",
    "7": "3",
    "131": "2",
    "pk1": "1",
    "device-42": "0",
    "customer/0001": "3",
    "The quick brown fox jumps over the lazy dog": "1",
    "0123456789" * 4: "2",
    "é": "0",
    "ключ": "2",
    "日本語": "1",
}


@pytest.fixture
def wide(hubs):
    return hubs.create(4)


@pytest.fixture
def wide_producer(flavour, broker, wide):
    with flavour.producer(broker.connection_string, wide) as producer:
        yield producer


def placed(flavour, broker, hub, count):
    """Returns the first `count` events of all partitions, each with its partition."""
    with reading(flavour, broker.connection_string, hub) as reader:
        reader.receive(count)
        return reader.events


def last_numbers(client):
    return [client.get_partition_properties(name)["last_enqueued_sequence_number"] for name in client.get_partition_ids()]


def test_one_event_and_a_batch_arrive_in_order(flavour, broker, hub, producer):
    producer.send_event(EventData("one"))
    publish(producer, "two", "three")
    events = read(flavour, broker.connection_string, hub, 3)
    assert bodies(events) == ["one", "two", "three"]
    assert numbers(events) == [0, 1, 2]
    assert [event.offset for event in events] == ["0", "1", "2"]
    assert all(-1 < seconds_since(event.enqueued_time) < 3600 for event in events)
    assert [event.partition_key for event in events] == [None] * 3
    # The events of a batch have the same time.
    assert events[1].enqueued_time == events[2].enqueued_time


def test_a_full_batch_arrives_in_order(flavour, broker, hub, producer):
    batch = producer.create_batch()
    assert batch.max_size_in_bytes >= 1024 * 1024
    try:
        while True:
            batch.add(EventData(f"{len(batch):06}".encode() * 200))
    except ValueError:
        pass
    producer.send_batch(batch)
    events = read(flavour, broker.connection_string, hub, len(batch))
    assert [event.body_as_str()[:6] for event in events] == [f"{number:06}" for number in range(len(batch))]


def test_events_can_be_sent_to_a_partition(wide_producer):
    publish(wide_producer, "a", "b", partition_id="1")
    wide_producer.send_event(EventData("c"), partition_id="3")
    assert last_numbers(wide_producer) == [-1, 1, -1, 0]


def test_a_key_determines_the_partition(flavour, broker, wide, wide_producer):
    keys = list(VECTORS)
    for number, key in enumerate(keys):
        if number % 2:
            publish(wide_producer, key, partition_key=key)
        else:
            wide_producer.send_event(EventData(key), partition_key=key)
    found = placed(flavour, broker, wide, len(keys))
    assert {event.body_as_str(): partition for partition, event in found} == VECTORS
    assert all(event.partition_key.decode() == event.body_as_str() for _, event in found)


def test_round_robin_reaches_all_partitions(wide_producer):
    for number in range(16):
        wide_producer.send_event(EventData(str(number)))
    assert sum(last_numbers(wide_producer)) == 12
    assert min(last_numbers(wide_producer)) >= 2, "a partition got fewer than three events"


def test_all_parts_of_an_event_round_trip(flavour, broker, hub, producer):
    event = EventData(b"\x00body\xff")
    event.message_id, event.correlation_id, event.content_type = "m-1", "c-1", "application/octet-stream"
    event.properties = {"text": "größer", "number": 7, "negative": -(2**30), "real": 0.5, "flag": True, "bytes": b"\x01", "id": uuid.UUID(int=5)}
    producer.send_event(event)
    [got] = read(flavour, broker.connection_string, hub, 1)
    assert b"".join(got.body) == b"\x00body\xff"
    assert (got.message_id, got.correlation_id, got.content_type) == ("m-1", "c-1", "application/octet-stream")
    expected = {b"text": "größer".encode(), b"number": 7, b"negative": -(2**30), b"real": 0.5, b"flag": True, b"bytes": b"\x01"}
    assert got.properties == expected | {b"id": uuid.UUID(int=5)}
    assert set(got.system_properties) >= {b"x-opt-sequence-number", b"x-opt-offset", b"x-opt-enqueued-time"}


BODIES = {
    "data": ({"data_body": [b"first", b"second"]}, AmqpMessageBodyType.DATA, [b"first", b"second"]),
    "sequence": ({"sequence_body": [[1, "two"], [None]]}, AmqpMessageBodyType.SEQUENCE, [[1, b"two"], [None]]),
    "value": ({"value_body": {"key": [1, 2]}}, AmqpMessageBodyType.VALUE, {b"key": [1, 2]}),
    "no value": ({"value_body": None}, AmqpMessageBodyType.VALUE, None),
}


@pytest.mark.parametrize("as_batch", [False, True])
def test_amqp_messages_round_trip(flavour, broker, hub, producer, as_batch):
    properties = AmqpMessageProperties(message_id="m", user_id=b"u", to="t", subject="s", reply_to="r", correlation_id="c", group_id="g")
    properties.content_encoding, properties.group_sequence, properties.reply_to_group_id = "utf-8", 4, "rg"
    rest = {"header": AmqpMessageHeader(priority=7, time_to_live=60_000), "annotations": {"x-own": "kept"}, "footer": {"f": 1}}
    rest["delivery_annotations"] = {"x-for-the-reader": "tip", "last_enqueued_offset": "forged"}
    for kind, _, _ in BODIES.values():
        message = AmqpAnnotatedMessage(**kind, properties=properties, application_properties={"p": 1}, **rest)
        if as_batch:
            producer.send_batch([message])
        else:
            producer.send_event(message)
    for event, (_, kind, content) in zip(read(flavour, broker.connection_string, hub, len(BODIES)), BODIES.values()):
        got = event.raw_amqp_message
        body = list(got.body) if kind != AmqpMessageBodyType.VALUE else got.body
        assert (got.body_type, body) == (kind, content)
        names = ["message_id", "user_id", "to", "subject", "reply_to", "correlation_id", "group_id", "content_encoding"]
        assert [getattr(got.properties, name) for name in names] == [b"m", b"u", b"t", b"s", b"r", b"c", b"g", b"utf-8"]
        assert (got.properties.group_sequence, got.properties.reply_to_group_id) == (4, b"rg")
        assert (got.header.priority, got.application_properties, got.annotations[b"x-own"]) == (7, {b"p": 1}, b"kept")
        assert got.delivery_annotations == {b"x-for-the-reader": b"tip"}
        assert got.footer == {b"f": 1}


def test_an_event_above_the_limit_is_rejected_and_the_producer_continues(flavour, broker, hub, producer):
    with pytest.raises(EventHubError):
        producer.send_event(EventData(b"x" * (2 * 1024 * 1024)))
    producer.send_event(EventData("next"))
    assert bodies(read(flavour, broker.connection_string, hub, 1)) == ["next"]


def test_a_key_together_with_a_partition_is_kept(flavour, broker, wide, wide_producer):
    """The key hashes to partition 2, but the partition is explicit. The buffered producer sends such batches."""
    publish(wide_producer, "batch", partition_id="1", partition_key="abcd")
    wide_producer.send_event(EventData("event"), partition_id="1", partition_key="abcd")
    found = placed(flavour, broker, wide, 2)
    assert [(partition, event.body_as_str(), event.partition_key) for partition, event in found] == [
        ("1", "batch", b"abcd"),
        ("1", "event", b"abcd"),
    ]


@pytest.mark.parametrize("where", [{}, {"partition_id": "0"}])
def test_an_unknown_hub_is_not_found(flavour, broker, where):
    with flavour.producer(broker.connection_string, "no-such-hub", retry_total=0) as producer:
        with pytest.raises(EventHubError, match="could not be found"):
            producer.send_event(EventData("lost"), **where)


def test_an_unknown_partition_is_rejected(flavour, broker, wide):
    with flavour.producer(broker.connection_string, wide, retry_total=0) as producer:
        with pytest.raises(EventHubError, match="(?i)partition"):
            producer.send_event(EventData("lost"), partition_id="4")


@pytest.fixture
def buffered(flavour, broker, wide):
    """Yields a buffered producer, its sent events, and its errors."""
    sent, failed = [], []

    def on_success(events, partition):
        sent.extend((event.body_as_str(), partition) for event in events)

    def on_error(events, partition, error):
        failed.append(error)

    calls = {"on_success": flavour.callback(on_success), "on_error": flavour.callback(on_error)}
    options = {"buffered_mode": True, "max_wait_time": 0.2, "max_buffer_length": 100}
    with flavour.producer(broker.connection_string, wide, **calls, **options) as producer:
        yield producer, sent, failed


def test_a_buffered_producer_sends_every_event(flavour, broker, wide, buffered):
    producer, sent, failed = buffered
    for number in range(250):
        producer.send_event(EventData(f"spread {number}"))
    for number in range(20):
        producer.send_event(EventData(f"one way {number}"), partition_key="abcd")
        producer.send_event(EventData(f"told {number}"), partition_id="3")
    producer.flush()
    until(lambda: len(sent) == 290 or failed, "the confirmations")
    assert failed == []
    found = placed(flavour, broker, wide, 290)
    assert collections.Counter((event.body_as_str(), partition) for partition, event in found) == collections.Counter(sent)
    # The SDK hashes this key as the service does, and the event also contains the key.
    assert [event.body_as_str() for partition, event in found if event.partition_key] == [f"one way {number}" for number in range(20)]
    assert {partition for partition, event in found if event.partition_key} == {"2"}
    assert [event.body_as_str() for partition, event in found if event.body_as_str().startswith("told")] == [f"told {number}" for number in range(20)]


def test_a_buffered_producer_sends_without_a_flush(wide_producer, buffered):
    producer, sent, failed = buffered
    producer.send_event(EventData("after a while"), partition_id="0")
    until(lambda: sent or failed, "the confirmation")
    assert (sent, failed) == ([("after a while", "0")], [])
    assert last_numbers(wide_producer) == [0, -1, -1, -1]
