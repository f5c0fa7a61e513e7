"""Topics: each subscription gets a separate copy of a message, with all features of a queue."""

import datetime

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage, ServiceBusReceiveMode, ServiceBusSubQueue
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusError
from azure.servicebus.management import SqlRuleFilter

from steps import in_seconds, receive, receive_one, text, texts, until
from topics import publish, take, taken

DEAD = {"sub_queue": ServiceBusSubQueue.DEAD_LETTER}
SECOND = datetime.timedelta(seconds=1)


def test_every_subscription_gets_every_message(client, topics):
    topic = topics.create("one", "two", "three")
    sent = [f"message {number}" for number in range(20)]
    publish(client, topic, *sent)
    for subscription in ("one", "two", "three"):
        assert taken(client, topic, subscription, 20) == sent


def test_a_message_arrives_with_all_its_properties(client, topics):
    topic = topics.create("all")
    message = ServiceBusMessage(
        b"\x00\xff body",
        message_id="m",
        correlation_id="c",
        subject="s",
        content_type="text/x",
        reply_to="r",
        reply_to_session_id="rs",
        to="t",
        partition_key="p",
        application_properties={"text": "x", "number": 7, "yes": True},
        time_to_live=datetime.timedelta(hours=1),
    )
    publish(client, topic, message)
    [got] = take(client, topic, "all", 1)
    assert b"".join(got.body) == b"\x00\xff body"
    assert (got.message_id, got.correlation_id, got.subject, got.content_type) == ("m", "c", "s", "text/x")
    assert (got.reply_to, got.reply_to_session_id, got.to, got.partition_key) == ("r", "rs", "t", "p")
    assert got.application_properties == {b"text": b"x", b"number": 7, b"yes": True}
    assert got.time_to_live == datetime.timedelta(hours=1)
    assert got.sequence_number >= 1
    assert got.enqueued_time_utc is not None


def test_a_batch_is_fanned_out_as_a_whole(client, topics):
    topic = topics.create("one", "two")
    with client.get_topic_sender(topic) as sender:
        batch = sender.create_message_batch()
        for number in range(50):
            batch.add_message(ServiceBusMessage(str(number)))
        sender.send_messages(batch)
    sent = [str(number) for number in range(50)]
    assert taken(client, topic, "one", 50) == sent
    assert taken(client, topic, "two", 50) == sent


def test_a_topic_without_subscriptions_accepts_messages_and_stores_none(client, topics):
    topic = topics.create()
    publish(client, topic, "into the void")
    topics.admin.create_subscription(topic, "late")
    publish(client, topic, "for the late one")
    assert taken(client, topic, "late", 1) == ["for the late one"]


def test_subscriptions_settle_independently(client, topics):
    topic = topics.create("one", "two")
    publish(client, topic, "shared")
    with client.get_subscription_receiver(topic, "one") as receiver:
        receiver.dead_letter_message(receive_one(receiver), reason="mine", error_description="alone")
    [dead] = take(client, topic, "one", 1, **DEAD)
    assert (text(dead), dead.dead_letter_reason, dead.dead_letter_error_description) == ("shared", "mine", "alone")
    assert topics.counts(topic, "one") == (0, 0)
    assert topics.counts(topic, "two") == (1, 0)
    assert taken(client, topic, "two", 1) == ["shared"]


def test_every_settlement_works_on_a_subscription(client, topics):
    topic = topics.create("all")
    publish(client, topic, "defer", "abandon", "complete")
    with client.get_subscription_receiver(topic, "all") as receiver:
        deferred, abandoned, completed = receive(receiver, 3)
        receiver.renew_message_lock(completed)
        receiver.complete_message(completed)
        receiver.defer_message(deferred)
        receiver.abandon_message(abandoned)
        again = receive_one(receiver)
        assert (text(again), again.delivery_count) == ("abandon", 1)
        receiver.complete_message(again)
        [back] = receiver.receive_deferred_messages([deferred.sequence_number])
        assert text(back) == "defer"
        receiver.complete_message(back)
        assert receiver.peek_messages() == []


