"""The JSON API: features that ATOM cannot express, and the calls of the command line."""

import base64

import pytest
import requests
from azure.servicebus import ServiceBusMessage
from azure.servicebus.management import CorrelationRuleFilter, SqlRuleFilter

from api import ApiError
from names import fresh
from steps import receive, send
from topics import publish


def test_put_creates_and_then_updates(api):
    name = fresh("queue")
    created = api.ask("PUT", ("queues", name), json={"lockDuration": "45s", "maxDeliveryCount": 4})
    assert created.status_code == 201
    again = api.ask("PUT", ("queues", name), json={"maxDeliveryCount": 5})
    assert again.status_code == 200
    shown = api.get("queues", name)
    assert (shown["name"], shown["lockDuration"], shown["maxDeliveryCount"]) == (name, "45s", 5)
    api.put("queues", name, defaultTimeToLive="1h")
    api.put("queues", name, defaultTimeToLive=None)
    assert api.get("queues", name).get("defaultTimeToLive") is None


def test_a_name_can_contain_a_slash(api):
    name = fresh("team/orders")
    api.put("queues", name)
    assert api.get("queues", name)["name"] == name
    api.delete("queues", name)
    with pytest.raises(ApiError) as missing:
        api.get("queues", name)
    assert missing.value.status == 404


def test_lists_are_paged(api):
    stem = fresh("paged")
    names = [f"{stem}-{number:02}" for number in range(12)]
    for name in names:
        api.put("queues", name)
    found, after = [], stem
    while after is not None:
        page = api.get("queues", top=5, after=after)
        assert len(page["items"]) <= 5
        found += [queue["name"] for queue in page["items"] if queue["name"].startswith(stem)]
        after = page.get("next") if page["items"] and page["items"][-1]["name"] <= names[-1] else None
    assert found == names


def test_topics_subscriptions_and_rules_are_managed(api, client):
    topic = fresh("topic")
    api.put("topics", topic, defaultTimeToLive="1h")
    api.put("topics", topic, "subscriptions", "high", maxDeliveryCount=3)
    api.put("topics", topic, "subscriptions", "high", "rules", "paying", sql="tier = 'paying'")
    api.delete("topics", topic, "subscriptions", "high", "rules", "$Default")
    api.put("topics", topic, "subscriptions", "by-label")
    api.put("topics", topic, "subscriptions", "by-label", "rules", "label", correlation={"label": "l"})
    rules = api.get("topics", topic, "subscriptions", "high", "rules")["items"]
    assert [rule["name"] for rule in rules] == ["paying"]
    publish(client, topic, ServiceBusMessage("m", application_properties={"tier": "paying"}), "other")
    [shown] = [s for s in api.get("topics", topic, "subscriptions")["items"] if s["name"] == "high"]
    assert shown["maxDeliveryCount"] == 3
    assert shown["activeCount"] == 1
    api.delete("topics", topic, "subscriptions", "high")
    api.delete("topics", topic)


def test_counts_and_messages_are_returned(api, client, queue):
    send(client, queue, "first", b"\xff\x00")
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("third", subject="s", application_properties={"a": 1}))
    with client.get_queue_receiver(queue) as receiver:
        receiver.dead_letter_message(receive(receiver, 3)[0], reason="why")
        counts = api.get("queues", queue)
        assert (counts["activeCount"], counts["lockedCount"], counts["deadLetterCount"]) == (2, 2, 1)
    messages = api.get("queues", queue, "messages")["items"]
    assert [message["sequenceNumber"] for message in messages] == [2, 3]
    assert messages[0]["body"] == {"kind": "base64", "value": base64.b64encode(b"\xff\x00").decode()}
    assert messages[1]["body"] == {"kind": "text", "value": "third"}
    assert (messages[1]["subject"], messages[1]["properties"]) == ("s", {"a": 1})
    [dead] = api.get("queues", queue, "messages", subQueue="deadLetter")["items"]
    assert (dead["sequenceNumber"], dead["body"]["value"]) == (1, "first")


def test_a_filter_can_be_evaluated_without_a_send(api, topics):
    topic = topics.filtered(
        high=SqlRuleFilter("Priority = 'High'"),
        low=SqlRuleFilter("Priority = 'Low'"),
        labelled=CorrelationRuleFilter(label="l"),
        broken=SqlRuleFilter("Priority > 3"),
    )
    told = api.post("topics", topic, "explain", properties={"Priority": "High"}, subject="l")
    found = {shown["subscription"]: shown for shown in told["items"]}
    assert {name for name, shown in found.items() if shown["copies"]} == {"high", "labelled"}
    assert found["broken"]["deadLetters"]
    [rule] = found["low"]["rules"]
    assert (rule["name"], rule["matched"]) == ("only", False)
    assert rule["why"]
    assert topics.counts(topic, "high") == (0, 0)


@pytest.mark.parametrize(
    ("path", "body", "status", "word"),
    [
        (("queues", "x"), b"not json", 400, "column 1"),
        (("queues", "x"), b'{"lockDurations": "1s"}', 400, "lockDuration"),
        (("queues", "x"), b'{"lockDuration": 7}', 400, "lockDuration"),
        (("queues", "x"), b'{"lockDuration": "soon"}', 400, "soon"),
        (("queues", "x"), b"[" * 100_000, 400, ""),
        (("queues", "x"), b'{"userMetadata": "' + b"x" * (4 << 20) + b'"}', 413, ""),
        (("queues", "x" * 300), b"{}", 400, "260"),
        (("topics", "none", "subscriptions", "s"), b"{}", 404, "none"),
    ],
    ids=["text", "unknown", "type", "value", "deep", "large", "name", "topic"],
)
def test_an_error_names_the_mistake(api, path, body, status, word):
    with pytest.raises(ApiError) as refusal:
        api.ask("PUT", path, data=body, query=None)
    assert refusal.value.status == status
    assert refusal.value.code
    assert word.lower() in refusal.value.message.lower()


def test_requests_without_a_token_are_rejected(broker):
    for path in ("/api/queues", "/api/policies/RootManageSharedAccessKey", "/$Resources/queues?api-version=2021-05"):
        answer = requests.get(f"http://{broker.http_address}{path}", timeout=10)
        assert answer.status_code == 401
        assert "SAS_KEY_VALUE" not in answer.text


def test_the_api_describes_itself(broker):
    described = requests.get(f"http://{broker.http_address}/api/openapi.json", timeout=10).json()
    assert described["openapi"].startswith("3.")
    for path in ("/api/queues/{name}", "/api/topics/{name}", "/api/policies/{name}"):
        assert any(path.split("{")[0] in known for known in described["paths"]), path
