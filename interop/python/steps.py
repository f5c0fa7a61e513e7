"""Steps that many scenarios share."""

import time

from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode

RECEIVE_TIMEOUT_SECONDS = 10


def send(client, queue, *bodies):
    with client.get_queue_sender(queue) as sender:
        sender.send_messages([ServiceBusMessage(body) for body in bodies])


def receive(receiver, count, seconds=RECEIVE_TIMEOUT_SECONDS):
    """Receives until there are `count` messages; fewer in the given time is a failure."""
    messages = []
    deadline = time.monotonic() + seconds
    while len(messages) < count:
        remaining = deadline - time.monotonic()
        assert remaining > 0, f"only {len(messages)} of {count} messages came in {seconds} s"
        messages += receiver.receive_messages(max_message_count=count - len(messages), max_wait_time=remaining)
    return messages


def receive_one(receiver, seconds=RECEIVE_TIMEOUT_SECONDS):
    return receive(receiver, 1, seconds)[0]


def assert_empty(client, queue, seconds=1, **options):
    """Nothing can be received, and nothing is locked, deferred or waiting either."""
    options = {"receive_mode": ServiceBusReceiveMode.RECEIVE_AND_DELETE} | options
    with client.get_queue_receiver(queue, **options) as receiver:
        assert [body(message) for message in receiver.peek_messages(max_message_count=10)] == []
        assert [body(message) for message in receiver.receive_messages(max_wait_time=seconds)] == []


def body(message):
    return b"".join(message.body)


def text(message):
    return body(message).decode()


def texts(messages):
    return [text(message) for message in messages]
