//! Conversion of property values between AMQP and the filters of topics.

use std::borrow::Cow;

use peeklock_amqp::{MessageIdRef, RawValue, Value, parse_decimal, show_decimal};
use peeklock_filter::{self as filter, Given, Kind, ValueRef};

/// SDK quirk: .NET has types that AMQP lacks, and sends them as described types with names of its own.
const TIMESPAN: &str = "com.microsoft:timespan";
const DATETIME_OFFSET: &str = "com.microsoft:datetime-offset";

/// .NET counts ticks of 100 ns from the year 1.
const TICKS_PER_MS: i64 = 10_000;
const EPOCH_TICKS: i64 = 621_355_968_000_000_000;

/// Returns the value that a filter evaluates. Text and bytes are borrowed.
pub(crate) fn seen<'a>(raw: &RawValue<'a>) -> Result<ValueRef<'a>, peeklock_amqp::DecodeError> {
    if let Some(text) = raw.as_str() {
        return Ok(ValueRef::Text(Cow::Borrowed(text)));
    }
    if let Some(bytes) = raw.as_binary() {
        return Ok(ValueRef::Binary(bytes));
    }
    Ok(match to_filter(&raw.decode()?) {
        Some(filter::Value::Text(text)) => ValueRef::Text(Cow::Owned(text.to_string())),
        Some(value) => copied(&value).unwrap_or(ValueRef::Binary(raw.as_encoded())),
        // Lists and maps exist for a filter, but are equal to no value.
        None => ValueRef::Binary(raw.as_encoded()),
    })
}

/// Returns a value without borrowed content, or `None` if the value has content to borrow.
fn copied<'a>(value: &filter::Value) -> Option<ValueRef<'a>> {
    Some(match value {
        filter::Value::Null => ValueRef::Null,
        filter::Value::Bool(value) => ValueRef::Bool(*value),
        filter::Value::Long(number) => ValueRef::Long(*number),
        filter::Value::Double(number) => ValueRef::Double(*number),
        filter::Value::Uuid(uuid) => ValueRef::Uuid(*uuid),
        filter::Value::Time(time) => ValueRef::Time(*time),
        filter::Value::Span(span) => ValueRef::Span(*span),
        filter::Value::Text(_) | filter::Value::Binary(_) => return None,
    })
}

/// Converts a value for filters. Returns `None` for a value that filters cannot represent.
pub(crate) fn to_filter(value: &Value) -> Option<filter::Value> {
    Some(match value {
        Value::Null => filter::Value::Null,
        Value::Boolean(value) => filter::Value::Bool(*value),
        Value::Ubyte(_)
        | Value::Ushort(_)
        | Value::Uint(_)
        | Value::Byte(_)
        | Value::Short(_)
        | Value::Int(_)
        | Value::Long(_) => filter::Value::Long(value.as_i64()?),
        // A number above the largest signed one becomes the nearest number that a filter can represent.
        Value::Ulong(number) => {
            i64::try_from(*number).map_or(filter::Value::Double(*number as f64), filter::Value::Long)
        }
        Value::Float(number) => filter::Value::Double((*number).into()),
        Value::Double(number) => filter::Value::Double(*number),
        Value::Char(letter) => filter::Value::text(letter.to_string()),
        Value::String(text) => filter::Value::text(text.as_str()),
        Value::Symbol(symbol) => filter::Value::text(symbol.as_str()),
        Value::Timestamp(time) => filter::Value::Time(*time),
        Value::Uuid(uuid) => filter::Value::Uuid(*uuid),
        Value::Binary(bytes) => filter::Value::Binary(bytes.clone()),
        Value::Described(described) => match (described.descriptor.as_str(), described.value.as_i64()) {
            (Some(TIMESPAN), Some(ticks)) => filter::Value::Span(ticks),
            (Some(DATETIME_OFFSET), Some(ticks)) => {
                filter::Value::Time(ticks.saturating_sub(EPOCH_TICKS).div_euclid(TICKS_PER_MS))
            }
            // For a described type of a peer, the described value is used. Only one level of description is resolved.
            _ if matches!(described.value, Value::Described(_)) => return None,
            _ => return to_filter(&described.value),
        },
        Value::Decimal32(_) | Value::Decimal64(_) | Value::Decimal128(_) => {
            filter::Value::Double(show_decimal(value)?.parse().ok()?)
        }
        Value::List(_) | Value::Map(_) | Value::Array(_) => return None,
    })
}

/// Converts a value for a rule and keeps its AMQP type. Returns `None` for a value that rules cannot contain.
pub fn to_given(value: &Value) -> Option<Given> {
    let (kind, text) = match value {
        Value::Byte(number) => (Kind::Byte, number.to_string()),
        Value::Ubyte(number) => (Kind::Ubyte, number.to_string()),
        Value::Short(number) => (Kind::Short, number.to_string()),
        Value::Ushort(number) => (Kind::Ushort, number.to_string()),
        Value::Int(number) => (Kind::Int, number.to_string()),
        Value::Uint(number) => (Kind::Uint, number.to_string()),
        Value::Long(number) => (Kind::Long, number.to_string()),
        Value::Ulong(number) => (Kind::Ulong, number.to_string()),
        Value::Float(number) => (Kind::Float, number.to_string()),
        Value::Decimal32(_) | Value::Decimal64(_) | Value::Decimal128(_) => {
            (Kind::Decimal, show_decimal(value)?)
        }
        Value::Char(letter) => (Kind::Char, letter.to_string()),
        other => return to_filter(other).map(Given::from),
    };
    Given::parse(kind, &text)
}

