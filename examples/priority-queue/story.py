"""The priority queue pattern: one topic, a filtered subscription per priority, and a pool of its own size for each.

At the end it checks that every order was processed once, by the pool of its priority, and that orders of high
priority waited less.
"""

import pathlib
import statistics
import subprocess
import sys
import threading
import time

from azure.servicebus import ServiceBusClient

from send_orders import PRIORITIES, order_ids

FOLDER = pathlib.Path(__file__).parent
ORDER_COUNT = 200
POOL_SIZES = {"High": 4, "Low": 1}
PATIENCE_SECONDS = 100


class Pool:
    """The process of a pool, and its reports."""

    def __init__(self, priority, connection_string, topic, subscription):
        self.priority = priority
        self.subscription = subscription
        self.is_ready = False
        self.done = []
        size = str(POOL_SIZES[priority])
        command = [sys.executable, str(FOLDER / "pool.py"), connection_string, topic, subscription, size]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.process.stdout:
            word, *details = line.rstrip("\n").split("\t")
            if word == "ready":
                self.is_ready = True
            else:
                order, priority, waited = details
                self.done.append((order, priority, float(waited)))

    @property
    def orders(self):
        return [order for order, _, _ in list(self.done)]

    @property
    def waits(self):
        return [waited for _, _, waited in list(self.done)]

    def stop(self):
        self.process.terminate()
        self.process.wait(PATIENCE_SECONDS)


def wait_for(what, condition):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"timed out after {PATIENCE_SECONDS} s waiting until {what}"
        time.sleep(0.02)
    print(f"  {what}")


def tell_the_story(connection_string, topic, high, low):
    pools = []
    try:
        print("Two pools open: four workers for high priority, one for low.")
        for priority, subscription in zip(PRIORITIES, (high, low)):
            pools.append(Pool(priority, connection_string, topic, subscription))
        wait_for("both are ready", lambda: all(pool.is_ready for pool in pools))

        print(f"A sender posts {ORDER_COUNT} orders of each priority, mixed, to the topic.")
        send = [sys.executable, str(FOLDER / "send_orders.py"), connection_string, topic, str(ORDER_COUNT)]
        sender = subprocess.Popen(send)
        high_pool, low_pool = pools
        wait_for("every order of high priority is done", lambda: len(high_pool.orders) >= ORDER_COUNT)
        print(f"  by then {len(low_pool.orders)} of low priority are done: they wait longer, but they are not starved")
        wait_for("every order of low priority is done", lambda: len(low_pool.orders) >= ORDER_COUNT)
        assert sender.wait(PATIENCE_SECONDS) == 0, "the sender failed"
    finally:
        for pool in pools:
            pool.stop()
    check(connection_string, topic, pools)


def check(connection_string, topic, pools):
    for pool in pools:
        assert sorted(pool.orders) == order_ids(pool.priority, ORDER_COUNT), f"the {pool.priority} pool processed other orders"
        assert {priority for _, priority, _ in pool.done} == {pool.priority}
    with ServiceBusClient.from_connection_string(connection_string) as client:
        for pool in pools:
            with client.get_subscription_receiver(topic, pool.subscription) as receiver:
                assert receiver.peek_messages(sequence_number=1) == [], f"a message is left for the {pool.priority} pool"
    high, low = (statistics.mean(pool.waits) for pool in pools)
    for pool in pools:
        mean, worst = statistics.mean(pool.waits), max(pool.waits)
        workers = POOL_SIZES[pool.priority]
        print(f"{pool.priority}: {len(pool.done)} orders by {workers} worker(s), waited {mean:.2f} s on average, {worst:.2f} s at most")
    assert high < low, f"high priority waited {high:.2f} s, low {low:.2f} s"
    print("Each order reached the pool of its priority, and high priority waited less.")


if __name__ == "__main__":
    tell_the_story(*sys.argv[1:])
