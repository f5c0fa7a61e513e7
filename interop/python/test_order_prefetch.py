"""A receiver with prefetch holds a limited number of messages, and an urgent message is delivered directly after them.
"""

import threading
import time

import pytest

from order import of_class, order, post, take_from
from steps import receive, receive_one, send, text, texts

PREFETCH = 300
# The default limit of unsettled messages per receiver.
OUTSTANDING = 16
LOW_COUNT = 100
# The work on each message, long enough that no receiver counts as one that settles fast and is permitted to hold more.
WORK_SECONDS = 0.02


@pytest.fixture
def queue(create):
    return create(order=order("strict"))


def lows(count=LOW_COUNT):
    return of_class("low", *[f"low {number}" for number in range(count)])


def test_prefetch_stops_at_the_limit_and_the_next_message_is_the_most_urgent(client, queue):
    post(client, queue, *lows())
    with client.get_queue_receiver(queue, prefetch_count=PREFETCH) as receiver:
        held = receive(receiver, OUTSTANDING)
        assert receiver.receive_messages(max_message_count=1, max_wait_time=1) == [], "more messages were delivered than the limit"
        post(client, queue, *of_class("high", "urgent"))
        receiver.complete_message(held[0])
        assert text(receive_one(receiver)) == "urgent"


def test_a_queue_can_set_the_limit(client, create):
    queue = create(order=order("strict", maxOutstanding=3))
    post(client, queue, *lows())
    with client.get_queue_receiver(queue, prefetch_count=PREFETCH) as receiver:
        held = receive(receiver, 3)
        assert receiver.receive_messages(max_message_count=1, max_wait_time=1) == []
        post(client, queue, *of_class("high", "urgent"))
        receiver.abandon_message(held[0])
        assert text(receive_one(receiver)) == "urgent"


def test_a_prefetching_consumer_soon_receives_an_urgent_message(client, queue):
    post(client, queue, *lows())
    seen = []
    with client.get_queue_receiver(queue, prefetch_count=PREFETCH, max_wait_time=20) as receiver:
        for message in receiver:
            seen.append(text(message))
            if len(seen) == 20:
                post(client, queue, *of_class("high", "urgent"))
            time.sleep(WORK_SECONDS)
            receiver.complete_message(message)
            if seen[-1] == "urgent" or len(seen) == LOW_COUNT:
                break
    assert seen[-1] == "urgent"
    assert len(seen) - 20 <= OUTSTANDING + 1, "more low messages were delivered before the urgent one than the limit"


def test_a_prefetching_consumer_receives_all_messages(client, queue):
    post(client, queue, *lows())
    with client.get_queue_receiver(queue, prefetch_count=PREFETCH) as receiver:
        assert take_from(receiver, LOW_COUNT) == [f"low {number}" for number in range(LOW_COUNT)]


def test_a_receive_of_a_hundred_returns_at_most_the_limit(client, queue):
    post(client, queue, *lows(40))
    with client.get_queue_receiver(queue) as receiver:
        taken = []
        while len(taken) < 40:
            messages = receiver.receive_messages(max_message_count=100, max_wait_time=30)
            assert 1 <= len(messages) <= OUTSTANDING
            taken += texts(messages)
            for message in messages:
                receiver.complete_message(message)
    # Between two calls the SDK releases messages that arrive, so they can be delivered again after their successors.
    assert taken[:OUTSTANDING] == [f"low {number}" for number in range(OUTSTANDING)]
    assert sorted(taken) == sorted(f"low {number}" for number in range(40))


def test_the_limit_applies_to_each_receiver(client, queue):
    post(client, queue, *lows())
    with client.get_queue_receiver(queue, prefetch_count=PREFETCH) as one:
        with client.get_queue_receiver(queue, prefetch_count=PREFETCH) as two:
            first, second = receive(one, OUTSTANDING), receive(two, OUTSTANDING)
            assert len({*texts(first), *texts(second)}) == 2 * OUTSTANDING
            post(client, queue, *of_class("high", "for one", "for two"))
            one.complete_message(first[0])
            two.complete_message(second[0])
            assert {text(receive_one(one)), text(receive_one(two))} == {"for one", "for two"}


def test_prefetch_on_a_plain_queue_is_not_limited(client, create):
    queue = create()
    send(client, queue, *[f"message {number}" for number in range(LOW_COUNT)])
    with client.get_queue_receiver(queue, prefetch_count=PREFETCH) as receiver:
        assert len(receive(receiver, LOW_COUNT)) == LOW_COUNT


def test_a_waiting_prefetching_receiver_gets_a_new_message_at_once(client, queue):
    with client.get_queue_receiver(queue, prefetch_count=PREFETCH) as receiver:
        later = threading.Timer(0.5, post, (client, queue, *of_class("low", "expected")))
        later.start()
        assert text(receive_one(receiver)) == "expected"
        later.join()
