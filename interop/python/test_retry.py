"""Failed deliveries: the queue's retry policy, and a delay that the consumer itself asks for."""

import datetime
import time

import pytest
from azure.servicebus import ServiceBusMessage
from proton import Delivery, Message, symbol

from plain import ask, connect
from steps import RECEIVE_TIMEOUT_SECONDS, in_seconds, receive_dead_letter, receive_one, send, sleep_past, text


@pytest.fixture
def connection(broker):
    connection = connect(broker)
    yield connection
    connection.close()


def abandon_and_time(api, queue, receiver, message):
    """Abandons, waits until the message is no longer held back, and says between how many seconds it was.

    A pause of this process only widens the span: the message was still held back when its last look began, and no more when the next ended.
    """
    started = time.monotonic()
    receiver.abandon_message(message)
    abandoned = held_at = look_at = time.monotonic()
    while is_delayed(api, queue):
        assert look_at - started < RECEIVE_TIMEOUT_SECONDS, "the message is held back for ever"
        time.sleep(0.02)
        held_at, look_at = look_at, time.monotonic()
    return held_at - abandoned, time.monotonic() - started


def is_delayed(api, queue):
    [shown] = api.get("queues", queue, "messages")["items"]
    return shown["state"] == "delayed"


def test_without_a_policy_a_failed_message_comes_at_once(client, api, queue, receiver):
    send(client, queue, "x")
    receiver.abandon_message(receive_one(receiver))
    assert not is_delayed(api, queue)
    assert receive_one(receiver).delivery_count == 1


@pytest.mark.parametrize(
    "policy, delays",
    [
        ({"retry": "fixed:700ms"}, [0.7, 0.7]),
        ({"retry": "linear:400ms..5s"}, [0.4, 0.8]),
        ({"retry": "exponential:300ms..800ms"}, [0.3, 0.6, 0.8]),
    ],
    ids=["fixed", "linear", "exponential"],
)
def test_the_policy_sets_the_delay(client, api, create, policy, delays):
    queue = create(**policy)
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("x", message_id="kept"))
    with client.get_queue_receiver(queue) as receiver:
        message = receive_one(receiver)
        number = message.sequence_number
        for count, delay in enumerate(delays, start=1):
            at_least, at_most = abandon_and_time(api, queue, receiver, message)
            assert at_least < delay + 0.5 and at_most > delay - 0.05, f"held back for {at_least:.2f} to {at_most:.2f} s"
            message = receive_one(receiver)
            assert (message.delivery_count, message.message_id) == (count, "kept")
            assert message.sequence_number == number


def test_an_expired_lock_counts_as_a_failure_for_the_policy(client, create):
    queue = create(lock_duration_ms=1000, retry="fixed:1s")
    send(client, queue, "x")
    with client.get_queue_receiver(queue) as receiver:
        first = receive_one(receiver)
        again = receive_one(receiver)
        assert again.delivery_count == 1
        # From the end of the first lock on: the delay, then the second lock.
        assert again.locked_until_utc - first.locked_until_utc >= datetime.timedelta(seconds=2)


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
        for _ in range(2):
            receiver.abandon_message(receive_one(receiver))
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
    # Seconds, not minutes: for one of those it would not have been waited.
    assert time.monotonic() - started > 0.95
    assert (again.id, again.delivery_count, again.annotations["x-opt-sequence-number"]) == ("kept", 1, number)
    assert again.properties == {"own": 1, "why": "busy"}, "the reserved property is not stored"
    receiver.accept()


def test_a_delayed_message_keeps_its_time_to_live(connection, queue):
    sender, receiver = connection.create_sender(queue), connection.create_receiver(queue, credit=0)
    sender.send(Message(body="x", ttl=5))
    sent = in_seconds(0)
    receiver.receive()
    abandon_with(receiver, {"peeklock-retry-after-ms": 60_000})
    sleep_past(sent + datetime.timedelta(seconds=5))
    request = {"from-sequence-number": 1, "message-count": 1}
    assert ask(connection, "com.microsoft:peek-message", request, of=queue) == {}
