//! Rules as XML.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use peeklock_broker::RuleInfo;
use peeklock_filter::{Action, CorrelationFilter, Filter, Given, Kind, Rule, RuleName, SqlFilter, Value};
use peeklock_spec::{iso8601, nearest};
use peeklock_types::EntityName;
use peeklock_web::xml::{Element, SCHEMA, Writer};
use uuid::Uuid;

use super::describe::{Context, Entry, show_date};
use super::path::AtomPath;
use super::property::{boolean, wrong};
use crate::problem::Problem;
use crate::request::shown;

/// The only supported version of the SQL filter language.
const COMPATIBILITY_LEVEL: &str = "20";
const PAIR: &str = "KeyValueOfstringanyType";
const TICKS_PER_SECOND: i64 = 10_000_000;

/// Parses a `RuleDescription`. `name` is the one in the address; the default rule of a new subscription has no address.
pub(super) fn read_rule(description: &Element, name: Option<&RuleName>) -> Result<Rule, Problem> {
    check_children(description, "a rule", &["Filter", "Action", "CreatedAt", "Name"])?;
    let written = description.child("Name").map(Element::trimmed).filter(|name| !name.is_empty());
    let written =
        written.map(RuleName::parse).transpose().map_err(|error| Problem::bad(error.to_string()))?;
    let name = match (name, written) {
        (Some(name), Some(written)) if *name != written => {
            let text =
                format!("the rule's Name is '{written}', but its address says '{name}'; make them the same");
            return Err(Problem::bad(text));
        }
        (Some(name), _) => name.clone(),
        (None, Some(written)) => written,
        (None, None) => RuleName::default_rule(),
    };
    let filter = description.child("Filter").filter(|filter| !filter.is_nil);
    let filter = filter.map_or(Ok(Filter::True), read_filter)?;
    let action = description.child("Action").filter(|action| !action.is_nil);
    let action = action.map_or(Ok(None), read_action)?;
    let rule = Rule { name, filter, action };
    rule.check()?;
    Ok(rule)
}

fn read_filter(element: &Element) -> Result<Filter, Problem> {
    // Without a type, the child elements determine it.
    let guess = if element.child("SqlExpression").is_some() { "SqlFilter" } else { "CorrelationFilter" };
    match element.kind.as_deref().unwrap_or(guess) {
        "TrueFilter" => Ok(Filter::True),
        "FalseFilter" => Ok(Filter::False),
        "SqlFilter" => {
            let (expression, parameters) = read_expression(element)?;
            Ok(Filter::Sql(SqlFilter { expression, parameters }))
        }
        "CorrelationFilter" => read_correlation(element).map(Filter::Correlation),
        other => Err(Problem::bad(format!(
            "the filter's type is '{}'; use SqlFilter, CorrelationFilter, TrueFilter or FalseFilter",
            shown(other)
        ))),
    }
}

fn read_action(element: &Element) -> Result<Option<Action>, Problem> {
    let guess = if element.child("SqlExpression").is_some() { "SqlRuleAction" } else { "EmptyRuleAction" };
    match element.kind.as_deref().unwrap_or(guess) {
        "EmptyRuleAction" => Ok(None),
        "SqlRuleAction" => {
            let (expression, parameters) = read_expression(element)?;
            Ok(Some(Action { expression, parameters }))
        }
        other => Err(Problem::bad(format!(
            "the action's type is '{}'; use SqlRuleAction or EmptyRuleAction",
            shown(other)
        ))),
    }
}

