"""Hubs with a plain AMQP 1.0 client, including the spellings of SDKs that are not run here: .NET, Java, Rust, Go."""

import pytest
from proton import Described, Message, PropertyDict, int32, symbol, timestamp, ulong
from proton.reactor import Filter, LinkOption
from proton.utils import LinkDetached, SendException

from hubs import LATEST
from names import fresh
from plain import TIMEOUT_SECONDS, connect

SELECTOR = symbol("apache.org:selector-filter:string")
# Rust, JavaScript and Go identify the filter by the first number, .NET by the second, Python and Java by its name.
DESCRIPTORS = [SELECTOR, ulong(0x468C_0000_0004), ulong(0x137_0000_000A)]
EVENT_COUNT = 5


class Epoch(LinkOption):
    def __init__(self, level):
        self.level = level

    def apply(self, link):
        link.properties = PropertyDict({symbol("com.microsoft:epoch"): self.level, symbol("com.microsoft:receiver-name"): "proton"})


@pytest.fixture
def connection(broker):
    connection = connect(broker)
    yield connection
    connection.close()


@pytest.fixture
def filled(connection, hub):
    sender = connection.create_sender(f"{hub}/Partitions/0")
    for number in range(EVENT_COUNT):
        sender.send(Message(body=number))
    sender.close()
    return hub


def place(hub, group="$Default", partition=0):
    return f"{hub}/ConsumerGroups/{group}/Partitions/{partition}"


def selected(expression, descriptor=SELECTOR):
    return Filter({SELECTOR: Described(descriptor, expression)})


def open_reader(connection, address, credit, *options):
    """Opens a reader with a unique link name, because a link replaces another with the same name."""
    return connection.create_receiver(address, credit=credit, name=fresh("reader"), options=list(options))


def read(connection, address, count, *options):
    receiver = open_reader(connection, address, count, *options)
    try:
        return [receiver.receive(TIMEOUT_SECONDS) for _ in range(count)]
    finally:
        receiver.close()


def numbers(messages):
    return [message.annotations[symbol("x-opt-sequence-number")] for message in messages]


def test_annotations_of_the_broker_have_exact_types(connection, hub):
    sender = connection.create_sender(hub)
    sender.send(Message(body="keyed", annotations={symbol("x-opt-partition-key"): "k"}))
    [message] = read(connection, place(hub), 1)
    added = message.annotations
    assert (added[symbol("x-opt-sequence-number")], type(added[symbol("x-opt-sequence-number")])) == (0, int)
    assert (added[symbol("x-opt-offset")], type(added[symbol("x-opt-offset")])) == ("0", str)
    assert type(added[symbol("x-opt-enqueued-time")]) is timestamp
    assert (added[symbol("x-opt-partition-key")], type(added[symbol("x-opt-partition-key")])) == ("k", str)
    assert {type(key) for key in added} == {symbol}
    assert message.body == "keyed"


def test_without_a_filter_all_events_arrive_settled(connection, filled):
    receiver = open_reader(connection, place(filled), EVENT_COUNT)
    messages = [receiver.receive(TIMEOUT_SECONDS) for _ in range(EVENT_COUNT)]
    assert numbers(messages) == [message.body for message in messages] == list(range(EVENT_COUNT))
    assert receiver.fetcher.unsettled == [] or all(delivery.settled for delivery in receiver.fetcher.unsettled)
    receiver.close()


@pytest.mark.parametrize("descriptor", DESCRIPTORS)
def test_each_descriptor_of_the_filter_is_accepted(connection, filled, descriptor):
    messages = read(connection, place(filled), 2, selected("amqp.annotation.x-opt-offset > '2'", descriptor))
    assert numbers(messages) == [3, 4]


SPELLINGS = {
    "quoted": ("amqp.annotation.x-opt-offset > '2'", 3),
    "quoted inclusive": ("amqp.annotation.x-opt-offset >= '2'", 2),
    "bare, as in .NET": ("amqp.annotation.x-opt-offset > 2", 3),
    "bare inclusive": ("amqp.annotation.x-opt-sequence-number >= 2", 2),
    "no space, as in Rust": ("amqp.annotation.x-opt-sequence-number >'2'", 3),
    "no space inclusive": ("amqp.annotation.x-opt-sequence-number >='2'", 2),
    "no space at all": ("amqp.annotation.x-opt-sequence-number>=2", 2),
    "more space": ("  amqp.annotation.x-opt-offset   >   '2'  ", 3),
    "the beginning, bare": ("amqp.annotation.x-opt-offset > -1", 0),
    "the beginning by time": ("amqp.annotation.x-opt-enqueued-time > 0", 0),
    "the beginning by time, quoted": ("amqp.annotation.x-opt-enqueued-time >='0'", 0),
}


def test_each_spelling_of_a_position_is_accepted(connection, filled):
    for name, (expression, first) in SPELLINGS.items():
        messages = read(connection, place(filled), EVENT_COUNT - first, selected(expression))
        assert numbers(messages) == list(range(first, EVENT_COUNT)), name


