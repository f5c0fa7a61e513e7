"""Queues with classes: their order setting for the JSON API, messages with a priority, and the order of delivery."""

from azure.servicebus import ServiceBusMessage

from steps import receive, texts

PRIORITIES = {"high": "7-9", "normal": "4-6", "low": "0-3"}
# The number of messages per call, well below the default limit of 16 unsettled messages per receiver.
BATCH_COUNT = 8


def order(policy="strict", settings=None, **more):
    """Returns an order setting with three classes, each with its optional settings."""
    classes = {name: {"priorities": PRIORITIES[name]} | (settings or {}).get(name, {}) for name in PRIORITIES}
    return {"policy": policy, "classes": classes} | more


def with_header(body, priority, **options):
    """Returns a message with the priority in its AMQP header: the SDK has no argument for it, but the raw message has.
    """
    message = ServiceBusMessage(body, **options)
    message.raw_amqp_message.header.priority = priority
    return message


def with_property(body, priority, **options):
    """Returns a message with the priority in an application property, which every SDK can set."""
    return ServiceBusMessage(body, application_properties={"Priority": priority}, **options)


def of_class(name, *bodies, **options):
    return [with_property(body, name, **options) for body in bodies]


def post(client, queue, *messages):
    """Sends the messages. Several messages form one batch, so that all are stored before the first can be received."""
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(list(messages) if len(messages) > 1 else messages[0])


def take_from(receiver, count):
    """Receives and completes `count` messages, a few at a time, and returns them in the order of delivery."""
    taken = []
    while len(taken) < count:
        messages = receive(receiver, min(BATCH_COUNT, count - len(taken)))
        for message in messages:
            receiver.complete_message(message)
        taken += texts(messages)
    return taken


def take(client, queue, count):
    with client.get_queue_receiver(queue) as receiver:
        return take_from(receiver, count)
