//! The AMQP encoding of subscription rules.

use peeklock_amqp::Value;
use peeklock_broker::RuleInfo;
use peeklock_filter::{Action, CorrelationFilter, Filter, Given, Rule, RuleName, SqlFilter};
use peeklock_message::{from_given, timestamp, to_given};
use peeklock_types::limits;

use super::answer::{Described, map, ok};
use super::body::{Body, missing};
use super::operation::Operation;
use crate::error::Refusal;

// SDK quirk: JavaScript identifies these by their numeric codes only.
const RULE: u64 = 0x0000_0137_0000_0004;
const NO_ACTION: u64 = 0x0000_0137_0000_0005;
const SQL_ACTION: u64 = 0x0000_0137_0000_0006;
const SQL_FILTER: u64 = 0x0000_0013_7000_0006;
const TRUE_FILTER: u64 = 0x0000_0013_7000_0007;
const FALSE_FILTER: u64 = 0x0000_0013_7000_0008;
const CORRELATION_FILTER: u64 = 0x0000_0013_7000_0009;

/// The version of the filter language, which Service Bus returns with each expression.
const COMPATIBILITY_LEVEL: i32 = 20;

const FILTERS: &str = "a map with either a sql-filter or a correlation-filter";

/// Decodes the rule that a request adds.
pub(super) fn parse(body: Body<'_>) -> Result<Rule, Refusal> {
    let description = body.value("rule-description").filter(|value| value.as_map().is_some());
    let description = Body(description.ok_or_else(|| missing("rule-description", FILTERS))?);
    let filter = match (description.value("sql-filter"), description.value("correlation-filter")) {
        (Some(filter), None) => {
            let expression = Body(filter).text("expression")?;
            let expression = expression.ok_or_else(|| missing("sql-filter", "a map with an expression"))?;
            Filter::Sql(SqlFilter { expression, parameters: Vec::new() })
        }
        (None, Some(filter)) => Filter::Correlation(correlation(Body(filter))?),
        _ => return Err(missing("rule-description", FILTERS)),
    };
    // SDK quirk: Rust sends an empty map when there is no action.
    let action = description.value("sql-rule-action").map(|action| Body(action).text("expression"));
    let action = action.transpose()?.flatten().filter(|expression| !expression.is_empty());
    let action = action.map(|expression| Action { expression, parameters: Vec::new() });
    let rule = Rule { name: parse_name(body)?, filter, action };
    rule.check().map_err(|error| Refusal::bad_request(error.to_string()))?;
    Ok(rule)
}

pub(super) fn parse_name(body: Body<'_>) -> Result<RuleName, Refusal> {
    let name = body.text("rule-name")?.ok_or_else(|| missing("rule-name", "a text"))?;
    RuleName::parse(&name).map_err(|error| Refusal::bad_request(error.to_string()))
}

fn correlation(body: Body<'_>) -> Result<CorrelationFilter, Refusal> {
    Ok(CorrelationFilter {
        correlation_id: body.text("correlation-id")?,
        message_id: body.text("message-id")?,
        to: body.text("to")?,
        reply_to: body.text("reply-to")?,
        label: body.text("label")?,
        session_id: body.text("session-id")?,
        reply_to_session_id: body.text("reply-to-session-id")?,
        content_type: body.text("content-type")?,
        properties: correlation_properties(body)?,
    })
}

fn correlation_properties(body: Body<'_>) -> Result<Vec<(String, Given)>, Refusal> {
    let Some(properties) = body.value("properties") else { return Ok(Vec::new()) };
    let wrong = || missing("properties", "a map from texts to simple values");
    let property = |(key, value): &(Value, Value)| Some((key.as_str()?.to_owned(), to_given(value)?));
    properties.as_map().ok_or_else(wrong)?.iter().map(|entry| property(entry).ok_or_else(wrong)).collect()
}

pub(super) fn list(body: Body<'_>) -> Result<Operation, Refusal> {
    let count =
        |key| Ok::<_, Refusal>(body.count(key)?.map(|count| usize::try_from(count).unwrap_or(usize::MAX)));
    let top = count("top")?.unwrap_or(limits::BATCH_COUNT_MAX).min(limits::BATCH_COUNT_MAX);
    if top == 0 {
        return Err(Refusal::bad_request("'top' must be above zero"));
    }
    Ok(Operation::ListRules { skip: count("skip")?.unwrap_or(0), top })
}

pub(super) fn describe(rules: &[RuleInfo]) -> Described {
    let rules: Vec<_> =
        rules.iter().map(|rule| map(vec![("rule-description", describe_rule(rule))])).collect();
    if rules.is_empty() {
        return (204, "No rules", map(vec![("rules", Value::List(Vec::new()))]));
    }
    ok(vec![("rules", Value::List(rules))])
}

fn describe_rule(found: &RuleInfo) -> Value {
    let rule = &found.rule;
    // SDK quirk: JavaScript requires an action in every rule.
    let action = match &rule.action {
        Some(action) => expression(SQL_ACTION, &action.expression),
        None => described(NO_ACTION, Vec::new()),
    };
    let created_at = Value::Timestamp(timestamp(found.created_at));
    described(
        RULE,
        vec![describe_filter(&rule.filter), action, Value::from(rule.name.to_string()), created_at],
    )
}

fn describe_filter(filter: &Filter) -> Value {
    match filter {
        Filter::True => described(TRUE_FILTER, Vec::new()),
        Filter::False => described(FALSE_FILTER, Vec::new()),
        Filter::Sql(filter) => expression(SQL_FILTER, &filter.expression),
        Filter::Correlation(filter) => describe_correlation(filter),
    }
}

fn describe_correlation(filter: &CorrelationFilter) -> Value {
    let fields = [
        &filter.correlation_id,
        &filter.message_id,
        &filter.to,
        &filter.reply_to,
        &filter.label,
        &filter.session_id,
        &filter.reply_to_session_id,
        &filter.content_type,
    ];
    let text = |text: &Option<String>| text.clone().map_or(Value::Null, Value::from);
    let mut fields: Vec<_> = fields.into_iter().map(text).collect();
    let properties = filter.properties.iter();
    let property = |(name, value): &(String, _)| (Value::from(name.clone()), from_given(value));
    fields.push(Value::Map(properties.map(property).collect()));
    described(CORRELATION_FILTER, fields)
}

fn expression(code: u64, expression: &str) -> Value {
    described(code, vec![Value::from(expression.to_owned()), Value::Int(COMPATIBILITY_LEVEL)])
}

fn described(code: u64, fields: Vec<Value>) -> Value {
    Value::described(Value::Ulong(code), Value::List(fields))
}
