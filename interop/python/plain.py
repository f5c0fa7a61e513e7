"""A plain AMQP 1.0 client on the broker, and requests to its management addresses with it."""

import itertools
import uuid

from proton import Message
from proton.utils import BlockingConnection

from broker import KEY, KEY_NAME

TIMEOUT_SECONDS = 10
OK = range(200, 300)


def connect(broker, key_name=KEY_NAME, key=KEY, mechanisms="PLAIN"):
    return BlockingConnection(
        f"amqp://{broker.address}",
        timeout=TIMEOUT_SECONDS,
        user=key_name,
        password=key,
        allowed_mechs=mechanisms,
        allow_insecure_mechs=True,
    )


class Refused(Exception):
    """The broker answered a request with an error."""

    def __init__(self, status, condition, description):
        super().__init__(f"{status} {condition}: {description}")
        self.condition = condition


class Management:
    """Asks on a new connection each time: what is idle between two tests cannot be closed for being idle."""

    def __init__(self, broker):
        self.broker = broker
        self.numbers = itertools.count()

    def ask(self, operation, body, of=None):
        """Asks the namespace, or the entity that `of` names; gives the body of the answer."""
        connection = connect(self.broker)
        try:
            return ask(connection, operation, body, of)
        finally:
            connection.close()

    def create_queue(self, name=None, **settings):
        """Settings are named as in the request, with underscores. Gives the queue's name."""
        name = name or f"made-{next(self.numbers)}"
        self.ask("peeklock:create-queue", {"name": name} | spelled(settings))
        return name

    def update_queue(self, name, **settings):
        self.ask("peeklock:update-queue", {"name": name} | spelled(settings))

    def delete_queue(self, name):
        self.ask("peeklock:delete-queue", {"name": name})

    def show_queue(self, name):
        [shown] = self.ask("peeklock:show-queue", {"name": name})["queues"]
        return shown

    def queue_names(self):
        return [shown["name"] for shown in self.ask("peeklock:list-queues", {})["queues"]]


def ask(connection, operation, body, of=None):
    address = f"{of}/$management" if of else "$management"
    reply_to = f"reply-{uuid.uuid4()}"
    receiver = connection.create_receiver(address, credit=1, name=reply_to)
    sender = connection.create_sender(address)
    request = Message(id=str(uuid.uuid4()), reply_to=reply_to, properties={"operation": operation}, body=body)
    sender.send(request)
    answer = receiver.receive(TIMEOUT_SECONDS)
    receiver.accept()
    assert answer.correlation_id == request.id
    status = answer.properties["statusCode"]
    if status not in OK:
        raise Refused(status, answer.properties.get("errorCondition"), answer.properties.get("statusDescription"))
    return answer.body


def spelled(settings):
    return {name.replace("_", "-"): value for name, value in settings.items()}
