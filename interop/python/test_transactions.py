"""Transactions: atomic sends to any queue and settlements of one."""

import pathlib
import subprocess
import sys
import time

import pytest
from proton import Message, symbol, timestamp

from broker import Broker
from plain import TIMEOUT_SECONDS, Management, connect
from steps import until
from transactions import ACCEPTED, Coordinator, Transaction

UNKNOWN = "amqp:transaction:unknown-id"
ROLLED_BACK = "amqp:transaction:rollback"
REJECTED, MODIFIED = 0x25, 0x27
# The default lock duration of a queue.
LOCK_SECONDS = 60


@pytest.fixture
def connection(broker):
    connection = connect(broker)
    yield connection
    connection.close()


@pytest.fixture
def coordinator(connection):
    return Coordinator(connection)


@pytest.fixture
def lines(connection, create):
    """Two queues, each with a sender and a receiver."""
    return [Line(connection, create()) for _ in range(2)]


class Line:
    def __init__(self, connection, queue):
        self.queue = queue
        self.connection = connection
        self.sender = connection.create_sender(queue)
        self.receiver = connection.create_receiver(queue, credit=0)

    def given(self, body):
        """Sends a message to the queue and receives it without settlement."""
        self.sender.send(message(body))
        self.receiver.receive()

    def drain(self):
        self.receiver.link.drain(10)
        self.connection.wait(lambda: self.receiver.link.credit == 0, timeout=TIMEOUT_SECONDS)
        got = [self.receiver.fetcher.pop().body for _ in range(self.receiver.fetcher.has_message)]
        while self.receiver.fetcher.unsettled:
            self.receiver.accept()
        return got


def message(body):
    return Message(body=body)


def counts(management, queue):
    """Returns the counts of the queue. Locked messages also count as active."""
    shown = management.show_queue(queue)
    return {"active": shown["activeCount"], "locked": shown["lockedCount"], "dead-letter": shown["deadLetterCount"]}


def test_sends_become_visible_with_the_commit(coordinator, lines):
    one, two = lines
    transaction = coordinator.begin()
    assert transaction.send(one.sender, "a") == ACCEPTED
    assert transaction.send(two.sender, "b") == ACCEPTED
    assert transaction.send(one.sender, "c") == ACCEPTED
    assert (one.drain(), two.drain()) == ([], [])
    assert transaction.commit() == ACCEPTED
    assert one.receiver.receive().body == "a"
    one.receiver.accept()
    assert two.receiver.receive().body == "b"
    assert one.drain() == ["c"]


def test_a_rollback_stores_nothing(coordinator, lines):
    one, two = lines
    transaction = coordinator.begin()
    transaction.send(one.sender, "a")
    transaction.send(two.sender, "b")
    assert transaction.roll_back() == ACCEPTED
    assert (one.drain(), two.drain()) == ([], [])


def test_a_message_moves_from_queue_to_queue(coordinator, management, lines):
    source, target = lines
    source.given("work")
    transaction = coordinator.begin()
    assert transaction.send(target.sender, "result") == ACCEPTED
    assert transaction.settle(source.receiver) == ACCEPTED
    assert counts(management, source.queue)["locked"] == 1
    assert target.drain() == []
    assert transaction.commit() == ACCEPTED
    assert target.receiver.receive().body == "result"
    assert counts(management, source.queue) == {"active": 0, "locked": 0, "dead-letter": 0}


def test_a_rolled_back_settlement_redelivers_the_message(clock, coordinator, lines):
    source, target = lines
    source.given("work")
    transaction = coordinator.begin()
    transaction.settle(source.receiver)
    transaction.send(target.sender, "result")
    assert transaction.roll_back() == ACCEPTED
    clock.advance(LOCK_SECONDS)
    again = source.receiver.receive()
    assert (again.body, again.delivery_count) == ("work", 1)
    assert target.drain() == []


def test_after_a_rollback_the_message_can_be_completed_over_its_link(coordinator, management, lines):
    source, _ = lines
    source.given("work")
    transaction = coordinator.begin()
    assert transaction.settle(source.receiver) == ACCEPTED
    assert transaction.roll_back() == ACCEPTED
    transaction.give_back()
    source.receiver.accept()
    assert source.drain() == []
    assert counts(management, source.queue) == {"active": 0, "locked": 0, "dead-letter": 0}


