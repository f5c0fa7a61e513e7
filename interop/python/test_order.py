"""The order of delivery of a queue with classes: strict, aged, weighted, fifo; also while the policy changes."""

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage

from names import fresh
from order import of_class, order, post, take, take_from
from steps import in_seconds, receive, receive_dead_letter, receive_one, text, texts

AGING_SECONDS = 60
# The messages of a test are seconds apart, so only a moved clock lets a low message wait longer than this offset.
AGED = order("aged", {"high": {"offset": "0s"}, "normal": {"offset": "0s"}, "low": {"offset": f"{AGING_SECONDS}s"}})


def test_strict_delivers_the_most_urgent_class_first(client, create):
    queue = create(order=order("strict"))
    post(client, queue, *of_class("low", "l1", "l2"), *of_class("high", "h1"), *of_class("normal", "n1"))
    post(client, queue, *of_class("high", "h2"))
    assert take(client, queue, 5) == ["h1", "h2", "n1", "l1", "l2"]


def test_a_later_more_urgent_message_is_delivered_first(client, create):
    queue = create(order=order("strict"))
    post(client, queue, *of_class("low", "l1", "l2", "l3"))
    with client.get_queue_receiver(queue) as receiver:
        assert take_from(receiver, 1) == ["l1"]
        post(client, queue, *of_class("high", "h1"))
        assert take_from(receiver, 3) == ["h1", "l2", "l3"]


def test_aged_permits_overtaking_for_a_limited_time(client, clock, create):
    queue = create(order=AGED)
    post(client, queue, *of_class("low", "old"))
    clock.advance(AGING_SECONDS + 0.5)
    post(client, queue, *of_class("low", "young"), *of_class("high", "high"))
    assert take(client, queue, 3) == ["old", "high", "young"]


def test_weighted_shares_by_the_weights(client, create):
    queue = create(order=order("weighted", {"high": {"weight": 4}, "normal": {"weight": 2}, "low": {"weight": 1}}))
    for name in ("low", "normal", "high"):
        post(client, queue, *of_class(name, *[name] * 28))
    # No class becomes empty before the 28 messages of the first are delivered.
    taken = take(client, queue, 42)
    assert [abs(taken.count(name) - want) <= 1 for name, want in [("high", 24), ("normal", 12), ("low", 6)]] == [True] * 3
    turns = [place for place, name in enumerate(taken) if name == "low"]
    assert max(later - sooner for sooner, later in zip(turns, turns[1:])) <= 8, taken


def test_fifo_delivers_in_the_order_of_arrival(client, create):
    queue = create(order=order("fifo"))
    post(client, queue, *of_class("low", "first"), *of_class("high", "second"), *of_class("normal", "third"))
    assert take(client, queue, 3) == ["first", "second", "third"]


def test_a_changed_policy_applies_to_waiting_messages(client, create, management):
    queue = create(order=order("fifo"))
    post(client, queue, *of_class("low", "l1", "l2"), *of_class("high", "h1", "h2"))
    with client.get_queue_receiver(queue) as receiver:
        assert take_from(receiver, 1) == ["l1"]
        management.update_queue(queue, order=order("strict"))
        assert take_from(receiver, 1) == ["h1"]
        management.update_queue(queue, order=order("aged", {name: {"offset": "0s"} for name in ("high", "normal", "low")}))
        assert take_from(receiver, 2) == ["l2", "h2"]


def test_classes_can_be_added_to_a_plain_queue_in_use(client, create, management):
    queue = create()
    post(client, queue, *of_class("low", "before"))
    management.update_queue(queue, order=order("strict"))
    post(client, queue, *of_class("high", "after"))
    assert take(client, queue, 2) == ["after", "before"]


def test_an_abandoned_message_keeps_its_place(client, create):
    queue = create(order=order("strict"))
    post(client, queue, *of_class("low", "l1", "l2"), *of_class("high", "h1", "h2"))
    with client.get_queue_receiver(queue) as receiver:
        first = receive_one(receiver)
        assert text(first) == "h1"
        receiver.abandon_message(first)
        again = receive_one(receiver)
        assert (text(again), again.delivery_count) == ("h1", 1)
        receiver.complete_message(again)
        assert take_from(receiver, 3) == ["h2", "l1", "l2"]


def test_a_message_with_an_expired_lock_keeps_its_place(client, clock, create):
    queue = create(order=order("strict"))
    post(client, queue, *of_class("low", "l1", "l2"), *of_class("high", "h1"))
    with client.get_queue_receiver(queue) as receiver:
        held = receive(receiver, 2)
        assert texts(held) == ["h1", "l1"]
        clock.pass_by(held[1].locked_until_utc)
        assert take_from(receiver, 3) == ["h1", "l1", "l2"]


