"""Queues in the SDK's administration client: every operation, every property, every count."""

import datetime

import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.management import ApiVersion

from names import fresh
from steps import in_seconds, receive, receive_one, send, text

MINUTES = datetime.timedelta(minutes=1)
LONG = datetime.timedelta(days=10_000_000)

SETTINGS = {
    "auto_delete_on_idle": 30 * MINUTES,
    "dead_lettering_on_message_expiration": True,
    "default_message_time_to_live": 90 * MINUTES,
    "duplicate_detection_history_time_window": 5 * MINUTES,
    "enable_batched_operations": False,
    "lock_duration": datetime.timedelta(seconds=45),
    "max_delivery_count": 2_147_483_647,
    "max_size_in_megabytes": 2048,
    "requires_duplicate_detection": True,
    "requires_session": True,
    "user_metadata": "ours & <yours>",
    "max_message_size_in_kilobytes": 2048,
}


def shown(properties, settings):
    return {name: getattr(properties, name) for name in settings}


def test_a_queue_has_the_defaults_of_the_service(admin):
    name = fresh("queue")
    created = admin.create_queue(name)
    assert created.name == name
    expected = {
        "lock_duration": MINUTES,
        "max_delivery_count": 10,
        "max_size_in_megabytes": 1024,
        "requires_session": False,
        "requires_duplicate_detection": False,
        "dead_lettering_on_message_expiration": False,
        "enable_batched_operations": True,
        "enable_partitioning": False,
        "enable_express": False,
        "status": "Active",
        "availability_status": "Available",
        "forward_to": None,
        "forward_dead_lettered_messages_to": None,
        "authorization_rules": [],
    }
    got = admin.get_queue(name)
    assert shown(got, expected) | {"authorization_rules": list(got.authorization_rules or [])} == expected
    assert got.default_message_time_to_live > LONG
    assert got.auto_delete_on_idle > LONG


def test_every_property_is_stored_and_returned(admin):
    name = fresh("queue")
    assert shown(admin.create_queue(name, **SETTINGS), SETTINGS) == SETTINGS
    assert shown(admin.get_queue(name), SETTINGS) == SETTINGS
    [listed] = [queue for queue in admin.list_queues() if queue.name == name]
    assert shown(listed, SETTINGS) == SETTINGS


def test_every_mutable_property_can_be_updated(admin):
    name, other = fresh("queue"), fresh("queue")
    admin.create_queue(other)
    admin.create_queue(name, **SETTINGS)
    changes = {
        "auto_delete_on_idle": 40 * MINUTES,
        "dead_lettering_on_message_expiration": False,
        "default_message_time_to_live": 80 * MINUTES,
        "duplicate_detection_history_time_window": 4 * MINUTES,
        "enable_batched_operations": True,
        "lock_duration": datetime.timedelta(seconds=30),
        "max_delivery_count": 3,
        "max_size_in_megabytes": 1024,
        "user_metadata": "changed",
        "max_message_size_in_kilobytes": 4096,
        "status": "SendDisabled",
    }
    queue = admin.get_queue(name)
    for property, value in changes.items():
        setattr(queue, property, value)
    admin.update_queue(queue)
    assert shown(admin.get_queue(name), changes) == changes
    assert admin.get_queue(name).requires_session


def test_an_update_of_one_property_keeps_the_others(admin):
    name = fresh("queue")
    queue = admin.create_queue(name, lock_duration=2 * MINUTES)
    admin.update_queue(queue, max_delivery_count=4)
    got = admin.get_queue(name)
    assert (got.max_delivery_count, got.lock_duration) == (4, 2 * MINUTES)


