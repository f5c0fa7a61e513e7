"""Who may read a partition together with whom: owner levels, and the readers without one."""

import contextlib

import pytest
from azure.eventhub import CloseReason
from azure.eventhub.exceptions import ConnectionLostError

from flavour import Sync
from hubs import bodies, publish, reading, refusal

READERS_WITHOUT_LEVEL_MAX = 5
# What the SDK makes of an eviction is seen with both of its faces; who is evicted is the broker's affair.
SYNC = Sync()


@pytest.fixture
def events(broker, hub):
    """A hub with one event, and a producer for more."""
    with SYNC.producer(broker.connection_string, hub) as producer:
        publish(producer, "first")
        yield producer


def owner(flavour, broker, hub, level):
    return reading(flavour, broker.connection_string, hub, partition_id="0", owner_level=level)


def assert_evicted(reader):
    """As the SDK tells of an owner with a higher level: an error that is not worth retrying, then the end."""
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
            assert bodies(event for _, event in low.events) == ["first"], "nothing came after the eviction"


def test_an_equal_level_takes_over(broker, hub, events):
    with owner(SYNC, broker, hub, 0) as older:
        older.receive(1)
        with owner(SYNC, broker, hub, 0) as newer:
            newer.receive(1)
            assert_evicted(older)


def test_a_lower_level_is_refused(broker, hub, events):
    with owner(SYNC, broker, hub, 2) as high:
        high.receive(1)
        sentences = {1: "with a higher epoch '2' already exists", None: "with epoch of '2', and so non-epoch receiver is not allowed"}
        for level, sentence in sentences.items():
            error = refusal(broker.connection_string, hub, partition_id="0", owner_level=level)
            assert sentence in str(error)
        publish(events, "second")
        assert bodies(high.receive(2)) == ["first", "second"]


def test_five_without_a_level_and_no_sixth(broker, hub, events):
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


def test_a_place_is_free_when_its_reader_goes(broker, hub, events):
    for _ in range(2):
        with contextlib.ExitStack() as stack:
            readers = [stack.enter_context(owner(SYNC, broker, hub, None)) for _ in range(READERS_WITHOUT_LEVEL_MAX)]
            for reader in readers:
                assert bodies(reader.receive(1)) == ["first"]
    for level in (7, 1):
        with owner(SYNC, broker, hub, level) as reader:
            assert bodies(reader.receive(1)) == ["first"], "a level binds no longer than its reader reads"
