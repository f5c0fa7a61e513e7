"""Topics, subscriptions and rules for the scenarios, and what is received from them."""

import itertools

from azure.servicebus import ServiceBusMessage

from steps import receive, texts

DEFAULT_RULE = "$Default"


class Topics:
    """Makes topics with names of their own."""

    numbers = itertools.count()

    def __init__(self, admin):
        self.admin = admin

    def create(self, *subscriptions, **settings):
        """Subscriptions are names, or names with settings. Gives the topic's name."""
        topic = f"topic-{next(self.numbers)}"
        self.admin.create_topic(topic, **settings)
        for subscription in subscriptions:
            name, own = subscription if isinstance(subscription, tuple) else (subscription, {})
            self.admin.create_subscription(topic, name, **own)
        return topic

    def filtered(self, **filters):
        """A topic with one subscription per filter, which is its only rule. Gives the topic's name."""
        topic = self.create(*filters)
        for name, filter in filters.items():
            self.replace_rules(topic, name, filter)
        return topic

    def replace_rules(self, topic, subscription, filter, action=None, name="only"):
        self.admin.create_rule(topic, subscription, name, filter=filter, action=action)
        self.admin.delete_rule(topic, subscription, DEFAULT_RULE)

    def counts(self, topic, subscription):
        """Messages that can be received, and dead letters."""
        shown = self.admin.get_subscription_runtime_properties(topic, subscription)
        return shown.active_message_count, shown.dead_letter_message_count


def publish(client, topic, *messages):
    """Messages are bodies, or whole messages."""
    whole = [message if isinstance(message, ServiceBusMessage) else ServiceBusMessage(message) for message in messages]
    with client.get_topic_sender(topic) as sender:
        # The SDK sends a list as a batch, and a batch may not be as large as a single message.
        sender.send_messages(whole if len(whole) > 1 else whole[0])


def take(client, topic, subscription, count, **options):
    """Receives and completes `count` messages, and nothing more is there."""
    with client.get_subscription_receiver(topic, subscription, **options) as receiver:
        messages = receive(receiver, count) if count else []
        for message in messages:
            receiver.complete_message(message)
        assert texts(receiver.peek_messages(10)) == []
    return messages


def taken(client, topic, subscription, count, **options):
    return texts(take(client, topic, subscription, count, **options))
