"""Stock workers and workers of the Rust SDK compete on one queue while the broker is killed. Each message is worked on at
least once, and none comes back after its completion was confirmed.
"""

import os
import pathlib
import subprocess
import threading
import time

import pytest
from azure.servicebus.exceptions import ServiceBusError

import flavour as flavours
from broker import Broker, free_fixed_port
from steps import send, text

MESSAGE_COUNT = 600
KILL_COUNT = 4
PATIENCE_SECONDS = 150


class Log:
    """The times at which messages were worked on and completed, in nanoseconds, from all workers."""

    def __init__(self):
        self.mutex = threading.Condition()
        self.times = {"worked": {}, "completed": {}}

    def add(self, what, job, at):
        with self.mutex:
            self.times[what].setdefault(job, []).append(at)
            self.mutex.notify_all()

    def wait_for_completed(self, count):
        with self.mutex:
            is_there = self.mutex.wait_for(lambda: len(self.times["completed"]) >= count, PATIENCE_SECONDS)
            assert is_there, f"{len(self.times['completed'])} of {count} messages were completed"


class SdkWorker:
    """The program `worker` of examples/rust."""

    def __init__(self, broker, log):
        program = pathlib.Path(os.environ["PEEKLOCK_BIN"]).parent / "worker"
        command = [program, broker.connection_string, "jobs"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.lines = threading.Thread(target=self.read, args=(log,))
        self.lines.start()
        self.completed_count = 0

    def read(self, log):
        for line in self.process.stdout:
            what, *rest = line.split()
            if what in log.times:
                log.add(what, rest[0], int(rest[1]))
                self.completed_count += what == "completed"

    def stop(self):
        self.process.stdin.close()
        self.lines.join()
        assert self.process.wait() == 0


class StockWorker:
    """A worker with the SDK of Azure. It opens a new client after each error."""

    def __init__(self, broker, log):
        self.broker, self.log = broker, log
        self.is_stopping = threading.Event()
        self.completed_count = 0
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.is_stopping.is_set():
            try:
                with flavours.Sync().client(self.broker.connection_string) as client:
                    self.work(client)
            except (ServiceBusError, OSError, ValueError):
                pass  # The broker is away. Work that is not completed comes back when its lock ends.

    def work(self, client):
        with client.get_queue_receiver("jobs") as receiver:
            while not self.is_stopping.is_set():
                messages = receiver.receive_messages(max_message_count=4, max_wait_time=1)
                # The work is done at once, because a completion may wait for a broker until the other locks have ended.
                for message in messages:
                    self.log.add("worked", text(message), time.time_ns())
                for message in messages:
                    receiver.complete_message(message)
                    self.log.add("completed", text(message), time.time_ns())
                    self.completed_count += 1

    def stop(self):
        self.is_stopping.set()
        self.thread.join()


@pytest.mark.timeout(320)
def test_stock_and_sdk_workers_compete_while_the_broker_is_killed(tmp_path):
    listen = f"127.0.0.1:{free_fixed_port()}"
    broker = Broker(tmp_path, ["jobs,lock=5s,max-delivery=100"], listen=listen).start()
    log = Log()
    try:
        with flavours.Sync().client(broker.connection_string) as client:
            send(client, "jobs", *[f"job-{number}" for number in range(MESSAGE_COUNT)])
        workers = [StockWorker(broker, log), StockWorker(broker, log)]
        # The stock workers take longer to start.
        log.wait_for_completed(8)
        workers += [SdkWorker(broker, log), SdkWorker(broker, log)]
        for kill in range(KILL_COUNT):
            log.wait_for_completed((kill + 1) * MESSAGE_COUNT // (KILL_COUNT + 2))
            broker.kill()
            broker.start()
        wait_until_empty(broker)
        for worker in workers:
            worker.stop()
        assert_queue_is_empty(broker)
    finally:
        broker.stop()
    assert len(log.times["worked"]) == MESSAGE_COUNT
    for job, completed in log.times["completed"].items():
        assert max(log.times["worked"][job]) <= min(completed), f"{job} came back after its completion"
    assert sum(worker.completed_count for worker in workers[2:]) > 0, "no SDK worker got a message"
    assert sum(worker.completed_count for worker in workers[:2]) > 0, "no stock worker got a message"


def wait_until_empty(broker):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while peeked(broker):
        assert time.monotonic() < deadline, "messages are left in the queue"
        time.sleep(0.2)


def assert_queue_is_empty(broker):
    assert peeked(broker) == []


def peeked(broker):
    with flavours.Sync().client(broker.connection_string) as client:
        with client.get_queue_receiver("jobs") as receiver:
            return [text(message) for message in receiver.peek_messages(max_message_count=10)]
