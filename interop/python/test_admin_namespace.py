"""The namespace in the SDK's administration client: its properties, long lists, and access."""

import datetime
import time

import pytest
import requests
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
)
from azure.servicebus.management import AccessRights, AuthorizationRule, TrueRuleFilter

from broker import KEY, KEY_NAME, Broker
from conftest import LISTEN_KEY, SEND_KEY
from flavour import Sync
from names import fresh
from signature import signature

LISTED = 130
REFUSED = (ServiceBusAuthenticationError, ServiceBusAuthorizationError)


def test_the_namespace_has_properties(admin):
    shown = admin.get_namespace_properties()
    assert shown.name
    assert (shown.messaging_sku, shown.messaging_units) == ("Premium", 1)
    assert shown.namespace_type == "Messaging"
    assert shown.created_at_utc is not None
    assert shown.modified_at_utc is not None


@pytest.mark.parametrize("variable", ["PEEKLOCK_TIER=standard", "PEEKLOCK_STRICT_EMULATOR_QUOTAS=true"])
def test_a_namespace_of_the_standard_tier_has_smaller_limits(tmp_path, flavour, variable):
    broker = Broker(tmp_path, listen_tls="127.0.0.1:0", environment=dict([variable.split("=")])).start()
    try:
        with flavour.admin(broker.connection_string, connection_verify=broker.certificate) as admin:
            assert admin.get_namespace_properties().messaging_sku == "Standard"
            with pytest.raises(HttpResponseError, match="MaxMessageSizeInKilobytes"):
                admin.create_queue("large", max_message_size_in_kilobytes=1024)
            admin.create_queue("small")
            assert admin.get_queue("small").max_message_size_in_kilobytes == 256
        with flavour.client(broker.connection_string) as client, client.get_queue_sender("small") as sender:
            sender.send_messages(ServiceBusMessage(b"x" * 255_000))
            with pytest.raises(MessageSizeExceededError):
                sender.send_messages(ServiceBusMessage(b"x" * 300_000))
    finally:
        broker.stop()


@pytest.fixture(scope="module")
def many(topics):
    """Creates more of each kind than fit on a page."""
    stem = fresh("listed")
    admin = topics.admin
    topic = f"{stem}-topic"
    admin.create_topic(topic)
    for number in range(LISTED):
        admin.create_queue(f"{stem}-q{number:03}")
        admin.create_topic(f"{stem}-t{number:03}")
        admin.create_subscription(topic, f"s{number:03}")
        admin.create_rule(topic, "s000", f"r{number:03}", filter=TrueRuleFilter())
    return stem, topic


def numbered(letter):
    return [f"{letter}{number:03}" for number in range(LISTED)]


@pytest.mark.timeout(180)
def test_lists_can_be_longer_than_a_page(admin, many):
    stem, topic = many

    def of_this_test(listed):
        names = [shown.name for shown in listed if shown.name.startswith(f"{stem}-")]
        return [name.removeprefix(f"{stem}-") for name in names if name != topic]

    assert of_this_test(admin.list_queues()) == numbered("q")
    assert of_this_test(admin.list_queues_runtime_properties()) == numbered("q")
    assert of_this_test(admin.list_topics()) == numbered("t")
    assert of_this_test(admin.list_topics_runtime_properties()) == numbered("t")
    assert [shown.name for shown in admin.list_subscriptions(topic)] == numbered("s")
    assert [shown.name for shown in admin.list_subscriptions_runtime_properties(topic)] == numbered("s")
    rules = [rule.name for rule in admin.list_rules(topic, "s000")]
    assert sorted(rules) == sorted(["$Default", *numbered("r")])


@pytest.mark.timeout(180)
def test_pages_can_have_any_size_and_start_at_any_index(admin, many):
    _, topic = many
    listed = [shown.name for shown in admin.list_subscriptions(topic, max_page_size=7)]
    assert listed == numbered("s")
    listed = [shown.name for shown in admin.list_subscriptions(topic, start_index=LISTED - 3, max_page_size=2)]
    assert listed == numbered("s")[-3:]


