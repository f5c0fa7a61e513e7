"""Rules: the messages that a subscription gets, and the effect of actions on them."""

import datetime
import uuid

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.management import (
    CorrelationRuleFilter,
    FalseRuleFilter,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)

from steps import receive_one, text
from topics import DEFAULT_RULE, publish, take, taken

DEAD = {"sub_queue": ServiceBusSubQueue.DEAD_LETTER}


def properties(**values):
    return ServiceBusMessage("m", application_properties=values)


def chosen(client, topics, filter, **messages):
    """Returns the names of the messages that a subscription with this filter gets."""
    topic = topics.filtered(only=filter)
    for name, message in messages.items():
        message.message_id = name
    publish(client, topic, *messages.values())
    active, dead = topics.counts(topic, "only")
    assert dead == 0
    return [message.message_id for message in take(client, topic, "only", active)]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("color = 'red'", ["red_1"]),
        ("color <> 'red'", ["blue_7"]),
        ("color IN ('red', 'blue') AND size > 3", ["blue_7"]),
        ("size + 1 = 2", ["red_1"]),
        ("size * 2 > 10 OR color = 'red'", ["red_1", "blue_7"]),
        ("NOT (size = 1)", ["blue_7"]),
        ("color LIKE 'r%'", ["red_1"]),
        ("color LIKE '_lue'", ["blue_7"]),
        ("color NOT LIKE '%e%'", []),
        ("color IS NULL", ["plain"]),
        ("color IS NOT NULL", ["red_1", "blue_7"]),
        ("EXISTS(size)", ["red_1", "blue_7"]),
        ("NOT EXISTS(size)", ["plain"]),
        ("sys.Label = 'urgent'", ["plain"]),
        ("sys.MessageId LIKE '%!_1' ESCAPE '!'", ["red_1"]),
        ("user.COLOR = 'red'", ["red_1"]),
        ("[color] = 'blue'", ["blue_7"]),
        ("color = 'RED'", []),
        ("-size < -5", ["blue_7"]),
        ("size % 2 = 1", ["red_1", "blue_7"]),
        ("size / 2 = 3", ["blue_7"]),
    ],
)
def test_sql_filters_select_messages(client, topics, expression, expected):
    got = chosen(
        client,
        topics,
        SqlRuleFilter(expression),
        red_1=properties(color="red", size=1),
        blue_7=properties(color="blue", size=7),
        plain=ServiceBusMessage("m", subject="urgent"),
    )
    assert got == expected


def test_true_filters_match_all_and_false_filters_match_none(client, topics):
    topic = topics.filtered(all=TrueRuleFilter(), none=FalseRuleFilter())
    publish(client, topic, "m")
    assert (topics.counts(topic, "all"), topics.counts(topic, "none")) == ((1, 0), (0, 0))


def test_filters_can_have_parameters(client, topics):
    filter = SqlRuleFilter(
        "color = @color AND size >= @least", parameters={"@color": "red", "@least": 3}
    )
    got = chosen(client, topics, filter, small=properties(color="red", size=1), large=properties(color="red", size=4))
    assert got == ["large"]


def test_filters_compare_property_values_of_all_types(client, topics):
    """Numbers of different types are compared by value."""
    now = datetime.datetime(2026, 5, 4, 3, 2, 1, tzinfo=datetime.timezone.utc)
    identity = uuid.uuid4()
    message = {
        "whole": 7,
        "wide": 1 << 30,
        "part": 2.5,
        "yes": True,
        "when": now,
        "id": identity,
        "text": "it's",
    }
    expressions = {
        "whole": "whole = 7",
        "wide": "wide = 1073741824 AND wide < 1099511627776",
        "part": "part = 2.5 AND part > 2",
        "yes": "yes = TRUE",
        "bare": "yes",
        "text": "text = 'it''s'",
        "mixed": "whole < 7.5 AND part < 3",
        "everything": "whole + part = 9.5",
    }
    topic = topics.filtered(**{name: SqlRuleFilter(expression) for name, expression in expressions.items()})
    publish(client, topic, properties(**message))
    got = {name: topics.counts(topic, name) for name in expressions}
    assert got == dict.fromkeys(expressions, (1, 0))


