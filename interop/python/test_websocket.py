"""AMQP over WebSockets, for networks whose firewall permits nothing else."""

import pytest
from azure.servicebus import ServiceBusMessage, TransportType
from azure.servicebus.exceptions import ServiceBusError

from broker import KEY, KEY_NAME, connection_string
from steps import assert_empty, body, receive, receive_one, send, texts
from topics import publish, taken

WEBSOCKET = TransportType.AmqpOverWebsocket


def plain(flavour, broker, address, key=KEY, **options):
    """Returns a client over WebSockets. The SDK dials the custom endpoint; the connection string contains the host of
    the AMQP open.
    """
    return flavour.client(
        connection_string("localhost", KEY_NAME, key),
        transport_type=WEBSOCKET,
        custom_endpoint_address=f"sb://{address}",
        **options,
    )


def secure(flavour, broker, address, **options):
    options = {"connection_verify": broker.certificate} | options
    return flavour.client(
        f"Endpoint=sb://localhost/;SharedAccessKeyName={KEY_NAME};SharedAccessKey={KEY}",
        transport_type=WEBSOCKET,
        custom_endpoint_address=f"sb://{address}",
        **options,
    )


WAYS = {
    "http": lambda flavour, broker: plain(flavour, broker, broker.http_address),
    "amqp-port": lambda flavour, broker: plain(flavour, broker, broker.address),
    "tls": lambda flavour, broker: secure(flavour, broker, broker.tls_address),
    "tls-on-http-port": lambda flavour, broker: secure(flavour, broker, broker.http_address),
}


@pytest.fixture(params=WAYS)
def client(request, flavour, broker):
    with WAYS[request.param](flavour, broker) as client:
        yield client


def test_messages_are_sent_received_settled_and_managed(client, queue, receiver):
    send(client, queue, "seen", "defer", "dead")
    assert texts(receiver.peek_messages(3)) == ["seen", "defer", "dead"]
    seen, deferred, dead = receive(receiver, 3)
    receiver.renew_message_lock(seen)
    receiver.complete_message(seen)
    receiver.defer_message(deferred)
    receiver.dead_letter_message(dead, reason="why")
    [deferred] = receiver.receive_deferred_messages([deferred.sequence_number])
    receiver.complete_message(deferred)
    assert_empty(client, queue)


def test_large_bodies_and_batches_arrive_unchanged(client, queue, receiver):
    large = bytes(number % 251 for number in range(900 * 1024))
    send(client, queue, large)
    assert body(receive_one(receiver)) == large
    sent = [f"entry {number}" for number in range(200)]
    send(client, queue, *sent)
    assert texts(receive(receiver, 200)) == sent


def test_a_subscription_gets_a_message(client, topics):
    topic = topics.create("one")
    publish(client, topic, "around the wall")
    assert taken(client, topic, "one", 1) == ["around the wall"]


def test_a_wrong_key_is_rejected(flavour, broker, queue):
    with plain(flavour, broker, broker.http_address, key="not the key", retry_total=0) as client:
        with pytest.raises(ServiceBusError):
            send(client, queue, "never")


def test_an_untrusted_certificate_fails_the_connection(flavour, broker, queue):
    with secure(flavour, broker, broker.tls_address, connection_verify=None, retry_total=0) as client:
        with pytest.raises(ServiceBusError):
            send(client, queue, "never")


def test_an_idle_connection_is_kept(flavour, broker, queue):
    """The asyncio SDK pings every ten seconds, and closes the connection if there is no answer."""
    with plain(flavour, broker, broker.http_address) as client:
        with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
            sender.send_messages(ServiceBusMessage("first"))
            receive_one(receiver)
            assert receiver.receive_messages(max_wait_time=12) == []
            sender.send_messages(ServiceBusMessage("second"))
            assert texts([receive_one(receiver)]) == ["second"]
