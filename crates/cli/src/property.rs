//! A message property on the command line.

use anyhow::{Context, Result, bail};
use peeklock::low_level::{PropertyValue, Value};
use peeklock_filter::Value as FilterValue;

/// A property in the form `KEY=TEXT`, or `KEY:=VALUE` for other types. Filters distinguish a number from a text with the same digits.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Property {
    pub(crate) key: String,
    pub(crate) value: PropertyValue,
}

impl Property {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let Some((key, value)) = text.split_once('=') else {
            bail!("'{text}' is not a property; write KEY=TEXT, or KEY:=5 and KEY:=true for what is no text");
        };
        let (key, value) = match key.strip_suffix(':') {
            Some(key) => (key, parse_value(value)?),
            None => (key, PropertyValue(FilterValue::text(value))),
        };
        if key.is_empty() {
            bail!("'{text}' is not a property; it has no name before the '='");
        }
        Ok(Property { key: key.to_owned(), value })
    }
}

fn parse_value(text: &str) -> Result<PropertyValue> {
    serde_json::from_str(text).with_context(|| {
        format!(
            "'{text}' is no number, true, false or {{\"type\": \"uuid\", \"value\": \"…\"}}; a text is written KEY=TEXT, without the ':'"
        )
    })
}

/// Converts a value to AMQP.
pub(crate) fn amqp_value(value: &PropertyValue) -> Value {
    match &value.0 {
        FilterValue::Null => Value::Null,
        FilterValue::Bool(value) => (*value).into(),
        FilterValue::Long(value) => (*value).into(),
        FilterValue::Double(value) => Value::Double(*value),
        FilterValue::Text(text) => text.to_string().into(),
        FilterValue::Binary(bytes) => Value::Binary(bytes.clone()),
        FilterValue::Uuid(bytes) => Value::Uuid(*bytes),
        FilterValue::Time(millis) => Value::Timestamp(*millis),
        // AMQP has no type for durations.
        FilterValue::Span(ticks) => (*ticks).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (String, FilterValue) {
        let property = Property::parse(text).unwrap();
        (property.key, property.value.0)
    }

    #[test]
    fn a_property_is_a_text_by_default() {
        assert_eq!(parsed("a=b=c"), ("a".to_owned(), FilterValue::text("b=c")));
        assert_eq!(parsed("a=5"), ("a".to_owned(), FilterValue::text("5")));
        assert_eq!(parsed("a:=5"), ("a".to_owned(), FilterValue::Long(5)));
        assert_eq!(parsed("a:=-1.5"), ("a".to_owned(), FilterValue::Double(-1.5)));
        assert_eq!(parsed("a:=true"), ("a".to_owned(), FilterValue::Bool(true)));
        assert_eq!(parsed("a="), ("a".to_owned(), FilterValue::text("")));
        let span = parsed("a:={\"type\":\"span\",\"value\":\"PT1S\"}");
        assert_eq!(span, ("a".to_owned(), FilterValue::Span(10_000_000)));
    }

    #[test]
    fn invalid_properties_are_rejected() {
        for wrong in ["", "a", "=b", ":=5", "a:=", "a:=five", "a:=[1]", "a:={}"] {
            assert!(Property::parse(wrong).is_err(), "{wrong}");
        }
    }
}
