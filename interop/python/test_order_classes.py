"""The class of a message: by a rule of the queue, by its property, by its AMQP header, or by default."""

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageHeader

from api import ApiError
from order import order, post, take, with_header, with_property
from steps import receive_one, text

PAYING_FIRST = [{"when": "tier = 'paying'", "class": "high"}]


@pytest.fixture
def queue(create):
    return create(order=order("strict"))


def test_the_raw_message_header_sets_the_priority(client, queue):
    post(client, queue, *[with_header(f"priority {number}", number) for number in (0, 4, 9)])
    assert take(client, queue, 3) == ["priority 9", "priority 4", "priority 0"]


def test_messages_of_one_class_keep_their_order_for_any_priority(client, queue):
    post(client, queue, *[with_header(f"priority {number}", number) for number in (7, 9, 8)])
    assert take(client, queue, 3) == ["priority 7", "priority 9", "priority 8"]


def test_an_amqp_message_sets_the_priority(client, queue):
    for priority in (2, 8):
        header = AmqpMessageHeader(priority=priority)
        post(client, queue, AmqpAnnotatedMessage(data_body=f"priority {priority}", header=header))
    assert take(client, queue, 2) == ["priority 8", "priority 2"]


def test_the_receiver_sees_the_priority_in_the_header(client, queue):
    post(client, queue, with_header("hello", 8))
    with client.get_queue_receiver(queue) as receiver:
        message = receive_one(receiver)
        assert message.raw_amqp_message.header.priority == 8
        receiver.complete_message(message)


@pytest.mark.parametrize("low, high", [("low", "high"), (1, 9), ("1", "9"), ("LOW", "High")], ids=str)
def test_the_application_property_sets_the_priority(client, queue, low, high):
    post(client, queue, with_property("low", low), with_property("normal", 5), with_property("high", high))
    assert take(client, queue, 3) == ["high", "normal", "low"]


def test_the_property_takes_precedence_over_the_header(client, queue):
    modest = with_header("modest", 9, application_properties={"Priority": "low"})
    post(client, queue, modest, ServiceBusMessage("usual"))
    assert take(client, queue, 2) == ["usual", "modest"]


def test_a_rule_of_the_queue_takes_precedence_over_the_message(client, create):
    queue = create(order=order("strict", rules=PAYING_FIRST))
    paying = ServiceBusMessage("paying", application_properties={"tier": "paying", "Priority": "low"})
    free = ServiceBusMessage("free", application_properties={"tier": "free"})
    post(client, queue, free, with_header("normal", 5), paying)
    assert take(client, queue, 3) == ["paying", "free", "normal"]


def test_the_first_matching_rule_decides(client, create):
    rules = [{"when": "tier = 'paying' AND amount < 10", "class": "low"}, *PAYING_FIRST]
    queue = create(order=order("strict", rules=rules))
    small = ServiceBusMessage("small", application_properties={"tier": "paying", "amount": 3})
    large = ServiceBusMessage("large", application_properties={"tier": "paying", "amount": 30})
    post(client, queue, small, ServiceBusMessage("usual"), large)
    assert take(client, queue, 3) == ["large", "usual", "small"]


def test_a_message_without_a_priority_is_in_the_default_class(client, create):
    queue = create(order=order("strict", defaultClass="low"))
    post(client, queue, ServiceBusMessage("silent"), with_property("normal", "normal"))
    assert take(client, queue, 2) == ["normal", "silent"]


@pytest.mark.parametrize("priority", ["urgent", 77, -1, "7.5", True], ids=str)
def test_a_priority_without_a_class_is_in_the_default_class(client, queue, priority):
    odd = with_property("odd", priority)
    post(client, queue, with_property("low", "low"), odd, with_property("high", "high"))
    assert take(client, queue, 3) == ["high", "odd", "low"]


@pytest.mark.parametrize(
    "bad, words",
    [
        (order("strict", {"low": {"priorities": "0-7"}}), "overlap"),
        (order("strict", {"low": {"priorities": "3-0"}}), "low"),
        (order("urgent"), "urgent"),
        (order("strict", {"high": {"weight": 4}}), "weighted"),
        (order("weighted", {"high": {"weight": 0}}), "weight"),
        (order("strict", defaultClass="medium"), "medium"),
        (order("strict", rules=[{"when": "tier = 'paying'", "class": "gold"}]), "gold"),
        (order("strict", rules=[{"when": "tier = = 1", "class": "high"}]), "does not parse: at column 8"),
    ],
    ids=["overlap", "empty-range", "policy", "strict-weights", "zero-weight", "default", "rule-class", "rule-text"],
)
def test_an_invalid_order_is_rejected(create, bad, words):
    with pytest.raises(ApiError, match=words) as refused:
        create(order=bad)
    assert refused.value.status == 400


def test_a_rejected_change_leaves_queue_and_messages_unchanged(client, queue, management):
    post(client, queue, with_property("low", "low"), with_property("high", "high"))
    before = management.show_queue(queue)["order"]
    with pytest.raises(ApiError):
        management.update_queue(queue, order=order("strict", {"low": {"priorities": "0-7"}}))
    assert management.show_queue(queue)["order"] == before
    assert take(client, queue, 2) == ["high", "low"]


def test_peek_returns_messages_in_the_order_of_arrival(client, queue):
    post(client, queue, with_property("low", "low"), with_property("high", "high"))
    with client.get_queue_receiver(queue) as receiver:
        assert [text(message) for message in receiver.peek_messages(10)] == ["low", "high"]