fn read_expression(element: &Element) -> Result<(String, Vec<(String, Given)>), Problem> {
    let known = ["SqlExpression", "CompatibilityLevel", "Parameters", "RequiresPreprocessing"];
    check_children(element, "a SQL expression", &known)?;
    if let Some(level) = element.child("CompatibilityLevel")
        && level.trimmed() != COMPATIBILITY_LEVEL
    {
        return Err(wrong(level, COMPATIBILITY_LEVEL));
    }
    if let Some(flag) = element.child("RequiresPreprocessing").filter(|flag| !flag.is_nil) {
        // This flag affects only how the service evaluates a filter, not the result.
        boolean(flag)?;
    }
    let expression = element.child("SqlExpression").map(|text| text.text.clone());
    let missing = || Problem::bad(format!("the {} has no SqlExpression", element.name));
    Ok((expression.ok_or_else(missing)?, read_pairs(element.child("Parameters"))?))
}

fn read_correlation(element: &Element) -> Result<CorrelationFilter, Problem> {
    let known = [
        "CorrelationId",
        "MessageId",
        "To",
        "ReplyTo",
        "Label",
        "SessionId",
        "ReplyToSessionId",
        "ContentType",
        "Properties",
    ];
    check_children(element, "a correlation filter", &known)?;
    let text = |name: &str| {
        let element = element.child(name).filter(|element| !element.is_nil)?;
        Some(element.text.clone())
    };
    Ok(CorrelationFilter {
        correlation_id: text("CorrelationId"),
        message_id: text("MessageId"),
        to: text("To"),
        reply_to: text("ReplyTo"),
        label: text("Label"),
        session_id: text("SessionId"),
        reply_to_session_id: text("ReplyToSessionId"),
        content_type: text("ContentType"),
        properties: read_pairs(element.child("Properties"))?,
    })
}

fn check_children(element: &Element, what: &str, known: &[&str]) -> Result<(), Problem> {
    for (at, child) in element.children.iter().enumerate() {
        if !known.contains(&child.name.as_str()) {
            let near = nearest(&child.name, known.iter().copied());
            let near = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
            return Err(Problem::bad(format!("{what} has no property '{}'{near}", shown(&child.name))));
        }
        if element.children.iter().take(at).any(|before| before.name == child.name) {
            return Err(Problem::bad(format!("{what} has the property {} twice", child.name)));
        }
    }
    Ok(())
}

fn read_pairs(element: Option<&Element>) -> Result<Vec<(String, Given)>, Problem> {
    let pairs = element.map(|element| element.children.as_slice()).unwrap_or_default();
    let read = |pair: &Element| {
        let (Some(key), Some(value), PAIR) = (pair.child("Key"), pair.child("Value"), pair.name.as_str())
        else {
            return Err(Problem::bad(format!("'{}' is not a {PAIR} with Key and Value", shown(&pair.name))));
        };
        Ok((key.text.clone(), read_value(value)?))
    };
    pairs.iter().map(read).collect()
}

fn read_value(element: &Element) -> Result<Given, Problem> {
    if element.is_nil {
        return Ok(Value::Null.into());
    }
    let text = element.trimmed();
    let kind = element.kind.as_deref().unwrap_or("string");
    if let Some((kind, what)) = exact_kind(kind, text) {
        return Given::parse(kind, text).ok_or_else(|| wrong(element, what));
    }
    let value = match kind {
        "string" => Value::text(element.text.as_str()),
        "double" => Value::Double(text.parse().map_err(|_| wrong(element, "a number"))?),
        "boolean" => Value::Bool(boolean(element)?),
        "duration" => {
            let wrong = || wrong(element, "an ISO 8601 duration such as PT1M");
            Value::Span(read_span(text).ok_or_else(wrong)?)
        }
        "guid" => Value::Uuid(read_guid(text).ok_or_else(|| wrong(element, "a GUID"))?),
        "base64Binary" => {
            let bytes = BASE64.decode(text).map_err(|_| wrong(element, "base64"))?;
            Value::Binary(Bytes::from(bytes))
        }
        other => {
            return Err(Problem::bad(format!(
                "the value's type is '{}'; use string, int, long, double, boolean, dateTime, duration, guid or base64Binary",
                shown(other)
            )));
        }
    };
    Ok(value.into())
}