@pytest.mark.parametrize("expression", [f"amqp.annotation.x-opt-offset > '{LATEST}'", f"amqp.annotation.x-opt-offset > {LATEST}"])
def test_the_end_position_is_fixed_at_the_attach(connection, filled, expression):
    """The first credit does not determine the position."""
    receiver = open_reader(connection, place(filled), 0, selected(expression))
    connection.create_sender(filled).send(Message(body="after"))
    receiver.flow(1)
    assert receiver.receive(TIMEOUT_SECONDS).body == "after"
    receiver.close()


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "amqp.annotation.x-opt-offset",
        "amqp.annotation.x-opt-offset = '2'",
        "amqp.annotation.x-opt-colour > '2'",
        "amqp.annotation.x-opt-sequence-number > 'two'",
        "amqp.annotation.x-opt-offset > '2' AND 1 = 1",
        "amqp.annotation.x-opt-enqueued-time > '99999999999999999999'",
    ],
)
def test_an_invalid_position_is_rejected(connection, filled, expression):
    with pytest.raises(LinkDetached):
        open_reader(connection, place(filled), 1, selected(expression)).receive(TIMEOUT_SECONDS)


def test_each_spelling_of_an_address_is_accepted(broker, connection, filled):
    paths = [
        place(filled),
        f"/{place(filled)}",
        f"amqps://localhost/{place(filled)}",
        f"amqps://{broker.address}/{place(filled)}",
        place(filled).lower().replace(filled.lower(), filled),
        place(filled, "$default"),
        place(filled, "%24Default"),
        place(filled.upper()),
    ]
    for path in paths:
        assert numbers(read(connection, path, EVENT_COUNT)) == list(range(EVENT_COUNT)), path
    for target in (filled, f"/{filled}", f"amqps://localhost/{filled}", f"sb://localhost/{filled}/Partitions/0"):
        connection.create_sender(target).send(Message(body="sent"))
    assert len(read(connection, place(filled), EVENT_COUNT + 4)) == EVENT_COUNT + 4


@pytest.mark.parametrize("path", ["{hub}/ConsumerGroups/$Default", "{hub}/Partitions/0", "{hub}/ConsumerGroups/none/Partitions/0",
                                  "{hub}/ConsumerGroups/$Default/Partitions/1", "{hub}/ConsumerGroups/$Default/Partitions/x",
                                  "{hub}/ConsumerGroups/$Default/Partitions/99999999999999999999", "{hub}"])  # fmt: skip
def test_an_invalid_reader_address_is_rejected(connection, hub, path):
    with pytest.raises(LinkDetached):
        connection.create_receiver(path.format(hub=hub), credit=1).receive(TIMEOUT_SECONDS)


def test_owner_levels_of_any_integer_width_are_compared(connection, broker, filled):
    first = open_reader(connection, place(filled), 1, Epoch(3))
    first.receive(TIMEOUT_SECONDS)
    with pytest.raises(LinkDetached, match="stolen"):
        open_reader(connection, place(filled), 1, Epoch(int32(2))).receive(TIMEOUT_SECONDS)
    # A separate connection, because this client raises the errors of any link while it waits for another.
    other = connect(broker)
    open_reader(other, place(filled), 1, Epoch(int32(4))).receive(TIMEOUT_SECONDS)
    with pytest.raises(LinkDetached, match="stolen"):
        # Events that arrived before the eviction can still be received.
        for _ in range(EVENT_COUNT):
            first.receive(TIMEOUT_SECONDS)
    other.close()


def test_credit_limits_deliveries_and_drain_uses_it_up(connection, filled):
    receiver = open_reader(connection, place(filled), 0)
    for credit, expected in ((2, [0, 1]), (10, [2, 3, 4]), (10, [])):
        receiver.link.drain(credit)
        connection.wait(lambda: receiver.link.credit == 0, timeout=TIMEOUT_SECONDS)
        assert [receiver.fetcher.pop().body for _ in range(receiver.fetcher.has_message)] == expected
    receiver.close()


def test_many_sends_in_flight_are_stored_in_order(connection, hub):
    sender = connection.create_sender(hub)
    assert sender.link.remote_max_message_size >= 1024 * 1024
    deliveries = [sender.link.send(Message(body=number)) for number in range(500)]
    connection.wait(lambda: all(delivery.settled for delivery in deliveries), timeout=TIMEOUT_SECONDS)
    assert [message.body for message in read(connection, place(hub), 500)] == list(range(500))


def test_an_event_above_the_limit_is_rejected(connection, hub):
    sender = connection.create_sender(hub)
    with pytest.raises((SendException, LinkDetached)):
        sender.send(Message(body=b"x" * (2 * 1024 * 1024), inferred=True))
    connection.create_sender(hub, name=fresh("sender")).send(Message(body="fits"))
    assert [message.body for message in read(connection, place(hub), 1)] == ["fits"]
