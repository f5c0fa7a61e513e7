"""The story that the documentation tells of competing consumers, word by word."""

import pathlib
import subprocess
import sys

from broker import Broker

STORY = pathlib.Path(__file__).parents[2] / "examples" / "competing-consumers" / "story.py"


def test_competing_consumers(tmp_path):
    broker = Broker(tmp_path, ["orders,lock=2s,max-delivery=3"]).start()
    try:
        command = [sys.executable, str(STORY), broker.connection_string, "orders"]
        story = subprocess.run(command, capture_output=True, text=True, timeout=55)
    finally:
        broker.stop()
    assert story.returncode == 0, story.stdout + story.stderr
    assert "In the dead-letter queue: order-poison, MaxDeliveryCountExceeded" in story.stdout
    assert "300 orders done" in story.stdout
