"""Sending: one message, a list, a batch; limits; a batch is stored completely or not at all."""

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import MessageSizeExceededError, ServiceBusError

from steps import assert_empty, body, receive, receive_one, texts


def test_one_message_arrives(sender, receiver):
    sender.send_messages(ServiceBusMessage("hello"))
    message = receive_one(receiver)
    assert body(message) == b"hello"
    receiver.complete_message(message)


def test_a_list_arrives_in_order(sender, receiver):
    sent = [f"entry {number}" for number in range(30)]
    sender.send_messages([ServiceBusMessage(text) for text in sent])
    assert texts(receive(receiver, 30)) == sent


def test_a_batch_arrives_in_order(sender, receiver):
    batch = sender.create_message_batch()
    sent = [f"entry {number}" for number in range(100)]
    for text in sent:
        batch.add_message(ServiceBusMessage(text))
    sender.send_messages(batch)
    assert texts(receive(receiver, 100)) == sent


def test_a_batch_contains_as_many_messages_as_fit(sender, receiver):
    batch = sender.create_message_batch()
    for number in range(6000):
        batch.add_message(ServiceBusMessage(str(number)))
    sender.send_messages(batch)
    [last] = receiver.peek_messages(max_message_count=1, sequence_number=6000)
    assert (body(last), last.sequence_number) == (b"5999", 6000)


def test_sequence_numbers_and_enqueued_times_rise(sender, receiver):
    for number in range(3):
        sender.send_messages(ServiceBusMessage(str(number)))
    messages = receive(receiver, 3)
    numbers = [message.sequence_number for message in messages]
    times = [message.enqueued_time_utc for message in messages]
    assert numbers == sorted(set(numbers))
    assert numbers[0] >= 1
    assert times == sorted(times)


def test_a_batch_ends_at_the_size_limit(sender, receiver):
    batch = sender.create_message_batch(max_size_in_bytes=4096)
    batch.add_message(ServiceBusMessage(b"x" * 3000))
    with pytest.raises(MessageSizeExceededError):
        batch.add_message(ServiceBusMessage(b"x" * 3000))
    sender.send_messages(batch)
    assert len(body(receive_one(receiver))) == 3000


def test_a_batch_of_full_size_is_accepted(sender, receiver):
    batch = sender.create_message_batch()
    count = 0
    while True:
        try:
            batch.add_message(ServiceBusMessage(b"y" * 50_000))
        except MessageSizeExceededError:
            break
        count += 1
    assert count >= 4
    sender.send_messages(batch)
    assert [len(body(message)) for message in receive(receiver, count)] == [50_000] * count


def test_a_message_above_the_limit_is_rejected_and_the_sender_continues(sender, receiver):
    with pytest.raises(MessageSizeExceededError):
        sender.send_messages(ServiceBusMessage(b"z" * (2 * 1024 * 1024)))
    sender.send_messages(ServiceBusMessage("still here"))
    assert body(receive_one(receiver)) == b"still here"


def test_a_batch_with_one_invalid_message_stores_nothing(client, queue, sender):
    batch = sender.create_message_batch()
    batch.add_message(ServiceBusMessage("good before"))
    bad = ServiceBusMessage("bad", message_id="id")
    # Set on the raw message to bypass the SDK's own check, so that the broker has to find it.
    bad.raw_amqp_message.properties.message_id = "i" * 129
    batch.add_message(bad)
    batch.add_message(ServiceBusMessage("good after"))
    with pytest.raises(ServiceBusError):
        sender.send_messages(batch)
    assert_empty(client, queue)


def test_a_large_body_crosses_many_frames_unchanged(sender, receiver):
    sent = bytes(number * 7 % 251 for number in range(900 * 1024))
    sender.send_messages(ServiceBusMessage(sent))
    message = receive_one(receiver)
    assert body(message) == sent
    receiver.complete_message(message)
