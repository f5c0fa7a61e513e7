"""Properties, application properties and every kind of body are received as they were sent."""

import datetime
import decimal
import uuid

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType

from steps import body, receive, receive_one


def test_properties_return_unchanged(sender, receiver):
    sent = {
        "message_id": "id-1",
        "correlation_id": "correlation-1",
        "content_type": "application/json",
        "subject": "a subject",
        "to": "somewhere",
        "reply_to": "back here",
        "reply_to_session_id": "reply session",
        "session_id": "a session",
        "partition_key": "a session",
    }
    sender.send_messages(ServiceBusMessage("{}", time_to_live=datetime.timedelta(hours=1), **sent))
    message = receive_one(receiver)
    assert {name: getattr(message, name) for name in sent} == sent
    assert message.time_to_live == datetime.timedelta(hours=1)
    lifetime = message.expires_at_utc - message.enqueued_time_utc
    assert lifetime == datetime.timedelta(hours=1)


def test_a_message_without_an_id_gets_one(client, queue, sender, receiver):
    sender.send_messages([ServiceBusMessage("a"), ServiceBusMessage("b")])
    one, two = receive(receiver, 2)
    assert one.message_id and two.message_id
    assert one.message_id != two.message_id


def test_application_properties_return_with_their_types(sender, receiver):
    moment = datetime.datetime(2024, 5, 6, 7, 8, 9, tzinfo=datetime.timezone.utc)
    number = uuid.UUID("12345678-1234-5678-1234-567812345678")
    sent = {
        "text": "größer ✓",
        "small": 7,
        "negative": -7,
        "large": 2**31 - 1,
        "float": 0.5,
        "yes": True,
        "no": False,
        "none": None,
        "uuid": number,
        "time": moment,
    }
    sender.send_messages(ServiceBusMessage("x", application_properties=sent))
    got = {name.decode(): value for name, value in receive_one(receiver).application_properties.items()}
    assert got == sent | {"text": "größer ✓".encode(), "time": int(moment.timestamp() * 1000)}
    assert {name: type(got[name]) for name in ("yes", "small", "float", "uuid")} == {
        "yes": bool,
        "small": int,
        "float": float,
        "uuid": uuid.UUID,
    }


DECIMALS = [decimal.Decimal(text) for text in ("1.5", "-12.25", "3E+20", "7")]


def test_decimals_return(sender, receiver):
    sent = {f"d{number}": value for number, value in enumerate(DECIMALS)}
    batch = sender.create_message_batch()
    batch.add_message(AmqpAnnotatedMessage(value_body=DECIMALS, application_properties=sent))
    sender.send_messages(batch)
    message = receive_one(receiver)
    assert message.application_properties == {name.encode(): value for name, value in sent.items()}
    assert message.raw_amqp_message.body == DECIMALS


def test_the_time_to_live_of_a_queue_is_the_span_between_two_times(client, create):
    queue = create(default_time_to_live_ms=100 * 86_400_000)
    with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        sender.send_messages(ServiceBusMessage("x"))
        properties = receive_one(receiver).raw_amqp_message.properties
        assert properties.absolute_expiry_time - properties.creation_time == 100 * 86_400_000


@pytest.mark.parametrize("sections", [[b""], [b"one"], [b"one", b"", b"three"]])
def test_data_bodies_keep_their_sections(sender, receiver, sections):
    sender.send_messages(AmqpAnnotatedMessage(data_body=sections))
    message = receive_one(receiver)
    assert message.body_type == AmqpMessageBodyType.DATA
    assert list(message.raw_amqp_message.body) == sections


VALUES = ["text", 42, -1, 2**31 - 1, 1.5, True, {b"key": [1, b"two"]}, [1, 2, 3], uuid.UUID(int=7)]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_value_bodies_return_unchanged(sender, receiver, value):
    sender.send_messages(AmqpAnnotatedMessage(value_body=value))
    message = receive_one(receiver)
    assert message.body_type == AmqpMessageBodyType.VALUE
    expected = value.encode() if isinstance(value, str) else value
    assert message.raw_amqp_message.body == expected


def test_sequence_bodies_return_unchanged(sender, receiver):
    sent = [[1, b"two", None], [3.5]]
    sender.send_messages(AmqpAnnotatedMessage(sequence_body=sent))
    message = receive_one(receiver)
    assert message.body_type == AmqpMessageBodyType.SEQUENCE
    assert list(message.raw_amqp_message.body) == sent


def test_an_empty_body_returns(sender, receiver):
    sender.send_messages(ServiceBusMessage(b""))
    assert body(receive_one(receiver)) == b""


def test_a_message_without_a_body_returns(sender, receiver):
    sender.send_messages(ServiceBusMessage(None, message_id="bodiless"))
    assert receive_one(receiver).message_id == "bodiless"


def test_raw_header_annotations_and_footer_return_unchanged(sender, receiver):
    sender.send_messages(
        AmqpAnnotatedMessage(
            data_body=b"x",
            header={"priority": 9, "durable": False, "first_acquirer": True},
            annotations={"x-own": "note"},
            delivery_annotations={"x-for-the-receiver": "tip", "x-opt-lock-token": "forged"},
            footer={"sum": "abc"},
            properties={"user_id": b"someone", "content_encoding": "gzip", "group_sequence": 3},
        )
    )
    raw = receive_one(receiver).raw_amqp_message
    assert (raw.header.priority, raw.header.durable, raw.header.first_acquirer) == (9, False, True)
    assert raw.delivery_annotations[b"x-for-the-receiver"] == b"tip"
    assert raw.delivery_annotations[b"x-opt-lock-token"] != b"forged"
    assert raw.annotations[b"x-own"] == b"note"
    assert raw.footer[b"sum"] == b"abc"
    assert raw.properties.user_id == b"someone"
    assert raw.properties.content_encoding == b"gzip"
    assert raw.properties.group_sequence == 3


def test_a_dead_lettered_message_keeps_its_contents(client, queue, sender, receiver):
    sender.send_messages(ServiceBusMessage("x", message_id="m", application_properties={"tier": "gold"}))
    receiver.dead_letter_message(receive_one(receiver), reason="r", error_description="d")
    with client.get_queue_receiver(queue, sub_queue="deadletter") as dead:
        message = receive_one(dead)
        assert message.message_id == "m"
        properties = message.application_properties
        assert properties[b"tier"] == b"gold"
        assert properties[b"DeadLetterReason"] == b"r"
        assert properties[b"DeadLetterErrorDescription"] == b"d"