@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        (CorrelationRuleFilter(correlation_id="c1"), ["one"]),
        (CorrelationRuleFilter(label="urgent"), ["one", "two"]),
        (CorrelationRuleFilter(label="urgent", correlation_id="c2"), ["two"]),
        (CorrelationRuleFilter(label="Urgent"), []),
        (CorrelationRuleFilter(message_id="three"), ["three"]),
        (CorrelationRuleFilter(to="t"), ["three"]),
        (CorrelationRuleFilter(reply_to="r"), ["three"]),
        (CorrelationRuleFilter(reply_to_session_id="rs"), ["three"]),
        (CorrelationRuleFilter(content_type="text/x"), ["three"]),
        (CorrelationRuleFilter(session_id="s"), ["three"]),
        (CorrelationRuleFilter(properties={"color": "red"}), ["one"]),
        (CorrelationRuleFilter(properties={"COLOR": "red"}), ["one"]),
        (CorrelationRuleFilter(properties={"size": 3}), ["two"]),
        (CorrelationRuleFilter(label="urgent", properties={"size": 3}), ["two"]),
        (CorrelationRuleFilter(properties={"yes": True}), ["three"]),
        (CorrelationRuleFilter(properties={"half": 0.5}), ["three"]),
    ],
)
def test_correlation_filters_select_messages(client, topics, filter, expected):
    rest = {"to": "t", "reply_to": "r", "reply_to_session_id": "rs", "content_type": "text/x", "session_id": "s"}
    got = chosen(
        client,
        topics,
        filter,
        one=ServiceBusMessage("m", subject="urgent", correlation_id="c1", application_properties={"color": "red"}),
        two=ServiceBusMessage("m", subject="urgent", correlation_id="c2", application_properties={"size": 3}),
        three=ServiceBusMessage("m", application_properties={"yes": True, "half": 0.5}, **rest),
    )
    assert got == expected


def test_without_the_default_rule_no_message_arrives(client, topics):
    topic = topics.create("empty")
    topics.admin.delete_rule(topic, "empty", DEFAULT_RULE)
    publish(client, topic, "unseen")
    assert topics.counts(topic, "empty") == (0, 0)
    topics.admin.create_rule(topic, "empty", DEFAULT_RULE, filter=TrueRuleFilter())
    publish(client, topic, "seen")
    assert taken(client, topic, "empty", 1) == ["seen"]


def test_rules_can_change_between_messages(client, topics):
    topic = topics.filtered(only=SqlRuleFilter("color = 'red'"))
    red, blue = properties(color="red"), properties(color="blue")
    publish(client, topic, red, blue)
    rule = topics.admin.get_rule(topic, "only", "only")
    rule.filter = SqlRuleFilter("color = 'blue'")
    topics.admin.update_rule(topic, "only", rule)
    publish(client, topic, red, blue, blue)
    assert topics.counts(topic, "only") == (3, 0)


def test_rules_without_an_action_give_one_copy_in_total(client, topics):
    topic = topics.create("many")
    for number in range(3):
        topics.admin.create_rule(topic, "many", f"r{number}", filter=SqlRuleFilter("1=1"))
    publish(client, topic, "once")
    assert taken(client, topic, "many", 1) == ["once"]


def test_every_rule_with_an_action_gives_a_copy(client, topics):
    topic = topics.create("many")
    for name in ("a", "b"):
        action = SqlRuleAction(f"SET mark = '{name}'")
        topics.admin.create_rule(topic, "many", name, filter=SqlRuleFilter("1=1"), action=action)
    publish(client, topic, "m")
    got = take(client, topic, "many", 3)
    marks = sorted((message.application_properties or {}).get(b"mark", b"-") for message in got)
    assert marks == [b"-", b"a", b"b"]
    names = {(message.application_properties or {}).get(b"RuleName") for message in got}
    assert names == {None, b"a", b"b"}
    assert len({message.sequence_number for message in got}) == 3


def acted(client, topics, expression, message, **parameters):
    """Returns a subscription's copy after an action, and asserts that another subscription's copy is unchanged."""
    topic = topics.create("acts", "plain")
    action = SqlRuleAction(expression, parameters=parameters.get("parameters"))
    topics.replace_rules(topic, "acts", TrueRuleFilter(), action)
    publish(client, topic, message)
    [untouched] = take(client, topic, "plain", 1)
    assert untouched.application_properties == {b"color": b"red", b"size": 3}
    assert untouched.subject == "first"
    with client.get_subscription_receiver(topic, "acts") as receiver:
        [peeked] = receiver.peek_messages()
        copy = receive_one(receiver)
        assert (peeked.subject, peeked.application_properties) == (copy.subject, copy.application_properties)
        receiver.complete_message(copy)
    return copy


