"""Time to live: of the message or of the queue, dropped or dead-lettered, and what does not expire."""

import datetime

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.exceptions import MessageNotFoundError, ServiceBusError

from steps import assert_empty, ends, in_seconds, receive_dead_letter, receive_one, sleep_past, text, texts, until

# Long enough to look at a message, or to take it, before its time is over.
BRIEF = datetime.timedelta(seconds=5)
BRIEF_MS = 5000


def test_an_expired_message_is_dropped(client, queue, sender, receiver):
    sender.send_messages([ServiceBusMessage("short", time_to_live=datetime.timedelta(seconds=1)), ServiceBusMessage("long")])
    sleep_past(in_seconds(1))
    assert text(receive_one(receiver)) == "long"
    assert texts(receiver.peek_messages(max_message_count=10, sequence_number=1)) == ["long"]
    assert_empty(client, queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER)


def test_an_expired_message_is_dead_lettered_where_the_queue_says_so(client, create):
    queue = create(dead_letter_on_expiration=True)
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("late", message_id="m", time_to_live=datetime.timedelta(seconds=1)))
    dead = receive_dead_letter(client, queue)
    assert (text(dead), dead.message_id, dead.dead_letter_reason) == ("late", "m", "TTLExpiredException")
    assert dead.dead_letter_error_description
    assert_empty(client, queue)


def test_the_queues_own_time_holds_for_messages_without_one(client, create):
    queue = create(default_time_to_live_ms=BRIEF_MS, dead_letter_on_expiration=True)
    with ends(client, queue) as (sender, receiver):
        sender.send_messages(ServiceBusMessage("late"))
        [peeked] = receiver.peek_messages()
        assert peeked.time_to_live == BRIEF
        assert peeked.expires_at_utc - peeked.enqueued_time_utc == BRIEF
    assert receive_dead_letter(client, queue).dead_letter_reason == "TTLExpiredException"


def test_a_message_cannot_ask_for_more_than_the_queue_gives(client, create):
    queue = create(default_time_to_live_ms=BRIEF_MS)
    with ends(client, queue) as (sender, receiver):
        sender.send_messages(ServiceBusMessage("x", time_to_live=datetime.timedelta(hours=1)))
        [peeked] = receiver.peek_messages()
        assert peeked.time_to_live == BRIEF
        sleep_past(peeked.expires_at_utc)
        assert receiver.receive_messages(max_wait_time=0.5) == []


def test_a_time_to_live_of_zero_is_refused(client, queue, sender):
    with pytest.raises(ServiceBusError, match="time to live of zero"):
        sender.send_messages(ServiceBusMessage("x", time_to_live=datetime.timedelta(0)))
    assert_empty(client, queue)


def test_a_locked_message_can_be_completed_after_its_time(client, create):
    queue = create(default_time_to_live_ms=BRIEF_MS, dead_letter_on_expiration=True)
    with ends(client, queue) as (sender, receiver):
        sender.send_messages(ServiceBusMessage("in work"))
        message = receive_one(receiver)
        sleep_past(message.expires_at_utc)
        receiver.complete_message(message)
    assert_empty(client, queue)
    assert_empty(client, queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER)


def test_a_message_abandoned_after_its_time_expires(client, create):
    queue = create(default_time_to_live_ms=BRIEF_MS, dead_letter_on_expiration=True)
    with ends(client, queue) as (sender, receiver):
        sender.send_messages(ServiceBusMessage("in work"))
        message = receive_one(receiver)
        sleep_past(message.expires_at_utc)
        receiver.abandon_message(message)
    assert receive_dead_letter(client, queue).dead_letter_reason == "TTLExpiredException"


def test_deferred_messages_expire(client, create, management):
    queue = create(default_time_to_live_ms=BRIEF_MS)
    with ends(client, queue) as (sender, receiver):
        sender.send_messages(ServiceBusMessage("deferred"))
        message = receive_one(receiver)
        receiver.defer_message(message)
        until(lambda: management.show_queue(queue)["deferredCount"] == 0, "the deferred message's end")
        with pytest.raises(MessageNotFoundError):
            receiver.receive_deferred_messages([message.sequence_number])


def test_dead_letters_do_not_expire(client, create):
    queue = create(default_time_to_live_ms=BRIEF_MS)
    with ends(client, queue) as (sender, receiver):
        sender.send_messages(ServiceBusMessage("poison"))
        message = receive_one(receiver)
        receiver.dead_letter_message(message, reason="why")
        sleep_past(message.expires_at_utc)
    assert text(receive_dead_letter(client, queue)) == "poison"


def test_the_time_of_a_scheduled_message_starts_when_it_is_due(client, create):
    queue = create(default_time_to_live_ms=BRIEF_MS)
    with ends(client, queue) as (sender, receiver):
        sender.schedule_messages(ServiceBusMessage("later"), in_seconds(6))
        assert text(receive_one(receiver)) == "later"


def test_a_queue_that_nobody_uses_deletes_itself(create, management):
    queue = create(auto_delete_on_idle_ms=5000)
    assert management.has_queue(queue)
    until(lambda: not management.has_queue(queue), "the end of the idle queue")
