"""Peek changes nothing, pages by sequence number, and returns messages of every state."""

from azure.servicebus import ServiceBusMessage, ServiceBusMessageState, ServiceBusSubQueue

from steps import in_seconds, receive, receive_one, send, text, texts


def test_peek_neither_locks_nor_counts_a_delivery(client, queue, receiver):
    send(client, queue, "seen")
    assert texts(receiver.peek_messages(sequence_number=1)) == ["seen"]
    assert texts(receiver.peek_messages(sequence_number=1)) == ["seen"]
    assert receive_one(receiver).delivery_count == 0


def test_peek_pages_through_a_queue(client, queue, receiver):
    sent = [str(number) for number in range(25)]
    send(client, queue, *sent)
    got = []
    while page := receiver.peek_messages(max_message_count=10):
        assert len(page) <= 10
        got += texts(page)
    assert got == sent


def test_peek_starts_at_a_sequence_number(client, queue, receiver):
    send(client, queue, "a", "b", "c")
    numbers = [message.sequence_number for message in receiver.peek_messages(max_message_count=10)]
    page = receiver.peek_messages(max_message_count=10, sequence_number=numbers[1])
    assert texts(page) == ["b", "c"]


def test_peek_on_an_empty_queue_returns_nothing(receiver):
    assert receiver.peek_messages() == []


def test_peek_returns_states(client, queue, receiver):
    send(client, queue, "deferred", "locked", "active")
    deferred, locked = receive(receiver, 2)
    receiver.defer_message(deferred)
    states = {text(message): message.state for message in receiver.peek_messages(max_message_count=10, sequence_number=1)}
    assert states == {
        "deferred": ServiceBusMessageState.DEFERRED,
        "locked": ServiceBusMessageState.ACTIVE,
        "active": ServiceBusMessageState.ACTIVE,
    }
    receiver.complete_message(locked)


def test_peek_returns_dead_letters(client, queue, receiver):
    send(client, queue, "poison")
    receiver.dead_letter_message(receive_one(receiver), reason="why")
    with client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as dead:
        [message] = dead.peek_messages()
        assert message.dead_letter_reason == "why"


def test_peek_of_large_messages_still_pages(client, queue, receiver):
    for number in range(5):
        send(client, queue, f"{number}" * 200_000)
    got = []
    while page := receiver.peek_messages(max_message_count=5):
        got += texts(page)
    assert [body[0] for body in got] == ["0", "1", "2", "3", "4"]


def test_peek_pages_over_every_state(client, create):
    queue = create(retry="fixed:60s")
    send(client, queue, "deferred", "delayed", "locked", *[f"active {number}" for number in range(5)])
    with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        sender.schedule_messages([ServiceBusMessage("scheduled")], in_seconds(3600))
        deferred, delayed, _locked = receive(receiver, 3)
        receiver.defer_message(deferred)
        receiver.abandon_message(delayed)
        seen = []
        while page := receiver.peek_messages(max_message_count=4, sequence_number=next_number(seen)):
            assert len(page) <= 4
            seen += page
        assert texts(seen) == ["deferred", "delayed", "locked", *[f"active {number}" for number in range(5)], "scheduled"]
        states = {text(message): message.state for message in seen}
        assert states["deferred"] == ServiceBusMessageState.DEFERRED
        assert states["scheduled"] == ServiceBusMessageState.SCHEDULED
        assert {states[name] for name in ("delayed", "locked", "active 0")} == {ServiceBusMessageState.ACTIVE}


def next_number(seen):
    return seen[-1].sequence_number + 1 if seen else 1
