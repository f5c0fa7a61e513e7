"""Several namespaces in one process, selected by host name or by key name."""

import pytest
import requests
from azure.servicebus import ServiceBusMessage, TransportType
from azure.servicebus.exceptions import ServiceBusError

from api import Api, ApiError
from broker import Broker, connection_string
from steps import receive_one, send, text

TOML = """
[keys.root-of-none]
primary-key = "secret-of-none"
rights = ["Manage"]

[queues.jobs]

[namespaces.east]
hosts = ["east.example.net"]
[namespaces.east.keys.root-of-east]
primary-key = "secret-of-east"
rights = ["Manage"]
[namespaces.east.queues.jobs]

[namespaces.west]
hosts = ["west.example.net"]
[namespaces.west.keys.root-of-west]
primary-key = "secret-of-west"
rights = ["Manage"]
[namespaces.west.queues.jobs]
[namespaces.west.queues.only-west]
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    folder = tmp_path_factory.mktemp("namespaces")
    path = folder / "peeklock.toml"
    path.write_text(TOML)
    broker = Broker(folder, configs=[path], listen_tls="127.0.0.1:0").start()
    yield broker
    broker.stop()


def client_of(flavour, broker, side, host):
    """Returns a client for a namespace. The SDK dials the custom endpoint and sends the host of the connection string
    in its open.
    """
    return flavour.client(
        connection_string(host, f"root-of-{side}", f"secret-of-{side}"),
        transport_type=TransportType.Amqp,
        custom_endpoint_address=f"sb://{broker.address}",
        retry_total=0,
    )


WAYS = {
    "host": lambda side: f"{side}.example.net",
    "first-label": lambda side: f"{side}.somewhere.else",
    "key-name": lambda side: "127.0.0.1",
}


@pytest.mark.parametrize("way", WAYS)
def test_a_queue_name_is_separate_in_each_namespace(flavour, broker, way):
    for side in ("east", "west"):
        with client_of(flavour, broker, side, WAYS[way](side)) as client:
            send(client, "jobs", f"for {side}")
    for side in ("east", "west"):
        with client_of(flavour, broker, side, WAYS[way](side)) as client:
            with client.get_queue_receiver("jobs") as receiver:
                message = receive_one(receiver)
                receiver.complete_message(message)
                assert text(message) == f"for {side}"
                assert receiver.receive_messages(max_wait_time=0.3) == []


def test_entities_and_keys_of_one_namespace_are_unknown_to_the_other(flavour, broker):
    with client_of(flavour, broker, "east", "east.example.net") as client:
        with pytest.raises(ServiceBusError):
            send(client, "only-west", "never")
    with client_of(flavour, broker, "east", "west.example.net") as client:
        with pytest.raises(ServiceBusError):
            send(client, "jobs", "never")


def test_the_default_namespace_serves_all_other_hosts(flavour, broker):
    with client_of(flavour, broker, "none", "anything.at.all") as client:
        with client.get_queue_sender("jobs") as sender, client.get_queue_receiver("jobs") as receiver:
            sender.send_messages(ServiceBusMessage("default"))
            message = receive_one(receiver)
            receiver.complete_message(message)
            assert text(message) == "default"


def test_the_host_header_selects_the_namespace(broker):
    east = Api(broker, "root-of-east", "secret-of-east", host="east.example.net")
    assert [queue["name"] for queue in east.get("queues")["items"]] == ["jobs"]
    west = Api(broker, "root-of-west", "secret-of-west", host="west.example.net")
    assert [queue["name"] for queue in west.get("queues")["items"]] == ["jobs", "only-west"]
    stranger = Api(broker, "root-of-east", "secret-of-east", host="west.example.net")
    with pytest.raises(ApiError) as refusal:
        stranger.get("queues")
    assert refusal.value.status == 401


def test_the_key_name_selects_the_namespace_if_the_host_does_not(broker):
    east = Api(broker, "root-of-east", "secret-of-east")
    assert [queue["name"] for queue in east.get("queues")["items"]] == ["jobs"]


def test_health_covers_the_whole_process(broker):
    assert requests.get(f"http://{broker.address}/health", timeout=10).json()["status"] == "healthy"
