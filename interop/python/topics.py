"""Topics, subscriptions and rules for the scenarios, and receives from subscriptions."""

import itertools

from azure.servicebus import ServiceBusMessage

from steps import receive, texts

DEFAULT_RULE = "$Default"


class Topics:
    """Creates topics with unique names."""

    numbers = itertools.count()

    def __init__(self, admin):
        self.admin = admin

    def create(self, *subscriptions, **settings):
        """Creates a topic and returns its name. Subscriptions are names, or names with settings."""
        topic = f"topic-{next(self.numbers)}"
        self.admin.create_topic(topic, **settings)
        for subscription in subscriptions:
            name, own = subscription if isinstance(subscription, tuple) else (subscription, {})
            self.admin.create_subscription(topic, name, **own)
        return topic

    def filtered(self, **filters):
        """Creates a topic with one subscription per filter, its only rule. Returns the topic's name."""
        topic = self.create(*filters)
        for name, filter in filters.items():
            self.replace_rules(topic, name, filter)
        return topic

    def replace_rules(self, topic, subscription, filter, action=None, name="only"):
        self.admin.create_rule(topic, subscription, name, filter=filter, action=action)
        self.admin.delete_rule(topic, subscription, DEFAULT_RULE)

    def counts(self, topic, subscription):
        """Returns the numbers of receivable and of dead-lettered messages."""
        shown = self.admin.get_subscription_runtime_properties(topic, subscription)
        return shown.active_message_count, shown.dead_letter_message_count


def publish(client, topic, *messages):
    """Sends messages or bodies to the topic."""
    whole = [message if isinstance(message, ServiceBusMessage) else ServiceBusMessage(message) for message in messages]
    with client.get_topic_sender(topic) as sender:
        # The SDK sends a list as a batch, and the size limit of a batch is below that of a single message.
        sender.send_messages(whole if len(whole) > 1 else whole[0])


def take(client, topic, subscription, count, **options):
    """Receives and completes `count` messages, and asserts that no more exist."""
    with client.get_subscription_receiver(topic, subscription, **options) as receiver:
        messages = receive(receiver, count) if count else []
        for message in messages:
            receiver.complete_message(message)
        assert texts(receiver.peek_messages(10)) == []
    return messages


def taken(client, topic, subscription, count, **options):
    return texts(take(client, topic, subscription, count, **options))
