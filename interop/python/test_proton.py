"""A plain AMQP 1.0 client without Service Bus features: SASL PLAIN, links, every outcome, drain, exact types."""

import uuid

import pytest
from proton import (
    ConnectionException,
    Delivery,
    Described,
    Message,
    byte,
    char,
    decimal32,
    float32,
    int32,
    short,
    symbol,
    timestamp,
    ubyte,
    uint,
    ulong,
    ushort,
)
from proton.utils import BlockingConnection, LinkDetached, SendException

from conftest import LISTEN_KEY, SEND_KEY
from plain import TIMEOUT_SECONDS, connect


@pytest.fixture
def connection(broker):
    connection = connect(broker)
    yield connection
    connection.close()


@pytest.fixture
def sender(connection, queue):
    return connection.create_sender(queue)


@pytest.fixture
def receiver(connection, queue):
    return connection.create_receiver(queue, credit=0)


def drain(connection, receiver, credit=10):
    """Offers credit and asserts that all of it is used: by messages, or by the broker's answer to the drain."""
    receiver.link.drain(credit)
    connection.wait(lambda: receiver.link.credit == 0, timeout=TIMEOUT_SECONDS)
    return [receiver.fetcher.pop().body for _ in range(receiver.fetcher.has_message)]


def test_a_message_is_sent_received_and_accepted(connection, sender, receiver):
    delivery = sender.send(Message(body="hello", id="m-1"))
    assert delivery.remote_state == Delivery.ACCEPTED
    message = receiver.receive()
    assert (message.body, message.id, message.delivery_count) == ("hello", "m-1", 0)
    receiver.accept()
    assert drain(connection, receiver) == []


def test_release_returns_the_message_without_a_count(sender, receiver):
    sender.send(Message(body="back"))
    receiver.receive()
    receiver.release(delivered=False)
    again = receiver.receive()
    assert (again.body, again.delivery_count) == ("back", 0)
    receiver.accept()


def test_modify_returns_the_message_and_counts(sender, receiver):
    sender.send(Message(body="failed"))
    receiver.receive()
    receiver.fetcher.unsettled[0].local.failed = True
    receiver.release(delivered=True)
    again = receiver.receive()
    assert (again.body, again.delivery_count) == ("failed", 1)
    receiver.accept()


def test_modify_as_undeliverable_here_defers(connection, sender, receiver):
    sender.send(Message(body="aside"))
    receiver.receive()
    receiver.fetcher.unsettled[0].local.undeliverable = True
    receiver.release(delivered=True)
    assert drain(connection, receiver) == []


def test_reject_dead_letters(connection, queue, sender, receiver):
    sender.send(Message(body="poison"))
    receiver.receive()
    receiver.reject()
    dead = connection.create_receiver(f"{queue}/$DeadLetterQueue", credit=0)
    assert dead.receive().body == "poison"
    dead.accept()
    assert drain(connection, receiver) == []


def test_drain_returns_the_available_messages_and_ends(connection, sender, receiver):
    for number in range(3):
        sender.send(Message(body=number))
    assert drain(connection, receiver, credit=10) == [0, 1, 2]
    # Without an answer to the drain, this call would time out and fail.
    assert drain(connection, receiver, credit=10) == []


def test_credit_limits_deliveries(connection, sender, receiver):
    for number in range(5):
        sender.send(Message(body=number))
    assert drain(connection, receiver, credit=2) == [0, 1]
    assert drain(connection, receiver, credit=2) == [2, 3]


def test_many_sends_in_flight_are_stored_in_order(connection, sender, receiver):
    deliveries = [sender.link.send(Message(body=number)) for number in range(500)]
    connection.wait(lambda: all(delivery.settled for delivery in deliveries), timeout=TIMEOUT_SECONDS)
    assert {delivery.remote_state for delivery in deliveries} == {Delivery.ACCEPTED}
    assert drain(connection, receiver, credit=500) == list(range(500))


