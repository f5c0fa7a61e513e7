"""AMQP transactions with a plain client, because the Python SDK does not support them."""

from proton import Delivery, Described, Message, Terminus, symbol, ulong
from proton.reactor import SenderOption

from plain import TIMEOUT_SECONDS

TRANSACTIONAL = 0x34
ACCEPTED = "accepted"
OUTCOMES = {0x24: ACCEPTED, 0x25: "rejected", 0x26: "released", 0x27: "modified"}


class ToCoordinator(SenderOption):
    def apply(self, sender):
        sender.target.type = Terminus.COORDINATOR
        sender.target.capabilities.put_object(symbol("amqp:local-transactions"))


class Coordinator:
    """A control link. A transaction ends with the control link on which it began."""

    def __init__(self, connection):
        self.connection = connection
        self.sender = connection.create_sender(None, options=ToCoordinator())

    def begin(self):
        [transaction_id] = self.control("amqp:declare:list", [None]).remote.data
        return Transaction(self, bytes(transaction_id))

    def discharge(self, transaction_id, fail):
        """Returns "accepted", or the condition of the rejection."""
        delivery = self.control("amqp:discharge:list", [transaction_id, fail])
        return ACCEPTED if delivery.remote_state == Delivery.ACCEPTED else delivery.remote.condition.name

    def control(self, descriptor, fields):
        return self.settled(self.sender.link.send(Message(body=Described(symbol(descriptor), fields))))

    def settled(self, delivery):
        self.connection.wait(lambda: delivery.settled, timeout=TIMEOUT_SECONDS)
        return delivery

    def close(self):
        self.sender.close()


class Transaction:
    def __init__(self, coordinator, transaction_id):
        self.coordinator = coordinator
        self.id = transaction_id
        # Deliveries that the transaction settles, each with its receiver.
        self.retired = []

    def send(self, sender, body, **properties):
        """Returns "accepted", or the condition of the rejection."""
        delivery = sender.link.send(Message(body=body, **properties))
        delivery.local.data = [self.id]
        delivery.update(TRANSACTIONAL)
        return self.outcome(delivery)

    def settle(self, receiver, outcome=0x24, fields=()):
        """Settles the oldest message that the receiver has not settled."""
        delivery = receiver.fetcher.unsettled.popleft()
        delivery.local.data = [self.id, Described(ulong(outcome), list(fields))]
        delivery.update(TRANSACTIONAL)
        self.coordinator.connection.wait(lambda: delivery.remote_state == TRANSACTIONAL, timeout=TIMEOUT_SECONDS)
        result = self.read(delivery)
        is_refused = result not in OUTCOMES.values()
        assert delivery.settled == is_refused, "an accepted step must stay unsettled until the commit"
        self.retired.append((receiver, delivery))
        return result

    def outcome(self, delivery):
        self.coordinator.settled(delivery)
        return self.read(delivery)

    def read(self, delivery):
        assert delivery.remote_state == TRANSACTIONAL, f"the answer to a step was {delivery.remote_state}"
        transaction_id, outcome = delivery.remote.data
        assert bytes(transaction_id) == self.id
        error = outcome.value[0] if outcome.value else None
        return str(error.value[0]) if isinstance(error, Described) else OUTCOMES[outcome.descriptor]

    def commit(self):
        outcome = self.coordinator.discharge(self.id, False)
        if outcome == ACCEPTED:
            assert all(delivery.settled for _, delivery in self.retired), "a commit must settle before it is answered"
        return outcome

    def roll_back(self):
        return self.coordinator.discharge(self.id, True)

    def give_back(self):
        """Returns the deliveries to their receivers after a rollback, so that they can be settled over their links."""
        for receiver, delivery in self.retired:
            assert not delivery.settled
            receiver.fetcher.unsettled.append(delivery)
