"""Topics and subscriptions in the SDK's administration client."""

import datetime

import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.servicebus import ServiceBusMessage

from names import fresh
from steps import in_seconds, receive
from topics import publish

MINUTES = datetime.timedelta(minutes=1)
LONG = datetime.timedelta(days=10_000_000)

TOPIC_SETTINGS = {
    "auto_delete_on_idle": 30 * MINUTES,
    "default_message_time_to_live": 90 * MINUTES,
    "duplicate_detection_history_time_window": 5 * MINUTES,
    "enable_batched_operations": False,
    "max_size_in_megabytes": 2048,
    "requires_duplicate_detection": True,
    "user_metadata": "ours & <yours>",
    "max_message_size_in_kilobytes": 2048,
    "support_ordering": True,
}
SUBSCRIPTION_SETTINGS = {
    "auto_delete_on_idle": 30 * MINUTES,
    "dead_lettering_on_filter_evaluation_exceptions": False,
    "dead_lettering_on_message_expiration": True,
    "default_message_time_to_live": 90 * MINUTES,
    "enable_batched_operations": False,
    "lock_duration": datetime.timedelta(seconds=45),
    "max_delivery_count": 7,
    "requires_session": True,
    "user_metadata": "ours",
}


def shown(properties, settings):
    return {name: getattr(properties, name) for name in settings}


@pytest.fixture
def topic(admin):
    name = fresh("topic")
    admin.create_topic(name)
    return name


def test_a_topic_has_the_defaults_of_the_service(admin, topic):
    expected = {
        "name": topic,
        "requires_duplicate_detection": False,
        "enable_batched_operations": True,
        "enable_partitioning": False,
        "enable_express": False,
        "status": "Active",
        "availability_status": "Available",
    }
    got = admin.get_topic(topic)
    assert shown(got, expected) == expected
    assert got.default_message_time_to_live > LONG
    assert got.auto_delete_on_idle > LONG


def test_every_property_of_a_topic_is_stored_and_returned(admin):
    name = fresh("topic")
    assert shown(admin.create_topic(name, **TOPIC_SETTINGS), TOPIC_SETTINGS) == TOPIC_SETTINGS
    assert shown(admin.get_topic(name), TOPIC_SETTINGS) == TOPIC_SETTINGS
    [listed] = [topic for topic in admin.list_topics() if topic.name == name]
    assert shown(listed, TOPIC_SETTINGS) == TOPIC_SETTINGS


def test_a_topic_can_be_updated(admin):
    name = fresh("topic")
    topic = admin.create_topic(name, **TOPIC_SETTINGS)
    changes = {
        "auto_delete_on_idle": 40 * MINUTES,
        "default_message_time_to_live": 80 * MINUTES,
        "duplicate_detection_history_time_window": 4 * MINUTES,
        "enable_batched_operations": True,
        "max_size_in_megabytes": 1024,
        "user_metadata": "changed",
        "status": "SendDisabled",
    }
    admin.update_topic(topic, **changes)
    assert shown(admin.get_topic(name), changes) == changes


def test_names_of_masstransit_are_accepted(client, admin):
    name = fresh("Shop") + "/.Events./Fault--Shop/Order--"
    admin.create_topic(name)
    admin.create_subscription(name, "audit-")
    assert admin.get_topic(name).name == name
    with client.get_topic_sender(name) as sender:
        sender.send_messages(ServiceBusMessage("one"))
    with client.get_subscription_receiver(name, "audit-") as receiver:
        [message] = receive(receiver, 1)
        receiver.complete_message(message)
    with pytest.raises(HttpResponseError, match="character ':' at position 5") as refusal:
        admin.create_topic("shop:a")
    assert refusal.value.status_code == 400


def test_topic_settings_without_effect_are_stored_and_returned(admin):
    name = fresh("topic")
    settings = {"enable_partitioning": True, "enable_express": True, "support_ordering": False}
    admin.create_topic(name, **settings)
    topic = admin.get_topic(name)
    assert shown(topic, settings) == settings
    admin.update_topic(topic)
    assert shown(admin.get_topic(name), settings) == settings


def test_immutable_properties_of_a_topic_cannot_be_changed(admin, topic):
    changed = admin.get_topic(topic)
    changed.requires_duplicate_detection = True
    with pytest.raises(HttpResponseError, match="(?i)requires ?duplicate ?detection") as refusal:
        admin.update_topic(changed)
    assert refusal.value.status_code == 400


def test_a_new_subscription_counts_as_access_to_its_topic(admin, topic):
    created = admin.get_topic_runtime_properties(topic)
    admin.create_subscription(topic, "one")
    assert admin.get_topic_runtime_properties(topic).accessed_at_utc > created.accessed_at_utc


def test_a_topic_has_runtime_properties(admin, client, topic):
    for name in ("one", "two"):
        admin.create_subscription(topic, name)
    publish(client, topic, "a", "b")
    with client.get_topic_sender(topic) as sender:
        sender.schedule_messages(ServiceBusMessage("later"), in_seconds(600))
    got = admin.get_topic_runtime_properties(topic)
    assert (got.name, got.subscription_count, got.scheduled_message_count) == (topic, 2, 1)
    assert got.size_in_bytes > 0
    assert got.created_at_utc <= got.updated_at_utc
    assert got.accessed_at_utc >= got.created_at_utc
    [listed] = [topic_ for topic_ in admin.list_topics_runtime_properties() if topic_.name == topic]
    assert listed.subscription_count == 2


def test_a_topic_can_be_deleted(admin, topic):
    admin.create_subscription(topic, "one")
    admin.delete_topic(topic)
    for question in (admin.get_topic, admin.get_topic_runtime_properties, admin.delete_topic):
        with pytest.raises(ResourceNotFoundError):
            question(topic)
    with pytest.raises(ResourceNotFoundError):
        admin.get_subscription(topic, "one")
    assert topic not in [shown.name for shown in admin.list_topics()]


