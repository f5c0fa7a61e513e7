"""Rules in the SDK's administration client."""

import datetime

import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.servicebus.management import (
    CorrelationRuleFilter,
    FalseRuleFilter,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)

from names import fresh
from topics import DEFAULT_RULE


@pytest.fixture
def place(admin):
    topic = fresh("topic")
    admin.create_topic(topic)
    admin.create_subscription(topic, "one")
    return topic, "one"


def test_a_sql_filter_keeps_its_action_and_parameters(admin, place):
    when = datetime.datetime(2026, 1, 2, 3, 4, 5)
    zoned = when.replace(tzinfo=datetime.timezone.utc)
    parameters = {"@text": "x & <y>", "@whole": 7, "@part": 2.5, "@yes": True, "@when": when, "@zoned": zoned}
    filter = SqlRuleFilter("color = @text AND size > @whole", parameters=parameters)
    action = SqlRuleAction("SET color = @new", parameters={"@new": "blue"})
    created = admin.create_rule(*place, "rule", filter=filter, action=action)
    for got in (created, admin.get_rule(*place, "rule")):
        assert got.name == "rule"
        assert got.filter.sql_expression == filter.sql_expression
        assert got.filter.parameters == parameters, "a parameter changed, or a time lost its zone"
        assert (got.action.sql_expression, got.action.parameters) == ("SET color = @new", {"@new": "blue"})
        assert got.created_at_utc is not None


def test_a_correlation_filter_keeps_every_field(admin, place):
    fields = {
        "correlation_id": "c",
        "message_id": "m",
        "to": "t",
        "reply_to": "r",
        "label": "l",
        "session_id": "s",
        "reply_to_session_id": "rs",
        "content_type": "x/y",
    }
    properties = {"text": "x", "whole": 7, "part": 2.5, "yes": True}
    admin.create_rule(*place, "rule", filter=CorrelationRuleFilter(properties=properties, **fields))
    got = admin.get_rule(*place, "rule").filter
    assert isinstance(got, CorrelationRuleFilter)
    assert {name: getattr(got, name) for name in fields} == fields
    assert got.properties == properties


def test_a_correlation_filter_can_have_one_field(admin, place):
    admin.create_rule(*place, "rule", filter=CorrelationRuleFilter(label="l"))
    got = admin.get_rule(*place, "rule").filter
    assert (got.label, got.correlation_id, dict(got.properties or {})) == ("l", None, {})


def test_true_and_false_filters_keep_their_kind(admin, place):
    admin.create_rule(*place, "yes", filter=TrueRuleFilter())
    admin.create_rule(*place, "no", filter=FalseRuleFilter())
    assert isinstance(admin.get_rule(*place, "yes").filter, TrueRuleFilter)
    assert isinstance(admin.get_rule(*place, "no").filter, FalseRuleFilter)
    assert admin.get_rule(*place, "yes").action is None


def test_a_rule_can_be_updated(admin, place):
    admin.create_rule(*place, "rule", filter=SqlRuleFilter("a = 1"))
    rule = admin.get_rule(*place, "rule")
    rule.filter = CorrelationRuleFilter(label="l")
    rule.action = SqlRuleAction("REMOVE a")
    admin.update_rule(*place, rule)
    got = admin.get_rule(*place, "rule")
    assert (got.filter.label, got.action.sql_expression) == ("l", "REMOVE a")
    assert len(list(admin.list_rules(*place))) == 2


def test_rules_are_listed_and_deleted(admin, place):
    for name in ("a", "b"):
        admin.create_rule(*place, name, filter=SqlRuleFilter(f"x = '{name}'"))
    rules = {rule.name: rule.filter.sql_expression for rule in admin.list_rules(*place)}
    assert rules == {DEFAULT_RULE: "1=1", "a": "x = 'a'", "b": "x = 'b'"}
    admin.delete_rule(*place, DEFAULT_RULE)
    admin.delete_rule(*place, "A")
    assert [rule.name for rule in admin.list_rules(*place)] == ["b"]


def test_existing_and_missing_rules_are_errors(admin, place):
    admin.create_rule(*place, "rule", filter=TrueRuleFilter())
    with pytest.raises(ResourceExistsError):
        admin.create_rule(*place, "RULE", filter=TrueRuleFilter())
    rule = admin.get_rule(*place, "rule")
    admin.delete_rule(*place, "rule")
    with pytest.raises(ResourceNotFoundError):
        admin.get_rule(*place, "rule")
    with pytest.raises(ResourceNotFoundError):
        admin.delete_rule(*place, "rule")
    with pytest.raises(ResourceNotFoundError):
        admin.update_rule(*place, rule)
    with pytest.raises(ResourceNotFoundError):
        admin.create_rule(place[0], "no-such-subscription", "rule", filter=TrueRuleFilter())


@pytest.mark.parametrize(
    ("filter", "action", "named"),
    [
        (SqlRuleFilter("color = "), None, "column 9"),
        (SqlRuleFilter("color == 'red'"), None, "column 8"),
        (SqlRuleFilter("sys.Nothing = 1"), None, "(?i)nothing"),
        (SqlRuleFilter("a = @missing"), None, "(?i)missing"),
        (SqlRuleFilter("a = 'x" + "x" * 1024 + "'"), None, "1024"),
        (SqlRuleFilter("(" * 500 + "a" + ")" * 500), None, "(?i)deep|depth|nest|1024"),
        (CorrelationRuleFilter(), None, "(?i)correlation|empty|condition"),
        (TrueRuleFilter(), SqlRuleAction("SET = 3"), "column 5"),
        (TrueRuleFilter(), SqlRuleAction("REMOVE sys.Label"), "(?i)label|system"),
        (TrueRuleFilter(), SqlRuleAction("; ".join(["SET a = 1"] * 33)), "32"),
    ],
    ids=lambda value: getattr(value, "sql_expression", None),
)
def test_an_invalid_rule_is_rejected(admin, place, filter, action, named):
    with pytest.raises(HttpResponseError, match=named) as refusal:
        admin.create_rule(*place, "rule", filter=filter, action=action)
    assert refusal.value.status_code == 400
    assert [rule.name for rule in admin.list_rules(*place)] == [DEFAULT_RULE]


@pytest.mark.parametrize("name", ["x" * 51, "with space"])
def test_an_invalid_name_is_rejected(admin, place, name):
    with pytest.raises(HttpResponseError) as refusal:
        admin.create_rule(*place, name, filter=TrueRuleFilter())
    assert refusal.value.status_code == 400
