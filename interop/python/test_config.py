"""Entities and keys from files: the official emulators' Config.json, and the broker's own peeklock.toml."""

import os
import subprocess

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.management import SqlRuleFilter

from broker import Broker
from flavour import Sync
from hubs import bodies, read, refusal
from hubs import publish as publish_events
from steps import receive_one, send, text
from topics import publish, take, taken

SERVICE_BUS = """
{ // As the installer of the emulator ships it, comments and all.
  "UserConfig": {
    "Namespaces": [
      {
        "Name": "sbemulatorns",
        "Queues": [
          {
            "Name": "queue.1",
            "Properties": {
              "DeadLetteringOnMessageExpiration": false,
              "DefaultMessageTimeToLive": "PT1H",
              "DuplicateDetectionHistoryTimeWindow": "PT20S",
              "ForwardDeadLetteredMessagesTo": "",
              "ForwardTo": "",
              "LockDuration": "PT1M",
              "MaxDeliveryCount": 3,
              "RequiresDuplicateDetection": false,
              "RequiresSession": false
            }
          },
          { "Name": "sessions.1", "Properties": { "RequiresSession": true } }
        ],
        /* Topics with their subscriptions and rules. */
        "Topics": [
          {
            "Name": "topic.1",
            "Properties": { "DefaultMessageTimeToLive": "PT1H", "RequiresDuplicateDetection": false },
            "Subscriptions": [
              {
                "Name": "subscription.1",
                "Properties": { "MaxDeliveryCount": 3, "LockDuration": "PT1M", "ForwardTo": "" },
                "Rules": [
                  {
                    "Name": "app-prop-filter-1",
                    "Properties": {
                      "FilterType": "Correlation",
                      "CorrelationFilter": { "ContentType": "application/json", "Properties": { "tenant": "a" } }
                    }
                  }
                ]
              },
              {
                "Name": "subscription.2",
                "Rules": [
                  {
                    "Name": "sql-filter",
                    "Properties": {
                      "FilterType": "Sql",
                      "SqlFilter": { "SqlExpression": "sys.MessageId = '1' AND prio > 3" },
                      "Action": { "SqlExpression": "SET sys.To = 'Entity'" }
                    }
                  }
                ]
              },
              { "Name": "subscription.3", "Properties": {} }
            ]
          }
        ]
      }
    ],
    "Logging": { "Type": "File" }
  }
}
"""
EVENT_HUBS = """
{
  "UserConfig": {
    "NamespaceConfig": [
      {
        "Type": "EventHub",
        "Name": "emulatorNs1",
        "Entities": [ { "Name": "eh1", "PartitionCount": "2", "ConsumerGroups": [ { "Name": "cg1" } ] } ]
      }
    ],
    "LoggingConfig": { "Type": "File" }
  }
}
"""
TOML = """
[queues.orders]
lock-duration = "30s"
max-delivery-count = 4

[queues.orders-of-sessions]
requires-session = true

[topics.events]
[topics.events.subscriptions.all]
[topics.events.subscriptions.high]
max-delivery-count = 2
[topics.events.subscriptions.high.rules.only-high]
sql = "Priority = 'High'"
"""


def started(folder, name, content, **options):
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(content)
    return Broker(folder, configs=[path], listen_tls="127.0.0.1:0", **options).start()


@pytest.fixture(scope="module")
def emulator(tmp_path_factory):
    """A broker with both emulator files in one process."""
    folder = tmp_path_factory.mktemp("emulator")
    (folder / "hubs.json").write_text(EVENT_HUBS)
    (folder / "Config.json").write_text(SERVICE_BUS)
    configs = [folder / "Config.json", folder / "hubs.json"]
    broker = Broker(folder, configs=configs, listen_tls="127.0.0.1:0").start()
    yield broker
    broker.stop()


@pytest.fixture
def emulated(flavour, emulator):
    with flavour.client(emulator.connection_string) as client:
        yield client


@pytest.fixture
def admin(emulator):
    with Sync().admin(emulator.connection_string, connection_verify=emulator.certificate) as admin:
        yield admin


def test_queues_of_the_emulator_file_work(emulated, admin):
    send(emulated, "queue.1", "as before")
    with emulated.get_queue_receiver("queue.1") as receiver:
        message = receive_one(receiver)
        assert text(message) == "as before"
        receiver.complete_message(message)
    assert admin.get_queue("queue.1").max_delivery_count == 3
    assert admin.get_queue("queue.1").forward_to is None
    assert admin.get_queue("sessions.1").requires_session


def test_rules_of_the_emulator_file_work(emulated, admin):
    matching = ServiceBusMessage(
        "both", message_id="1", content_type="application/json", application_properties={"tenant": "a", "prio": 4}
    )
    publish(emulated, "topic.1", matching, "neither")
    assert taken(emulated, "topic.1", "subscription.1", 1) == ["both"]
    [acted] = take(emulated, "topic.1", "subscription.2", 1)
    assert (text(acted), acted.to) == ("both", "Entity")
    assert taken(emulated, "topic.1", "subscription.3", 2) == ["both", "neither"]
    [rule] = admin.list_rules("topic.1", "subscription.2")
    assert rule.filter.sql_expression == "sys.MessageId = '1' AND prio > 3"


