"""A plain AMQP 1.0 client for the broker, and management requests with it."""

import itertools
import uuid

from proton import Message
from proton.utils import BlockingConnection

from api import Api, ApiError
from broker import KEY, KEY_NAME

TIMEOUT_SECONDS = 30
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
    """An error response of the broker to a request."""

    def __init__(self, status, condition, description):
        super().__init__(f"{status} {condition}: {description}")
        self.condition = condition


class Management:
    """Queue administration over the JSON API, and requests to the AMQP management addresses."""

    def __init__(self, broker):
        self.broker = broker
        self.api = Api(broker)
        self.numbers = itertools.count()

    def ask(self, operation, body, of=None):
        """Sends a request to the namespace, or to the entity `of`, on a new connection. Returns the body of the
        response.
        """
        connection = connect(self.broker)
        try:
            return ask(connection, operation, body, of)
        finally:
            connection.close()

    def create_queue(self, name=None, **settings):
        """Creates a queue and returns its name. Settings are named as in the API, with underscores; times can be in
        milliseconds.
        """
        name = name or f"made-{next(self.numbers)}"
        self.api.put("queues", name, **spelled(settings))
        return name

    def update_queue(self, name, **settings):
        self.api.put("queues", name, **spelled(settings))

    def delete_queue(self, name):
        self.api.delete("queues", name)

    def show_queue(self, name):
        return self.api.get("queues", name)

    def has_queue(self, name):
        try:
            return bool(self.show_queue(name))
        except ApiError as error:
            assert error.status == 404
            return False


def ask(connection, operation, body, of=None):
    address = f"{of}/$management" if of else "$management"
    reply_to = f"reply-{uuid.uuid4()}"
    receiver = connection.create_receiver(address, credit=1, name=reply_to)
    sender = connection.create_sender(address, name=f"ask-{reply_to}")
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
    return dict(spelled_one(name, value) for name, value in settings.items())


def spelled_one(name, value):
    if name.endswith("_ms"):
        name, value = name.removesuffix("_ms"), None if value is None else f"{value}ms"
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest), value
