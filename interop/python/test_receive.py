"""Receiving: both modes, prefetch, the iterator, waiting, and the release of messages on close."""

import threading
import time

from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode

from steps import assert_empty, receive, receive_one, send, text, texts, until


def test_peek_lock_keeps_the_message_until_it_is_completed(client, queue, receiver):
    send(client, queue, "kept")
    message = receive_one(receiver)
    assert message.lock_token is not None
    assert message.locked_until_utc is not None
    assert message.delivery_count == 0
    assert texts(receiver.peek_messages(sequence_number=1)) == ["kept"]
    receiver.complete_message(message)
    assert_empty(client, queue)


def test_receive_and_delete_removes_at_once(client, queue):
    send(client, queue, "a", "b", "c")
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with client.get_queue_receiver(queue, receive_mode=mode) as receiver:
        assert texts(receive(receiver, 3)) == ["a", "b", "c"]
    assert_empty(client, queue)


def test_prefetch_delivers_everything_once(client, queue):
    sent = [str(number) for number in range(60)]
    send(client, queue, *sent)
    with client.get_queue_receiver(queue, prefetch_count=20, max_wait_time=5) as receiver:
        got = []
        while len(got) < 60:
            for message in receive(receiver, min(10, 60 - len(got))):
                got.append(text(message))
                receiver.complete_message(message)
    assert got == sent
    assert_empty(client, queue)


def test_the_iterator_yields_messages_and_ends_after_its_wait(client, queue):
    send(client, queue, "1", "2", "3")
    got = []
    with client.get_queue_receiver(queue, max_wait_time=5) as receiver:
        for message in receiver:
            got.append(text(message))
            receiver.complete_message(message)
    assert got == ["1", "2", "3"]


def test_a_wait_on_an_empty_queue_returns_nothing(receiver):
    started = time.monotonic()
    assert receiver.receive_messages(max_wait_time=1) == []
    assert time.monotonic() - started > 0.5


def test_a_waiting_receiver_gets_a_message_as_it_is_sent(flavour, broker, client, queue, receiver):
    got = []
    waiting = threading.Thread(target=lambda: got.extend(receiver.receive_messages(max_wait_time=20)))
    waiting.start()
    with flavour.client(broker.connection_string) as other:
        send(other, queue, "soon")
    waiting.join()
    assert texts(got) == ["soon"]


def test_close_releases_prefetched_messages(client, queue, management):
    send(client, queue, *[str(number) for number in range(10)])
    with client.get_queue_receiver(queue, prefetch_count=9) as receiver:
        receiver.complete_message(receive_one(receiver))
        # SDK quirk: on close it abandons messages in flight after a short idle time, and it cannot release messages
        # that it never received.
        until(lambda: management.show_queue(queue)["lockedCount"] >= 8, "the prefetched messages")
    with client.get_queue_receiver(queue) as receiver:
        messages = receive(receiver, 9)
        assert sorted(texts(messages)) == [str(number) for number in range(1, 10)]


def test_messages_of_two_queues_are_separate(client, pool):
    one, two = pool.take(), pool.take()
    send(client, one, "for one")
    send(client, two, "for two")
    with client.get_queue_receiver(two) as receiver:
        assert text(receive_one(receiver)) == "for two"


def test_queue_names_are_case_insensitive(client, queue, receiver):
    with client.get_queue_sender(queue.upper()) as sender:
        sender.send_messages(ServiceBusMessage("same queue"))
    assert text(receive_one(receiver)) == "same queue"