/// Converts a value of a rule to the AMQP type in which it was given.
pub fn from_given(given: &Given) -> Value {
    let exact = given.exact().and_then(|(kind, text)| {
        Some(match kind {
            Kind::Byte => Value::Byte(text.parse().ok()?),
            Kind::Ubyte => Value::Ubyte(text.parse().ok()?),
            Kind::Short => Value::Short(text.parse().ok()?),
            Kind::Ushort => Value::Ushort(text.parse().ok()?),
            Kind::Int => Value::Int(text.parse().ok()?),
            Kind::Uint => Value::Uint(text.parse().ok()?),
            Kind::Long => Value::Long(text.parse().ok()?),
            Kind::Ulong => Value::Ulong(text.parse().ok()?),
            Kind::Float => Value::Float(text.parse().ok()?),
            Kind::Decimal => parse_decimal(text)?,
            Kind::Char => Value::Char(text.chars().next()?),
            // An AMQP timestamp is no more precise than the compared time.
            Kind::Time => return None,
        })
    });
    exact.unwrap_or_else(|| from_filter(given.value()))
}

/// Converts the result of an action to a value of a message.
pub(crate) fn from_filter(value: &filter::Value) -> Value {
    match value {
        filter::Value::Null => Value::Null,
        filter::Value::Bool(value) => Value::Boolean(*value),
        filter::Value::Long(number) => Value::Long(*number),
        filter::Value::Double(number) => Value::Double(*number),
        filter::Value::Text(text) => Value::from(text.to_string()),
        filter::Value::Binary(bytes) => Value::Binary(bytes.clone()),
        filter::Value::Uuid(uuid) => Value::Uuid(*uuid),
        filter::Value::Time(time) => Value::Timestamp(*time),
        filter::Value::Span(ticks) => Value::described(Value::symbol(TIMESPAN), Value::Long(*ticks)),
    }
}

/// Converts a number to the type of the previous value if it fits, so that a receiver that expects an int still finds
/// one.
pub(crate) fn in_type_of(before: &Value, value: Value) -> Value {
    let Value::Long(number) = value else { return value };
    let same = match before {
        Value::Ubyte(_) => u8::try_from(number).ok().map(Value::Ubyte),
        Value::Ushort(_) => u16::try_from(number).ok().map(Value::Ushort),
        Value::Uint(_) => u32::try_from(number).ok().map(Value::Uint),
        Value::Ulong(_) => u64::try_from(number).ok().map(Value::Ulong),
        Value::Byte(_) => i8::try_from(number).ok().map(Value::Byte),
        Value::Short(_) => i16::try_from(number).ok().map(Value::Short),
        Value::Int(_) => i32::try_from(number).ok().map(Value::Int),
        _ => None,
    };
    same.unwrap_or(Value::Long(number))
}

/// Returns an identifier as text, which is its form in filters.
pub(crate) fn id_text(id: MessageIdRef<'_>) -> Cow<'_, str> {
    match id {
        MessageIdRef::String(text) => Cow::Borrowed(text),
        MessageIdRef::Ulong(number) => Cow::Owned(number.to_string()),
        MessageIdRef::Uuid(uuid) => Cow::Owned(filter::Value::Uuid(uuid).to_string()),
        MessageIdRef::Binary(bytes) => Cow::Owned(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_evaluates_times_and_spans_of_net() {
        let described = |name, ticks| Value::described(Value::symbol(name), Value::Long(ticks));
        assert_eq!(to_filter(&described(TIMESPAN, 7)), Some(filter::Value::Span(7)));
        let time = described(DATETIME_OFFSET, EPOCH_TICKS + 5 * TICKS_PER_MS);
        assert_eq!(to_filter(&time), Some(filter::Value::Time(5)));
        let uri = Value::described(Value::symbol("com.microsoft:uri"), Value::from("http://x"));
        assert_eq!(to_filter(&uri), Some(filter::Value::text("http://x")));
        let deep = Value::described(Value::Ulong(1), uri);
        assert_eq!(to_filter(&deep), None);
    }

    #[test]
    fn numbers_of_every_size_are_numbers_in_a_filter() {
        for value in [Value::Ubyte(7), Value::Short(7), Value::Uint(7), Value::Ulong(7), Value::Long(7)] {
            assert_eq!(to_filter(&value), Some(filter::Value::Long(7)), "{value:?}");
        }
        assert_eq!(to_filter(&Value::Ulong(u64::MAX)), Some(filter::Value::Double(u64::MAX as f64)));
        assert_eq!(to_filter(&Value::List(vec![])), None);
    }

    #[test]
    fn a_number_keeps_its_type_where_it_fits() {
        assert_eq!(in_type_of(&Value::Int(1), Value::Long(2)), Value::Int(2));
        assert_eq!(in_type_of(&Value::Ubyte(1), Value::Long(300)), Value::Long(300));
        assert_eq!(in_type_of(&Value::Int(1), Value::from("text")), Value::from("text"));
        assert_eq!(in_type_of(&Value::from("text"), Value::Long(2)), Value::Long(2));
    }

    #[test]
    fn a_value_that_an_action_sets_has_the_same_value_in_a_filter() {
        let values = [
            filter::Value::Null,
            filter::Value::Bool(true),
            filter::Value::Long(-1),
            filter::Value::Double(0.5),
            filter::Value::text("x"),
            filter::Value::Binary("x".into()),
            filter::Value::Uuid([7; 16]),
            filter::Value::Time(5),
            filter::Value::Span(9),
        ];
        for value in values {
            assert_eq!(to_filter(&from_filter(&value)), Some(value));
        }
    }
}
