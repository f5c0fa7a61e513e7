"""`/metrics`, parsed by Prometheus's own parser."""

import math

import requests
from prometheus_client.parser import text_string_to_metric_families

from broker import KEY, KEY_NAME
from names import fresh
from steps import receive_one, send

TIMEOUT_SECONDS = 30


def scrape(broker, **options):
    response = requests.get(f"http://{broker.address}/metrics", timeout=TIMEOUT_SECONDS, **options)
    response.raise_for_status()
    assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    families = list(text_string_to_metric_families(response.text))
    names = [family.name for family in families]
    assert len(names) == len(set(names)), "a metric family is repeated"
    assert all(family.type != "unknown" and family.documentation for family in families)
    return families


def find(families, name, **labels):
    samples = (sample for family in families for sample in family.samples)
    found = [s for s in samples if s.name == name and labels.items() <= s.labels.items()]
    assert len(found) == 1, f"{name} {labels}: {found}"
    return found[0].value


def test_a_plain_queue_has_counts(broker, queue, client):
    send(client, queue, "a", "b", "c")
    families = scrape(broker)
    assert find(families, "peeklock_queue_messages", queue=queue, state="active") == 3
    assert find(families, "peeklock_queue_size_bytes", queue=queue) > 0
    assert find(families, "peeklock_connections") >= 1


def test_each_class_has_metrics(broker, api, client):
    name = fresh("classes")
    target = {"priorities": "7-9", "target": "1h", "objective": 0.99}
    api.put("queues", name, order={"classes": {"high": target, "low": {"priorities": "0-6"}}})
    send(client, name, "low")
    with client.get_queue_receiver(name) as receiver:
        receiver.complete_message(receive_one(receiver))
    families = scrape(broker)
    of_low = {"queue": name, "class": "low"}
    assert find(families, "peeklock_class_waiting", **of_low) == 0
    assert find(families, "peeklock_class_started_total", **of_low) == 1
    assert find(families, "peeklock_class_settled_total", **of_low) == 1
    buckets = [
        (float(sample.labels["le"]), sample.value)
        for family in families
        for sample in family.samples
        if sample.name == "peeklock_class_time_in_queue_seconds_bucket" and of_low.items() <= sample.labels.items()
    ]
    assert buckets == sorted(buckets), "bucket bounds and counts must rise together"
    assert buckets[-1] == (math.inf, 1)
    assert find(families, "peeklock_class_target_burn_rate", queue=name, **{"class": "high"}, window="5m") == 0
    shown = {found["name"]: found for found in api.get("queues", name)["runtime"]["order"]["classes"]}
    assert shown["low"]["startedCount"] == 1
    assert shown["high"]["target"]["alert"] == "none"


def test_explain_describes_a_waiting_message(broker, api, client):
    name = fresh("explained")
    api.put("queues", name, order={"classes": {"high": {"priorities": "7-9"}, "low": {"priorities": "0-6"}}})
    send(client, name, "first", "second")
    number = api.get("queues", name, "messages")["items"][1]["sequenceNumber"]
    explained = api.get("queues", name, "messages", str(number), "explain")
    assert (explained["state"], explained["class"], explained["aheadCount"]) == ("waiting", "low", 1)
    assert explained["ahead"] == [{"class": "low", "count": 1}]
    assert explained["why"]


def test_a_foreign_host_name_requires_a_key(broker):
    elsewhere = {"Host": "broker.servicebus.windows.net"}
    address = f"http://{broker.address}/metrics"
    assert requests.get(address, headers=elsewhere, timeout=TIMEOUT_SECONDS).status_code == 401
    assert scrape(broker, headers=elsewhere, auth=(KEY_NAME, KEY))
