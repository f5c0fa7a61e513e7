"""Failed deliveries: the queue's retry policy, and a delay that the consumer requests."""

import datetime

import pytest
from azure.servicebus import ServiceBusMessage
from proton import Delivery, Message, symbol

from plain import ask, connect
from steps import receive_dead_letter, receive_one, send, text, until


# The default lock duration of a queue.
LOCK = datetime.timedelta(seconds=60)
# A test must take less real time than this between two moves of the clock.
MARGIN_SECONDS = 25


@pytest.fixture
def connection(broker):
    connection = connect(broker)
    yield connection
    connection.close()


def is_delayed(api, queue):
    [shown] = api.get("queues", queue, "messages")["items"]
    return shown["state"] == "delayed"


def test_without_a_policy_a_failed_message_is_redelivered_at_once(client, api, queue, receiver):
    send(client, queue, "x")
    receiver.abandon_message(receive_one(receiver))
    assert not is_delayed(api, queue)
    assert receive_one(receiver).delivery_count == 1


@pytest.mark.parametrize(
    "policy, delays",
    [
        ({"retry": "fixed:70s"}, [70, 70]),
        ({"retry": "linear:40s..500s"}, [40, 80]),
        ({"retry": "exponential:30s..80s"}, [30, 60, 80]),
    ],
    ids=["fixed", "linear", "exponential"],
)
def test_the_policy_sets_the_delay(client, api, clock, create, policy, delays):
    queue = create(**policy)
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("x", message_id="kept"))
    with client.get_queue_receiver(queue) as receiver:
        message = receive_one(receiver)
        number = message.sequence_number
        for count, delay in enumerate(delays, start=1):
            before = clock.now()
            receiver.abandon_message(message)
            assert is_delayed(api, queue)
            # The next lock starts at the end of the delay, so its end shows the length of the delay.
            pass_the_delay(api, clock, queue, delay)
            message = receive_one(receiver)
            assert message.locked_until_utc - LOCK >= before + datetime.timedelta(seconds=delay)
            assert (message.delivery_count, message.message_id) == (count, "kept")
            assert message.sequence_number == number


def pass_the_delay(api, clock, queue, seconds):
    """Moves the clock to shortly before the end of the delay, where the message still waits, and then past the end."""
    clock.advance(seconds - MARGIN_SECONDS)
    assert is_delayed(api, queue)
    clock.advance(MARGIN_SECONDS)
    until(lambda: not is_delayed(api, queue), "the end of the delay")


def test_an_expired_lock_counts_as_a_failure_for_the_policy(client, api, clock, create):
    queue = create(lock_duration_ms=60_000, retry="fixed:40s")
    send(client, queue, "x")
    with client.get_queue_receiver(queue) as receiver:
        first = receive_one(receiver)
        clock.pass_by(first.locked_until_utc)
        until(lambda: is_delayed(api, queue), "the delay after the expired lock")
        clock.advance(40)
        again = receive_one(receiver)
        assert again.delivery_count == 1
        # The delay and the second lock follow the end of the first lock.
        assert again.locked_until_utc - first.locked_until_utc >= datetime.timedelta(seconds=100)


def test_other_messages_overtake_a_message_that_waits_for_its_retry(client, create):
    queue = create(retry="fixed:60s")
    send(client, queue, "failing", "good")
    with client.get_queue_receiver(queue) as receiver:
        receiver.abandon_message(receive_one(receiver))
        assert text(receive_one(receiver)) == "good"
        assert [text(message) for message in receiver.peek_messages(sequence_number=1)] == ["failing"]


def test_the_last_failure_dead_letters_without_a_delay(client, api, clock, create):
    queue = create(max_delivery_count=2, retry="fixed:60s")
    send(client, queue, "poison")
    with client.get_queue_receiver(queue) as receiver:
        receiver.abandon_message(receive_one(receiver))
        until(lambda: is_delayed(api, queue), "the delay")
        clock.advance(60)
        receiver.abandon_message(receive_one(receiver))
    assert receive_dead_letter(client, queue).dead_letter_reason == "MaxDeliveryCountExceeded"


def abandon_with(receiver, properties):
    """Abandons with properties. The Python SDK cannot; a plain client can, like .NET and JavaScript."""
    delivery = receiver.fetcher.unsettled.popleft()
    delivery.local.failed = True
    delivery.local.annotations = {symbol(name): value for name, value in properties.items()}
    delivery.update(Delivery.MODIFIED)
    delivery.settle()


def wait_until_delayed(connection, api, queue):
    # The connection writes only during a call, so this request flushes the outcome.
    ask(connection, "com.microsoft:peek-message", {"from-sequence-number": 1, "message-count": 1}, of=queue)
    until(lambda: is_delayed(api, queue), "the delay")


def test_abandon_changes_properties(connection, queue):
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
        {"peeklock-retry-after-ms": 90_000},
        {"peeklock-retry-after": 90},
        {"peeklock-retry-after": 90.0},
        {"peeklock-retry-after": "PT90S"},
    ],
    ids=["milliseconds", "seconds", "fraction", "text"],
)
def test_a_reserved_property_requests_a_delay(connection, api, clock, queue, properties):
    connection.create_sender(queue).send(Message(id="kept", body="x", properties={"own": 1}))
    receiver = connection.create_receiver(queue, credit=0)
    number = receiver.receive().annotations["x-opt-sequence-number"]
    abandon_with(receiver, properties | {"why": "busy"})
    wait_until_delayed(connection, api, queue)
    pass_the_delay(api, clock, queue, 90)
    again = receiver.receive()
    assert (again.id, again.delivery_count, again.annotations["x-opt-sequence-number"]) == ("kept", 1, number)
    assert again.properties == {"own": 1, "why": "busy"}, "the reserved property must not be stored"
    receiver.accept()


def test_a_delayed_message_keeps_its_time_to_live(connection, api, clock, queue):
    sender, receiver = connection.create_sender(queue), connection.create_receiver(queue, credit=0)
    sender.send(Message(body="x", ttl=60))
    receiver.receive()
    abandon_with(receiver, {"peeklock-retry-after-ms": 600_000})
    wait_until_delayed(connection, api, queue)
    clock.advance(60)
    request = {"from-sequence-number": 1, "message-count": 1}
    assert ask(connection, "com.microsoft:peek-message", request, of=queue) == {}
