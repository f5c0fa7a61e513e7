"""Scheduled messages: by call or by property, cancelled, due in order, and kept over a restart."""

import datetime

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageState
from azure.servicebus.exceptions import MessageNotFoundError

from steps import assert_empty, in_seconds, receive, receive_one, text, texts

FAR = 3600
SOON = 300


def test_a_scheduled_message_arrives_when_it_is_due(clock, sender, receiver):
    due = in_seconds(SOON)
    [number] = sender.schedule_messages(ServiceBusMessage("later"), due)
    [peeked] = receiver.peek_messages(sequence_number=1)
    assert peeked.state == ServiceBusMessageState.SCHEDULED
    assert (peeked.sequence_number, text(peeked)) == (number, "later")
    assert abs(peeked.scheduled_enqueue_time_utc - due) < datetime.timedelta(milliseconds=2)
    assert receiver.receive_messages(max_wait_time=0.5) == []
    clock.pass_by(due)
    message = receive_one(receiver)
    assert (text(message), message.delivery_count) == ("later", 0)
    assert message.state == ServiceBusMessageState.SCHEDULED, "the state must be that of the service"
    assert message.enqueued_time_utc >= due - datetime.timedelta(milliseconds=2)
    receiver.complete_message(message)


def test_many_messages_are_scheduled_at_once_and_arrive_in_order(clock, sender, receiver):
    sent = [str(number) for number in range(10)]
    numbers = sender.schedule_messages([ServiceBusMessage(body) for body in sent], in_seconds(SOON))
    assert numbers == sorted(set(numbers)) and len(numbers) == 10
    clock.advance(SOON)
    assert texts(receive(receiver, 10)) == sent


def test_the_due_time_determines_the_order(clock, sender, receiver):
    first, second = in_seconds(SOON), in_seconds(SOON + 1)
    sender.schedule_messages(ServiceBusMessage("second"), second)
    sender.schedule_messages(ServiceBusMessage("first"), first)
    sender.send_messages(ServiceBusMessage("at once"))
    clock.pass_by(first)
    assert texts(receive(receiver, 2)) == ["at once", "first"]
    clock.pass_by(second)
    assert texts(receive(receiver, 1)) == ["second"]


def test_a_scheduled_message_can_be_cancelled(client, queue, sender):
    numbers = sender.schedule_messages([ServiceBusMessage("a"), ServiceBusMessage("b")], in_seconds(FAR))
    [one] = sender.schedule_messages(ServiceBusMessage("c"), in_seconds(FAR))
    sender.cancel_scheduled_messages(numbers)
    sender.cancel_scheduled_messages(one)
    assert_empty(client, queue)


def test_an_unscheduled_message_cannot_be_cancelled(sender, receiver):
    [number] = sender.schedule_messages(ServiceBusMessage("a"), in_seconds(FAR))
    for numbers in ([number + 1000], [number, number + 1000]):
        with pytest.raises(MessageNotFoundError):
            sender.cancel_scheduled_messages(numbers)
    assert texts(receiver.peek_messages(sequence_number=1)) == ["a"]
    sender.cancel_scheduled_messages(number)
    with pytest.raises(MessageNotFoundError):
        sender.cancel_scheduled_messages(number)


def test_a_due_message_cannot_be_cancelled(clock, sender, receiver):
    [number] = sender.schedule_messages(ServiceBusMessage("a"), in_seconds(SOON))
    clock.advance(SOON)
    message = receive_one(receiver)
    with pytest.raises(MessageNotFoundError):
        sender.cancel_scheduled_messages(number)
    receiver.complete_message(message)


def test_the_property_schedules_a_message(clock, sender, receiver):
    due = in_seconds(SOON)
    sender.send_messages([ServiceBusMessage("later", scheduled_enqueue_time_utc=due), ServiceBusMessage("now")])
    first = receive_one(receiver)
    assert text(first) == "now"
    receiver.complete_message(first)
    [peeked] = receiver.peek_messages(sequence_number=1)[:1]
    assert peeked.state == ServiceBusMessageState.SCHEDULED
    clock.pass_by(due)
    assert text(receive_one(receiver)) == "later"


@pytest.mark.parametrize("by_call", [True, False])
def test_a_time_in_the_past_is_due_at_once(sender, receiver, by_call):
    if by_call:
        sender.schedule_messages(ServiceBusMessage("at once"), in_seconds(-FAR))
    else:
        sender.send_messages(ServiceBusMessage("at once", scheduled_enqueue_time_utc=in_seconds(-FAR)))
    assert text(receive_one(receiver)) == "at once"


def test_messages_of_a_session_can_be_scheduled(client, clock, create):
    queue = create(requires_session=True)
    with client.get_queue_sender(queue) as sender:
        sender.schedule_messages([ServiceBusMessage(body, session_id="s") for body in ("a", "b")], in_seconds(SOON))
    clock.advance(SOON)
    with client.get_queue_receiver(queue, session_id="s") as receiver:
        assert texts(receive(receiver, 2)) == ["a", "b"]


def test_the_queue_counts_scheduled_messages(management, queue, sender):
    sender.schedule_messages([ServiceBusMessage("a"), ServiceBusMessage("b")], in_seconds(FAR))
    counts = management.show_queue(queue)
    assert (counts["scheduledCount"], counts["activeCount"]) == (2, 0)
