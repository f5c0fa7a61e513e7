"""Sends orders to a queue in batches. One of them is a poison message: no worker can parse its amount."""

import json
import sys

from azure.servicebus import ServiceBusClient, ServiceBusMessage

BATCH_COUNT = 25
POISON = "order-poison"


def order_ids(count):
    return [f"order-{number:04}" for number in range(count)]


def messages(count):
    for number, order_id in enumerate(order_ids(count)):
        if number == count // 2:
            yield message(POISON, amount="a lot")
        yield message(order_id, amount=number)


def message(order_id, amount):
    body = json.dumps({"order": order_id, "amount": amount})
    return ServiceBusMessage(body, message_id=order_id, content_type="application/json")


def send(connection_string, queue, count):
    with ServiceBusClient.from_connection_string(connection_string) as client:
        with client.get_queue_sender(queue) as sender:
            batch = []
            for order in messages(count):
                batch.append(order)
                if len(batch) == BATCH_COUNT:
                    sender.send_messages(batch)
                    batch = []
            if batch:
                sender.send_messages(batch)


if __name__ == "__main__":
    connection_string, queue, count = sys.argv[1:]
    send(connection_string, queue, int(count))
