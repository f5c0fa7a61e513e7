"""Keys of entities, key rotation during work, and tokens that expire."""

import time

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusAuthorizationError, ServiceBusError

from api import Api, ApiError
from broker import KEY, KEY_NAME
from names import fresh
from signature import signature
from steps import receive_one, text, until
from topics import publish, taken

REFUSED = (ServiceBusAuthenticationError, ServiceBusAuthorizationError)
# The validity of a token in these tests, shorter than that of the SDK's own tokens.
SHORT_SECONDS = 300


@pytest.fixture
def policy(api, queue):
    """Creates a policy of the queue. Returns its name and its keys."""

    def make(*rights):
        name = fresh("policy")
        api.put("queues", queue, "policies", name, rights=list(rights))
        return name, keys_of(api, queue, name)

    return make


def keys_of(api, queue, name):
    shown = api.get("queues", queue, "policies", name)
    return shown["primaryKey"], shown["secondaryKey"]


def try_to_send(flavour, broker, queue, key_name, key):
    connection_string = broker.connection_string_of(key_name, key)
    with flavour.client(connection_string, retry_total=0) as client, client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("may I?"))


def try_to_receive(flavour, broker, queue, key_name, key):
    with flavour.client(broker.connection_string_of(key_name, key), retry_total=0) as client:
        with client.get_queue_receiver(queue, max_wait_time=20) as receiver:
            return receiver.receive_messages()


def test_a_key_of_a_queue_is_valid_for_that_queue_only(flavour, broker, queue, pool, policy):
    name, keys = policy("Send", "Listen")
    for key in keys:
        try_to_send(flavour, broker, queue, name, key)
        assert len(try_to_receive(flavour, broker, queue, name, key)) == 1
    with pytest.raises(REFUSED):
        try_to_send(flavour, broker, pool.take(), name, keys[0])


def test_a_key_permits_exactly_its_rights(flavour, broker, queue, policy):
    sender, listener = policy("Send"), policy("Listen")
    try_to_send(flavour, broker, queue, sender[0], sender[1][0])
    with pytest.raises(REFUSED):
        try_to_receive(flavour, broker, queue, sender[0], sender[1][0])
    with pytest.raises(REFUSED):
        try_to_send(flavour, broker, queue, listener[0], listener[1][0])
    assert len(try_to_receive(flavour, broker, queue, listener[0], listener[1][0])) == 1


def test_a_key_of_a_topic_is_valid_for_its_subscriptions(flavour, broker, api, topics):
    topic, other = topics.create("one"), topics.create("one")
    api.put("topics", topic, "policies", "both", rights=["Send", "Listen"])
    key = api.get("topics", topic, "policies", "both")["primaryKey"]
    with flavour.client(broker.connection_string_of("both", key), retry_total=0) as client:
        publish(client, topic, "inside")
        assert taken(client, topic, "one", 1) == ["inside"]
        with pytest.raises(REFUSED):
            publish(client, other, "outside")


def test_keys_are_rotated_without_an_interruption(flavour, broker, api, queue, policy):
    """All clients switch to the secondary key, then the primary key is regenerated, and then the reverse."""
    name, (primary, secondary) = policy("Send", "Listen")
    connection_string = broker.connection_string_of(name, secondary)
    with flavour.client(connection_string, retry_total=0) as client, client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("before"))
        api.post("queues", queue, "policies", name, "regenerate", key="primary")
        sender.send_messages(ServiceBusMessage("after"))
    fresh_primary, same_secondary = keys_of(api, queue, name)
    assert same_secondary == secondary
    assert fresh_primary != primary
    with pytest.raises(REFUSED):
        try_to_send(flavour, broker, queue, name, primary)
    try_to_send(flavour, broker, queue, name, fresh_primary)
    try_to_send(flavour, broker, queue, name, secondary)


def test_a_replaced_key_closes_the_links_that_depend_on_it(flavour, broker, api, queue, policy):
    name, (primary, _) = policy("Send")
    connection_string = broker.connection_string_of(name, primary)
    with flavour.client(connection_string, retry_total=0) as client, client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("with the old key"))
        api.post("queues", queue, "policies", name, "regenerate", key="primary")
        assert_refused_soon(sender)


def test_a_removed_policy_closes_its_links(flavour, broker, api, queue, policy):
    name, (primary, _) = policy("Send")
    connection_string = broker.connection_string_of(name, primary)
    with flavour.client(connection_string, retry_total=0) as client, client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("while it is there"))
        api.delete("queues", queue, "policies", name)
        assert_refused_soon(sender)
    with pytest.raises(REFUSED):
        try_to_send(flavour, broker, queue, name, primary)


def assert_refused_soon(sender):
    def is_refused():
        try:
            sender.send_messages(ServiceBusMessage("again"))
        except ServiceBusError:
            return True
        time.sleep(0.2)
        return False

    until(is_refused, "the link to close")


def short_token(broker, queue):
    token = signature(f"sb://{broker.address}/{queue}", KEY_NAME, KEY, int(time.time()) + SHORT_SECONDS)
    return f"Endpoint=sb://{broker.address};SharedAccessSignature={token};UseDevelopmentEmulator=true;"


def test_an_expired_token_closes_its_links(flavour, broker, clock, queue):
    with flavour.client(short_token(broker, queue), retry_total=0) as client:
        with client.get_queue_sender(queue) as sender:
            sender.send_messages(ServiceBusMessage("in time"))
            clock.advance(SHORT_SECONDS + 1)
            assert_refused_soon(sender)


def test_a_valid_token_keeps_its_links(flavour, broker, clock, queue):
    """The SDK creates its tokens from the key, and they are valid for longer than the test moves the clock."""
    with flavour.client(broker.connection_string) as client:
        with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
            sender.send_messages(ServiceBusMessage("first"))
            message = receive_one(receiver)
            assert text(message) == "first"
            receiver.complete_message(message)
            clock.advance(SHORT_SECONDS + 1)
            sender.send_messages(ServiceBusMessage("second"))
            assert text(receive_one(receiver)) == "second"


def test_a_policy_of_the_namespace_can_be_created_and_deleted(flavour, broker, api, queue):
    name = fresh("policy")
    api.put("policies", name, rights=["Manage"])
    key = api.get("policies", name)["primaryKey"]
    try_to_send(flavour, broker, queue, name, key)
    with flavour.admin(broker.connection_string_of(name, key), connection_verify=broker.certificate) as admin:
        assert admin.get_queue(queue).name == queue
    assert name in [shown["name"] for shown in api.get("policies")["items"]]
    api.delete("policies", name)
    with pytest.raises(REFUSED):
        try_to_send(flavour, broker, queue, name, key)
    with pytest.raises(ApiError) as missing:
        api.get("policies", name)
    assert missing.value.status == 404


def test_a_manage_key_of_a_queue_manages_that_queue_only(flavour, broker, queue, pool, policy):
    name, (key, _) = policy("Manage")
    api = Api(broker, name, key)
    assert api.get("queues", queue)["name"] == queue
    for forbidden in (("queues", pool.take()), ("policies", KEY_NAME), ("queues",)):
        with pytest.raises(ApiError) as refusal:
            api.get(*forbidden)
        assert refusal.value.status in (401, 403)


def test_keys_are_never_logged(broker, api, queue, policy):
    name, keys = policy("Send")
    with pytest.raises(ApiError):
        Api(broker, name, "wrong-" + keys[0]).get("queues", queue)
    log = broker.log_path.read_text(errors="replace")
    assert not any(key in log for key in keys)
