"""Queues with classes: their order as the JSON API takes it, messages of a priority, and the order in which they come."""

from azure.servicebus import ServiceBusMessage

from steps import receive, texts

PRIORITIES = {"high": "7-9", "normal": "4-6", "low": "0-3"}
# Well inside of the 16 that a receiver may hold unsettled by default.
BATCH_COUNT = 8


def order(policy="strict", settings=None, **more):
    """Three classes, each with settings of its own if there are any."""
    classes = {name: {"priorities": PRIORITIES[name]} | (settings or {}).get(name, {}) for name in PRIORITIES}
    return {"policy": policy, "classes": classes} | more


def with_header(body, priority, **options):
    """A message whose AMQP header says its priority: the SDK has no argument for it, but the raw message does."""
    message = ServiceBusMessage(body, **options)
    message.raw_amqp_message.header.priority = priority
    return message


def with_property(body, priority, **options):
    """A message whose application property says its priority, which every SDK can set."""
    return ServiceBusMessage(body, application_properties={"Priority": priority}, **options)


def of_class(name, *bodies, **options):
    return [with_property(body, name, **options) for body in bodies]


def post(client, queue, *messages):
    """One by one if there is one, else as a batch: all of it is there before anybody can take the first."""
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(list(messages) if len(messages) > 1 else messages[0])


def take_from(receiver, count):
    """Receives and completes `count` messages, a few at a time, in the order in which they come."""
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