def test_a_list_can_fill_exactly_one_page(admin, topics):
    topic = fresh("topic")
    topics.admin.create_topic(topic)
    for number in range(100):
        topics.admin.create_subscription(topic, f"s{number:03}")
    assert len(list(admin.list_subscriptions(topic))) == 100


@pytest.mark.parametrize("key", [(KEY_NAME, "not the key"), ("nobody", KEY), SEND_KEY, LISTEN_KEY], ids=str)
def test_operations_without_the_manage_right_are_rejected(flavour, broker, key):
    name = fresh("queue")
    connection_string = broker.connection_string_of(*key)
    with flavour.admin(connection_string, connection_verify=broker.certificate) as admin:
        for attempt in (admin.create_queue, admin.get_queue, admin.delete_queue):
            with pytest.raises(ClientAuthenticationError):
                attempt(name)
        with pytest.raises(ClientAuthenticationError):
            list(admin.list_queues())


def test_authorization_rules_become_keys(flavour, broker, admin):
    name = fresh("queue")
    rule = AuthorizationRule(
        type="SharedAccessAuthorizationRule",
        claim_type="SharedAccessKey",
        claim_value="None",
        rights=[AccessRights.SEND],
        key_name="only-send",
        primary_key="first-secret-of-the-rule",
        secondary_key="second-secret-of-the-rule",
        created_at_utc=datetime.datetime(2026, 1, 1),
        modified_at_utc=datetime.datetime(2026, 1, 1),
    )
    admin.create_queue(name, authorization_rules=[rule])
    [got] = admin.get_queue(name).authorization_rules
    assert (got.key_name, got.rights) == ("only-send", [AccessRights.SEND])
    assert (got.primary_key, got.secondary_key) == ("first-secret-of-the-rule", "second-secret-of-the-rule")
    for key in ("first-secret-of-the-rule", "second-secret-of-the-rule"):
        with flavour.client(broker.connection_string_of("only-send", key), retry_total=0) as client:
            with client.get_queue_sender(name) as sender:
                sender.send_messages(ServiceBusMessage("by the rule"))
    queue = admin.get_queue(name)
    queue.authorization_rules = []
    admin.update_queue(queue)
    with flavour.client(broker.connection_string_of("only-send", key), retry_total=0) as client:
        with pytest.raises(REFUSED), client.get_queue_sender(name) as sender:
            sender.send_messages(ServiceBusMessage("too late"))


def test_the_certificate_is_checked(flavour, broker):
    with flavour.admin(broker.connection_string) as admin:
        with pytest.raises(Exception, match="(?i)certificate"):
            admin.get_namespace_properties()


def test_a_certificate_bundle_from_the_environment_is_trusted(monkeypatch, broker):
    """Users who cannot change the program need this variable."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", broker.certificate)
    with Sync().admin(broker.connection_string) as admin:
        assert admin.get_namespace_properties().name


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"this is not XML", 400),
        (b"<entry", 400),
        (b"<!DOCTYPE x [<!ENTITY e 'e'>]><entry>&e;</entry>", 400),
        (b"<a>" * 100_000, (400, 413)),
        (b"<entry>" + b"x" * (4 << 20) + b"</entry>", 413),
        (b"", 400),
    ],
    ids=["text", "cut", "entity", "deep", "large", "empty"],
)
def test_an_invalid_body_gets_an_error_in_the_format_of_the_service(broker, topics, body, status):
    token = signature(f"http://{broker.http_address}", KEY_NAME, KEY, int(time.time()) + 600)
    headers = {"Authorization": token, "Content-Type": "application/atom+xml"}
    url = f"http://{broker.http_address}/{fresh('queue')}?api-version=2021-05"
    response = requests.put(url, data=body, headers=headers, timeout=10)
    assert response.status_code in (status if isinstance(status, tuple) else (status,))
    assert response.text.startswith("<Error>") or "<Error" in response.text
    assert f"<Code>{response.status_code}</Code>" in response.text
    with pytest.raises(HttpResponseError):
        topics.admin.get_queue(url.rpartition("/")[2].partition("?")[0])
