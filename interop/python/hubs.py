"""Event hubs for the scenarios: created over the JSON API, written and read with either flavour of the SDK."""

import contextlib
import threading
import time

from azure.eventhub import EventData

from flavour import Sync
from names import fresh
from plain import spelled

READ_TIMEOUT_SECONDS = 30
EARLIEST = "-1"
LATEST = "@latest"


class Hubs:
    """Creates hubs with unique names."""

    def __init__(self, api):
        self.api = api

    def create(self, partition_count=1, **settings):
        """Creates a hub and returns its name. Settings are named as in the API, with underscores."""
        name = fresh("hub")
        self.api.put("hubs", name, **spelled({"partition_count": partition_count} | settings))
        return name


class Reader:
    """A reader in the background. `events` contains the received events, each with its partition; `errors` contains the
    errors.
    """

    def __init__(self, flavour, client, **options):
        self.events, self.errors, self.ends = [], [], []
        self.changed = threading.Condition()
        calls = {"on_event_batch": self.take, "on_error": self.fail, "on_partition_close": self.end}
        calls = {name: flavour.callback(call) for name, call in calls.items()}
        self.finish = flavour.in_background(client.receive_batch, **calls, **({"starting_position": EARLIEST} | options))

    def take(self, partition, events):
        with self.changed:
            self.events += [(partition.partition_id, event) for event in events]
            self.changed.notify_all()

    def fail(self, partition, error):
        with self.changed:
            self.errors.append(error)
            self.changed.notify_all()

    def end(self, partition, reason):
        with self.changed:
            self.ends.append((partition.partition_id, reason))
            self.changed.notify_all()

    def wait(self, condition, what, seconds=READ_TIMEOUT_SECONDS):
        with self.changed:
            assert self.changed.wait_for(condition, seconds), f"timed out after {seconds} s waiting for {what}; {self}"

    def receive(self, count):
        """Returns the first `count` events, in the order of arrival."""
        self.wait(lambda: self.errors or len(self.events) >= count, f"{count} events")
        assert self.errors == []
        return [event for _, event in self.events]

    def failure(self):
        self.wait(lambda: self.errors, "an error")
        return self.errors[0]

    def __str__(self):
        return f"{len(self.events)} events came, errors {self.errors}, ends {self.ends}"


@contextlib.contextmanager
def reading(flavour, connection_string, hub, group="$Default", client_options=None, **options):
    client = flavour.consumer(connection_string, hub, group, **(client_options or {}))
    reader = Reader(flavour, client, **options)
    try:
        yield reader
    finally:
        client.close()
        reader.finish()


def read(flavour, connection_string, hub, count, **options):
    """Returns the first `count` events of a hub from the position in the options."""
    with reading(flavour, connection_string, hub, **options) as reader:
        return reader.receive(count)


def refusal(connection_string, hub, **options):
    """Returns the error of a reader that the broker rejects. The asyncio SDK does not report the error; it retries at
    once and without end.
    """
    with reading(Sync(), connection_string, hub, client_options={"retry_total": 0}, **options) as reader:
        error = reader.failure()
        assert reader.events == []
        return error


def publish(producer, *bodies, **where):
    """Sends the bodies as one batch."""
    producer.send_batch([EventData(body) for body in bodies], **where)


def bodies(events):
    return [event.body_as_str() for event in events]


def numbers(events):
    return [event.sequence_number for event in events]


def seconds_since(moment):
    return time.time() - moment.timestamp()
