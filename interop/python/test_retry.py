"""Failed deliveries: the queue's retry policy, and a delay that the consumer itself asks for."""

import time

import pytest
from azure.servicebus import ServiceBusMessage
from proton import Delivery, Message, symbol

from plain import ask, connect
from steps import receive_dead_letter, receive_one, send, text


@pytest.fixture
def connection(broker):
    connection = connect(broker)
    yield connection
    connection.close()


def abandon_and_time(receiver, message):
    """Abandons, waits for the message to come again, and says how many seconds that took."""
    receiver.abandon_message(message)
    started = time.monotonic()
    again = receive_one(receiver)
    return again, time.monotonic() - started


def test_without_a_policy_a_failed_message_comes_at_once(client, queue, receiver):
    send(client, queue, "x")
    _, seconds = abandon_and_time(receiver, receive_one(receiver))
    assert seconds < 0.5


@pytest.mark.parametrize(
    "policy, delays",
    [
        ({"retry": "fixed:700ms"}, [0.7, 0.7]),
        ({"retry": "linear:400ms..5s"}, [0.4, 0.8]),
        ({"retry": "exponential:300ms..800ms"}, [0.3, 0.6, 0.8]),
    ],
    ids=["fixed", "linear", "exponential"],
)
def test_the_policy_sets_the_delay(client, create, policy, delays):
    queue = create(**policy)
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("x", message_id="kept"))
    with client.get_queue_receiver(queue) as receiver:
        message = receive_one(receiver)
        number = message.sequence_number
        for count, delay in enumerate(delays, start=1):
            message, seconds = abandon_and_time(receiver, message)
            assert delay - 0.05 < seconds < delay + 1
            assert (message.delivery_count, message.message_id) == (count, "kept")
            assert message.sequence_number == number


def test_an_expired_lock_counts_as_a_failure_for_the_policy(client, create):
    queue = create(lock_duration_ms=1000, retry="fixed:1s")
    send(client, queue, "x")
    with client.get_queue_receiver(queue) as receiver:
        receive_one(receiver)
        started = time.monotonic()
        again = receive_one(receiver)
        assert again.delivery_count == 1
        assert time.monotonic() - started > 1.8


def test_others_overtake_a_message_that_waits_for_its_retry(client, create):
    queue = create(retry="fixed:60s")
    send(client, queue, "failing", "good")
    with client.get_queue_receiver(queue) as receiver:
        receiver.abandon_message(receive_one(receiver))
        assert text(receive_one(receiver)) == "good"
        assert [text(message) for message in receiver.peek_messages(sequence_number=1)] == ["failing"]


def test_the_last_failure_dead_letters_without_a_wait(client, create):
    queue = create(max_delivery_count=2, retry="fixed:300ms")
    send(client, queue, "poison")
    with client.get_queue_receiver(queue) as receiver:
        message, _ = abandon_and_time(receiver, receive_one(receiver))
        receiver.abandon_message(message)
    assert receive_dead_letter(client, queue).dead_letter_reason == "MaxDeliveryCountExceeded"


def abandon_with(receiver, properties):
    """The Python SDK abandons without properties; a plain client can say what .NET and JavaScript can."""
    delivery = receiver.fetcher.unsettled.popleft()
    delivery.local.failed = True
    delivery.local.annotations = {symbol(name): value for name, value in properties.items()}
    delivery.update(Delivery.MODIFIED)
    delivery.settle()


def test_abandoning_changes_properties(connection, queue):
    connection.create_sender(queue).send(Message(body="x", properties={"kept": 1, "changed": "old"}))
    receiver = connection.create_receiver(queue, credit=0)
    receiver.receive()
    abandon_with(receiver, {"changed": "new", "added": True})
    again = receiver.receive()
    assert again.properties == {"kept": 1, "changed": "new", "added": True}
    assert again.delivery_count == 1
    receiver.accept()


@pytest.mark.parametrize(
    "properties",
    [
        {"peeklock-retry-after-ms": 1000},
        {"peeklock-retry-after": 1},
        {"peeklock-retry-after": 1.0},
        {"peeklock-retry-after": "PT1S"},
    ],
    ids=["milliseconds", "seconds", "fraction", "text"],
)
def test_a_reserved_property_asks_for_a_delay(connection, queue, properties):
    connection.create_sender(queue).send(Message(id="kept", body="x", properties={"own": 1}))
    receiver = connection.create_receiver(queue, credit=0)
    number = receiver.receive().annotations["x-opt-sequence-number"]
    started = time.monotonic()
    abandon_with(receiver, properties | {"why": "busy"})
    again = receiver.receive()
    assert 0.95 < time.monotonic() - started < 2.5
    assert (again.id, again.delivery_count, again.annotations["x-opt-sequence-number"]) == ("kept", 1, number)
    assert again.properties == {"own": 1, "why": "busy"}, "the reserved property is not stored"
    receiver.accept()


def test_a_delayed_message_keeps_its_time_to_live(connection, queue):
    connection.create_sender(queue).send(Message(body="x", ttl=1))
    receiver = connection.create_receiver(queue, credit=0)
    receiver.receive()
    abandon_with(receiver, {"peeklock-retry-after-ms": 60_000})
    time.sleep(1.2)
    request = {"from-sequence-number": 1, "message-count": 1}
    assert ask(connection, "com.microsoft:peek-message", request, of=queue) == {}