def test_every_settlement_can_be_part_of_a_transaction(coordinator, management, lines):
    line, other = lines
    for body in ("dead", "back"):
        line.given(body)
    transaction = coordinator.begin()
    assert transaction.settle(line.receiver, REJECTED) == "rejected"
    assert transaction.settle(line.receiver, MODIFIED, [True]) == "modified"
    assert transaction.send(other.sender, "note") == ACCEPTED
    assert counts(management, line.queue) == {"active": 2, "locked": 2, "dead-letter": 0}
    assert transaction.commit() == ACCEPTED
    assert counts(management, line.queue) == {"active": 1, "locked": 0, "dead-letter": 1}
    again = line.receiver.receive()
    assert (again.body, again.delivery_count) == ("back", 1)


def test_an_unknown_transaction_id_is_rejected(coordinator, lines):
    line, _ = lines
    stranger = Transaction(coordinator, b"\x00\x00\x30\x39")
    assert stranger.send(line.sender, "x") == UNKNOWN
    assert stranger.commit() == UNKNOWN
    assert stranger.roll_back() == UNKNOWN
    assert Transaction(coordinator, b"long, and not ours").commit() == UNKNOWN
    over = coordinator.begin()
    assert over.commit() == ACCEPTED
    assert over.commit() == UNKNOWN
    assert over.send(line.sender, "x") == UNKNOWN
    assert line.drain() == []


def test_a_transaction_id_of_another_connection_is_rejected(broker, coordinator, lines):
    line, _ = lines
    line.given("work")
    connection = connect(broker)
    ours, theirs = coordinator.begin(), Coordinator(connection).begin()
    stranger = Transaction(coordinator, theirs.id)
    assert stranger.send(line.sender, "x") == UNKNOWN
    assert stranger.settle(line.receiver) == UNKNOWN
    assert stranger.commit() == UNKNOWN
    assert (ours.commit(), theirs.commit()) == (ACCEPTED, ACCEPTED)
    connection.close()


def test_a_lost_lock_rejects_the_whole_transaction(clock, coordinator, lines):
    source, target = lines
    source.given("work")
    late = source.receiver.fetcher.unsettled.popleft()
    clock.advance(LOCK_SECONDS)
    assert source.receiver.receive().delivery_count == 1
    source.receiver.fetcher.unsettled.appendleft(late)
    transaction = coordinator.begin()
    assert transaction.send(target.sender, "result") == ACCEPTED
    assert transaction.settle(source.receiver) == "com.microsoft:message-lock-lost"
    assert transaction.commit() == ROLLED_BACK
    assert target.drain() == []


def test_a_lock_that_expires_before_the_commit_rejects_it(clock, coordinator, connection, lines):
    source, target = lines
    source.given("work")
    transaction = coordinator.begin()
    assert transaction.settle(source.receiver) == ACCEPTED
    transaction.send(target.sender, "result")
    clock.advance(LOCK_SECONDS)
    other = connection.create_receiver(source.queue, credit=0, name="other")
    assert other.receive().delivery_count == 1
    assert transaction.commit() == ROLLED_BACK
    assert target.drain() == []


def test_a_rejected_send_rejects_the_whole_transaction(coordinator, connection, create, management):
    source, target = Line(connection, create(max_size=2000)), Line(connection, create())
    source.given("work")
    transaction = coordinator.begin()
    transaction.settle(source.receiver)
    transaction.send(target.sender, "result")
    transaction.send(source.sender, "x" * 3000)
    assert transaction.commit() == ROLLED_BACK
    assert target.drain() == []
    assert counts(management, source.queue) == {"active": 1, "locked": 1, "dead-letter": 0}


def test_messages_of_two_queues_cannot_be_settled_together(clock, coordinator, lines):
    one, two = lines
    one.given("a")
    two.given("b")
    transaction = coordinator.begin()
    assert transaction.settle(one.receiver) == ACCEPTED
    assert transaction.settle(two.receiver) == "amqp:not-allowed"
    assert transaction.commit() == ROLLED_BACK
    clock.advance(LOCK_SECONDS)
    assert [line.receiver.receive().body for line in lines] == ["a", "b"]


def test_concurrent_transactions_are_independent(coordinator, lines):
    line, _ = lines
    kept, dropped = coordinator.begin(), coordinator.begin()
    kept.send(line.sender, "kept 1")
    dropped.send(line.sender, "dropped")
    line.sender.send(message("outside"))
    kept.send(line.sender, "kept 2")
    assert dropped.roll_back() == ACCEPTED
    assert line.drain() == ["outside"]
    assert kept.commit() == ACCEPTED
    assert [line.receiver.receive().body for _ in range(2)] == ["kept 1", "kept 2"]