def test_properties_take_effect(admin, client):
    name = fresh("queue")
    admin.create_queue(name, max_delivery_count=1, lock_duration=datetime.timedelta(seconds=50))
    send(client, name, "poison")
    with client.get_queue_receiver(name) as receiver:
        message = receive_one(receiver)
        assert message.locked_until_utc - message.enqueued_time_utc >= datetime.timedelta(seconds=50)
        assert message.locked_until_utc - in_seconds(0) <= datetime.timedelta(seconds=50.1)
        receiver.abandon_message(message)
    with client.get_queue_receiver(name, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as dead:
        assert text(receive_one(dead)) == "poison"


def test_a_queue_forwards_until_its_target_is_removed(admin, client):
    target, source, graveyard = fresh("queue"), fresh("queue"), fresh("queue")
    for name in (target, graveyard):
        admin.create_queue(name)
    created = admin.create_queue(source, forward_to=target, forward_dead_lettered_messages_to=graveyard)
    assert created.forward_to.startswith("sb://")
    assert created.forward_to.endswith(f"/{target}")
    assert created.forward_dead_lettered_messages_to.endswith(f"/{graveyard}")
    send(client, source, "onward")
    with client.get_queue_receiver(target) as receiver:
        assert text(receive_one(receiver)) == "onward"
    queue = admin.get_queue(source)
    queue.forward_to = None
    admin.update_queue(queue)
    assert admin.get_queue(source).forward_to is None
    send(client, source, "stays")
    with client.get_queue_receiver(source) as receiver:
        assert text(receive_one(receiver)) == "stays"


def test_runtime_properties_have_every_count(admin, client):
    name, nowhere = fresh("queue"), fresh("queue")
    admin.create_queue(name)
    send(client, name, "locked", "too", "dead", "deferred")
    with client.get_queue_receiver(name) as receiver:
        _, _, dead, deferred = receive(receiver, 4)
        receiver.dead_letter_message(dead)
        receiver.defer_message(deferred)
        with client.get_queue_sender(name) as sender:
            sender.schedule_messages([ServiceBusMessage("later"), ServiceBusMessage("too")], in_seconds(600))
        got = admin.get_queue_runtime_properties(name)
    assert got.name == name
    assert got.scheduled_message_count == 2
    assert got.dead_letter_message_count == 1
    assert got.active_message_count == 2
    assert (got.transfer_message_count, got.transfer_dead_letter_message_count) == (0, 0)
    assert got.total_message_count == 6
    assert got.size_in_bytes > 0
    assert got.created_at_utc <= got.updated_at_utc
    assert got.accessed_at_utc >= got.created_at_utc
    [listed] = [queue for queue in admin.list_queues_runtime_properties() if queue.name == name]
    assert listed.dead_letter_message_count == 1

    admin.create_queue(nowhere)
    source = fresh("queue")
    admin.create_queue(source, forward_to=nowhere)
    admin.delete_queue(nowhere)
    send(client, source, "homeless")
    with client.get_queue_receiver(source, sub_queue=ServiceBusSubQueue.TRANSFER_DEAD_LETTER) as receiver:
        receive_one(receiver)
        assert admin.get_queue_runtime_properties(source).transfer_dead_letter_message_count == 1


def test_a_queue_can_be_deleted(admin, client):
    name = fresh("queue")
    admin.create_queue(name)
    admin.delete_queue(name)
    with pytest.raises(ResourceNotFoundError):
        admin.get_queue(name)
    with pytest.raises(ResourceNotFoundError):
        admin.delete_queue(name)
    assert name not in [queue.name for queue in admin.list_queues()]


def test_names_can_contain_slashes_dots_and_dashes(admin, client):
    name = fresh("team/orders.v2_east-1")
    admin.create_queue(name)
    assert admin.get_queue(name).name == name
    send(client, name, "nested")
    assert admin.get_queue_runtime_properties(name).active_message_count == 1
    admin.delete_queue(name)


@pytest.mark.parametrize("version", list(ApiVersion))
def test_every_api_version_of_the_sdk_is_accepted(flavour, broker, version):
    options = {"connection_verify": broker.certificate, "api_version": version}
    name = fresh("queue")
    with flavour.admin(broker.connection_string, **options) as admin:
        admin.create_queue(name, max_delivery_count=4)
        assert admin.get_queue(name).max_delivery_count == 4
        admin.delete_queue(name)


def test_an_unknown_api_version_is_rejected(flavour, broker):
    options = {"connection_verify": broker.certificate, "api_version": "1999-01"}
    with flavour.admin(broker.connection_string, **options) as admin:
        with pytest.raises(HttpResponseError, match="2021-05") as refusal:
            admin.get_queue("any")
    assert refusal.value.status_code == 400


def test_an_existing_entity_cannot_be_created(admin):
    name = fresh("queue")
    admin.create_queue(name)
    for again in (admin.create_queue, admin.create_topic):
        with pytest.raises(ResourceExistsError):
            again(name)
        with pytest.raises(ResourceExistsError):
            again(name.upper())


def test_a_missing_queue_cannot_be_read_or_changed(admin):
    queue = admin.create_queue(fresh("queue"))
    admin.delete_queue(queue.name)
    with pytest.raises(ResourceNotFoundError):
        admin.update_queue(queue)
    for question in (admin.get_queue, admin.get_queue_runtime_properties, admin.get_topic):
        with pytest.raises(ResourceNotFoundError):
            question(queue.name)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"requires_session": True}, "(?i)requires ?session"),
        ({"requires_duplicate_detection": True}, "(?i)requires ?duplicate ?detection"),
        ({"enable_partitioning": True}, "(?i)enable ?partitioning"),
    ],
    ids=str,
)
def test_immutable_properties_of_a_queue_cannot_be_changed(admin, change, named):
    queue = admin.create_queue(fresh("queue"))
    for property, value in change.items():
        setattr(queue, property, value)
    with pytest.raises(HttpResponseError, match=named) as refusal:
        admin.update_queue(queue)
    assert refusal.value.status_code == 400
    assert not getattr(admin.get_queue(queue.name), next(iter(change)))


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"lock_duration": datetime.timedelta(hours=1)}, "(?i)lock ?duration"),
        ({"max_delivery_count": 0}, "(?i)max.?delivery.?count"),
        ({"user_metadata": "x" * 1025}, "(?i)user.?metadata"),
    ],
    ids=str,
)
def test_an_unsupported_property_is_rejected_with_a_reason(admin, settings, named):
    name = fresh("queue")
    with pytest.raises(HttpResponseError, match=named) as refusal:
        admin.create_queue(name, **settings)
    assert refusal.value.status_code in (400, 404)
    assert name not in [queue.name for queue in admin.list_queues()]


@pytest.mark.parametrize("name", ["x" * 261, "with space", "/leading", "trailing/", "a//b", "que?ue", "..", "a\\b"])
def test_an_invalid_name_is_rejected(admin, name):
    """The client may resolve such a name to another path, but no entity of that name may be created."""
    before = {queue.name for queue in admin.list_queues()}
    try:
        admin.create_queue(name)
    except HttpResponseError as refusal:
        assert refusal.status_code in (400, 401, 404, 405)
    made = {queue.name for queue in admin.list_queues()} - before
    assert name not in made
    for queue in made:
        admin.delete_queue(queue)
