"""The main operations over TLS, with the broker's own certificate as the only trusted one."""

import pytest
from azure.servicebus import ServiceBusMessage, TransportType
from azure.servicebus.exceptions import ServiceBusError

from broker import KEY, KEY_NAME
from steps import assert_empty, body, receive, receive_one, send, text, texts


def tls_client(flavour, broker, key=KEY, **options):
    """Returns a client over TLS. Without the emulator flag the SDK uses TLS but drops the port; a custom endpoint
    restores it.
    """
    host = broker.tls_address.rpartition(":")[0]
    connection_string = f"Endpoint=sb://{host}/;SharedAccessKeyName={KEY_NAME};SharedAccessKey={key}"
    options = {"connection_verify": broker.certificate} | options
    return flavour.client(
        connection_string,
        transport_type=TransportType.Amqp,
        custom_endpoint_address=f"sb://{broker.tls_address}",
        **options,
    )


@pytest.fixture
def client(flavour, broker):
    with tls_client(flavour, broker) as client:
        yield client


def test_a_message_is_sent_received_and_completed(client, queue, sender, receiver):
    sender.send_messages(ServiceBusMessage("secret"))
    message = receive_one(receiver)
    assert text(message) == "secret"
    receiver.complete_message(message)
    assert_empty(client, queue)


def test_every_settlement_works(client, queue, receiver):
    send(client, queue, "defer", "abandon", "dead-letter")
    deferred, abandoned, dead = receive(receiver, 3)
    receiver.defer_message(deferred)
    receiver.dead_letter_message(dead, reason="why")
    receiver.abandon_message(abandoned)
    receiver.complete_message(receive_one(receiver))
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


def test_management_works(client, queue, receiver):
    send(client, queue, "seen")
    assert texts(receiver.peek_messages()) == ["seen"]
    message = receive_one(receiver)
    before = message.locked_until_utc
    receiver.renew_message_lock(message)
    assert message.locked_until_utc >= before


def test_an_untrusted_certificate_fails_the_connection(flavour, broker, queue):
    with tls_client(flavour, broker, connection_verify=None, retry_total=0) as client:
        with pytest.raises(ServiceBusError):
            send(client, queue, "never")


def test_a_wrong_key_is_rejected(flavour, broker, queue):
    with tls_client(flavour, broker, key="not the key", retry_total=0) as client:
        # SDK quirk: with a custom endpoint it reports every rejection as a connection error, but keeps the condition.
        with pytest.raises(ServiceBusError, match="amqp:client-error"):
            send(client, queue, "never")