def test_a_transaction_has_at_most_a_hundred_steps(coordinator, lines):
    line, _ = lines
    transaction = coordinator.begin()
    assert {transaction.send(line.sender, number) for number in range(100)} == {ACCEPTED}
    assert transaction.send(line.sender, "one too many") == "amqp:resource-limit-exceeded"
    assert transaction.commit() == ROLLED_BACK
    assert line.drain() == []


def test_a_transaction_ends_with_its_control_link(connection, coordinator, lines):
    line, _ = lines
    transaction = coordinator.begin()
    transaction.send(line.sender, "lost")
    coordinator.close()
    other = Coordinator(connection)
    assert Transaction(other, transaction.id).commit() == UNKNOWN
    assert line.drain() == []


def test_a_transaction_ends_with_its_connection(broker, lines):
    line, _ = lines
    connection = connect(broker)
    transaction = Coordinator(connection).begin()
    transaction.send(connection.create_sender(line.queue), "lost")
    connection.close()
    assert line.drain() == []


VANISHING = """
import sys, time
from plain import connect
from transactions import Coordinator

class Place:
    address = sys.argv[1]

connection = connect(Place)
transaction = Coordinator(connection).begin()
print(transaction.send(connection.create_sender(sys.argv[2]), "lost"), flush=True)
time.sleep(60)
"""


def test_a_transaction_ends_with_a_client_that_is_killed(broker, lines):
    line, _ = lines
    command = [sys.executable, "-c", VANISHING, broker.address, line.queue]
    client = subprocess.Popen(command, cwd=pathlib.Path(__file__).parent, stdout=subprocess.PIPE, text=True)
    assert client.stdout.readline().strip() == ACCEPTED
    client.kill()
    client.wait()
    assert line.drain() == []


def test_a_transactional_message_is_scheduled_or_expires_like_any_other(coordinator, management, lines):
    line, _ = lines
    transaction = coordinator.begin()
    annotations = {symbol("x-opt-scheduled-enqueue-time"): timestamp(int(time.time() * 1000) + 3_600_000)}
    transaction.send(line.sender, "later", annotations=annotations)
    assert transaction.commit() == ACCEPTED
    assert management.show_queue(line.queue)["scheduledCount"] == 1


def test_a_committed_transaction_survives_a_kill(tmp_path):
    broker = Broker(tmp_path, []).start()
    try:
        management = Management(broker)
        queues = [management.create_queue() for _ in range(6)]
        connection = connect(broker)
        lines = [Line(connection, queue) for queue in queues]
        lines[0].given("work")
        transaction = Coordinator(connection).begin()
        transaction.settle(lines[0].receiver)
        for line in lines[1:]:
            transaction.send(line.sender, "result")
        assert transaction.commit() == ACCEPTED
        broker.kill()
        broker.start()
        connection = connect(broker)
        results = [connection.create_receiver(queue, credit=0).receive().body for queue in queues[1:]]
        assert results == ["result"] * 5
        assert counts(management, queues[0]) == {"active": 0, "locked": 0, "dead-letter": 0}
        connection.close()
    finally:
        broker.stop()


def test_large_messages_are_part_of_a_transaction_and_survive_a_kill(tmp_path):
    large = "max-message-size=10MiB"
    broker = Broker(tmp_path, [f"source,{large}", f"other,{large}", f"third,{large}"]).start()

    def bodies_on_disk():
        return list((broker.folder / "data" / "cold").glob("*/*.body"))

    try:
        connection = connect(broker)
        lines = {queue: Line(connection, queue) for queue in ("source", "other", "third")}
        coordinator = Coordinator(connection)
        dropped = coordinator.begin()
        assert dropped.send(lines["source"].sender, "x" * 3_000_000) == ACCEPTED
        assert dropped.roll_back() == ACCEPTED
        until(lambda: not bodies_on_disk(), "the large bodies to be deleted")

        lines["source"].given("work")
        transaction = coordinator.begin()
        sent = {"other": "y" * 4_000_000, "source": "z" * 2_500_000, "third": "t" * 1_100_000}
        for queue, text in sent.items():
            assert transaction.send(lines[queue].sender, text) == ACCEPTED
        assert transaction.settle(lines["source"].receiver) == ACCEPTED
        assert transaction.commit() == ACCEPTED
        broker.kill()
        broker.start()
        connection = connect(broker)
        for queue, text in sent.items():
            receiver = connection.create_receiver(queue, credit=0)
            assert receiver.receive().body == text
            receiver.accept()
        until(lambda: not bodies_on_disk(), "the large bodies to be deleted")
        connection.close()
    finally:
        broker.stop()
