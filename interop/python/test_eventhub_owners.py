"""Exclusive readers of a partition: owner levels, and readers without a level."""

import contextlib

import pytest
from azure.eventhub import CloseReason
from azure.eventhub.exceptions import ConnectionLostError

from flavour import Sync
from hubs import bodies, publish, reading, refusal

READERS_WITHOUT_LEVEL_MAX = 5
# The SDK's reaction to an eviction is tested with both flavours; the choice of the evicted reader, which is up to the
# broker, with one.
SYNC = Sync()


@pytest.fixture
def events(broker, hub):
    """Yields a producer for a hub that contains one event."""
    with SYNC.producer(broker.connection_string, hub) as producer:
        publish(producer, "first")
        yield producer


def owner(flavour, broker, hub, level):
    return reading(flavour, broker.connection_string, hub, partition_id="0", owner_level=level)


def assert_evicted(reader):
    """Asserts that the SDK reported an owner with a higher level: an error that is not retried, then the end."""
    assert isinstance(reader.failure(), ConnectionLostError)
    assert "stolen" in str(reader.errors[0])
    reader.wait(lambda: reader.ends, "the end of the partition")
    assert reader.ends == [("0", CloseReason.OWNERSHIP_LOST)]


def test_a_higher_level_takes_over(flavour, broker, hub, producer):
    publish(producer, "first")
    with owner(flavour, broker, hub, 1) as low:
        assert bodies(low.receive(1)) == ["first"]
        with owner(flavour, broker, hub, 2) as high:
            assert bodies(high.receive(1)) == ["first"]
            assert_evicted(low)
            publish(producer, "second")
            assert bodies(high.receive(2)) == ["first", "second"]
            assert bodies(event for _, event in low.events) == ["first"], "events arrived after the eviction"


def test_an_equal_level_takes_over(broker, hub, events):
    with owner(SYNC, broker, hub, 0) as older:
        older.receive(1)
        with owner(SYNC, broker, hub, 0) as newer:
            newer.receive(1)
            assert_evicted(older)


def test_a_lower_level_is_rejected(broker, hub, events):
    with owner(SYNC, broker, hub, 2) as high:
        high.receive(1)
        sentences = {1: "with a higher epoch '2' already exists", None: "with epoch of '2', and so non-epoch receiver is not allowed"}
        for level, sentence in sentences.items():
            error = refusal(broker.connection_string, hub, partition_id="0", owner_level=level)
            assert sentence in str(error)
        publish(events, "second")
        assert bodies(high.receive(2)) == ["first", "second"]


def test_a_sixth_reader_without_a_level_is_rejected(broker, hub, events):
    with contextlib.ExitStack() as stack:
        open_one = lambda: stack.enter_context(owner(SYNC, broker, hub, None))  # noqa: E731
        readers = [open_one() for _ in range(READERS_WITHOUT_LEVEL_MAX)]
        for reader in readers:
            assert bodies(reader.receive(1)) == ["first"]
        error = refusal(broker.connection_string, hub, partition_id="0")
        assert "maximum number of allowed receivers per partition in a consumer group which is 5. List of connected receivers - " in str(error)
        with owner(SYNC, broker, hub, 0) as exclusive:
            assert bodies(exclusive.receive(1)) == ["first"]
            for reader in readers:
                assert_evicted(reader)


def test_a_closed_reader_frees_its_slot(broker, hub, events):
    for _ in range(2):
        with contextlib.ExitStack() as stack:
            readers = [stack.enter_context(owner(SYNC, broker, hub, None)) for _ in range(READERS_WITHOUT_LEVEL_MAX)]
            for reader in readers:
                assert bodies(reader.receive(1)) == ["first"]
    for level in (7, 1):
        with owner(SYNC, broker, hub, level) as reader:
            assert bodies(reader.receive(1)) == ["first"], "the level of a closed reader is still in force"
