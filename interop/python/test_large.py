"""Messages of many megabytes: they arrive unchanged, and the broker never holds a whole one in memory."""

import os

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode, ServiceBusSubQueue
from azure.servicebus.exceptions import MessageSizeExceededError, ServiceBusQuotaExceededError

from broker import Broker
from steps import assert_empty, receive_one, until

MB = 1000 * 1000
RECEIVE_SECONDS = 60
# The limit on additional memory for messages of any size, well below the 100 MB of one message.
PEAK_MB_MAX = 40


@pytest.fixture
def large(tmp_path):
    large = "max-message-size=100MiB"
    queues = [f"big,{large}", f"next,{large}", f"way,{large},forward-to=next"]
    queues.append(f"once,{large},duplicate-window=10m,max-size=10MiB")
    broker = Broker(tmp_path, queues).start()
    yield broker
    broker.stop()


@pytest.fixture
def large_client(flavour, large):
    with flavour.client(large.connection_string) as client:
        yield client


def content(message):
    return b"".join(message.body)


def peak_mb(broker):
    with open(f"/proc/{broker.process.pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) // 1024 for line in status if line.startswith("VmHWM"))


def large_files(broker):
    return list((broker.folder / "data" / "cold").glob("*/*.body"))


@pytest.mark.parametrize("mode", list(ServiceBusReceiveMode))
@pytest.mark.parametrize("size", [20 * MB, 100 * MB])
def test_a_large_message_arrives_whole_and_memory_stays_small(large, large_client, size, mode):
    sent = os.urandom(size)
    before = peak_mb(large)
    with large_client.get_queue_sender("big") as sender:
        sender.send_messages(ServiceBusMessage(sent, message_id="m", application_properties={"colour": "green"}))
    with large_client.get_queue_receiver("big", receive_mode=mode) as receiver:
        message = receive_one(receiver, RECEIVE_SECONDS)
        assert content(message) == sent
        assert (message.message_id, message.application_properties) == ("m", {b"colour": b"green"})
        if mode == ServiceBusReceiveMode.PEEK_LOCK:
            receiver.complete_message(message)
    assert peak_mb(large) - before < PEAK_MB_MAX
    assert_empty(large_client, "big")


def test_a_message_above_the_limit_is_rejected_and_the_sender_continues(large, large_client):
    with large_client.get_queue_sender("big") as sender:
        with pytest.raises(MessageSizeExceededError):
            sender.send_messages(ServiceBusMessage(b"x" * (105 * MB)))
        sender.send_messages(ServiceBusMessage(b"next"))
    with large_client.get_queue_receiver("big") as receiver:
        assert content(receive_one(receiver)) == b"next"
    assert large_files(large) == []


def test_a_large_message_is_abandoned_dead_lettered_and_forwarded(large_client):
    sent = os.urandom(5 * MB)
    with large_client.get_queue_sender("way") as sender:
        sender.send_messages(ServiceBusMessage(sent))
    with large_client.get_queue_receiver("next") as receiver:
        receiver.abandon_message(receive_one(receiver, RECEIVE_SECONDS))
        message = receive_one(receiver, RECEIVE_SECONDS)
        assert content(message) == sent and message.delivery_count == 1
        receiver.dead_letter_message(message, reason="poison")
    with large_client.get_queue_receiver("next", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        message = receive_one(receiver, RECEIVE_SECONDS)
        assert content(message) == sent and message.dead_letter_reason == "poison"
        receiver.complete_message(message)


def test_dropped_and_rejected_messages_leave_no_file(large, large_client):
    with large_client.get_queue_sender("once") as sender:
        for _ in range(3):
            sender.send_messages(ServiceBusMessage(b"x" * 4 * MB, message_id="same"))
        with pytest.raises(ServiceBusQuotaExceededError):
            sender.send_messages(ServiceBusMessage(b"x" * 8 * MB, message_id="other"))
    until(lambda: len(large_files(large)) == 1, "the files of dropped and rejected messages to be deleted")


def test_a_large_message_is_peeked_and_deferred_whole_and_memory_stays_small(large, large_client):
    sent = os.urandom(60 * MB)
    before = peak_mb(large)
    with large_client.get_queue_sender("big") as sender, large_client.get_queue_receiver("big") as receiver:
        sender.send_messages(ServiceBusMessage(sent, subject="much"))
        [message] = receiver.peek_messages(timeout=RECEIVE_SECONDS)
        assert message.subject == "much" and content(message) == sent
        receiver.defer_message(receive_one(receiver, RECEIVE_SECONDS))
        [message] = receiver.receive_deferred_messages(message.sequence_number, timeout=RECEIVE_SECONDS)
        assert content(message) == sent
        receiver.complete_message(message)
    assert peak_mb(large) - before < PEAK_MB_MAX
    until(lambda: large_files(large) == [], "the file to be deleted")


def test_a_large_message_survives_a_kill_and_leaves_no_file(large, large_client):
    sent = os.urandom(8 * MB)
    with large_client.get_queue_sender("big") as sender:
        sender.send_messages(ServiceBusMessage(sent))
    # The address changes with the restart, so a new client is required.
    large.kill()
    large.start()
    with ServiceBusClient.from_connection_string(large.connection_string) as client:
        with client.get_queue_receiver("big") as receiver:
            message = receive_one(receiver, RECEIVE_SECONDS)
            assert content(message) == sent
            receiver.complete_message(message)
        until(lambda: large_files(large) == [], "the file to be deleted")