def test_receive_and_delete_removes_at_once(client, topics):
    topic = topics.create("all")
    publish(client, topic, "gone", "too")
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with client.get_subscription_receiver(topic, "all", receive_mode=mode) as receiver:
        assert texts(receive(receiver, 2)) == ["gone", "too"]
    assert topics.counts(topic, "all") == (0, 0)


def test_poison_messages_are_dead_lettered_per_subscription(client, topics):
    topic = topics.create(("strict", {"max_delivery_count": 1}), ("patient", {"max_delivery_count": 5}))
    publish(client, topic, "poison")
    for subscription in ("strict", "patient"):
        with client.get_subscription_receiver(topic, subscription) as receiver:
            receiver.abandon_message(receive_one(receiver))
    [dead] = take(client, topic, "strict", 1, **DEAD)
    assert dead.dead_letter_reason == "MaxDeliveryCountExceeded"
    [alive] = take(client, topic, "patient", 1)
    assert alive.delivery_count == 1


def test_an_expired_lock_redelivers_the_message(client, clock, topics):
    topic = topics.create("short")
    publish(client, topic, "again")
    with client.get_subscription_receiver(topic, "short") as receiver:
        clock.pass_by(receive_one(receiver).locked_until_utc)
        again = receive_one(receiver)
        assert again.delivery_count == 1
        receiver.complete_message(again)


def test_a_subscription_can_have_sessions(client, topics):
    topic = topics.create(("sessions", {"requires_session": True}), "plain")
    messages = [ServiceBusMessage(f"{session}{n}", session_id=session) for n in range(3) for session in "ab"]
    publish(client, topic, *messages)
    with client.get_subscription_receiver(topic, "sessions", session_id="b") as receiver:
        receiver.session.set_state(b"half done")
        assert receiver.session.get_state() == b"half done"
        got = receive(receiver, 3)
        assert texts(got) == ["b0", "b1", "b2"]
        for message in got:
            receiver.complete_message(message)
    with client.get_subscription_receiver(topic, "sessions", session_id=NEXT_AVAILABLE_SESSION) as receiver:
        assert receiver.session.session_id == "a"
        assert texts(receive(receiver, 3)) == ["a0", "a1", "a2"]
    assert taken(client, topic, "plain", 6) == ["a0", "b0", "a1", "b1", "a2", "b2"]


def test_a_copy_without_a_required_session_is_dead_lettered(client, topics):
    topic = topics.create(("sessions", {"requires_session": True}), "plain")
    publish(client, topic, "no session")
    [dead] = take(client, topic, "sessions", 1, **DEAD)
    assert text(dead) == "no session"
    assert "session" in dead.dead_letter_error_description
    assert taken(client, topic, "plain", 1) == ["no session"]


def test_scheduled_messages_reach_the_subscriptions_when_due(client, clock, topics):
    topic = topics.create("one", "two")
    with client.get_topic_sender(topic) as sender:
        [number] = sender.schedule_messages(ServiceBusMessage("never"), in_seconds(600))
        sender.schedule_messages(ServiceBusMessage("due"), in_seconds(60))
        shown = topics.admin.get_topic_runtime_properties(topic)
        assert shown.scheduled_message_count == 2
        assert topics.counts(topic, "one") == (0, 0)
        sender.cancel_scheduled_messages(number)
    clock.advance(60)
    for subscription in ("one", "two"):
        with client.get_subscription_receiver(topic, subscription) as receiver:
            assert text(receive_one(receiver)) == "due"
    assert topics.admin.get_topic_runtime_properties(topic).scheduled_message_count == 0


