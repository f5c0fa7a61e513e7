"""Duplicate detection: a message with an id from within the window is accepted and dropped."""

import pytest
from azure.servicebus import ServiceBusMessage

from broker import Broker
from plain import Management
from steps import in_seconds, receive, receive_one, text, texts


@pytest.fixture
def queue(create):
    return create(duplicate_window_ms=60_000)


def message(body, message_id="same"):
    return ServiceBusMessage(body, message_id=message_id)


def everything(receiver):
    return texts(receiver.peek_messages(max_message_count=100, sequence_number=1))


def test_a_repeated_id_is_accepted_and_dropped(sender, receiver):
    sender.send_messages(message("first"))
    sender.send_messages(message("again"))
    sender.send_messages(message("other", message_id="other"))
    assert everything(receiver) == ["first", "other"]


def test_an_id_is_remembered_after_its_message_is_removed(sender, receiver):
    sender.send_messages(message("first"))
    receiver.complete_message(receive_one(receiver))
    sender.send_messages(message("again"))
    assert everything(receiver) == []


def test_each_message_of_a_batch_is_checked(sender, receiver):
    sender.send_messages([message("a", "1"), message("b", "2"), message("again", "1")])
    sender.send_messages([message("again", "2"), message("c", "3")])
    assert everything(receiver) == ["a", "b", "c"]


def test_scheduled_messages_are_checked(clock, sender, receiver):
    sender.schedule_messages(message("scheduled"), in_seconds(60))
    sender.send_messages(message("again"))
    clock.advance(60)
    assert text(receive_one(receiver)) == "scheduled"
    assert everything(receiver) == ["scheduled"]


def test_an_id_is_forgotten_after_the_window(client, clock, create):
    queue = create(duplicate_window_ms=60_000)
    with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        sender.send_messages(message("first"))
        sender.send_messages(message("again"))
        clock.advance(60.1)
        sender.send_messages(message("after"))
        assert texts(receive(receiver, 2)) == ["first", "after"]


def test_a_plain_queue_keeps_repeated_ids(client, pool):
    queue = pool.take()
    with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        sender.send_messages([message("first"), message("again")])
        assert texts(receive(receiver, 2)) == ["first", "again"]


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_ids_are_remembered_after_a_restart(flavour, tmp_path, how):
    broker = Broker(tmp_path, []).start()
    try:
        queue = Management(broker).create_queue(duplicate_window_ms=60_000)
        with flavour.client(broker.connection_string) as client:
            with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
                sender.send_messages(message("first"))
                receiver.complete_message(receive_one(receiver))
        getattr(broker, how)()
        broker.start()
        with flavour.client(broker.connection_string) as client:
            with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
                sender.send_messages([message("again"), message("new", message_id="new")])
                assert everything(receiver) == ["new"]
    finally:
        broker.stop()