def test_a_deferred_message_is_skipped_and_received_by_its_number(client, create):
    queue = create(order=order("strict"))
    post(client, queue, *of_class("low", "l1"), *of_class("high", "h1", "h2"))
    with client.get_queue_receiver(queue) as receiver:
        deferred = receive_one(receiver)
        receiver.defer_message(deferred)
        assert take_from(receiver, 2) == ["h2", "l1"]
        [again] = receiver.receive_deferred_messages([deferred.sequence_number])
        assert text(again) == "h1"
        receiver.complete_message(again)


def test_a_scheduled_message_takes_its_place_when_it_is_due(client, clock, create):
    queue = create(order=order("strict"))
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(of_class("low", "l1", "l2"))
        with client.get_queue_receiver(queue) as receiver:
            due = in_seconds(60)
            sender.schedule_messages(of_class("high", "scheduled"), due)
            assert take_from(receiver, 1) == ["l1"]
            clock.pass_by(due)
            assert take_from(receiver, 2) == ["scheduled", "l2"]


def test_dead_letters_move_to_the_dead_letter_queue(client, create):
    queue = create(order=order("strict"), max_delivery_count=2)
    post(client, queue, *of_class("low", "fine"), *of_class("high", "poison", "refused"))
    with client.get_queue_receiver(queue) as receiver:
        for _ in range(2):
            poison = receive_one(receiver)
            assert text(poison) == "poison"
            receiver.abandon_message(poison)
        receiver.dead_letter_message(receive_one(receiver), reason="Refused", error_description="by us")
        assert take_from(receiver, 1) == ["fine"]
    dead = [receive_dead_letter(client, queue) for _ in range(2)]
    assert [(text(one), one.dead_letter_reason) for one in dead] == [
        ("poison", "MaxDeliveryCountExceeded"),
        ("refused", "Refused"),
    ]


def test_the_next_session_is_the_one_with_the_most_urgent_first_message(client, create):
    queue = create(order=order("strict"), requires_session=True)
    # Only the first message of a session counts, because the messages after it cannot be received before it.
    post(client, queue, *of_class("low", "l1", session_id="patient"), *of_class("high", "h1", session_id="patient"))
    post(client, queue, *of_class("normal", "n1", session_id="usual"))
    post(client, queue, *of_class("high", "h2", session_id="urgent"), *of_class("low", "l2", session_id="urgent"))
    visited = []
    for _ in range(3):
        with client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=30) as receiver:
            visited.append((receiver.session.session_id, take_from(receiver, {"usual": 1}.get(receiver.session.session_id, 2))))
    assert visited == [("urgent", ["h2", "l2"]), ("usual", ["n1"]), ("patient", ["l1", "h1"])]


def test_a_subscription_has_its_own_order(client, api):
    topic = fresh("ranked")
    api.put("topics", topic)
    api.put("topics", topic, "subscriptions", "ranked", order=order("strict"))
    api.put("topics", topic, "subscriptions", "plain")
    with client.get_topic_sender(topic) as sender:
        sender.send_messages([*of_class("low", "l1"), *of_class("high", "h1"), ServiceBusMessage("n1")])
    got = {}
    for name in ("ranked", "plain"):
        with client.get_subscription_receiver(topic, name) as receiver:
            got[name] = take_from(receiver, 3)
    assert got == {"ranked": ["h1", "n1", "l1"], "plain": ["l1", "h1", "n1"]}


@pytest.mark.parametrize("kind", ["queue", "subscription"])
def test_an_update_by_the_sdk_keeps_the_order(admin, api, kind):
    name = fresh("kept")
    aged = order("aged", {"high": {"target": "10s"}}, rules=[{"when": "tier = 'paying'", "class": "high"}])
    if kind == "queue":
        path = ("queues", name)
        api.put(*path, order=aged)
        shown = admin.get_queue(name)
    else:
        path = ("topics", name, "subscriptions", "ranked")
        api.put("topics", name)
        api.put(*path, order=aged)
        shown = admin.get_subscription(name, "ranked")
    before = api.get(*path)
    shown.max_delivery_count = 7
    if kind == "queue":
        admin.update_queue(shown)
    else:
        admin.update_subscription(name, shown)
    after = api.get(*path)
    assert after["maxDeliveryCount"] == 7
    assert after["order"] == before["order"]