/// Returns the type for the types of XML Schema whose values are stored with their type, and a description of such a
/// value for people.
fn exact_kind(name: &str, text: &str) -> Option<(Kind, &'static str)> {
    const WHOLE: &str = "a whole number in the range of its type";
    Some(match name {
        // Some programs declare every whole number as an int.
        "int" if text.parse::<i32>().is_err() => (Kind::Long, "a whole number of 64 bits"),
        "int" => (Kind::Int, WHOLE),
        "long" => (Kind::Long, "a whole number of 64 bits"),
        "short" => (Kind::Short, WHOLE),
        "byte" => (Kind::Byte, WHOLE),
        "unsignedInt" => (Kind::Uint, WHOLE),
        "unsignedShort" => (Kind::Ushort, WHOLE),
        "unsignedByte" => (Kind::Ubyte, WHOLE),
        "unsignedLong" => (Kind::Ulong, WHOLE),
        "float" => (Kind::Float, "a number"),
        "decimal" => (Kind::Decimal, "a number"),
        "char" => (Kind::Char, "one character"),
        // SDK quirk: Python omits the zone of a time that has none.
        "dateTime" => (Kind::Time, "a time such as 2026-01-31T18:00:00Z"),
        _ => return None,
    })
}

fn read_span(text: &str) -> Option<i64> {
    let (text, sign) = text.strip_prefix('-').map_or((text, 1), |text| (text, -1));
    let span = iso8601::parse(text).ok()?;
    let seconds = i64::try_from(span.as_secs()).ok()?;
    let ticks = seconds.checked_mul(TICKS_PER_SECOND)?.checked_add(i64::from(span.subsec_nanos() / 100))?;
    ticks.checked_mul(sign)
}

fn read_guid(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.chars().filter(|char| *char != '-').collect();
    Uuid::try_parse(&digits).ok().map(Uuid::into_bytes)
}

pub(super) fn write_rule(
    writer: &mut Writer,
    context: &Context<'_>,
    is_root: bool,
    subscription: &EntityName,
    info: &RuleInfo,
) {
    let rule = &info.rule;
    let path = AtomPath::Rule { subscription: subscription.clone(), name: rule.name.clone() };
    let (created_at, title) = (info.created_at, rule.name.as_str());
    let entry = Entry { path: &path, title, created_at, updated_at: created_at };
    entry.write(writer, context, is_root, "RuleDescription", |writer| {
        write_filter(writer, &rule.filter);
        write_action(writer, rule.action.as_ref());
        writer.text("CreatedAt", &show_date(created_at));
        writer.text("Name", rule.name.as_str());
    });
}

fn write_filter(writer: &mut Writer, filter: &Filter) {
    let begin = |writer: &mut Writer, kind| writer.begin("Filter", &[("i:type", kind)]);
    match filter {
        Filter::True => {
            begin(writer, "TrueFilter");
            write_expression(writer, "1=1", &[]);
        }
        Filter::False => {
            begin(writer, "FalseFilter");
            write_expression(writer, "1=0", &[]);
        }
        Filter::Sql(filter) => {
            begin(writer, "SqlFilter");
            write_expression(writer, &filter.expression, &filter.parameters);
        }
        Filter::Correlation(filter) => {
            begin(writer, "CorrelationFilter");
            write_correlation(writer, filter);
        }
    }
    writer.end();
}

/// Writes the action of a rule. SDK quirk: JavaScript reads the action of every rule, so a rule without an action gets
/// an empty one.
fn write_action(writer: &mut Writer, action: Option<&Action>) {
    let Some(action) = action else {
        return writer.empty("Action", &[("i:type", "EmptyRuleAction")]);
    };
    writer.begin("Action", &[("i:type", "SqlRuleAction")]);
    write_expression(writer, &action.expression, &action.parameters);
    writer.end();
}

