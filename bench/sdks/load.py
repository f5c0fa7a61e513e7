"""Sends and receives with azure-servicebus, and prints a line for each phase: its name, its messages, its seconds and its CPU seconds.

Arguments: the connection string, the queue, the size of a body, and the number of messages of each phase in the order of `PHASES`.
"""

import sys
import time

from azure.servicebus import ServiceBusClient, ServiceBusMessage

BATCH_COUNT = 100


def send_single(client, queue, body, count):
    with client.get_queue_sender(queue) as sender:
        yield
        for _ in range(count):
            sender.send_messages(ServiceBusMessage(body))


def send_batches(client, queue, body, count):
    with client.get_queue_sender(queue) as sender:
        yield
        for _ in range(count // BATCH_COUNT):
            sender.send_messages([ServiceBusMessage(body) for _ in range(BATCH_COUNT)])


def receive(client, queue, _, count):
    with client.get_queue_receiver(queue, prefetch_count=BATCH_COUNT) as receiver:
        yield
        completed = 0
        while completed < count:
            for message in receiver.receive_messages(min(BATCH_COUNT, count - completed), max_wait_time=10):
                receiver.complete_message(message)
                completed += 1


PHASES = [send_single, send_batches, receive]


def main(connection_string, queue, size, *counts):
    body = b"x" * int(size)
    with ServiceBusClient.from_connection_string(connection_string) as client:
        for phase, count in zip(PHASES, map(int, counts), strict=True):
            # A phase yields once its link is open.
            steps = phase(client, queue, body, count)
            next(steps)
            print("start", flush=True)
            started, cpu = time.monotonic(), time.process_time()
            for _ in steps:
                pass
            print(phase.__name__, count, time.monotonic() - started, time.process_time() - cpu, flush=True)


main(*sys.argv[1:])
