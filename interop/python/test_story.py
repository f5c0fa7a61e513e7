"""The stories of the documentation, run as printed there."""

import os
import pathlib
import subprocess
import sys
from xml.etree import ElementTree

import pytest

from broker import Broker

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"


def tell(pattern, *arguments, timeout=140):
    """Runs the story of a pattern and returns its output. The story must exit with status 0."""
    command = [sys.executable, str(EXAMPLES / pattern / "story.py"), *arguments]
    story = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    assert story.returncode == 0, story.stdout + story.stderr
    return story.stdout


def test_the_story_of_competing_consumers_ends_well(tmp_path):
    # The workers renew their locks, and on a busy machine they can be late: only the poison message is permitted to
    # fail three times.
    broker = Broker(tmp_path, ["orders,lock=5s,max-delivery=3"]).start()
    try:
        story = tell("competing-consumers", broker.connection_string, "orders")
    finally:
        broker.stop()
    assert "In the dead-letter queue: order-poison, MaxDeliveryCountExceeded" in story
    assert "300 orders done" in story


def test_the_story_of_a_priority_queue_ends_well(tmp_path):
    broker = Broker(tmp_path, []).start()

    def peeklock(*arguments):
        command = [os.environ["PEEKLOCK_BIN"], *arguments, "--connect", broker.connection_string]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    try:
        peeklock("topic", "create", "orders")
        for priority in ("High", "Low"):
            peeklock("subscription", "create", "orders", priority.lower(), "--sql", f"Priority = '{priority}'")
        story = tell("priority-queue", broker.connection_string, "orders", "high", "low")
        explained = peeklock("topic", "explain", "orders", "--property", "Priority=High")
    finally:
        broker.stop()
    assert "Each order reached the pool of its priority, and high priority waited less." in story
    rows = {line.split()[0]: line for line in explained.splitlines()}
    assert "gets it" in rows["high"] and "gets it" not in rows["low"]


@pytest.mark.timeout(320)
def test_the_story_of_sensor_homes_ends_well(tmp_path):
    broker = Broker(tmp_path, [], blob_port="127.0.0.1:0").start()
    try:
        create = ["hub", "create", "readings", "--partitions", "16", "--connect", broker.connection_string]
        subprocess.run([os.environ["PEEKLOCK_BIN"], *create], check=True, capture_output=True)
        places = [broker.connection_string, broker.storage_connection_string, "readings"]
        story = tell("sensor-homes", *places, "--homes", "3000", "--out", str(tmp_path / "sums"), timeout=300)
    finally:
        broker.stop()
    assert "Each of 29,200 readings in 12,000 events was counted, and none twice" in story


def test_the_story_of_priority_classes_ends_well(tmp_path):
    story = tell("priority-classes", "--peeklock", os.environ["PEEKLOCK_BIN"], "--seconds", "20", "--out", str(tmp_path))
    for policy in ("fifo", "strict", "aged", "weighted"):
        assert f"\n{policy}: " in story, f"the story does not check {policy}"
    panels = ElementTree.parse(tmp_path / "waits.svg").getroot().findall("{http://www.w3.org/2000/svg}g")
    assert [panel.get("aria-label") for panel in panels] == ["fifo", "strict", "aged", "weighted"]
