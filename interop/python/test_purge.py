"""Removing many messages at once: with the batch delete of the newer SDKs, and with the broker's own purge."""

from proton import int32, timestamp

from steps import assert_empty, receive_one, send, text, texts


def milliseconds(moment):
    return timestamp(round(moment.timestamp() * 1000))


def test_batch_delete_and_purge_remove_messages(client, clock, create, management):
    queue = create()
    send(client, queue, *"abcdef")
    request = {"message-count": int32(2), "enqueued-time-utc": milliseconds(clock.in_seconds(1))}
    assert management.ask("com.microsoft:batch-delete-messages", request, of=queue) == {"message-count": 2}
    with client.get_queue_receiver(queue) as receiver:
        assert texts(receiver.peek_messages(max_message_count=10, sequence_number=1)) == list("cdef")
    assert management.ask("peeklock:purge", {}, of=queue) == {"message-count": 4}
    assert_empty(client, queue)


def test_a_purge_keeps_newer_and_locked_messages(client, clock, create, management):
    queue = create()
    send(client, queue, "locked", "old")
    with client.get_queue_receiver(queue) as receiver:
        locked = receive_one(receiver)
        clock.advance(10)
        border = clock.in_seconds(-5)
        send(client, queue, "young")
        management.ask("peeklock:purge", {"before": milliseconds(border)}, of=queue)
        assert "young" in texts(receiver.peek_messages(max_message_count=10, sequence_number=1))
        receiver.complete_message(locked)
        assert texts(receiver.peek_messages(max_message_count=10, sequence_number=1)) == ["young"]


def test_dead_letters_can_be_purged(client, create, management):
    queue = create()
    send(client, queue, "poison", "good")
    with client.get_queue_receiver(queue) as receiver:
        receiver.dead_letter_message(receive_one(receiver))
    assert management.ask("peeklock:purge", {}, of=f"{queue}/$DeadLetterQueue") == {"message-count": 1}
    with client.get_queue_receiver(queue) as receiver:
        assert text(receive_one(receiver)) == "good"
