"""Access: keys, rights, expired tokens, unknown entities."""

import time

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import (
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
)

from broker import KEY, KEY_NAME
from conftest import LISTEN_KEY, SEND_KEY
from signature import signature
from steps import receive_one, send, text

REFUSED = (ServiceBusAuthenticationError, ServiceBusAuthorizationError)


def try_to_send(flavour, connection_string, queue):
    with flavour.client(connection_string, retry_total=0) as client, client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("may I?"))


def try_to_receive(flavour, connection_string, queue):
    with flavour.client(connection_string, retry_total=0) as client:
        with client.get_queue_receiver(queue, max_wait_time=20) as receiver:
            return receiver.receive_messages()


@pytest.mark.parametrize("attempt", [try_to_send, try_to_receive])
def test_a_wrong_key_is_rejected(flavour, broker, queue, attempt):
    with pytest.raises(REFUSED) as refused:
        attempt(flavour, broker.connection_string_of(KEY_NAME, "not the key"), queue)
    # SDK quirk: only the inner exception contains the reason.
    assert refused.value.inner_exception.status_code == 401
    assert "the signature does not fit" in str(refused.value.inner_exception)


@pytest.mark.parametrize("attempt", [try_to_send, try_to_receive])
def test_an_unknown_key_name_is_rejected(flavour, broker, queue, attempt):
    with pytest.raises(REFUSED):
        attempt(flavour, broker.connection_string_of("nobody", KEY), queue)


@pytest.mark.parametrize("attempt", [try_to_send, try_to_receive])
def test_an_unknown_queue_is_not_found(flavour, broker, attempt):
    # SDK quirk: the service answers the token request with 404, and this SDK reports every rejected token as a wrong
    # key.
    with pytest.raises(ServiceBusAuthenticationError) as refused:
        attempt(flavour, broker.connection_string, "no-such-queue")
    assert refused.value.inner_exception.status_code == 404
    assert "/no-such-queue' could not be found. Create it with: peeklock queue create" in str(refused.value.inner_exception)


def test_a_key_with_listen_cannot_send(flavour, broker, queue):
    with pytest.raises(REFUSED):
        try_to_send(flavour, broker.connection_string_of(*LISTEN_KEY), queue)


def test_a_key_with_send_cannot_receive(flavour, broker, queue):
    with pytest.raises(REFUSED):
        try_to_receive(flavour, broker.connection_string_of(*SEND_KEY), queue)


def test_each_right_suffices_for_its_side(flavour, broker, queue):
    with flavour.client(broker.connection_string_of(*SEND_KEY)) as client:
        send(client, queue, "from the sender")
    with flavour.client(broker.connection_string_of(*LISTEN_KEY)) as client:
        with client.get_queue_receiver(queue) as receiver:
            message = receive_one(receiver)
            assert text(message) == "from the sender"
            receiver.renew_message_lock(message)
            receiver.complete_message(message)


def test_a_key_with_send_cannot_peek_by_management(flavour, broker, queue):
    with flavour.client(broker.connection_string_of(*SEND_KEY), retry_total=0) as client:
        with pytest.raises(REFUSED), client.get_queue_receiver(queue) as receiver:
            receiver.peek_messages()


def with_signature(broker, token):
    return f"Endpoint=sb://{broker.address};SharedAccessSignature={token};UseDevelopmentEmulator=true;"


def test_a_signature_without_a_key_is_accepted(flavour, broker, queue):
    token = signature(f"sb://{broker.address}/{queue}", KEY_NAME, KEY, int(time.time()) + 600)
    try_to_send(flavour, with_signature(broker, token), queue)
    assert len(try_to_receive(flavour, with_signature(broker, token), queue)) == 1


def test_an_expired_signature_is_rejected(flavour, broker, queue):
    token = signature(f"sb://{broker.address}/{queue}", KEY_NAME, KEY, int(time.time()) - 60)
    with pytest.raises(REFUSED):
        try_to_send(flavour, with_signature(broker, token), queue)


def test_a_signature_for_another_queue_is_rejected(flavour, broker, queue, pool):
    token = signature(f"sb://{broker.address}/{pool.take()}", KEY_NAME, KEY, int(time.time()) + 600)
    with pytest.raises(REFUSED):
        try_to_send(flavour, with_signature(broker, token), queue)
