"""One open port is enough: each accepts AMQP, HTTP and TLS, distinguished by the first bytes."""

import socket

import pytest
import requests
from azure.core.exceptions import HttpResponseError

from broker import Broker, connection_string
from flavour import Sync
from names import fresh
from steps import receive_one, send, text

HEALTHY = {"status": "healthy", "message": "Service is healthy."}


@pytest.mark.parametrize("port", ["address", "http_address", "tls_address"])
def test_health_has_the_format_of_the_emulator(broker, port):
    address = getattr(broker, port)
    answers = [requests.get(f"https://{address}/health", verify=broker.certificate, timeout=10)]
    if port != "tls_address":
        answers.append(requests.get(f"http://{address}/health", timeout=10))
    for answer in answers:
        assert (answer.status_code, answer.json()) == (200, HEALTHY)


@pytest.mark.parametrize("port", ["address", "http_address"])
def test_amqp_and_management_share_a_port(flavour, broker, port):
    string = connection_string(getattr(broker, port))
    name = fresh("queue")
    with flavour.admin(string, connection_verify=broker.certificate) as admin:
        admin.create_queue(name)
        with flavour.client(string) as client:
            send(client, name, "one port")
            assert admin.get_queue_runtime_properties(name).active_message_count == 1
            with client.get_queue_receiver(name) as receiver:
                assert text(receive_one(receiver)) == "one port"


def test_the_https_port_serves_unmodified_clients(tmp_path, flavour):
    """Unmodified administration clients dial HTTPS on a separate port, usually 443."""
    broker = Broker(tmp_path, https="127.0.0.1:0").start()
    try:
        assert broker.https_address != broker.address
        with flavour.admin(connection_string(broker.https_address), connection_verify=broker.certificate) as admin:
            admin.create_queue("made")
            assert [queue.name for queue in admin.list_queues()] == ["made"]
        with flavour.client(broker.connection_string) as client:
            send(client, "made", "there")
            with client.get_queue_receiver("made") as receiver:
                assert text(receive_one(receiver)) == "there"
        with pytest.raises(requests.exceptions.ConnectionError):
            requests.get(f"http://{broker.https_address}/health", timeout=10)
    finally:
        broker.stop()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:443", "10.1.2.3:5300", "SB.servicebus.windows.net:443", "east.localhost"])
def test_the_hosts_of_clients_are_accepted(broker, host):
    answer = requests.get(f"http://{broker.http_address}/health", headers={"Host": host}, timeout=10)
    assert answer.json() == HEALTHY


def test_a_host_that_a_web_page_could_have_needs_permission(broker, tmp_path):
    elsewhere = {"Host": "sb.example.net:5300"}
    answer = requests.get(f"http://{broker.http_address}/health", headers=elsewhere, timeout=10)
    assert answer.status_code == 421
    assert "--allow-host sb.example.net" in answer.text
    allowing = Broker(tmp_path, environment={"PEEKLOCK_ALLOW_HOST": "other.example,sb.example.net"}).start()
    try:
        answer = requests.get(f"http://{allowing.address}/health", headers=elsewhere, timeout=10)
        assert answer.json() == HEALTHY
    finally:
        allowing.stop()


def test_management_accepts_another_name_of_this_machine(broker):
    """The host in the token is the one that the client addresses."""
    with Sync().admin(connection_string(broker.address.replace("127.0.0.1", "localhost")), connection_verify=broker.certificate) as admin:
        name = fresh("queue")
        admin.create_queue(name)
        with pytest.raises(HttpResponseError):
            admin.create_queue(name)


@pytest.mark.parametrize("first", [b"GET", b"\x16\x03", b"AMQ", b"\x00\x00\x00"], ids=str)
def test_bytes_of_no_protocol_do_no_harm(broker, first):
    host, _, port = broker.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as stranger:
        stranger.sendall(first)
        assert requests.get(f"http://{broker.address}/health", timeout=10).json() == HEALTHY
