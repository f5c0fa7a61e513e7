"""Tenants of one class share the workers' time: a tenant with many messages does not delay one with few."""

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusServerBusyError

from order import order, post, take_from

BY_TENANT = {"key": "tenant"}


def of_tenant(tenant, count, **properties):
    messages = [f"{tenant} {number}" for number in range(count)]
    return [ServiceBusMessage(body, application_properties={"tenant": tenant} | properties) for body in messages]


def take_singly(client, queue, count):
    """Receives one message at a time, like a single worker."""
    with client.get_queue_receiver(queue) as receiver:
        return [body for _ in range(count) for body in take_from(receiver, 1)]


def test_a_quiet_tenant_does_not_wait_for_a_busy_one(client, create):
    queue = create(order=order("strict", tenants=BY_TENANT))
    post(client, queue, *of_tenant("noisy", 40))
    post(client, queue, *of_tenant("quiet", 2))
    taken = take_singly(client, queue, 12)
    assert taken.index("quiet 0") < 6, taken
    assert "quiet 1" in taken
    assert [body for body in taken if body.startswith("noisy")] == [f"noisy {number}" for number in range(10)]


def test_class_takes_precedence_over_fairness(client, create):
    queue = create(order=order("strict", tenants=BY_TENANT))
    post(client, queue, *of_tenant("quiet", 2, Priority="low"))
    post(client, queue, *of_tenant("noisy", 4, Priority="high"))
    assert take_singly(client, queue, 6) == [*[f"noisy {number}" for number in range(4)], "quiet 0", "quiet 1"]


def test_a_tenant_over_its_quota_does_not_affect_others(flavour, broker, create):
    classes = {"paying": {"when": "tier = 'paying'"}, "free": {"sendRate": "0.01/s burst 1"}}
    queue = create(order=order("strict", tenants=BY_TENANT | {"classes": classes, "defaultClass": "free"}))
    with flavour.client(broker.connection_string, retry_total=0) as client:
        post(client, queue, *of_tenant("anna", 1))
        with pytest.raises(ServiceBusServerBusyError):
            post(client, queue, *of_tenant("anna", 1))
        post(client, queue, *of_tenant("bert", 1))
        post(client, queue, *of_tenant("carl", 3, tier="paying"))
        assert len(take_singly(client, queue, 5)) == 5
