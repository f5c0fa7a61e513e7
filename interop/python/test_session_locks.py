"""The lock on a session: manual renewal and the SDK's renewer, expiry, and the effect of a poison message on a session.
"""

import datetime

import pytest
from azure.servicebus.exceptions import OperationTimeoutError, SessionLockLostError

from steps import next_session, receive, receive_dead_letter, receive_one, send_in_session, text, texts, until

LOCK = datetime.timedelta(seconds=60)
# The SDK's renewer renews a lock of at most 10 s when a quarter of it has passed.
RENEWED_LOCK_SECONDS = 10
# The delay between the expiry of a session lock and the detach of its receiver.
DETACHED_AFTER = datetime.timedelta(seconds=2)


@pytest.fixture
def queue(create):
    return create(requires_session=True, lock_duration=f"{LOCK.seconds}s")


def test_renewal_keeps_the_session(client, clock, queue):
    send_in_session(client, queue, "s", "work")
    with client.get_queue_receiver(queue, session_id="s") as receiver:
        message = receive_one(receiver)
        first = receiver.session.locked_until_utc
        clock.advance(LOCK.seconds / 2)
        renewed = receiver.session.renew_lock()
        assert renewed >= first + LOCK / 2
        assert receiver.session.locked_until_utc == renewed
        clock.pass_by(first)
        receiver.complete_message(message)
        assert receiver.peek_messages() == []


def test_the_renewer_keeps_the_session(client, flavour, create):
    queue = create(requires_session=True, lock_duration=f"{RENEWED_LOCK_SECONDS}s")
    send_in_session(client, queue, "s", "long work")
    with flavour.lock_renewer(max_lock_renewal_duration=60) as renewer:
        with client.get_queue_receiver(queue, session_id="s", auto_lock_renewer=renewer) as receiver:
            message = receive_one(receiver)
            first = receiver.session.locked_until_utc
            until(lambda: receiver.session.locked_until_utc > first, "a renewal")
            receiver.complete_message(message)
            assert receiver.session.auto_renew_error is None
            assert receiver.peek_messages() == []


def test_settlement_in_a_lost_session_fails(client, clock, queue):
    send_in_session(client, queue, "s", "slow work")
    with client.get_queue_receiver(queue, session_id="s") as receiver:
        late = receive_one(receiver)
        clock.pass_by(receiver.session.locked_until_utc + DETACHED_AFTER)
        # SDK quirk: it does not wait for the answer to a settlement, so it must have received the detach before. The
        # broker sends the detach before it answers this call.
        with pytest.raises(SessionLockLostError):
            receiver.session.get_state()
        with pytest.raises(SessionLockLostError):
            receiver.complete_message(late)
    with client.get_queue_receiver(queue, session_id="s") as receiver:
        again = receive_one(receiver)
        assert (text(again), again.delivery_count) == ("slow work", 1)


def test_renewal_and_state_of_a_lost_session_fail(client, clock, queue):
    with client.get_queue_receiver(queue, session_id="s") as receiver:
        receiver.session.set_state("mine")
        clock.pass_by(receiver.session.locked_until_utc)
        for call in ("renew_lock", "get_state"):
            with pytest.raises(SessionLockLostError):
                getattr(receiver.session, call)()


def test_a_lost_session_goes_to_the_next_receiver(client, clock, queue):
    send_in_session(client, queue, "s", "work")
    with client.get_queue_receiver(queue, session_id="s") as slow:
        receive_one(slow)
        clock.pass_by(slow.session.locked_until_utc)
        with next_session(client, queue) as next_one:
            assert next_one.session.session_id == "s"
            message = receive_one(next_one)
            assert message.delivery_count == 1
            with pytest.raises(SessionLockLostError):
                slow.session.renew_lock()
            next_one.complete_message(message)


def test_a_poison_message_is_removed_from_its_session(client, create):
    queue = create(requires_session=True, max_delivery_count=2)
    send_in_session(client, queue, "s", "poison", "good")
    with client.get_queue_receiver(queue, session_id="s") as receiver:
        for _ in range(2):
            receiver.abandon_message(receive_one(receiver))
        assert text(receive_one(receiver)) == "good"
    dead = receive_dead_letter(client, queue)
    assert (text(dead), dead.dead_letter_reason) == ("poison", "MaxDeliveryCountExceeded")


def test_a_poison_message_can_block_its_session(client, create):
    queue = create(requires_session=True, max_delivery_count=2, poison_session="block")
    send_in_session(client, queue, "s", "poison", "behind")
    with client.get_queue_receiver(queue, session_id="s") as receiver:
        for count in range(4):
            message = receive_one(receiver)
            assert (text(message), message.delivery_count) == ("poison", count)
            receiver.abandon_message(message)
        receiver.complete_message(receive_one(receiver))
        assert text(receive_one(receiver)) == "behind"


def test_a_poisoned_session_can_be_set_aside_for_receivers_that_name_it(client, create):
    queue = create(requires_session=True, max_delivery_count=2, poison_session="set-aside")
    send_in_session(client, queue, "bad", "poison", "behind")
    with next_session(client, queue) as receiver:
        for _ in range(2):
            receiver.abandon_message(receive_one(receiver))
    with pytest.raises(OperationTimeoutError):
        with next_session(client, queue, seconds=2):
            pass
    with client.get_queue_receiver(queue, session_id="bad") as receiver:
        messages = receive(receiver, 2)
        assert texts(messages) == ["poison", "behind"]
        for message in messages:
            receiver.complete_message(message)