def test_emulator_environment_variables_name_the_file(tmp_path):
    (tmp_path / "Config.json").write_text(SERVICE_BUS)
    environment = {"CONFIG_PATH": str(tmp_path / "Config.json"), "ACCEPT_EULA": "Y", "SQL_SERVER": "db"}
    broker = Broker(tmp_path, environment=environment).start()
    try:
        with Sync().client(broker.connection_string) as client:
            send(client, "queue.1", "found")
    finally:
        broker.stop()


def test_the_native_configuration_file_declares_entities(tmp_path, flavour):
    broker = started(tmp_path / "own", "peeklock.toml", TOML)
    try:
        with flavour.admin(broker.connection_string, connection_verify=broker.certificate) as admin:
            assert admin.get_queue("orders").max_delivery_count == 4
            assert admin.get_queue("orders-of-sessions").requires_session
            [rule] = admin.list_rules("events", "high")
            assert (rule.name, rule.filter.sql_expression) == ("only-high", "Priority = 'High'")
            assert isinstance(rule.filter, SqlRuleFilter)
        with flavour.client(broker.connection_string) as client:
            high = ServiceBusMessage("high", application_properties={"Priority": "High"})
            publish(client, "events", high, "plain")
            assert taken(client, "events", "high", 1) == ["high"]
            assert taken(client, "events", "all", 2) == ["high", "plain"]
    finally:
        broker.stop()


def test_a_second_start_keeps_entities_and_updates_mutable_properties(tmp_path):
    broker = started(tmp_path, "peeklock.toml", TOML)
    with Sync().client(broker.connection_string) as client:
        send(client, "orders", "kept")
    broker.stop()
    broker = started(tmp_path, "peeklock.toml", TOML.replace("max-delivery-count = 4", "max-delivery-count = 6"))
    try:
        with Sync().admin(broker.connection_string, connection_verify=broker.certificate) as admin:
            assert admin.get_queue("orders").max_delivery_count == 6
            assert admin.get_queue_runtime_properties("orders").active_message_count == 1
    finally:
        broker.stop()


def refused(tmp_path, name, content):
    """Returns the output of `config validate`, and asserts that `serve` rejects the file, too."""
    path = tmp_path / name
    path.write_text(content)
    binary = os.environ["PEEKLOCK_BIN"]
    validated = subprocess.run([binary, "config", "validate", str(path)], capture_output=True, text=True, timeout=60)
    assert validated.returncode != 0, validated.stdout
    with pytest.raises(RuntimeError, match=name):
        Broker(tmp_path, configs=[path]).start()
    return validated.stdout + validated.stderr


def test_hubs_of_the_emulator_file_exist(flavour, emulator):
    with flavour.producer(emulator.connection_string, "eh1") as producer:
        assert producer.get_partition_ids() == ["0", "1"]
        publish_events(producer, "first", "second", partition_id="1")
    for group in ("cg1", "$Default"):
        assert bodies(read(flavour, emulator.connection_string, "eh1", 2, group=group))[-2:] == ["first", "second"]
    assert "cg2" in str(refusal(emulator.connection_string, "eh1", group="cg2"))


@pytest.mark.parametrize(
    ("find", "replace", "words"),
    [
        ("lock-duration", "lock-durations", ["3", "lock-durations", "lock-duration"]),
        ('"30s"', "[1]", ["3"]),
        ('"30s"', '"soon"', ["3", "soon"]),
        ("[queues.orders]", "[queues.orders", ["2"]),
        ("sql = \"Priority = 'High'\"", 'sql = "Priority = "', ["line 14", "only-high", "column 12"]),
    ],
)
def test_a_mistake_is_reported_with_its_position(tmp_path, find, replace, words):
    said = refused(tmp_path, "peeklock.toml", TOML.replace(find, replace, 1))
    assert all(word in said for word in words), said


def test_a_mistake_in_the_emulator_file_is_reported_with_its_position(tmp_path):
    said = refused(tmp_path, "Config.json", SERVICE_BUS.replace('"MaxDeliveryCount"', '"MaxDeliveryCounts"', 1))
    assert "17" in said
    assert "MaxDeliveryCount" in said


def test_a_changed_immutable_property_in_the_file_prevents_the_start(tmp_path):
    started(tmp_path, "peeklock.toml", TOML).stop()
    with pytest.raises(RuntimeError, match="orders-of-sessions"):
        started(tmp_path, "peeklock.toml", TOML.replace("requires-session = true", "requires-session = false"))


def test_a_valid_file_is_accepted(tmp_path):
    path = tmp_path / "peeklock.toml"
    path.write_text(TOML)
    binary = os.environ["PEEKLOCK_BIN"]
    validated = subprocess.run([binary, "config", "validate", str(path)], capture_output=True, text=True, timeout=60)
    assert validated.returncode == 0, validated.stdout + validated.stderr


def test_the_error_for_a_port_in_use_names_the_flag(tmp_path):
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    first = Broker(tmp_path / "first").start()
    try:
        with pytest.raises(RuntimeError) as failed:
            Broker(tmp_path / "second", listen=first.address).start()
        said = str(failed.value)
        assert first.address in said
        assert "--listen" in said
    finally:
        first.stop()