def test_a_message_above_the_limit_is_rejected(connection, sender, receiver):
    with pytest.raises((SendException, LinkDetached)):
        sender.send(Message(body=b"x" * (2 * 1024 * 1024), inferred=True))
    assert drain(connection, receiver) == []


EXACT = {
    "null": None,
    "boolean": True,
    "ubyte": ubyte(200),
    "ushort": ushort(60000),
    "uint": uint(4_000_000_000),
    "ulong": ulong(2**63),
    "byte": byte(-100),
    "short": short(-30000),
    "int": int32(-2_000_000_000),
    "long": -(2**62),
    "float": float32(0.5),
    "double": 0.1,
    "decimal32": decimal32(7),
    "char": char("ß"),
    "timestamp": timestamp(1_700_000_000_123),
    "uuid": uuid.UUID(int=5),
    "binary": b"\x00\x01",
    "string": "größer",
    "symbol": symbol("a-symbol"),
}


def plain(value):
    """Copies received binary, because proton returns a view that is valid only as long as its message exists."""
    return bytes(value) if isinstance(value, memoryview) else value


def test_application_properties_keep_their_exact_types(sender, receiver):
    sender.send(Message(body=None, properties=EXACT))
    message = receiver.receive()
    got = {name: plain(value) for name, value in message.properties.items()}
    assert got == EXACT
    assert {name: type(value) for name, value in got.items()} == {name: type(value) for name, value in EXACT.items()}


def test_bodies_keep_their_exact_value(sender, receiver):
    bodies = [Described(symbol("own:type"), [1, "two"]), {"key": [uint(1), None]}, symbol("s"), b"bytes", None, []]
    for body in bodies:
        sender.send(Message(body=body))
    for body in bodies:
        message = receiver.receive()
        got = plain(message.body)
        assert (got, type(got)) == (body, type(body))
        receiver.accept()


def test_properties_round_trip(sender, receiver):
    sent = Message(body="x", id=ulong(7), user_id=b"me", subject="s", reply_to="r", correlation_id=uuid.UUID(int=9))
    sent.content_type, sent.content_encoding = symbol("text/plain"), symbol("identity")
    sent.group_id, sent.group_sequence, sent.reply_to_group_id = "g", 4, "rg"
    sent.priority = 8
    sender.send(sent)
    got = receiver.receive()
    names = "id user_id subject reply_to correlation_id content_type content_encoding group_id group_sequence priority"
    assert [getattr(got, name) for name in names.split()] == [getattr(sent, name) for name in names.split()]


def test_a_wrong_password_fails_sasl(broker):
    with pytest.raises(ConnectionException):
        connect(broker, key="not the key")


def test_anonymous_without_a_token_gets_no_link(broker, queue):
    connection = BlockingConnection(f"amqp://{broker.address}", timeout=TIMEOUT_SECONDS, allowed_mechs="ANONYMOUS")
    with pytest.raises(LinkDetached, match="unauthorized-access"):
        connection.create_sender(queue)
    connection.close()


def test_links_are_limited_to_the_rights_of_the_key(broker, queue):
    for key, role in ((LISTEN_KEY, "create_sender"), (SEND_KEY, "create_receiver")):
        connection = connect(broker, *key)
        with pytest.raises(LinkDetached, match="unauthorized-access"):
            getattr(connection, role)(queue)
        connection.close()


def test_an_unknown_queue_is_not_found(connection):
    with pytest.raises(LinkDetached, match="not-found"):
        connection.create_sender("no-such-queue")


def test_locks_of_a_lost_connection_expire_in_their_time(broker, clock, connection, queue):
    connection.create_sender(queue).send(Message(body="orphan"))
    other = connect(broker)
    other.create_receiver(queue, credit=0).receive()
    other.close()
    clock.advance(60)
    receiver = connection.create_receiver(queue, credit=0)
    message = receiver.receive()
    assert message.body == "orphan"
    receiver.accept()
