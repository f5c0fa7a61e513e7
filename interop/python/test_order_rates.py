"""Rate limits: deliveries per class, and sends. A sender over its quota gets the time after which to retry."""

import time

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusServerBusyError

from order import of_class, order, post, take, take_from
from steps import texts

# A rate so low that no second message is permitted while a test runs.
ONE_AND_NO_MORE = "0.01/s burst 1"


def test_a_limited_class_does_not_block_the_others(client, create):
    queue = create(order=order("strict", {"high": {"rate": ONE_AND_NO_MORE}}))
    post(client, queue, *of_class("high", "h1", "h2"), *of_class("low", "l1", "l2"))
    with client.get_queue_receiver(queue) as receiver:
        assert take_from(receiver, 3) == ["h1", "l1", "l2"]
        assert receiver.receive_messages(max_wait_time=1) == []
        assert texts(receiver.peek_messages(10, sequence_number=1)) == ["h2"]


def test_a_limited_class_is_delivered_at_its_rate(client, create):
    queue = create(order=order("strict", {"high": {"rate": "4/s burst 1"}}))
    post(client, queue, *of_class("high", *[f"h{number}" for number in range(9)]))
    started = time.monotonic()
    assert take(client, queue, 9) == [f"h{number}" for number in range(9)]
    # Eight messages wait 0.25 s each.
    assert time.monotonic() - started > 1.9


def test_a_raised_limit_applies_to_waiting_messages(client, create, management):
    queue = create(order=order("strict", rate=ONE_AND_NO_MORE))
    post(client, queue, *of_class("low", "l1", "l2", "l3"))
    with client.get_queue_receiver(queue) as receiver:
        assert take_from(receiver, 1) == ["l1"]
        management.update_queue(queue, order=order("strict"))
        assert take_from(receiver, 2) == ["l2", "l3"]


def test_a_sender_over_its_quota_is_rejected_with_a_retry_time(flavour, broker, create):
    queue = create(order=order("strict", {"low": {"sendRate": ONE_AND_NO_MORE}}))
    with flavour.client(broker.connection_string, retry_total=0) as client:
        post(client, queue, *of_class("low", "taken"))
        with pytest.raises(ServiceBusServerBusyError, match="low"):
            post(client, queue, *of_class("low", "refused"))
        post(client, queue, *of_class("high", "not meant"))
        assert take(client, queue, 2) == ["not meant", "taken"]
        with client.get_queue_receiver(queue) as receiver:
            assert receiver.peek_messages(10) == [], "a rejected message was stored"


def test_the_sdk_retries_until_the_quota_permits(client, create):
    queue = create(order=order("strict", sendRate="1/s burst 1"))
    started = time.monotonic()
    with client.get_queue_sender(queue) as sender:
        for number in range(3):
            sender.send_messages(ServiceBusMessage(f"message {number}"))
    # The second and the third message wait at least 1 s each; the SDK's own retry delay is longer.
    assert time.monotonic() - started > 1.9
    assert take(client, queue, 3) == [f"message {number}" for number in range(3)]
