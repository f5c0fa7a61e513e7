"""A broker is killed and restarted: the same client objects keep working, and no confirmed message is lost."""

import pytest
from azure.servicebus import ServiceBusMessage

from broker import Broker, free_fixed_port
from plain import Management
from steps import assert_empty, in_seconds, receive, receive_one, send, send_in_session, text, texts


@pytest.fixture
def mortal(tmp_path):
    listen = f"127.0.0.1:{free_fixed_port()}"
    broker = Broker(tmp_path, ["jobs,lock=60s", "short,lock=5s"], listen=listen).start()
    yield broker
    broker.stop()


@pytest.fixture
def mortal_client(flavour, mortal):
    with flavour.client(mortal.connection_string) as client:
        yield client


def restart(broker, how):
    getattr(broker, how)()
    broker.start()


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_the_same_clients_work_after_a_restart(mortal, mortal_client, how):
    with mortal_client.get_queue_sender("jobs") as sender, mortal_client.get_queue_receiver("jobs") as receiver:
        sender.send_messages(ServiceBusMessage("before"))
        receiver.complete_message(receive_one(receiver))
        sender.send_messages(ServiceBusMessage("kept"))
        restart(mortal, how)
        sender.send_messages(ServiceBusMessage("after"))
        messages = receive(receiver, 2, seconds=20)
        assert texts(messages) == ["kept", "after"]
        for message in messages:
            receiver.complete_message(message)
    assert_empty(mortal_client, "jobs")


def test_confirmed_messages_survive_a_kill(mortal, mortal_client):
    sent = [str(number) for number in range(200)]
    send(mortal_client, "jobs", *sent[:100])
    send(mortal_client, "jobs", *sent[100:])
    restart(mortal, "kill")
    with mortal_client.get_queue_receiver("jobs") as receiver:
        assert texts(receive(receiver, 200)) == sent


def test_deferred_and_dead_lettered_messages_survive_a_kill(mortal, mortal_client):
    send(mortal_client, "jobs", "deferred", "poison")
    with mortal_client.get_queue_receiver("jobs") as receiver:
        deferred, poison = receive(receiver, 2)
        receiver.defer_message(deferred)
        receiver.dead_letter_message(poison, reason="why")
        restart(mortal, "kill")
        [again] = receiver.receive_deferred_messages([deferred.sequence_number])
        assert text(again) == "deferred"
    with mortal_client.get_queue_receiver("jobs", sub_queue="deadletter") as dead:
        assert receive_one(dead).dead_letter_reason == "why"


def test_a_lock_survives_a_kill_and_is_settled_by_its_token(mortal, mortal_client):
    send(mortal_client, "jobs", "in work")
    with mortal_client.get_queue_receiver("jobs") as receiver:
        message = receive_one(receiver)
        # Locks become durable with the next commit group; a confirmed send completes one.
        send(mortal_client, "jobs", "flushes the lock")
        restart(mortal, "kill")
        receiver.complete_message(message)
        assert text(receive_one(receiver)) == "flushes the lock"


def test_delivery_counts_survive_a_restart(mortal, mortal_client):
    send(mortal_client, "jobs", "tried")
    with mortal_client.get_queue_receiver("jobs") as receiver:
        receiver.abandon_message(receive_one(receiver))
    restart(mortal, "kill")
    with mortal_client.get_queue_receiver("jobs") as receiver:
        assert receive_one(receiver).delivery_count == 1


def test_scheduled_messages_survive_a_kill(mortal, mortal_client):
    with mortal_client.get_queue_sender("jobs") as sender, mortal_client.get_queue_receiver("jobs") as receiver:
        [cancelled] = sender.schedule_messages(ServiceBusMessage("cancelled"), in_seconds(3600))
        sender.schedule_messages([ServiceBusMessage("soon"), ServiceBusMessage("too")], in_seconds(300))
        restart(mortal, "kill")
        mortal.clock.advance(300)
        assert texts(receive(receiver, 2, seconds=20)) == ["soon", "too"]
        sender.cancel_scheduled_messages(cancelled)


def test_sessions_and_their_state_survive_a_kill(mortal, mortal_client):
    queue = Management(mortal).create_queue(requires_session=True)
    send_in_session(mortal_client, queue, "s", "first", "second", "third")
    with mortal_client.get_queue_receiver(queue, session_id="s") as receiver:
        receiver.complete_message(receive_one(receiver))
        receiver.session.set_state("one done")
    restart(mortal, "kill")
    with mortal_client.get_queue_receiver(queue, session_id="s") as receiver:
        assert receiver.session.get_state() == b"one done"
        assert texts(receive(receiver, 2)) == ["second", "third"]


def test_forwarded_messages_arrive_once_after_a_kill(mortal, mortal_client):
    management = Management(mortal)
    target = management.create_queue()
    source = management.create_queue(forward_to=target)
    sent = [str(number) for number in range(100)]
    send(mortal_client, source, *sent)
    restart(mortal, "kill")
    with mortal_client.get_queue_receiver(target) as receiver:
        assert texts(receive(receiver, 100, seconds=20)) == sent
        assert receiver.receive_messages(max_wait_time=0.5) == []


def test_the_broker_reports_recovery(mortal, mortal_client):
    send(mortal_client, "jobs", "one", "two")
    restart(mortal, "kill")
    assert mortal.labels["Recovered"].startswith("2 messages in ")
