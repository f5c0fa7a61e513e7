"""Steps that many scenarios share."""

import contextlib
import datetime
import time

from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage, ServiceBusReceiveMode, ServiceBusSubQueue

# The longest wait for a message. Messages arrive much sooner; only a busy machine needs this long.
RECEIVE_TIMEOUT_SECONDS = 30


def send(client, queue, *bodies):
    with client.get_queue_sender(queue) as sender:
        sender.send_messages([ServiceBusMessage(body) for body in bodies])


@contextlib.contextmanager
def ends(client, queue):
    """Yields a sender and a receiver that stay open during the scenario, because the SDK takes a second to close
    either.
    """
    with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        yield sender, receiver


def send_in_session(client, queue, session_id, *bodies):
    with client.get_queue_sender(queue) as sender:
        sender.send_messages([ServiceBusMessage(body, session_id=session_id) for body in bodies])


def next_session(client, queue, seconds=RECEIVE_TIMEOUT_SECONDS):
    return client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=seconds)


def receive(receiver, count, seconds=RECEIVE_TIMEOUT_SECONDS):
    """Receives until there are `count` messages, and fails if fewer arrive in the given time."""
    messages = []
    deadline = time.monotonic() + seconds
    while len(messages) < count:
        remaining = deadline - time.monotonic()
        assert remaining > 0, f"received only {len(messages)} of {count} messages in {seconds} s"
        messages += receiver.receive_messages(max_message_count=count - len(messages), max_wait_time=remaining)
    return messages


def receive_one(receiver, seconds=RECEIVE_TIMEOUT_SECONDS):
    return receive(receiver, 1, seconds)[0]


def assert_empty(client, queue, seconds=1, **options):
    """Asserts that no message can be received and that none is locked, deferred or scheduled."""
    options = {"receive_mode": ServiceBusReceiveMode.RECEIVE_AND_DELETE} | options
    with client.get_queue_receiver(queue, **options) as receiver:
        assert [body(message) for message in receiver.peek_messages(max_message_count=10)] == []
        assert [body(message) for message in receiver.receive_messages(max_wait_time=seconds)] == []


def receive_dead_letter(client, queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER):
    with client.get_queue_receiver(queue, sub_queue=sub_queue) as dead:
        message = receive_one(dead)
        dead.complete_message(message)
        return message


def until(condition, what, seconds=RECEIVE_TIMEOUT_SECONDS):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"timed out after {seconds} s waiting for: {what}"
        time.sleep(0.02)


def in_seconds(seconds):
    return datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)


def body(message):
    return b"".join(message.body)


def text(message):
    return body(message).decode()


def texts(messages):
    return [text(message) for message in messages]
