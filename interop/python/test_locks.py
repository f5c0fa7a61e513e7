"""Locks: expiry with redelivery, renewal by hand and by the SDK's renewer, and settling too late."""

import datetime
import time

import pytest
from azure.servicebus import ServiceBusSubQueue
from azure.servicebus.exceptions import MessageLockLostError

from steps import assert_empty, receive, receive_one, send, sleep_past, text

FIVE_SECONDS = datetime.timedelta(seconds=5)


def seconds_left(message):
    return (message.locked_until_utc - datetime.datetime.now(datetime.timezone.utc)).total_seconds()


def believe_in_the_lock(message):
    """The SDK refuses to settle once its own clock says that the lock ran out; here the broker must refuse."""
    message._expiry = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(minutes=1)


def test_an_expired_lock_brings_the_message_back_with_a_higher_count(client, pool):
    queue = pool.take("lock5")
    send(client, queue, "slow work")
    with client.get_queue_receiver(queue) as receiver:
        ends = []
        for count in range(3):
            message = receive_one(receiver)
            assert text(message) == "slow work"
            assert message.delivery_count == count
            assert seconds_left(message) <= 5.1
            ends.append(message.locked_until_utc)
        receiver.complete_message(message)
    assert all(later - sooner >= FIVE_SECONDS for sooner, later in zip(ends, ends[1:])), "each lock begins when the one before is over"
    assert_empty(client, queue)


def test_a_lock_lasts_as_long_as_the_queue_says(client, pool):
    queue = pool.take("lock5")
    send(client, queue, "timed")
    with client.get_queue_receiver(queue) as receiver:
        message = receive_one(receiver)
        # It was locked after it was sent and before it came here; how long before is not known.
        assert message.locked_until_utc - message.enqueued_time_utc >= FIVE_SECONDS
        assert seconds_left(message) <= 5.1


def test_renewal_extends_the_lock(client, pool):
    queue = pool.take("lock5")
    send(client, queue, "renewed")
    with client.get_queue_receiver(queue) as receiver:
        message = receive_one(receiver)
        before = message.locked_until_utc
        while message.locked_until_utc <= before + FIVE_SECONDS:
            time.sleep(0.5)
            receiver.renew_message_lock(message)
        assert datetime.datetime.now(datetime.timezone.utc) > before, "the first lock is over"
        receiver.complete_message(message)
    assert_empty(client, queue)


def test_the_renewer_of_the_sdk_keeps_a_lock(client, flavour, create):
    queue = create(lock_duration_ms=8000)
    send(client, queue, "kept")
    with flavour.lock_renewer(max_lock_renewal_duration=30) as renewer:
        with client.get_queue_receiver(queue, auto_lock_renewer=renewer) as receiver:
            message = receive_one(receiver)
            time.sleep(9.5)
            assert message.auto_renew_error is None
            receiver.complete_message(message)
    assert_empty(client, queue)


def test_the_renewer_of_the_sdk_keeps_many_locks(client, flavour, create):
    """Its threads number their requests without a lock, so that several have the same delivery-id."""
    queue = create(lock_duration_ms=8000)
    count = 40
    send(client, queue, *map(str, range(count)))
    with flavour.lock_renewer(max_lock_renewal_duration=60) as renewer:
        with client.get_queue_receiver(queue, prefetch_count=count) as receiver:
            messages = receive(receiver, count)
            for message in messages:
                renewer.register(receiver, message)
            time.sleep(9)
            assert {message.auto_renew_error for message in messages} == {None}
            for message in messages:
                receiver.complete_message(message)
    assert {message.delivery_count for message in messages} == {0}
    assert_empty(client, queue)


def test_settling_too_late_over_the_link_is_refused(client, pool):
    queue = pool.take("lock5")
    send(client, queue, "late")
    with client.get_queue_receiver(queue) as receiver, client.get_queue_receiver(queue) as other:
        late = receive_one(receiver)
        again = receive_one(other)
        assert again.sequence_number == late.sequence_number
        believe_in_the_lock(late)
        with pytest.raises(MessageLockLostError):
            receiver.complete_message(late)
        other.complete_message(again)


def test_settling_too_late_by_management_is_refused(client, pool):
    queue = pool.take("lock5")
    send(client, queue, "late")
    with client.get_queue_receiver(queue) as receiver:
        message = receive_one(receiver)
        receiver.defer_message(message)
        [late] = receiver.receive_deferred_messages([message.sequence_number])
        sleep_past(late.locked_until_utc)
        believe_in_the_lock(late)
        with pytest.raises(MessageLockLostError):
            receiver.complete_message(late)


def test_renewing_too_late_is_refused(client, pool):
    queue = pool.take("lock1")
    send(client, queue, "late")
    with client.get_queue_receiver(queue) as receiver:
        message = receive_one(receiver)
        sleep_past(message.locked_until_utc)
        believe_in_the_lock(message)
        with pytest.raises(MessageLockLostError):
            receiver.renew_message_lock(message)


def test_too_many_abandons_set_the_message_aside(client, pool):
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


def test_too_many_expiries_set_the_message_aside(client, pool):
    queue = pool.take("lock5count2")
    send(client, queue, "poison")
    with client.get_queue_receiver(queue) as receiver:
        receive_one(receiver)
        receive_one(receiver)
    with client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as dead:
        message = receive_one(dead)
        assert message.dead_letter_reason == "MaxDeliveryCountExceeded"
        dead.complete_message(message)
    assert_empty(client, queue)
