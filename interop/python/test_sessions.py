"""Sessions: one receiver at a time, order within a session, state, and many sessions shared by many receivers."""

import contextlib
import datetime
import threading
import time

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusError, SessionCannotBeLockedError

from steps import (
    assert_empty,
    in_seconds,
    next_session,
    receive,
    receive_dead_letter,
    receive_one,
    send_in_session,
    text,
    texts,
)

TOO_LONG = "x" * 129


@pytest.fixture
def queue(create):
    return create(requires_session=True)


def test_a_named_session_delivers_its_own_messages_in_order(client, queue):
    send_in_session(client, queue, "red", "r1", "r2")
    send_in_session(client, queue, "blue", "b1")
    send_in_session(client, queue, "red", "r3")
    with client.get_queue_receiver(queue, session_id="red") as receiver:
        assert receiver.session.session_id == "red"
        messages = receive(receiver, 3)
        assert texts(messages) == ["r1", "r2", "r3"]
        assert {message.session_id for message in messages} == {"red"}
        for message in messages:
            receiver.complete_message(message)
        assert receiver.receive_messages(max_wait_time=0.5) == []


def test_a_session_without_messages_can_be_held_until_they_arrive(client, queue):
    with client.get_queue_receiver(queue, session_id="early") as receiver:
        send_in_session(client, queue, "late", "not mine")
        send_in_session(client, queue, "early", "mine")
        assert text(receive_one(receiver)) == "mine"


def test_session_ids_are_case_insensitive_and_returned_as_first_sent(client, queue):
    send_in_session(client, queue, "Order 7", "first")
    send_in_session(client, queue, "ORDER 7", "second")
    with next_session(client, queue) as receiver:
        assert receiver.session.session_id == "Order 7"
    with client.get_queue_receiver(queue, session_id="order 7") as receiver:
        messages = receive(receiver, 2)
        assert [(text(message), message.session_id) for message in messages] == [("first", "Order 7"), ("second", "ORDER 7")]
        assert texts(receiver.peek_messages(max_message_count=10, sequence_number=1)) == ["first", "second"]


def test_two_receivers_get_two_sessions(client, queue):
    send_in_session(client, queue, "a", "in a")
    send_in_session(client, queue, "b", "in b")
    with next_session(client, queue) as one, next_session(client, queue) as two:
        got = {receiver.session.session_id: text(receive_one(receiver)) for receiver in (one, two)}
    assert got == {"a": "in a", "b": "in b"}


def test_the_wait_for_a_session_times_out(client, queue):
    started = time.monotonic()
    with pytest.raises(OperationTimeoutError):
        with next_session(client, queue, seconds=1):
            pass
    assert time.monotonic() - started > 0.9


def test_a_new_session_goes_to_a_waiting_receiver(client, queue):
    sending = threading.Timer(0.5, send_in_session, (client, queue, "awaited", "here"))
    sending.start()
    with next_session(client, queue) as receiver:
        assert receiver.session.session_id == "awaited"
        assert text(receive_one(receiver)) == "here"
    sending.join()


def test_a_held_session_is_rejected_for_others_and_released_on_close(flavour, broker, queue):
    with flavour.client(broker.connection_string, retry_total=0) as client:
        send_in_session(client, queue, "one", "work")
        with client.get_queue_receiver(queue, session_id="one"):
            with pytest.raises(SessionCannotBeLockedError):
                with client.get_queue_receiver(queue, session_id="one"):
                    pass
        with client.get_queue_receiver(queue, session_id="one") as receiver:
            assert text(receive_one(receiver)) == "work"


def test_messages_of_a_closed_receiver_return_in_order_and_are_counted(client, queue):
    send_in_session(client, queue, "s", "first", "second")
    with client.get_queue_receiver(queue, session_id="s") as receiver:
        receive(receiver, 2)
    with client.get_queue_receiver(queue, session_id="s") as receiver:
        messages = receive(receiver, 2)
        assert texts(messages) == ["first", "second"]
        assert [message.delivery_count for message in messages] == [1, 1]


