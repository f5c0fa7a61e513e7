"""Storage queues in detail: receipts, order, poison messages, access, and queues shared with AMQP clients."""

import datetime

import pytest
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.servicebus import ServiceBusMessage
from azure.storage.queue import (
    AccountSasPermissions,
    CorsRule,
    Metrics,
    QueueClient,
    QueueServiceClient,
    ResourceTypes,
    RetentionPolicy,
    generate_account_sas,
)

from broker import Broker
from flavour import Sync
from names import fresh
from steps import text
from storage_queues import ACCOUNT, contents, queue, service, storage, storage_clock, take


def refused(call, *arguments, error=HttpResponseError, **options):
    with pytest.raises(error) as refusal:
        call(*arguments, **options)
    return refusal.value.error_code


def test_the_receipt_of_a_send_is_valid_until_the_message_is_received(queue):
    for visibility_timeout in (0, 60):
        sent = queue.send_message("regretted", visibility_timeout=visibility_timeout)
        queue.delete_message(sent)
    sent = queue.send_message("taken")
    [taken] = take(queue)
    assert refused(queue.delete_message, sent) == "PopReceiptMismatch"
    queue.delete_message(taken)


def test_an_expired_receipt_is_valid_until_the_message_is_received_again(queue, storage_clock):
    queue.send_message("slow")
    [message] = take(queue, visibility_timeout=60)
    storage_clock.advance(60)
    queue.delete_message(message)
    assert take(queue) == []


def test_an_update_keeps_place_and_id_and_extends_invisibility(queue, storage_clock):
    for content in ("first", "second"):
        queue.send_message(content)
    message = queue.receive_message(visibility_timeout=60)
    kept = queue.update_message(message, visibility_timeout=120)
    assert refused(queue.update_message, message, visibility_timeout=0) == "PopReceiptMismatch"
    storage_clock.advance(60)
    assert [peeked.content for peeked in queue.peek_messages(max_messages=32)] == ["second"]
    queue.update_message(message.id, kept.pop_receipt, content="FIRST", visibility_timeout=0)
    messages = take(queue, messages_per_page=32)
    assert contents(messages) == ["FIRST", "second"]
    assert [found.dequeue_count for found in messages] == [2, 1]
    assert (messages[0].id, messages[0].inserted_on) == (message.id, message.inserted_on)


def test_a_poison_message_is_detected_by_its_dequeue_count(queue):
    queue.send_message("poison")
    queue.send_message("fine")
    done, poison = [], []
    for _ in range(8):
        for message in take(queue, messages_per_page=32):
            if message.dequeue_count > 3:
                poison.append(message.content)
                queue.delete_message(message)
            elif message.content == "poison":
                queue.update_message(message, visibility_timeout=0)
            else:
                done.append(message.content)
                queue.delete_message(message)
    assert (done, poison) == (["fine"], ["poison"])


def test_limits_of_size_and_time_are_enforced(queue):
    queue.send_message("ä" * 32_768)
    assert refused(queue.send_message, "x" * 65_537) == "RequestBodyTooLarge"
    assert refused(queue.send_message, "x", visibility_timeout=7 * 86_400 + 1) == "OutOfRangeQueryParameterValue"
    assert refused(queue.send_message, "x", visibility_timeout=5, time_to_live=5) == "OutOfRangeQueryParameterValue"
    assert refused(queue.peek_messages, max_messages=0) == "OutOfRangeQueryParameterValue"
    forever = queue.send_message("forever", time_to_live=-1)
    assert forever.expires_on.year == 9999


def test_invalid_names_are_rejected_as_in_the_service(service):
    for name, code in (("ab", "OutOfRangeInput"), ("Upper", "InvalidResourceName"), ("a--b", "InvalidResourceName")):
        assert refused(service.create_queue, name) == code


def test_service_properties_are_returned_and_cannot_be_changed(service):
    shown = service.get_service_properties()
    assert not shown["hour_metrics"].enabled and not shown["analytics_logging"].read and shown["cors"] == []
    service.set_service_properties(hour_metrics=Metrics(enabled=False, retention_policy=RetentionPolicy(enabled=False)))
    for change in ({"hour_metrics": Metrics(enabled=True, include_apis=True)}, {"cors": [CorsRule(["*"], ["GET"])]}):
        assert refused(service.set_service_properties, **change) == "NotImplemented"


