"""Queue Storage over the same queues: `azure-storage-queue` in both flavours."""

import datetime
import time

import pytest
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.storage.queue import AccessPolicy, QueueClient, QueueSasPermissions, generate_queue_sas

from broker import Broker
from flavour import Sync
from names import fresh
from steps import send, text, until
from storage_queues import ACCOUNT, contents, queue, service, storage, storage_clock, take


def refused_with(code, call, *arguments, error=HttpResponseError, **options):
    with pytest.raises(error) as refused:
        call(*arguments, **options)
    assert refused.value.error_code == code


def test_queues_are_created_listed_and_deleted(service):
    stem = fresh("many")
    names = [f"{stem}-{number}" for number in range(7)]
    for name in names:
        service.create_queue(name, metadata={"colour": name})
    # The SDK reports an existing queue even where the service accepts the call because the metadata is the same.
    for colour in (names[0], "other"):
        refused_with("QueueAlreadyExists", service.create_queue, names[0], metadata={"colour": colour}, error=ResourceExistsError)
    listed = [item for item in service.list_queues(name_starts_with=stem, include_metadata=True, results_per_page=3)]
    assert [(item.name, item.metadata) for item in listed] == [(name, {"colour": name}) for name in names]
    service.delete_queue(names[0])
    assert [item.name for item in service.list_queues(name_starts_with=stem)] == names[1:]
    gone = service.get_queue_client(names[0])
    refused_with("QueueNotFound", gone.send_message, "lost", error=ResourceNotFoundError)


def test_a_queue_has_metadata_and_counts(queue):
    queue.set_queue_metadata({"owner": "anna"})
    for number in range(3):
        queue.send_message(str(number))
    shown = queue.get_queue_properties()
    assert (shown.metadata, shown.approximate_message_count) == ({"owner": "anna"}, 3)
    queue.clear_messages()
    assert queue.get_queue_properties().approximate_message_count == 0
    assert take(queue) == []


def test_a_message_is_put_received_and_deleted(queue):
    sent = queue.send_message("<one> & größer\n")
    assert sent.id and sent.pop_receipt
    assert abs(time.time() - sent.inserted_on.timestamp()) < 3600
    [message] = take(queue)
    assert (message.id, message.content, message.dequeue_count) == (sent.id, "<one> & größer\n", 1)
    assert message.expires_on - message.inserted_on == datetime.timedelta(days=7)
    assert take(queue) == [], "a received message is still visible"
    queue.delete_message(message)
    assert queue.get_queue_properties().approximate_message_count == 0
    refused_with("MessageNotFound", queue.delete_message, message, error=ResourceNotFoundError)


def test_an_undeleted_message_is_delivered_again(queue, storage_clock):
    queue.send_message("tried")
    [first] = take(queue, visibility_timeout=60)
    storage_clock.advance(60)
    [again] = take(queue)
    assert (again.id, again.dequeue_count) == (first.id, 2)
    assert again.pop_receipt != first.pop_receipt
    refused_with("PopReceiptMismatch", queue.delete_message, first)
    queue.delete_message(again)


def test_messages_can_be_delayed_and_received_together(queue, storage_clock):
    queue.send_message("later", visibility_timeout=300)
    for number in range(5):
        queue.send_message(str(number))
    assert contents(take(queue, max_messages=10)) == ["0", "1", "2", "3", "4"]
    storage_clock.advance(300)
    until(lambda: "later" in contents(take(queue)), "the delayed message")


def test_peek_removes_nothing(queue):
    queue.send_message("seen")
    for _ in range(2):
        [peeked] = queue.peek_messages(max_messages=5)
        assert (peeked.content, peeked.dequeue_count) == ("seen", 0)
    assert contents(take(queue)) == ["seen"]


def test_content_and_visibility_can_be_changed(queue):
    queue.send_message("draft")
    [message] = take(queue)
    changed = queue.update_message(message, content="final", visibility_timeout=0)
    assert changed.pop_receipt != message.pop_receipt
    [again] = take(queue)
    assert (again.content, again.dequeue_count) == ("final", 2)


def test_a_message_expires(queue, storage_clock):
    queue.send_message("brief", time_to_live=60)
    storage_clock.advance(60)
    assert take(queue) == []


def test_a_signature_permits_its_operations_only(storage, service, queue):
    key = service.credential.account_key
    expiry = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)
    options = {"permission": QueueSasPermissions(add=True), "expiry": expiry}
    signature = generate_queue_sas(ACCOUNT, queue.queue_name, key, **options)
    guest = QueueClient.from_queue_url(queue.url, credential=signature, retry_total=0)
    guest.send_message("allowed")
    refused_with("AuthorizationPermissionMismatch", lambda: take(guest))
    expired = generate_queue_sas(ACCOUNT, queue.queue_name, key, **(options | {"expiry": expiry - datetime.timedelta(hours=2)}))
    late = QueueClient.from_queue_url(queue.url, credential=expired, retry_total=0)
    refused_with("AuthenticationFailed", late.send_message, "late", error=ClientAuthenticationError)


def test_a_wrong_key_is_rejected(flavour, storage):
    place = storage.storage_connection_string.replace("AccountKey=", "AccountKey=AAAA")
    with flavour.storage_queues(place) as service:
        refused_with("AuthenticationFailed", service.create_queue, "never", error=ClientAuthenticationError)


def test_an_unsupported_call_is_rejected(queue):
    in_an_hour = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)
    policy = AccessPolicy(permission=QueueSasPermissions(read=True), expiry=in_an_hour)
    with pytest.raises(HttpResponseError) as refused:
        queue.set_queue_access_policy({"readers": policy})
    assert refused.value.status_code >= 400 and refused.value.error_code


def test_amqp_and_rest_share_a_queue(storage, queue):
    queue.send_message("from rest")
    with Sync().client(storage.connection_string) as client:
        with client.get_queue_receiver(queue.queue_name, max_wait_time=30) as receiver:
            [message] = receiver.receive_messages()
            assert text(message) == "from rest"
            receiver.complete_message(message)
        send(client, queue.queue_name, "from amqp")
    assert contents(take(queue)) == ["from amqp"]


def test_queues_and_messages_survive_a_restart(tmp_path):
    broker = Broker(tmp_path, queue_port="127.0.0.1:0").start()
    try:
        open_queue = lambda: QueueClient.from_connection_string(broker.storage_connection_string, "kept")  # noqa: E731
        open_queue().create_queue(metadata={"owner": "anna"})
        open_queue().send_message("kept")
        broker.kill()
        broker.start()
        assert open_queue().get_queue_properties().metadata == {"owner": "anna"}
        assert contents(take(open_queue())) == ["kept"]
    finally:
        broker.stop()


def test_the_well_known_key_opens_no_namespace_with_keys_of_its_own(tmp_path):
    config = tmp_path / "peeklock.toml"
    config.write_text(
        "[namespaces.open.queues.jobs]\n"
        "[namespaces.closed.queues.jobs]\n"
        "[namespaces.closed.keys.root]\nprimary-key = 'a-secret-of-its-own'\nrights = ['Manage']\n"
    )
    broker = Broker(tmp_path, queue_port="127.0.0.1:0", configs=[config]).start()
    try:
        place = broker.storage_connection_string
        with Sync().storage_queues(place.replace(ACCOUNT, "open")) as service:
            assert [queue.name for queue in service.list_queues()] == ["jobs"]
        with Sync().storage_queues(place.replace(ACCOUNT, "closed"), retry_total=0) as service:
            refused_with("AuthenticationFailed", lambda: list(service.list_queues()), error=ClientAuthenticationError)
    finally:
        broker.stop()
