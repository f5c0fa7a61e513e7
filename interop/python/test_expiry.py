"""Time to live: of the message or of the queue, dropped or dead-lettered, and messages that do not expire."""

import datetime

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.exceptions import MessageNotFoundError, ServiceBusError

from steps import assert_empty, ends, receive_dead_letter, receive_one, text, texts, until

BRIEF = datetime.timedelta(seconds=50)
BRIEF_MS = 50_000


def test_an_expired_message_is_dropped(client, clock, queue, sender, receiver):
    sender.send_messages([ServiceBusMessage("short", time_to_live=BRIEF), ServiceBusMessage("long")])
    clock.advance(BRIEF.seconds)
    assert text(receive_one(receiver)) == "long"
    assert texts(receiver.peek_messages(max_message_count=10, sequence_number=1)) == ["long"]
    assert_empty(client, queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER)


def test_an_expired_message_is_dead_lettered_if_the_queue_is_set_to(client, clock, create):
    queue = create(dead_letter_on_expiration=True)
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("late", message_id="m", time_to_live=BRIEF))
    clock.advance(BRIEF.seconds)
    dead = receive_dead_letter(client, queue)
    assert (text(dead), dead.message_id, dead.dead_letter_reason) == ("late", "m", "TTLExpiredException")
    assert dead.dead_letter_error_description
    assert_empty(client, queue)


def test_the_default_time_to_live_of_the_queue_applies_to_messages_without_one(client, clock, create):
    queue = create(default_time_to_live_ms=BRIEF_MS, dead_letter_on_expiration=True)
    with ends(client, queue) as (sender, receiver):
        sender.send_messages(ServiceBusMessage("late"))
        [peeked] = receiver.peek_messages()
        assert peeked.time_to_live == BRIEF
        assert peeked.expires_at_utc - peeked.enqueued_time_utc == BRIEF
    clock.pass_by(peeked.expires_at_utc)
    assert receive_dead_letter(client, queue).dead_letter_reason == "TTLExpiredException"


def test_the_time_to_live_of_the_queue_limits_that_of_a_message(client, clock, create):
    queue = create(default_time_to_live_ms=BRIEF_MS)
    with ends(client, queue) as (sender, receiver):
        sender.send_messages(ServiceBusMessage("x", time_to_live=datetime.timedelta(hours=1)))
        [peeked] = receiver.peek_messages()
        assert peeked.time_to_live == BRIEF
        clock.pass_by(peeked.expires_at_utc)
        assert receiver.receive_messages(max_wait_time=0.5) == []


def test_a_time_to_live_of_zero_is_rejected(client, queue, sender):
    with pytest.raises(ServiceBusError, match="time to live of zero"):
        sender.send_messages(ServiceBusMessage("x", time_to_live=datetime.timedelta(0)))
    assert_empty(client, queue)


def test_a_locked_message_can_be_completed_after_its_expiry(client, clock, create):
    queue = create(default_time_to_live_ms=BRIEF_MS, dead_letter_on_expiration=True, lock_duration="5m")
    with ends(client, queue) as (sender, receiver):
        sender.send_messages(ServiceBusMessage("in work"))
        message = receive_one(receiver)
        clock.pass_by(message.expires_at_utc)
        receiver.complete_message(message)
    assert_empty(client, queue)
    assert_empty(client, queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER)


def test_a_message_abandoned_after_its_expiry_expires(client, clock, create):
    queue = create(default_time_to_live_ms=BRIEF_MS, dead_letter_on_expiration=True, lock_duration="5m")
    with ends(client, queue) as (sender, receiver):
        sender.send_messages(ServiceBusMessage("in work"))
        message = receive_one(receiver)
        clock.pass_by(message.expires_at_utc)
        receiver.abandon_message(message)
    assert receive_dead_letter(client, queue).dead_letter_reason == "TTLExpiredException"


def test_deferred_messages_expire(client, clock, create, management):
    queue = create(default_time_to_live_ms=BRIEF_MS)
    with ends(client, queue) as (sender, receiver):
        sender.send_messages(ServiceBusMessage("deferred"))
        message = receive_one(receiver)
        receiver.defer_message(message)
        clock.pass_by(message.expires_at_utc)
        until(lambda: management.show_queue(queue)["deferredCount"] == 0, "the expiry of the deferred message")
        with pytest.raises(MessageNotFoundError):
            receiver.receive_deferred_messages([message.sequence_number])


def test_dead_letters_do_not_expire(client, clock, create):
    queue = create(default_time_to_live_ms=BRIEF_MS)
    with ends(client, queue) as (sender, receiver):
        sender.send_messages(ServiceBusMessage("poison"))
        message = receive_one(receiver)
        receiver.dead_letter_message(message, reason="why")
        clock.pass_by(message.expires_at_utc)
    assert text(receive_dead_letter(client, queue)) == "poison"


def test_the_time_to_live_of_a_scheduled_message_starts_when_it_is_due(client, clock, create):
    queue = create(default_time_to_live_ms=BRIEF_MS)
    with ends(client, queue) as (sender, receiver):
        due = clock.in_seconds(2 * BRIEF.seconds)
        sender.schedule_messages(ServiceBusMessage("later"), due)
        clock.pass_by(due)
        assert text(receive_one(receiver)) == "later"


def test_an_idle_queue_is_deleted(clock, create, management):
    queue = create(auto_delete_on_idle="5m")
    assert management.has_queue(queue)
    clock.advance(300)
    until(lambda: not management.has_queue(queue), "the deletion of the idle queue")