def test_queues_and_topics_are_listed_separately(admin, topic):
    queue = fresh("queue")
    admin.create_queue(queue)
    assert topic not in [shown.name for shown in admin.list_queues()]
    assert queue not in [shown.name for shown in admin.list_topics()]


def test_an_existing_entity_cannot_be_created(admin, topic):
    admin.create_subscription(topic, "one")
    for again in (admin.create_queue, admin.create_topic):
        with pytest.raises(ResourceExistsError):
            again(topic)
    with pytest.raises(ResourceExistsError):
        admin.create_subscription(topic, "ONE")


def test_a_subscription_has_the_defaults_of_the_service(admin, topic):
    created = admin.create_subscription(topic, "one")
    assert created.name == "one"
    expected = {
        "name": "one",
        "lock_duration": MINUTES,
        "max_delivery_count": 10,
        "requires_session": False,
        "dead_lettering_on_message_expiration": False,
        "dead_lettering_on_filter_evaluation_exceptions": True,
        "enable_batched_operations": True,
        "status": "Active",
        "availability_status": "Available",
        "forward_to": None,
        "forward_dead_lettered_messages_to": None,
    }
    got = admin.get_subscription(topic, "one")
    assert shown(got, expected) == expected
    assert got.default_message_time_to_live > LONG


def test_every_property_of_a_subscription_is_stored_and_returned(admin, topic):
    created = admin.create_subscription(topic, "one", **SUBSCRIPTION_SETTINGS)
    assert shown(created, SUBSCRIPTION_SETTINGS) == SUBSCRIPTION_SETTINGS
    assert shown(admin.get_subscription(topic, "one"), SUBSCRIPTION_SETTINGS) == SUBSCRIPTION_SETTINGS
    [listed] = admin.list_subscriptions(topic)
    assert shown(listed, SUBSCRIPTION_SETTINGS) == SUBSCRIPTION_SETTINGS


def test_a_subscription_can_be_updated(admin, topic):
    target = fresh("queue")
    admin.create_queue(target)
    subscription = admin.create_subscription(topic, "one", **SUBSCRIPTION_SETTINGS)
    changes = {
        "auto_delete_on_idle": 40 * MINUTES,
        "dead_lettering_on_filter_evaluation_exceptions": True,
        "dead_lettering_on_message_expiration": False,
        "default_message_time_to_live": 80 * MINUTES,
        "enable_batched_operations": True,
        "lock_duration": datetime.timedelta(seconds=30),
        "max_delivery_count": 3,
        "user_metadata": "changed",
        "status": "ReceiveDisabled",
    }
    admin.update_subscription(topic, subscription, **changes)
    assert shown(admin.get_subscription(topic, "one"), changes) == changes
    admin.update_subscription(topic, admin.get_subscription(topic, "one"), forward_dead_lettered_messages_to=target)
    assert admin.get_subscription(topic, "one").forward_dead_lettered_messages_to.endswith(f"/{target}")


def test_immutable_properties_of_a_subscription_cannot_be_changed(admin, topic):
    subscription = admin.create_subscription(topic, "one")
    subscription.requires_session = True
    with pytest.raises(HttpResponseError, match="(?i)requires ?session") as refusal:
        admin.update_subscription(topic, subscription)
    assert refusal.value.status_code == 400


def test_a_subscription_has_runtime_properties(admin, client, topic):
    admin.create_subscription(topic, "one")
    publish(client, topic, "a", "b", "c")
    with client.get_subscription_receiver(topic, "one") as receiver:
        [dead, _, _] = receive(receiver, 3)
        receiver.dead_letter_message(dead)
        got = admin.get_subscription_runtime_properties(topic, "one")
    assert (got.name, got.active_message_count, got.dead_letter_message_count) == ("one", 2, 1)
    assert got.total_message_count == 3
    assert (got.transfer_message_count, got.transfer_dead_letter_message_count) == (0, 0)
    assert got.created_at_utc <= got.updated_at_utc
    assert got.accessed_at_utc >= got.created_at_utc
    [listed] = admin.list_subscriptions_runtime_properties(topic)
    assert listed.dead_letter_message_count == 1


def test_a_subscription_can_be_deleted(admin, topic):
    admin.create_subscription(topic, "one")
    admin.delete_subscription(topic, "one")
    for question in (admin.get_subscription, admin.get_subscription_runtime_properties, admin.delete_subscription):
        with pytest.raises(ResourceNotFoundError):
            question(topic, "one")
    assert list(admin.list_subscriptions(topic)) == []


def test_a_subscription_requires_its_topic(admin):
    with pytest.raises(ResourceNotFoundError):
        admin.create_subscription("no-such-topic", "one")
    queue = fresh("queue")
    admin.create_queue(queue)
    with pytest.raises(HttpResponseError):
        admin.create_subscription(queue, "one")


@pytest.mark.parametrize("name", ["x" * 51, "with space"])
def test_an_invalid_name_of_a_subscription_is_rejected(admin, topic, name):
    with pytest.raises(HttpResponseError) as refusal:
        admin.create_subscription(topic, name)
    assert refusal.value.status_code == 400
    assert list(admin.list_subscriptions(topic)) == []


def test_the_name_of_a_topic_can_contain_slashes(admin, client):
    name = fresh("team/events")
    admin.create_topic(name)
    admin.create_subscription(name, "one")
    publish(client, name, "nested")
    assert admin.get_subscription_runtime_properties(name, "one").active_message_count == 1
    assert [shown.name for shown in admin.list_subscriptions(name)] == ["one"]