fn write_expression(writer: &mut Writer, expression: &str, parameters: &[(String, Given)]) {
    writer.text("SqlExpression", expression);
    writer.text("CompatibilityLevel", COMPATIBILITY_LEVEL);
    write_pairs(writer, "Parameters", parameters);
}

fn write_correlation(writer: &mut Writer, filter: &CorrelationFilter) {
    writer.optional("CorrelationId", filter.correlation_id.as_deref());
    writer.optional("MessageId", filter.message_id.as_deref());
    writer.optional("To", filter.to.as_deref());
    writer.optional("ReplyTo", filter.reply_to.as_deref());
    writer.optional("Label", filter.label.as_deref());
    writer.optional("SessionId", filter.session_id.as_deref());
    writer.optional("ReplyToSessionId", filter.reply_to_session_id.as_deref());
    writer.optional("ContentType", filter.content_type.as_deref());
    write_pairs(writer, "Properties", &filter.properties);
}

/// Writes a table of pairs. SDK quirk: JavaScript cannot read an empty table, so it is omitted.
fn write_pairs(writer: &mut Writer, name: &'static str, pairs: &[(String, Given)]) {
    if pairs.is_empty() {
        return;
    }
    writer.begin(name, &[]);
    for (key, value) in pairs {
        writer.begin(PAIR, &[]);
        writer.text("Key", key);
        write_value(writer, value);
        writer.end();
    }
    writer.end();
}

/// Writes a value with its type. SDK quirk: JavaScript removes four letters and a colon from the type.
fn write_value(writer: &mut Writer, given: &Given) {
    let (kind, text) = match shown_type(given) {
        Some(kind) => (kind, given.exact().map(|(_, text)| text.to_owned()).unwrap_or_default()),
        None => match given.value() {
            Value::Null => return writer.empty("Value", &[("i:nil", "true")]),
            Value::Bool(value) => ("d6p1:boolean", value.to_string()),
            Value::Long(value) if i32::try_from(*value).is_ok() => ("d6p1:int", value.to_string()),
            Value::Long(value) => ("d6p1:long", value.to_string()),
            Value::Double(value) => ("d6p1:double", value.to_string()),
            Value::Text(text) => ("d6p1:string", text.to_string()),
            Value::Binary(bytes) => ("d6p1:base64Binary", BASE64.encode(bytes)),
            Value::Uuid(bytes) => ("d6p1:guid", show_guid(bytes)),
            value @ Value::Time(_) => ("d6p1:dateTime", value.to_string()),
            value @ Value::Span(_) => ("d6p1:duration", value.to_string()),
        },
    };
    let types = if matches!(given.value(), Value::Uuid(_)) { SERIALIZATION } else { SCHEMA };
    writer.text_with("Value", &[("i:type", kind), ("xmlns:d6p1", types)], &text);
}

/// Returns the type of a value that is written with its original text.
///
/// SDK quirk: over ATOM, the SDKs write and read only the types string, int, long, double, boolean, dateTime and
/// duration, and JavaScript throws on others. The small numbers of AMQP are therefore written as the number that is
/// compared, in one of these seven types.
fn shown_type(given: &Given) -> Option<&'static str> {
    match given.exact()?.0 {
        Kind::Int => Some("d6p1:int"),
        Kind::Long => Some("d6p1:long"),
        Kind::Float | Kind::Decimal => Some("d6p1:double"),
        Kind::Time => Some("d6p1:dateTime"),
        Kind::Byte | Kind::Ubyte | Kind::Short | Kind::Ushort | Kind::Uint | Kind::Ulong | Kind::Char => None,
    }
}

/// The XML namespace of the .NET types that XML Schema lacks.
const SERIALIZATION: &str = "http://schemas.microsoft.com/2003/10/Serialization/";

fn show_guid(bytes: &[u8; 16]) -> String {
    peeklock_types::LockToken::from_bytes(*bytes).to_string()
}