def test_a_subscription_created_before_the_due_time_gets_the_scheduled_message(client, clock, topics):
    topic = topics.create()
    with client.get_topic_sender(topic) as sender:
        sender.schedule_messages(ServiceBusMessage("due"), in_seconds(60))
    topics.admin.create_subscription(topic, "later")
    clock.advance(60)
    assert taken(client, topic, "later", 1) == ["due"]


def test_the_shortest_time_to_live_applies(client, topics):
    topic = topics.create(
        ("keeps", {"dead_lettering_on_message_expiration": True}),
        ("short", {"default_message_time_to_live": SECOND}),
        default_message_time_to_live=datetime.timedelta(hours=1),
    )
    publish(client, topic, ServiceBusMessage("brief", time_to_live=SECOND), "long")
    until(lambda: topics.counts(topic, "keeps") == (1, 1), "the expiry of the short-lived message")
    until(lambda: topics.counts(topic, "short") == (0, 0), "the expiry of both messages")
    [dead] = take(client, topic, "keeps", 1, **DEAD)
    assert (text(dead), dead.dead_letter_reason) == ("brief", "TTLExpiredException")
    [alive] = take(client, topic, "keeps", 1)
    assert alive.expires_at_utc - alive.enqueued_time_utc == datetime.timedelta(hours=1)


def test_duplicates_are_dropped_for_all_subscriptions(client, topics):
    topic = topics.create(
        "one",
        "two",
        requires_duplicate_detection=True,
        duplicate_detection_history_time_window=datetime.timedelta(minutes=1),
    )
    publish(client, topic, ServiceBusMessage("first", message_id="x"))
    publish(client, topic, ServiceBusMessage("second", message_id="x"), ServiceBusMessage("other", message_id="y"))
    assert taken(client, topic, "one", 2) == ["first", "other"]
    assert taken(client, topic, "two", 2) == ["first", "other"]


def test_a_subscription_forwards_to_a_queue(client, topics, create):
    target = create()
    topic = topics.create(("onward", {"forward_to": target}), "stays")
    properties = {"message_id": "m", "application_properties": {"own": 7}}
    publish(client, topic, ServiceBusMessage("far", **properties))
    with client.get_queue_receiver(target) as receiver:
        message = receive_one(receiver)
        receiver.complete_message(message)
    assert (text(message), message.message_id, message.application_properties) == ("far", "m", {b"own": 7})
    assert taken(client, topic, "stays", 1) == ["far"]
    with pytest.raises(ServiceBusError, match="forwards its messages"):
        with client.get_subscription_receiver(topic, "onward") as receiver:
            receiver.receive_messages(max_wait_time=20)


def test_a_subscription_forwards_to_a_topic_whose_filters_apply(client, topics):
    second = topics.filtered(high=SqlRuleFilter("level > 5"), low=SqlRuleFilter("level <= 5"))
    first = topics.create(("onward", {"forward_to": second}))
    messages = [ServiceBusMessage(str(level), application_properties={"level": level}) for level in (1, 9, 5)]
    publish(client, first, *messages)
    assert taken(client, second, "high", 1) == ["9"]
    assert taken(client, second, "low", 2) == ["1", "5"]


def test_a_queue_forwards_to_a_topic(client, topics, create):
    topic = topics.create("one", "two")
    source = create(forward_to=topic)
    with client.get_queue_sender(source) as sender:
        sender.send_messages(ServiceBusMessage("through"))
    assert taken(client, topic, "one", 1) == ["through"]
    assert taken(client, topic, "two", 1) == ["through"]


def test_dead_letters_of_a_subscription_are_forwarded(client, topics, create):
    graveyard = create()
    topic = topics.create(("mortal", {"forward_dead_lettered_messages_to": graveyard}))
    publish(client, topic, "poison")
    with client.get_subscription_receiver(topic, "mortal") as receiver:
        receiver.dead_letter_message(receive_one(receiver), reason="why")
    with client.get_queue_receiver(graveyard) as receiver:
        dead = receive_one(receiver)
    assert (text(dead), dead.dead_letter_reason) == ("poison", "why")
    assert dead.dead_letter_source.lower() == f"{topic}/subscriptions/mortal"


