"""Sends and receives that a queue rejects: by its status, its size or the size of a message; and invalid settings."""

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusQuotaExceededError,
)

from api import ApiError
from steps import assert_empty, receive_one, send, text


def test_a_queue_disabled_for_sending_still_delivers(client, create, management):
    queue = create()
    send(client, queue, "before")
    management.update_queue(queue, status="send-disabled")
    with pytest.raises(MessagingEntityDisabledError):
        send(client, queue, "refused")
    with client.get_queue_receiver(queue) as receiver:
        assert text(receive_one(receiver)) == "before"
    management.update_queue(queue, status="active")
    send(client, queue, "after")


def test_a_queue_disabled_for_receiving_still_accepts_sends(client, create, management):
    queue = create(status="receive-disabled")
    send(client, queue, "kept")
    with pytest.raises(MessagingEntityDisabledError):
        with client.get_queue_receiver(queue) as receiver:
            receiver.receive_messages(max_wait_time=20)
    management.update_queue(queue, status="active")
    with client.get_queue_receiver(queue) as receiver:
        assert text(receive_one(receiver)) == "kept"


def test_a_disabled_queue_rejects_sends_and_receives(client, create):
    queue = create(status="disabled")
    with pytest.raises(MessagingEntityDisabledError):
        send(client, queue, "refused")
    with pytest.raises(MessagingEntityDisabledError):
        with client.get_queue_receiver(queue) as receiver:
            receiver.receive_messages(max_wait_time=20)


def test_a_receiver_gets_an_error_when_its_queue_is_disabled(client, create, management):
    queue = create()
    with client.get_queue_receiver(queue) as receiver:
        assert receiver.receive_messages(max_wait_time=0.2) == []
        management.update_queue(queue, status="receive-disabled")
        # The SDK retries this error before it raises it, which takes some time.
        with pytest.raises(MessagingEntityDisabledError):
            receiver.receive_messages(max_wait_time=20)


def test_a_receiver_gets_an_error_when_its_queue_is_deleted(client, create, management):
    queue = create()
    with client.get_queue_receiver(queue) as receiver:
        assert receiver.receive_messages(max_wait_time=0.2) == []
        management.delete_queue(queue)
        with pytest.raises(MessagingEntityNotFoundError):
            receiver.receive_messages(max_wait_time=20)


def test_a_full_queue_rejects_messages_until_there_is_room(client, create):
    queue = create(max_size=3000)
    send(client, queue, "x" * 2000)
    with pytest.raises(ServiceBusQuotaExceededError):
        send(client, queue, "y" * 2000)
    with client.get_queue_receiver(queue) as receiver:
        receiver.complete_message(receive_one(receiver))
        send(client, queue, "z" * 2000)
        assert text(receive_one(receiver)) == "z" * 2000


def test_a_queue_at_its_max_count_rejects_messages_until_one_is_removed(client, create, api):
    queue = create(max_count=2)
    assert api.get("queues", queue)["maxCount"] == 2
    send(client, queue, "one")
    send(client, queue, "two")
    with pytest.raises(ServiceBusQuotaExceededError):
        send(client, queue, "three")
    with client.get_queue_receiver(queue) as receiver:
        receiver.complete_message(receive_one(receiver))
        send(client, queue, "three")
        assert text(receive_one(receiver)) == "two"
        assert text(receive_one(receiver)) == "three"


def test_a_message_above_the_queues_own_limit_is_rejected(client, create):
    queue = create(max_message_size=100_000)
    send(client, queue, "x" * 90_000)
    with pytest.raises(MessageSizeExceededError):
        send(client, queue, "x" * 110_000)
    with client.get_queue_receiver(queue) as receiver:
        receiver.complete_message(receive_one(receiver))
    assert_empty(client, queue)


def test_a_message_above_the_general_limit_is_rejected(client, queue):
    with pytest.raises(MessageSizeExceededError):
        with client.get_queue_sender(queue) as sender:
            sender.send_messages(ServiceBusMessage("x" * 1_100_000))
    assert_empty(client, queue)


@pytest.mark.parametrize(
    "settings, word",
    [
        ({"colour": "red"}, "colour"),
        ({"lock_duration": "long"}, "(?i)lock.?duration"),
        ({"lock_duration_ms": 1}, "(?i)lock.?duration"),
        ({"max_delivery_count": 0}, "(?i)max.?delivery.?count"),
        ({"status": "asleep"}, "status"),
        ({"retry": "never"}, "retry"),
        ({"max_size": 0}, "(?i)max.?size"),
        ({"max_count": 0}, "(?i)max.?count"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_invalid_settings_are_rejected_by_name(create, settings, word):
    with pytest.raises(ApiError, match=word):
        create(**settings)


def test_settings_are_returned_as_set_and_as_changed(create, management):
    queue = create(lock_duration="5s", requires_session=True, retry="linear:10ms..20ms")
    management.update_queue(queue, max_delivery_count=7, default_time_to_live_ms=60_000)
    shown = management.show_queue(queue)
    expected = {
        "name": queue,
        "lockDuration": "5s",
        "requiresSession": True,
        "retry": "linear:10ms..20ms",
        "maxDeliveryCount": 7,
        "defaultTimeToLive": "1m",
        "activeCount": 0,
    }
    assert {key: shown[key] for key in expected} == expected
    management.update_queue(queue, default_time_to_live_ms=None)
    assert management.show_queue(queue).get("defaultTimeToLive") is None


def test_immutable_settings_of_a_queue_cannot_be_changed(create, management):
    queue = create()
    for change in ({"requires_session": True}, {"duplicate_window_ms": 60_000}):
        with pytest.raises(ApiError, match="cannot be changed"):
            management.update_queue(queue, **change)