def test_an_abandoned_message_is_redelivered_before_its_successors(client, queue):
    send_in_session(client, queue, "s", "first", "second", "third")
    with client.get_queue_receiver(queue, session_id="s") as receiver:
        receiver.abandon_message(receive_one(receiver))
        messages = receive(receiver, 3)
        assert texts(messages) == ["first", "second", "third"]
        assert messages[0].delivery_count == 1


def test_every_session_keeps_its_order_while_workers_compete(flavour, broker, queue):
    sessions, length = [f"s{number}" for number in range(6)], 15
    with flavour.client(broker.connection_string) as client:
        with client.get_queue_sender(queue) as sender:
            for number in range(length):
                sender.send_messages([ServiceBusMessage(str(number), session_id=session) for session in sessions])
        done = []
        args = (flavour, broker, queue, done, length * len(sessions))
        workers = [threading.Thread(target=work, args=args) for _ in range(3)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        expected = [str(number) for number in range(length)]
        assert {session: [body for owner, body in done if owner == session] for session in sessions} == {
            session: expected for session in sessions
        }
        assert list(client.list_queue_sessions(queue)) == []


def work(flavour, broker, queue, done, count):
    """Accepts one session after the other until all messages are done."""
    with flavour.client(broker.connection_string, retry_total=0) as client:
        while len(done) < count:
            with contextlib.suppress(OperationTimeoutError), next_session(client, queue, seconds=1) as receiver:
                for message in receiver.receive_messages(max_message_count=5, max_wait_time=1):
                    done.append((message.session_id, text(message)))
                    receiver.complete_message(message)


def test_state_is_kept_after_the_receiver_closes_and_can_be_cleared(client, queue):
    with client.get_queue_receiver(queue, session_id="s") as receiver:
        assert receiver.session.get_state() is None
        receiver.session.set_state("half way")
        assert receiver.session.get_state() == b"half way"
    with client.get_queue_receiver(queue, session_id="s") as receiver:
        assert receiver.session.get_state() == b"half way"
        receiver.session.set_state(b"\x00\xff")
        assert receiver.session.get_state() == b"\x00\xff"
        receiver.session.set_state(None)
        assert receiver.session.get_state() is None


def test_a_state_that_is_too_large_is_rejected_and_the_old_one_is_kept(client, queue):
    with client.get_queue_receiver(queue, session_id="s") as receiver:
        receiver.session.set_state(b"x" * 256 * 1024)
        with pytest.raises(ServiceBusError):
            receiver.session.set_state(b"y" * (256 * 1024 + 1))
        assert receiver.session.get_state() == b"x" * 256 * 1024


def test_sessions_are_listed(client, queue):
    assert list(client.list_queue_sessions(queue)) == []
    for session in ("a", "b", "c"):
        send_in_session(client, queue, session, "work")
    assert sorted(client.list_queue_sessions(queue)) == ["a", "b", "c"]
    before = in_seconds(-5)
    assert list(client.list_queue_sessions(queue, state_updated_after=before)) == []
    with client.get_queue_receiver(queue, session_id="b") as receiver:
        receiver.session.set_state("touched")
    assert list(client.list_queue_sessions(queue, state_updated_after=before)) == ["b"]
    assert list(client.list_queue_sessions(queue, state_updated_after=in_seconds(60))) == []


def test_many_sessions_are_listed_in_pages(client, queue):
    expected = sorted(f"session-{number:03}" for number in range(150))
    with client.get_queue_sender(queue) as sender:
        sender.send_messages([ServiceBusMessage("x", session_id=session) for session in expected])
    assert sorted(client.list_queue_sessions(queue)) == expected


def test_a_session_receiver_on_a_plain_queue_is_rejected(client, pool):
    with pytest.raises(ServiceBusError, match="not have sessions"):
        with client.get_queue_receiver(pool.take(), session_id="s"):
            pass


def test_a_plain_receiver_on_a_session_queue_is_rejected(client, queue):
    with pytest.raises(ServiceBusError, match="requires sessions"):
        with client.get_queue_receiver(queue) as receiver:
            receiver.receive_messages(max_wait_time=20)


def test_a_message_without_session_id_is_rejected(client, queue):
    with client.get_queue_sender(queue) as sender:
        with pytest.raises(ServiceBusError, match="requires sessions"):
            sender.send_messages([ServiceBusMessage("a", session_id="s"), ServiceBusMessage("b")])
    assert list(client.list_queue_sessions(queue)) == []


def test_a_session_id_that_is_too_long_is_rejected(client, queue):
    with pytest.raises(ServiceBusError, match="129 characters"):
        with client.get_queue_receiver(queue, session_id=TOO_LONG):
            pass
    message = ServiceBusMessage("x", session_id="short")
    message.raw_amqp_message.properties.group_id = TOO_LONG
    with client.get_queue_sender(queue) as sender:
        with pytest.raises(ServiceBusError, match="129 characters"):
            sender.send_messages(message)


@pytest.mark.parametrize("settlement", ["complete", "abandon", "defer", "dead_letter"])
def test_a_deferred_message_is_settled_in_its_session(client, queue, settlement):
    send_in_session(client, queue, "s", "later", "now")
    with client.get_queue_receiver(queue, session_id="s") as receiver:
        later, now = receive(receiver, 2)
        locked_until = later.raw_amqp_message.annotations[b"x-opt-locked-until"]
        receiver.defer_message(later)
        receiver.complete_message(now)
        [peeked] = receiver.peek_messages(sequence_number=1)
        assert peeked.raw_amqp_message.annotations[b"x-opt-locked-until"] == locked_until
        [deferred] = receiver.receive_deferred_messages([later.sequence_number])
        assert (text(deferred), deferred.session_id) == ("later", "s")
        getattr(receiver, f"{settlement}_message")(deferred)
        if settlement in ("abandon", "defer"):
            [again] = receiver.receive_deferred_messages([later.sequence_number])
            receiver.complete_message(again)
        assert receiver.peek_messages(sequence_number=1) == []
    if settlement == "dead_letter":
        assert text(receive_dead_letter(client, queue)) == "later"


def test_a_deferred_message_belongs_to_its_session(client, queue):
    send_in_session(client, queue, "mine", "deferred")
    with client.get_queue_receiver(queue, session_id="mine") as receiver:
        message = receive_one(receiver)
        receiver.defer_message(message)
    with client.get_queue_receiver(queue, session_id="other") as receiver:
        with pytest.raises(ServiceBusError):
            receiver.receive_deferred_messages([message.sequence_number])


def test_dead_letters_of_a_session_queue_are_received_without_session(client, queue):
    send_in_session(client, queue, "s", "poison", "good")
    with client.get_queue_receiver(queue, session_id="s") as receiver:
        receiver.dead_letter_message(receive_one(receiver), reason="why")
        assert text(receive_one(receiver)) == "good"
    dead = receive_dead_letter(client, queue)
    assert (text(dead), dead.session_id, dead.dead_letter_reason) == ("poison", "s", "why")
    assert_empty(client, queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER)


def test_peek_returns_one_session_only(client, queue):
    send_in_session(client, queue, "a", "a1", "a2")
    send_in_session(client, queue, "b", "b1")
    with client.get_queue_receiver(queue, session_id="a") as receiver:
        assert texts(receiver.peek_messages(max_message_count=10)) == ["a1", "a2"]


def test_receive_and_delete_works_in_a_session(client, queue):
    send_in_session(client, queue, "s", "gone")
    with client.get_queue_receiver(queue, session_id="s", receive_mode="receiveanddelete") as receiver:
        assert text(receive_one(receiver)) == "gone"
        assert receiver.peek_messages() == []


def test_session_lock_times_are_returned(client, create):
    queue = create(requires_session=True, lock_duration_ms=30_000)
    rounding = datetime.timedelta(milliseconds=100)
    earliest = in_seconds(30) - rounding
    with client.get_queue_receiver(queue, session_id="s") as receiver:
        assert receiver.session.locked_until_utc >= earliest
        assert receiver.session.locked_until_utc <= in_seconds(30) + rounding
