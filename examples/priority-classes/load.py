"""Sends the same orders to all four queues, a fifth more than the workers can process. Records when each arrived and
when work on it started.
"""

import asyncio
import itertools
import random
import time

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

WORKER_COUNT = 2
SERVICE_SECONDS = 0.1
CAPACITY_PER_SECOND = WORKER_COUNT / SERVICE_SECONDS
# The mix of 24 orders that arrive per second, while 20 can be processed. High and normal together just fit.
MIX = {"high": 9, "normal": 10, "low": 5}
PRIORITY = {"high": 8, "normal": 5, "low": 1}
TICK_SECONDS = 0.1
WAIT_SECONDS = 1


def arrivals(seconds):
    """Returns the arrival time and class of each order: at an even pace, with the classes shuffled, the same each time.
    """
    luck = random.Random(5)
    pace = sum(MIX.values())
    for second in range(seconds):
        names = [name for name, count in MIX.items() for _ in range(count)]
        luck.shuffle(names)
        for place, name in enumerate(names):
            yield second + place / pace, name


class Run:
    """The run of one queue: its sender, its workers, and their records."""

    def __init__(self, queue, seconds):
        self.queue = queue
        self.seconds = seconds
        self.orders = []
        self.start = None

    def now(self):
        return time.monotonic() - self.start

    async def go(self, client, start):
        sender = client.get_queue_sender(self.queue)
        # One at a time: a worker with a second order would keep it from the others, whatever its class.
        workers = [client.get_queue_receiver(self.queue) for _ in range(WORKER_COUNT)]
        for link in (sender, *workers):
            await link.__aenter__()
        await start.wait()
        self.start = start.time
        await asyncio.gather(self.send(sender), *(self.work(worker) for worker in workers))
        for link in (sender, *workers):
            await link.close()

    async def send(self, sender):
        """Sends each order at its time, even if the workers are behind."""
        for tick, due in itertools.groupby(arrivals(self.seconds), key=lambda order: int(order[0] / TICK_SECONDS)):
            await asyncio.sleep(tick * TICK_SECONDS - self.now())
            await sender.send_messages([self.message(name) for _, name in due])

    def message(self, name):
        message = ServiceBusMessage(str(len(self.orders)))
        message.raw_amqp_message.header.priority = PRIORITY[name]
        self.orders.append({"class": name, "came": self.now(), "began": None})
        return message

    async def work(self, receiver):
        due = 0
        while self.now() < self.seconds:
            for message in await receiver.receive_messages(max_message_count=1, max_wait_time=WAIT_SECONDS):
                began = self.now()
                self.orders[int(str(message))]["began"] = began
                # The time to receive an order is part of the work on it, so that the pace is as planned.
                due = max(due, began - SERVICE_SECONDS) + SERVICE_SECONDS
                await asyncio.sleep(due - self.now())
                await receiver.complete_message(message)


class Start:
    """A barrier: all queues start at the same moment, when every link is open."""

    def __init__(self, count):
        self.waiting = asyncio.Barrier(count)
        self.time = None

    async def wait(self):
        await self.waiting.wait()
        self.time = self.time or time.monotonic()


async def run(connection_string, queues, seconds):
    """Returns the records of the orders, by queue."""
    runs = [Run(queue, seconds) for queue in queues]
    start = Start(len(runs))
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        await asyncio.gather(*(run.go(client, start) for run in runs))
    return {run.queue: run.orders for run in runs}
