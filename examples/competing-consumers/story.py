"""The competing consumers pattern: orders, workers that start, pause, are killed and stop, and one poison message.

At the end it checks that every valid order was processed, and that the poison message is in the dead-letter queue
with its details.
"""

import collections
import pathlib
import subprocess
import sys
import threading
import time

from azure.servicebus import ServiceBusClient, ServiceBusSubQueue

from send_orders import POISON, order_ids

FOLDER = pathlib.Path(__file__).parent
ORDER_COUNT = 300
PATIENCE_SECONDS = 100


class Worker:
    """A worker process. All workers report to one list."""

    def __init__(self, name, connection_string, queue, news):
        self.name = name
        command = [sys.executable, str(FOLDER / "worker.py"), connection_string, queue]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self.listen, args=(news,), daemon=True).start()

    def listen(self, news):
        for line in self.process.stdout:
            news.append((self.name, *line.rstrip("\n").split("\t")))

    def tell(self, command):
        self.process.stdin.write(f"{command}\n")
        self.process.stdin.flush()

    def kill(self):
        """Kills the process like a power cut: the broker receives no close."""
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.terminate()
        self.process.wait(PATIENCE_SECONDS)


def done(news, worker=None):
    return [item[2] for item in list(news) if item[1] == "done" and worker in (None, item[0])]


def wait_for(what, condition):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"timed out after {PATIENCE_SECONDS} s waiting until {what}"
        time.sleep(0.02)
    print(f"  {what}")


def tell_the_story(connection_string, queue):
    news, workers = [], {}

    def start(name):
        workers[name] = Worker(name, connection_string, queue, news)

    try:
        print("Two workers start, and a sender posts orders in batches.")
        start("anna")
        start("bert")
        sender = subprocess.Popen([sys.executable, str(FOLDER / "send_orders.py"), connection_string, queue, str(ORDER_COUNT)])
        wait_for("both work", lambda: done(news, "anna") and done(news, "bert"))

        print("Anna pauses; Bert goes on alone.")
        workers["anna"].tell("pause")
        wait_for("anna has paused", lambda: ("anna", "pause") in news)
        count = len(done(news, "bert"))
        wait_for("bert has done twenty more", lambda: len(done(news, "bert")) >= count + 20)

        print("Bert is killed in the middle of his work, Carl and Dora join, Anna resumes.")
        workers["bert"].kill()
        start("carl")
        start("dora")
        workers["anna"].tell("resume")
        wait_for("carl and dora work", lambda: done(news, "carl") and done(news, "dora"))

        print("Carl is sent home, and finishes what he has in hand.")
        workers["carl"].stop()
        assert sender.wait(PATIENCE_SECONDS) == 0, "the sender failed"
        wait_for("every good order is done", lambda: set(order_ids(ORDER_COUNT)) <= set(done(news)))
        with ServiceBusClient.from_connection_string(connection_string) as client:
            wait_until_empty(client, queue)
    finally:
        for worker in workers.values():
            worker.stop()
    check(connection_string, queue, news)


def wait_until_empty(client, queue):
    """Waits until the queue is empty. The messages that the killed worker was processing stay locked for a while, even
    those that it had reported.
    """
    with client.get_queue_receiver(queue) as receiver:
        wait_for("nothing is left in the queue", lambda: receiver.peek_messages(sequence_number=1) == [])


def check(connection_string, queue, news):
    assert set(done(news)) == set(order_ids(ORDER_COUNT)), "the processed orders are not the valid ones"
    failures = [item for item in news if item[1:3] == ("failed", POISON)]
    assert 1 <= len(failures) <= 3, f"the poison message failed {len(failures)} times"
    with ServiceBusClient.from_connection_string(connection_string) as client:
        with client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
            [dead] = receiver.peek_messages(max_message_count=10)
    assert dead.message_id == POISON
    assert dead.dead_letter_reason == "MaxDeliveryCountExceeded"
    print(f"In the dead-letter queue: {dead.message_id}, {dead.dead_letter_reason}: {dead.dead_letter_error_description}")
    repeated = [order for order, count in collections.Counter(done(news)).items() if count > 1]
    print(f"{ORDER_COUNT} orders done, {len(repeated)} of them twice.")


if __name__ == "__main__":
    tell_the_story(*sys.argv[1:])