def subject_and_properties():
    return ServiceBusMessage("m", subject="first", application_properties={"color": "red", "size": 3})


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("SET color = 'blue'", {b"color": b"blue", b"size": 3}),
        ("SET size = size + 1", {b"color": b"red", b"size": 4}),
        ("SET fresh = TRUE", {b"color": b"red", b"size": 3, b"fresh": True}),
        ("REMOVE color", {b"size": 3}),
        ("REMOVE missing", {b"color": b"red", b"size": 3}),
        ("SET a = 1; SET b = a + 1; REMOVE a", {b"color": b"red", b"size": 3, b"b": 2}),
        ("SET both = color + '!'", {b"color": b"red", b"size": 3, b"both": b"red!"}),
    ],
)
def test_actions_change_properties(client, topics, expression, expected):
    copy = acted(client, topics, expression, subject_and_properties())
    assert copy.application_properties == expected | {b"RuleName": b"only"}


def test_actions_change_system_properties(client, topics):
    expression = (
        "SET sys.Label = 'second'; SET sys.To = 't'; SET sys.ReplyTo = 'r'; SET sys.CorrelationId = 'c'; "
        "SET sys.ContentType = 'x/y'; SET sys.ReplyToSessionId = 'rs'"
    )
    copy = acted(client, topics, expression, subject_and_properties())
    assert (copy.subject, copy.to, copy.reply_to) == ("second", "t", "r")
    assert (copy.correlation_id, copy.content_type, copy.reply_to_session_id) == ("c", "x/y", "rs")
    assert text(copy) == "m"


def test_an_action_can_have_parameters(client, topics):
    copy = acted(client, topics, "SET color = @new", subject_and_properties(), parameters={"@new": "green"})
    assert copy.application_properties[b"color"] == b"green"


def test_an_action_sets_the_session(client, topics):
    topic = topics.create(("acts", {"requires_session": True}))
    topics.replace_rules(topic, "acts", TrueRuleFilter(), SqlRuleAction("SET sys.SessionId = customer"))
    publish(client, topic, ServiceBusMessage("m", session_id="old", application_properties={"customer": "ann"}))
    with client.get_subscription_receiver(topic, "acts", session_id="ann") as receiver:
        assert receive_one(receiver).session_id == "ann"


FAILING = "size > 'three'"


def test_a_failing_filter_dead_letters_the_message(client, topics):
    topic = topics.filtered(fails=SqlRuleFilter(FAILING), works=TrueRuleFilter())
    publish(client, topic, properties(size=3))
    [dead] = take(client, topic, "fails", 1, **DEAD)
    assert dead.dead_letter_reason
    assert "only" in dead.dead_letter_error_description
    assert topics.counts(topic, "works") == (1, 0)


def test_a_failing_filter_can_be_set_to_not_match(client, topics):
    topic = topics.create(("quiet", {"dead_lettering_on_filter_evaluation_exceptions": False}))
    topics.replace_rules(topic, "quiet", SqlRuleFilter(FAILING))
    publish(client, topic, properties(size=3))
    assert topics.counts(topic, "quiet") == (0, 0)


def test_a_new_subscription_has_the_default_rule(topics):
    topic = topics.create("plain")
    [rule] = topics.admin.list_rules(topic, "plain")
    assert rule.name == DEFAULT_RULE
    assert isinstance(rule.filter, TrueRuleFilter)


def test_a_subscription_can_have_hundreds_of_correlation_filters(client, topics):
    topic = topics.create("one")
    topics.admin.delete_rule(topic, "one", DEFAULT_RULE)
    for number in range(300):
        topics.admin.create_rule(topic, "one", f"r{number}", filter=CorrelationRuleFilter(correlation_id=str(number)))
    publish(client, topic, *(ServiceBusMessage("m", correlation_id=str(n), message_id=str(n)) for n in (299, 300, 0)))
    assert [message.message_id for message in take(client, topic, "one", 2)] == ["299", "0"]
    assert len(list(topics.admin.list_rules(topic, "one"))) == 300