def test_an_account_signature_permits_its_operations_only(storage, service, queue):
    expiry = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)
    key, url = service.credential.account_key, service.url

    def guest(types, **permissions):
        signature = generate_account_sas(ACCOUNT, key, types, AccountSasPermissions(**permissions), expiry)
        return QueueServiceClient(url, credential=signature, retry_total=0)

    worker = guest(ResourceTypes(object=True), add=True, process=True)
    messages = worker.get_queue_client(queue.queue_name)
    messages.send_message("by a guest")
    messages.delete_message(messages.receive_message())
    assert refused(worker.create_queue, fresh("guest")) == "AuthorizationResourceTypeMismatch"
    assert refused(messages.peek_messages) == "AuthorizationPermissionMismatch"
    lister = guest(ResourceTypes(service=True), list=True)
    assert queue.queue_name in [found.name for found in lister.list_queues()]
    assert refused(lister.get_queue_client(queue.queue_name).clear_messages) == "AuthorizationResourceTypeMismatch"


def test_amqp_messages_have_text_and_id(storage, queue):
    guid = "c8847220-5552-4956-b654-0a7c845e0ff9"
    bodies = [("plain", guid), (b"\xff\xfe", "order 17"), ("häuser", None)]
    with Sync().client(storage.connection_string) as client, client.get_queue_sender(queue.queue_name) as sender:
        for body, message_id in bodies:
            sender.send_messages(ServiceBusMessage(body, message_id=message_id, application_properties={"colour": "red"}))
        messages = take(queue, messages_per_page=32, visibility_timeout=30)
        assert contents(messages) == ["plain", "//4=", "häuser"]
        assert messages[0].id == guid and len({message.id for message in messages}) == 3
        # An update of the text keeps the ids and the other properties.
        for message in messages:
            queue.update_message(message, content=f"new {message.content}", visibility_timeout=0)
        again = take(queue, messages_per_page=32, visibility_timeout=30)
        assert [message.id for message in again] == [message.id for message in messages]
        for message in again:
            queue.update_message(message, visibility_timeout=0)
        with client.get_queue_receiver(queue.queue_name, max_wait_time=30) as receiver:
            received = []
            while len(received) < 3:
                received += receiver.receive_messages(max_message_count=3 - len(received))
            assert [text(message) for message in received] == ["new plain", "new //4=", "new häuser"]
            assert [message.application_properties for message in received] == [{b"colour": b"red"}] * 3
            assert [message.delivery_count for message in received] == [2] * 3
            for message, old in zip(received, again):
                # The AMQP receiver holds the lock.
                assert refused(queue.delete_message, old) == "PopReceiptMismatch"
                receiver.complete_message(message)
    assert take(queue) == []
    assert refused(queue.delete_message, again[0], error=ResourceNotFoundError) == "MessageNotFound"


def test_messages_released_over_amqp_are_visible_over_rest_and_the_reverse(storage, queue):
    queue.send_message("shared")
    with Sync().client(storage.connection_string) as client:
        with client.get_queue_receiver(queue.queue_name, max_wait_time=30) as receiver:
            [held] = receiver.receive_messages()
            assert take(queue) == []
            receiver.abandon_message(held)
            message = queue.receive_message(visibility_timeout=1)
            assert (message.content, message.dequeue_count) == ("shared", 2)
            [held] = receiver.receive_messages()
            assert held.delivery_count == 2
            receiver.dead_letter_message(held)
    assert queue.get_queue_properties().approximate_message_count == 0


def test_a_restart_keeps_hidden_messages_hidden(tmp_path):
    broker = Broker(tmp_path, queue_port="127.0.0.1:0").start()
    try:
        open_queue = lambda: QueueClient.from_connection_string(broker.storage_connection_string, "kept")  # noqa: E731
        open_queue().create_queue()
        for content in ("taken", "for later", "waiting"):
            open_queue().send_message(content, visibility_timeout=3600 if content == "for later" else 0)
        taken = open_queue().receive_message(visibility_timeout=7 * 86_400)
        changed = open_queue().update_message(taken, content="changed", visibility_timeout=3600)
        broker.kill()
        broker.start()
        queue = open_queue()
        assert contents(take(queue, messages_per_page=32)) == ["waiting"]
        assert queue.get_queue_properties().approximate_message_count == 3
        assert refused(queue.delete_message, taken) == "PopReceiptMismatch"
        queue.update_message(taken.id, changed.pop_receipt, visibility_timeout=0)
        assert [(message.content, message.dequeue_count) for message in take(queue)] == [("changed", 2)]
    finally:
        broker.stop()
