"""Automatic forwarding to another queue, and failures on the way."""

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.exceptions import ServiceBusError

from names import fresh
from steps import assert_empty, receive, receive_dead_letter, receive_one, send, send_in_session, text, texts

TRANSFER = ServiceBusSubQueue.TRANSFER_DEAD_LETTER


def test_messages_are_forwarded_unchanged(client, create):
    target = create()
    source = create(forward_to=target)
    with client.get_queue_sender(source) as sender:
        properties = {"message_id": "m", "subject": "s", "application_properties": {"own": 7}}
        sender.send_messages([ServiceBusMessage("first", **properties), ServiceBusMessage("second")])
    with client.get_queue_receiver(target) as receiver:
        first, second = receive(receiver, 2)
        assert texts([first, second]) == ["first", "second"]
        assert (first.message_id, first.subject, first.application_properties) == ("m", "s", {b"own": 7})
        assert (first.enqueued_sequence_number, second.enqueued_sequence_number) == (1, 2)
        assert first.delivery_count == 0


def test_many_messages_arrive_once_and_in_order(client, create):
    target = create()
    source = create(forward_to=target)
    sent = [str(number) for number in range(500)]
    send(client, source, *sent)
    with client.get_queue_receiver(target) as receiver:
        assert texts(receive(receiver, 500)) == sent
        assert receiver.receive_messages(max_wait_time=0.3) == []


def test_a_forwarding_queue_rejects_receivers(client, create):
    source = create(forward_to=create())
    with pytest.raises(ServiceBusError, match="forwards its messages"):
        with client.get_queue_receiver(source) as receiver:
            receiver.receive_messages(max_wait_time=20)


def test_a_queue_that_starts_to_forward_forwards_its_backlog(client, create, management):
    target, source = create(), create()
    send(client, source, "waited")
    management.update_queue(source, forward_to=target)
    with client.get_queue_receiver(target) as receiver:
        assert text(receive_one(receiver)) == "waited"


def test_dead_letters_are_forwarded_with_reason_and_source(client, create):
    graveyard = create()
    source = create(forward_dead_letters_to=graveyard)
    send(client, source, "poison")
    with client.get_queue_receiver(source) as receiver:
        number = receive_one(receiver)
        receiver.dead_letter_message(number, reason="why", error_description="more")
    with client.get_queue_receiver(graveyard) as receiver:
        message = receive_one(receiver)
    assert (text(message), message.dead_letter_reason, message.dead_letter_error_description) == ("poison", "why", "more")
    assert message.dead_letter_source == source
    assert message.enqueued_sequence_number == number.sequence_number


def test_poison_and_expired_messages_are_forwarded(client, create):
    graveyard = create()
    poison = create(max_delivery_count=1, forward_dead_letters_to=graveyard)
    send(client, poison, "poison")
    with client.get_queue_receiver(poison) as receiver:
        receiver.abandon_message(receive_one(receiver))
    short = create(default_time_to_live_ms=300, dead_letter_on_expiration=True, forward_dead_letters_to=graveyard)
    send(client, short, "late")
    with client.get_queue_receiver(graveyard) as receiver:
        got = {text(message): (message.dead_letter_reason, message.dead_letter_source) for message in receive(receiver, 2)}
    assert got == {"poison": ("MaxDeliveryCountExceeded", poison), "late": ("TTLExpiredException", short)}


def transfer_dead_letter(client, source, fragment):
    message = receive_dead_letter(client, source, TRANSFER)
    assert fragment in message.dead_letter_error_description
    assert message.dead_letter_reason
    return text(message)


def test_a_message_for_a_deleted_queue_is_dead_lettered(client, create, management):
    target = create()
    source = create(forward_to=target)
    management.delete_queue(target)
    send(client, source, "homeless")
    assert transfer_dead_letter(client, source, target) == "homeless"
    assert management.show_queue(source)["transferDeadLetterCount"] == 0


def test_a_message_for_a_full_queue_is_dead_lettered(client, create):
    target = create(max_size=2000)
    source = create(forward_to=target)
    send(client, source, "x" * 1500)
    send(client, source, "y" * 1500)
    assert transfer_dead_letter(client, source, "full") == "y" * 1500
    with client.get_queue_receiver(target) as receiver:
        assert text(receive_one(receiver)) == "x" * 1500


def test_a_message_for_a_disabled_queue_is_dead_lettered(client, create):
    target = create(status="send-disabled")
    source = create(forward_to=target)
    send(client, source, "refused")
    assert transfer_dead_letter(client, source, "disabled") == "refused"


def test_a_message_without_session_for_a_session_queue_is_dead_lettered(client, create):
    target = create(requires_session=True)
    source = create(forward_to=target)
    send(client, source, "no session")
    send_in_session(client, source, "s", "in a session")
    assert transfer_dead_letter(client, source, "session") == "no session"
    with client.get_queue_receiver(target, session_id="s") as receiver:
        assert text(receive_one(receiver)) == "in a session"


def chain(create, hops):
    """Creates queues that forward `hops` times in a row. Returns them from the first to the last."""
    names = [create()]
    for _ in range(hops):
        names.insert(0, create(forward_to=names[0]))
    return names


def test_four_hops_are_permitted(client, create):
    first, *_, last = chain(create, 4)
    send(client, first, "far")
    with client.get_queue_receiver(last) as receiver:
        assert text(receive_one(receiver)) == "far"


def test_a_fifth_hop_dead_letters_the_message(client, create):
    first, *_, stuck, last = chain(create, 5)
    send(client, first, "too far")
    dead = receive_dead_letter(client, stuck)
    assert (text(dead), dead.dead_letter_reason) == ("too far", "MaxTransferHopCountExceeded")
    assert_empty(client, last)


def test_a_forwarding_loop_ends(client, create, management):
    one, two = create(), create()
    management.update_queue(one, forward_to=two)
    management.update_queue(two, forward_to=one)
    send(client, one, "dizzy")
    assert receive_dead_letter(client, one).dead_letter_reason == "MaxTransferHopCountExceeded"


def test_a_queue_that_forwards_to_itself_ends(client, admin):
    name = fresh("queue")
    admin.create_queue(name, forward_to=name)
    send(client, name, "dizzy")
    assert receive_dead_letter(client, name).dead_letter_reason == "MaxTransferHopCountExceeded"


def test_a_subscription_that_forwards_to_its_own_topic_ends(client, admin):
    topic = fresh("topic")
    admin.create_topic(topic)
    admin.create_subscription(topic, "loop", forward_to=topic)
    with client.get_topic_sender(topic) as sender:
        sender.send_messages(ServiceBusMessage("dizzy"))
    with client.get_subscription_receiver(topic, "loop", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        assert receive_one(receiver).dead_letter_reason == "MaxTransferHopCountExceeded"


def test_a_queue_with_sessions_forwards(client, admin):
    target, source = fresh("queue"), fresh("queue")
    admin.create_queue(target, requires_session=True)
    admin.create_queue(source, requires_session=True, forward_to=target)
    send_in_session(client, source, "a", "first", "second")
    with client.get_queue_receiver(target, session_id="a") as receiver:
        assert texts(receive(receiver, 2)) == ["first", "second"]
