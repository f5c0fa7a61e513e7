"""Queue groups: several queues behind one name that the configuration declares, received from with the unmodified SDK.
"""

import threading

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.exceptions import MessageLockLostError, ServiceBusError

from api import Api
from broker import Broker
from steps import receive, receive_one, send, text, texts, until

PREFETCH = 300
OUTSTANDING = 16

CONFIGURATION = """
[queues.high]
[queues.normal]
[queues.low]
[queues.urgent]
[queues.rest]
[topics.news.subscriptions.all]

[groups.work]
order = "strict"
members = ["high", "normal", "low"]

[groups.hoard]
order = "strict"
members = ["urgent", "rest"]

[groups.mixed]
order = "weighted"
members = [{ name = "normal", weight = 3 }, { name = "news/Subscriptions/all", weight = 1 }]
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    folder = tmp_path_factory.mktemp("groups")
    config = folder / "peeklock.toml"
    config.write_text(CONFIGURATION)
    broker = Broker(folder, configs=[config]).start()
    yield broker
    broker.stop()


@pytest.fixture
def drained(client, broker):
    """Removes the messages that other tests left."""
    drain(client, broker, "work", ("queues", "high"), ("queues", "normal"), ("queues", "low"))
    drain(client, broker, "mixed", ("topics", "news", "subscriptions", "all"))


def drain(client, broker, group, *members):
    def is_empty():
        return all(Api(broker).get(*member)["activeCount"] == 0 for member in members)

    if is_empty():
        return
    with client.get_queue_receiver(group, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as receiver:
        until(lambda: receiver.receive_messages(max_message_count=100, max_wait_time=1) == [] and is_empty(), "an empty queue group")


def test_the_most_urgent_queue_is_first(client, drained):
    send(client, "low", "low 1", "low 2")
    send(client, "normal", "normal")
    send(client, "high", "high 1", "high 2")
    with client.get_queue_receiver("work") as receiver:
        messages = receive(receiver, 5)
        assert texts(messages) == ["high 1", "high 2", "normal", "low 1", "low 2"]
        receiver.renew_message_lock(messages[0])
        receiver.complete_message(messages[0])
        receiver.abandon_message(messages[1])
        receiver.dead_letter_message(messages[3], reason="tired")
        for message in [messages[2], messages[4]]:
            receiver.complete_message(message)
        again = receive_one(receiver)
        assert (text(again), again.delivery_count) == ("high 2", 1)
        receiver.complete_message(again)
        assert receiver.receive_messages(max_message_count=1, max_wait_time=1) == []
    with client.get_queue_receiver("low", sub_queue="deadletter") as receiver:
        dead = receive_one(receiver)
        assert (text(dead), dead.dead_letter_reason) == ("low 1", "tired")
        receiver.complete_message(dead)


def test_prefetch_is_limited(client):
    send(client, "rest", *[f"rest {number}" for number in range(100)])
    with client.get_queue_receiver("hoard", prefetch_count=PREFETCH) as receiver:
        held = receive(receiver, OUTSTANDING)
        assert receiver.receive_messages(max_message_count=1, max_wait_time=1) == [], "more messages were delivered than the limit"
        send(client, "urgent", "urgent")
        receiver.complete_message(held[0])
        assert text(receive_one(receiver)) == "urgent"


def test_a_waiting_receiver_gets_new_messages(client, drained):
    with client.get_queue_receiver("work", prefetch_count=PREFETCH) as receiver:
        later = threading.Timer(0.5, send, (client, "normal", "expected"))
        later.start()
        message = receive_one(receiver)
        assert text(message) == "expected"
        receiver.complete_message(message)
        later.join()


def test_a_member_queue_can_also_be_received_from_directly(client, drained):
    send(client, "low", *[f"low {number}" for number in range(20)])
    send(client, "high", *[f"high {number}" for number in range(20)])
    with client.get_queue_receiver("low") as own, client.get_queue_receiver("work") as group:
        taken = []
        for receiver in [own, group] * 20:
            message = receive_one(receiver)
            taken.append(text(message))
            receiver.complete_message(message)
    assert len(set(taken)) == 40
    assert taken[1::2] == [f"high {number}" for number in range(20)], "the queue group must get the high messages"


def test_messages_are_peeked_and_received_and_deleted(client, drained):
    send(client, "low", "low")
    send(client, "high", "high")
    with client.get_queue_receiver("work", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as receiver:
        assert sorted(texts(receiver.peek_messages(max_message_count=10))) == ["high", "low"]
        assert texts(receive(receiver, 2)) == ["high", "low"]
        assert receiver.peek_messages(max_message_count=10) == []


def test_an_expired_lock_is_lost(client, clock, drained):
    send(client, "high", "slow")
    with client.get_queue_receiver("work") as receiver:
        message = receive_one(receiver)
        clock.pass_by(message.locked_until_utc)
        with pytest.raises(MessageLockLostError):
            receiver.complete_message(message)
        again = receive_one(receiver)
        assert text(again) == "slow"
        receiver.complete_message(again)


def test_queues_and_subscriptions_share_by_weight(client, drained):
    with client.get_topic_sender("news") as sender:
        sender.send_messages([ServiceBusMessage("news") for _ in range(20)])
    send(client, "normal", *["normal"] * 60)
    with client.get_queue_receiver("mixed") as receiver:
        taken = []
        while len(taken) < 40:
            for message in receiver.receive_messages(max_message_count=8, max_wait_time=30):
                taken.append(text(message))
                receiver.complete_message(message)
    assert 7 <= taken.count("news") <= 13, taken


def test_a_queue_group_rejects_sends(client):
    with pytest.raises(ServiceBusError, match="send to one of its members"):
        with client.get_queue_sender("work") as sender:
            sender.send_messages(ServiceBusMessage("lost"))
