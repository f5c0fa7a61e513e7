"""Every settlement over the link, and the state of the queue after it."""

import pytest
from azure.servicebus import ServiceBusMessageState, ServiceBusSubQueue
from azure.servicebus.exceptions import MessageAlreadySettled, MessageNotFoundError

from steps import assert_empty, receive, receive_one, send, text, texts


def test_complete_removes(client, queue, receiver):
    send(client, queue, "a", "b")
    for message in receive(receiver, 2):
        receiver.complete_message(message)
    assert_empty(client, queue)


def test_settling_twice_is_rejected(client, queue, receiver):
    send(client, queue, "once")
    message = receive_one(receiver)
    receiver.complete_message(message)
    with pytest.raises(MessageAlreadySettled):
        receiver.complete_message(message)


def test_abandon_returns_the_message_to_its_place_and_counts_a_delivery(client, queue, receiver):
    send(client, queue, "first", "second")
    first = receive_one(receiver)
    receiver.abandon_message(first)
    again = receive_one(receiver)
    assert text(again) == "first"
    assert again.delivery_count == 1
    assert again.sequence_number == first.sequence_number
    assert again.lock_token != first.lock_token
    receiver.complete_message(again)
    assert text(receive_one(receiver)) == "second"


def test_a_deferred_message_is_received_by_its_number_only(client, queue, receiver):
    send(client, queue, "later", "now")
    later = receive_one(receiver)
    locked_until = later.locked_until_utc
    receiver.defer_message(later)
    now = receive_one(receiver)
    assert text(now) == "now"
    receiver.complete_message(now)
    [peeked] = receiver.peek_messages(sequence_number=1)
    assert peeked.state == ServiceBusMessageState.DEFERRED
    assert peeked.locked_until_utc == locked_until
    [deferred] = receiver.receive_deferred_messages([later.sequence_number])
    assert (text(deferred), deferred.delivery_count) == ("later", 1)
    receiver.defer_message(deferred)
    [deferred] = receiver.receive_deferred_messages([later.sequence_number])
    assert deferred.delivery_count == 2
    receiver.complete_message(deferred)
    assert_empty(client, queue)


def test_dead_letter_moves_with_reason_and_description(client, queue, receiver):
    send(client, queue, "poison")
    poison = receive_one(receiver)
    receiver.dead_letter_message(poison, reason="unreadable", error_description="no schema fits")
    assert_empty(client, queue)
    with client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as dead:
        message = receive_one(dead)
        assert text(message) == "poison"
        assert message.dead_letter_reason == "unreadable"
        assert message.dead_letter_error_description == "no schema fits"
        assert message.sequence_number == poison.sequence_number
        dead.complete_message(message)
    assert_empty(client, queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER)


def test_dead_letter_needs_no_reason(client, queue, receiver):
    send(client, queue, "poison")
    receiver.dead_letter_message(receive_one(receiver))
    with client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as dead:
        assert text(receive_one(dead)) == "poison"


@pytest.mark.parametrize("settlement", ["complete", "abandon", "defer", "dead_letter"])
def test_deferred_messages_settle_through_management(client, queue, receiver, settlement):
    send(client, queue, "deferred")
    message = receive_one(receiver)
    receiver.defer_message(message)
    number = message.sequence_number
    [deferred] = receiver.receive_deferred_messages([number])
    getattr(receiver, f"{settlement}_message")(deferred)
    if settlement in ("abandon", "defer"):
        [again] = receiver.receive_deferred_messages([number])
        receiver.complete_message(again)
    if settlement == "dead_letter":
        with client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as dead:
            assert text(receive_one(dead)) == "deferred"
    assert_empty(client, queue)


def test_several_deferred_messages_are_received_together(client, queue, receiver):
    send(client, queue, "a", "b", "c")
    messages = receive(receiver, 3)
    for message in messages:
        receiver.defer_message(message)
    numbers = [message.sequence_number for message in messages]
    deferred = receiver.receive_deferred_messages(numbers)
    assert sorted(texts(deferred)) == ["a", "b", "c"]


def test_a_number_that_is_not_deferred_is_not_found(client, queue, receiver):
    send(client, queue, "active")
    message = receive_one(receiver)
    with pytest.raises(MessageNotFoundError):
        receiver.receive_deferred_messages([message.sequence_number + 1000])


def test_dead_letters_can_be_settled(client, queue, receiver):
    send(client, queue, "poison")
    receiver.dead_letter_message(receive_one(receiver), reason="why")
    with client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as dead:
        message = receive_one(dead)
        dead.abandon_message(message)
        message = receive_one(dead)
        assert message.delivery_count == 0
        dead.defer_message(message)
        [message] = dead.receive_deferred_messages([message.sequence_number])
        assert message.dead_letter_reason == "why"
        dead.complete_message(message)
    assert_empty(client, queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER)