def test_a_topic_rejects_receivers(client, topics):
    topic = topics.create("one")
    with pytest.raises(ServiceBusError), client.get_queue_receiver(topic) as receiver:
        receiver.receive_messages(max_wait_time=20)


def test_a_subscription_rejects_senders(client, topics):
    topic = topics.create("one")
    with pytest.raises(ServiceBusError):
        publish(client, f"{topic}/Subscriptions/one", "direct")
    assert topics.counts(topic, "one") == (0, 0)


def test_unknown_topics_and_subscriptions_are_rejected(client, topics):
    topic = topics.create("one")
    with pytest.raises(ServiceBusAuthenticationError):
        publish(client, "no-such-topic", "lost")
    with pytest.raises(ServiceBusAuthenticationError):
        with client.get_subscription_receiver(topic, "two") as receiver:
            receiver.receive_messages(max_wait_time=20)


def test_names_are_case_insensitive(client, topics):
    topic = topics.create("Audit")
    publish(client, topic.upper(), "seen")
    assert taken(client, topic.upper(), "aUDIT", 1) == ["seen"]


def test_a_disabled_topic_rejects_sends_and_a_disabled_subscription_rejects_receives(client, topics):
    topic = topics.create("one")
    publish(client, topic, "before")
    shown = topics.admin.get_topic(topic)
    shown.status = "SendDisabled"
    topics.admin.update_topic(shown)
    with pytest.raises(ServiceBusError, match="disabled"):
        publish(client, topic, "refused")
    subscription = topics.admin.get_subscription(topic, "one")
    subscription.status = "ReceiveDisabled"
    topics.admin.update_subscription(topic, subscription)
    with pytest.raises(ServiceBusError, match="disabled"):
        with client.get_subscription_receiver(topic, "one") as receiver:
            receiver.receive_messages(max_wait_time=20)
    subscription.status = "Active"
    topics.admin.update_subscription(topic, subscription)
    assert taken(client, topic, "one", 1) == ["before"]


def test_a_large_message_arrives_once_per_subscription(client, topics):
    topic = topics.create("one", "two", max_message_size_in_kilobytes=8 * 1024)
    large = bytes(number % 251 for number in range(3 << 20))
    publish(client, topic, ServiceBusMessage(large))
    for subscription in ("one", "two"):
        with client.get_subscription_receiver(topic, subscription) as receiver:
            message = receive_one(receiver)
            assert b"".join(message.body) == large
            receiver.complete_message(message)


def test_a_deleted_subscription_is_empty_when_created_again(client, topics):
    topic = topics.create("one", "two")
    publish(client, topic, "old")
    topics.admin.delete_subscription(topic, "one")
    topics.admin.create_subscription(topic, "one")
    publish(client, topic, "new")
    assert taken(client, topic, "one", 1) == ["new"]
    assert taken(client, topic, "two", 2) == ["old", "new"]


def test_deleting_a_topic_deletes_its_subscriptions(client, topics):
    topic = topics.create("one")
    publish(client, topic, "lost")
    topics.admin.delete_topic(topic)
    with pytest.raises(ServiceBusAuthenticationError):
        with client.get_subscription_receiver(topic, "one") as receiver:
            receiver.receive_messages(max_wait_time=20)
    topics.admin.create_topic(topic)
    assert list(topics.admin.list_subscriptions(topic)) == []


def test_a_hundred_subscriptions_each_get_a_copy(client, topics):
    names = [f"s{number:02}" for number in range(100)]
    topic = topics.create(*names)
    publish(client, topic, "to all")
    counted = {shown.name: shown.active_message_count for shown in topics.admin.list_subscriptions_runtime_properties(topic)}
    assert counted == dict.fromkeys(names, 1)
    assert taken(client, topic, "s99", 1) == ["to all"]
