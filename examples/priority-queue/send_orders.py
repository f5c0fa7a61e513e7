"""Sends orders of two priorities to a topic, mixed. The sender sets a property; it does not depend on the workers."""

import sys

from azure.servicebus import ServiceBusClient, ServiceBusMessage

BATCH_COUNT = 25
PRIORITIES = ["High", "Low"]


def order_ids(priority, count):
    return [f"{priority.lower()}-{number:04}" for number in range(count)]


def messages(count):
    for pair in zip(*(order_ids(priority, count) for priority in PRIORITIES)):
        for priority, order_id in zip(PRIORITIES, pair):
            yield ServiceBusMessage(order_id, message_id=order_id, application_properties={"Priority": priority})


def send(connection_string, topic, count):
    """Sends `count` orders of each priority."""
    with ServiceBusClient.from_connection_string(connection_string) as client:
        with client.get_topic_sender(topic) as sender:
            orders = list(messages(count))
            for start in range(0, len(orders), BATCH_COUNT):
                sender.send_messages(orders[start : start + BATCH_COUNT])


if __name__ == "__main__":
    connection_string, topic, count = sys.argv[1:]
    send(connection_string, topic, int(count))
