"""Locks: expiry with redelivery, manual renewal and the SDK's renewer, and late settlement."""

import datetime

import pytest
from azure.servicebus import ServiceBusSubQueue
from azure.servicebus.exceptions import MessageLockLostError

from steps import assert_empty, receive, receive_one, send, text, until

LOCK = datetime.timedelta(seconds=40)
# The SDK's renewer renews a lock of at most 10 s when a quarter of it has passed.
RENEWED_LOCK_MS = 10_000


@pytest.fixture
def queue(create):
    return create(lock_duration=f"{LOCK.seconds}s")


def test_an_expired_lock_redelivers_the_message_with_a_higher_count(client, clock, queue):
    send(client, queue, "slow work")
    with client.get_queue_receiver(queue) as receiver:
        for count in range(3):
            message = receive_one(receiver)
            assert text(message) == "slow work"
            assert message.delivery_count == count
            if count < 2:
                clock.pass_by(message.locked_until_utc)
        receiver.complete_message(message)
    assert_empty(client, queue)


def test_a_lock_has_the_duration_of_the_queue(client, clock, queue):
    send(client, queue, "timed")
    with client.get_queue_receiver(queue) as receiver:
        message = receive_one(receiver)
        # The broker locked the message after it was enqueued and before this moment.
        assert message.locked_until_utc - message.enqueued_time_utc >= LOCK
        assert message.locked_until_utc - clock.now() <= LOCK + datetime.timedelta(milliseconds=100)


def test_renewal_extends_the_lock(client, clock, queue):
    send(client, queue, "renewed")
    with client.get_queue_receiver(queue) as receiver:
        message = receive_one(receiver)
        first = message.locked_until_utc
        clock.advance(LOCK.seconds / 2)
        receiver.renew_message_lock(message)
        assert message.locked_until_utc >= first + LOCK / 2
        clock.pass_by(first)
        receiver.complete_message(message)
    assert_empty(client, queue)


def test_the_renewer_of_the_sdk_keeps_a_lock(client, flavour, create):
    queue = create(lock_duration_ms=RENEWED_LOCK_MS)
    send(client, queue, "kept")
    with flavour.lock_renewer(max_lock_renewal_duration=60) as renewer:
        with client.get_queue_receiver(queue, auto_lock_renewer=renewer) as receiver:
            message = receive_one(receiver)
            first = message.locked_until_utc
            until(lambda: message.locked_until_utc > first, "a renewal")
            receiver.complete_message(message)
            assert message.auto_renew_error is None
    assert_empty(client, queue)


def test_the_renewer_of_the_sdk_keeps_many_locks(client, flavour, create):
    """The renewer's threads number their requests without a mutex, so several requests have the same delivery-id."""
    queue = create(lock_duration_ms=RENEWED_LOCK_MS)
    count = 40
    send(client, queue, *map(str, range(count)))
    with flavour.lock_renewer(max_lock_renewal_duration=60) as renewer:
        with client.get_queue_receiver(queue, prefetch_count=count) as receiver:
            messages = receive(receiver, count)
            first = {message.message_id: message.locked_until_utc for message in messages}
            for message in messages:
                renewer.register(receiver, message)
            until(lambda: all(message.locked_until_utc > first[message.message_id] for message in messages), "renewals")
            for message in messages:
                receiver.complete_message(message)
            assert {message.auto_renew_error for message in messages} == {None}
    assert {message.delivery_count for message in messages} == {0}
    assert_empty(client, queue)


def test_late_settlement_over_the_link_is_rejected(client, clock, queue):
    send(client, queue, "late")
    with client.get_queue_receiver(queue) as receiver, client.get_queue_receiver(queue) as other:
        late = receive_one(receiver)
        clock.pass_by(late.locked_until_utc)
        again = receive_one(other)
        assert again.sequence_number == late.sequence_number
        with pytest.raises(MessageLockLostError):
            receiver.complete_message(late)
        other.complete_message(again)


def test_late_settlement_by_management_is_rejected(client, clock, queue):
    send(client, queue, "late")
    with client.get_queue_receiver(queue) as receiver:
        message = receive_one(receiver)
        receiver.defer_message(message)
        [late] = receiver.receive_deferred_messages([message.sequence_number])
        clock.pass_by(late.locked_until_utc)
        with pytest.raises(MessageLockLostError):
            receiver.complete_message(late)


def test_late_renewal_is_rejected(client, clock, queue):
    send(client, queue, "late")
    with client.get_queue_receiver(queue) as receiver:
        message = receive_one(receiver)
        clock.pass_by(message.locked_until_utc)
        with pytest.raises(MessageLockLostError):
            receiver.renew_message_lock(message)


def test_too_many_abandons_dead_letter_the_message(client, pool):
    queue = pool.take("count3")
    send(client, queue, "poison")
    with client.get_queue_receiver(queue) as receiver:
        for count in range(3):
            message = receive_one(receiver)
            assert message.delivery_count == count
            receiver.abandon_message(message)
    assert_empty(client, queue)
    with client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as dead:
        message = receive_one(dead)
        assert text(message) == "poison"
        assert message.dead_letter_reason == "MaxDeliveryCountExceeded"
        assert message.dead_letter_error_description
        dead.complete_message(message)


def test_too_many_expired_locks_dead_letter_the_message(client, clock, pool):
    queue = pool.take("count2")
    send(client, queue, "poison")
    with client.get_queue_receiver(queue) as receiver:
        for _ in range(2):
            clock.pass_by(receive_one(receiver).locked_until_utc)
    with client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as dead:
        message = receive_one(dead)
        assert message.dead_letter_reason == "MaxDeliveryCountExceeded"
        dead.complete_message(message)
    assert_empty(client, queue)
