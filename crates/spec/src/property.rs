//! Values of message properties in documents: text, numbers and booleans as they are, other types as `{"type": "uuid", "value": "…"}`.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use peeklock_filter::{Given, Kind, Value};
use peeklock_types::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use uuid::Uuid;
use uuid::fmt::Hyphenated;

use crate::{iso8601, text, time};

/// A value: binary in base64, a time in RFC 3339, a span as a duration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PropertyValue(pub Value);

/// A value in a rule. It has more types than a property, so that a rule from AMQP or ATOM keeps its types in documents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleValue(pub Given);

const TYPES: [&str; 8] = ["boolean", "long", "double", "text", "binary", "uuid", "time", "span"];
const TICKS_PER_SECOND: u64 = 10_000_000;

impl PropertyValue {
    /// Parses a value of a type.
    pub fn parse(kind: &str, text: &str) -> Result<Self, String> {
        let wrong = |what: &str| format!("'{}' is not {what}", text::excerpt(text));
        Ok(PropertyValue(match kind {
            "boolean" => Value::Bool(text.parse().map_err(|_| wrong("true or false"))?),
            "long" => Value::Long(text.parse().map_err(|_| wrong("a whole number of 64 bits"))?),
            "double" => Value::Double(text.parse().map_err(|_| wrong("a number"))?),
            "text" => Value::text(text),
            "binary" => Value::Binary(BASE64.decode(text).map_err(|_| wrong("base64"))?.into()),
            "uuid" => Value::Uuid(parse_uuid(text).ok_or_else(|| wrong("a UUID"))?),
            "time" => {
                let at = time::parse_time(text).map_err(|error| error.to_string())?;
                Value::Time(i64::try_from(at.as_millis()).unwrap_or(i64::MAX))
            }
            "span" => {
                let span = text::parse_duration(text).map_err(|error| error.to_string())?;
                let ticks = u128::from(span.as_secs()) * u128::from(TICKS_PER_SECOND)
                    + u128::from(span.subsec_nanos() / 100);
                Value::Span(i64::try_from(ticks).map_err(|_| wrong("a span of 64 bits"))?)
            }
            _ => return Err(text::TextError::new(kind, "a type", text::one_of(&TYPES)).to_string()),
        }))
    }

    /// Returns the type and text of a value without a JSON form.
    fn typed(&self) -> Option<(&'static str, String)> {
        match &self.0 {
            Value::Binary(bytes) => Some(("binary", BASE64.encode(bytes))),
            Value::Uuid(bytes) => Some(("uuid", Uuid::from_bytes(*bytes).to_string())),
            Value::Time(millis) => {
                let at = Timestamp::from_millis(u64::try_from(*millis).unwrap_or(0));
                Some(("time", time::show_time(at)))
            }
            Value::Span(ticks) => {
                let ticks = u64::try_from(*ticks).unwrap_or(0);
                let nanos = u32::try_from(ticks % TICKS_PER_SECOND * 100).unwrap_or(0);
                Some(("span", iso8601::show(std::time::Duration::new(ticks / TICKS_PER_SECOND, nanos))))
            }
            // JSON would turn a double without a fraction into a whole number, and has no form for infinity or NaN.
            Value::Double(value) if value.fract() == 0.0 || !value.is_finite() => {
                Some(("double", value.to_string()))
            }
            _ => None,
        }
    }
}

/// Parses a UUID in the form with hyphens. Other forms are rejected.
fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let has_hyphens = text.len() == Hyphenated::LENGTH;
    has_hyphens.then(|| Uuid::try_parse(text).ok())?.map(Uuid::into_bytes)
}

impl RuleValue {
    /// Parses a value of a type.
    pub fn parse(kind: &str, text: &str) -> Result<Self, String> {
        let Some(known) = Kind::of_name(kind) else {
            return PropertyValue::parse(kind, text).map(|PropertyValue(value)| RuleValue(value.into()));
        };
        let wrong = || format!("'{}' is not a value of the type {kind}", text::excerpt(text));
        Given::parse(known, text).map(RuleValue).ok_or_else(wrong)
    }
}

fn write_typed<S: Serializer>(kind: &str, text: &str, serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(2))?;
    map.serialize_entry("type", kind)?;
    map.serialize_entry("value", text)?;
    map.end()
}

impl Serialize for RuleValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.exact() {
            Some((kind, text)) => write_typed(kind.name(), text, serializer),
            None => PropertyValue(self.0.value().clone()).serialize(serializer),
        }
    }
}

impl Serialize for PropertyValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Some((kind, text)) = self.typed() {
            return write_typed(kind, &text, serializer);
        }
        match &self.0 {
            Value::Bool(value) => serializer.serialize_bool(*value),
            Value::Long(value) => serializer.serialize_i64(*value),
            Value::Double(value) => serializer.serialize_f64(*value),
            Value::Text(text) => serializer.serialize_str(text),
            _ => serializer.serialize_unit(),
        }
    }
}

macro_rules! value_schema {
    ($kind:ty, $name:literal) => {
        impl JsonSchema for $kind {
            fn schema_name() -> Cow<'static, str> {
                Cow::Borrowed($name)
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "anyOf": [
                    { "type": ["string", "number", "boolean", "null"] },
                    {
                        "type": "object",
                        "description": "A value of a type that JSON does not have, as text",
                        "properties": { "type": { "type": "string" }, "value": { "type": "string" } },
                        "required": ["type", "value"],
                        "additionalProperties": false
                    }
                ] })
            }
        }
    };
}
value_schema!(PropertyValue, "PropertyValue");
value_schema!(RuleValue, "RuleValue");

/// A value that a document contains with or without its type.
trait Written: From<Value> {
    fn parse_typed(kind: &str, text: &str) -> Result<Self, String>;
}

impl From<Value> for PropertyValue {
    fn from(value: Value) -> Self {
        PropertyValue(value)
    }
}

impl From<Value> for RuleValue {
    fn from(value: Value) -> Self {
        RuleValue(value.into())
    }
}

impl Written for PropertyValue {
    fn parse_typed(kind: &str, text: &str) -> Result<Self, String> {
        PropertyValue::parse(kind, text)
    }
}

impl Written for RuleValue {
    fn parse_typed(kind: &str, text: &str) -> Result<Self, String> {
        RuleValue::parse(kind, text)
    }
}

impl<'de> Deserialize<'de> for PropertyValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue(PhantomData))
    }
}

impl<'de> Deserialize<'de> for RuleValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue(PhantomData))
    }
}

struct AnyValue<T>(PhantomData<T>);

impl<'de, T: Written> Visitor<'de> for AnyValue<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text, a number, true, false or {\"type\": …, \"value\": …}")
    }

    fn visit_unit<E: de::Error>(self) -> Result<T, E> {
        Ok(Value::Null.into())
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<T, E> {
        Ok(Value::Bool(value).into())
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<T, E> {
        Ok(Value::Long(value).into())
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<T, E> {
        let too_large = |_| E::custom(format!("{value} is more than 64 bits with a sign can hold"));
        i64::try_from(value).map(|value| Value::Long(value).into()).map_err(too_large)
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<T, E> {
        Ok(Value::Double(value).into())
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        Ok(Value::text(text).into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<T, A::Error> {
        let (mut kind, mut value) = (None::<String>, None::<String>);
        while let Some(key) = entries.next_key::<String>()? {
            match key.as_str() {
                "type" => kind = Some(entries.next_value()?),
                "value" => value = Some(entries.next_value()?),
                other => return Err(de::Error::unknown_field(other, &["type", "value"])),
            }
        }
        let kind = kind.ok_or_else(|| de::Error::missing_field("type"))?;
        let value = value.ok_or_else(|| de::Error::missing_field("value"))?;
        T::parse_typed(&kind, &value).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::from_json;

    #[test]
    fn every_value_survives_writing_and_reading() {
        let values = [
            Value::Null,
            Value::Bool(true),
            Value::Long(i64::MIN),
            Value::Double(0.5),
            Value::Double(3.0),
            Value::text("a\"ä"),
            Value::Binary(vec![0, 255].into()),
            Value::Uuid(*b"0123456789abcdef"),
            Value::Time(1_700_000_000_123),
            Value::Span(900_000_000_001),
        ];
        for value in values {
            let value = PropertyValue(value);
            let text = serde_json::to_string(&value).unwrap();
            assert_eq!(from_json::<PropertyValue>(&text).unwrap(), value, "{text}");
        }
    }

    #[test]
    fn a_rule_keeps_the_types_of_its_values() {
        let long = RuleValue::parse("long", "2").unwrap();
        assert_eq!(serde_json::to_string(&long).unwrap(), r#"{"type":"long","value":"2"}"#);
        let typed =
            [("int", "1"), ("decimal", "3.250"), ("time", "2026-01-02T03:04:05.1234567"), ("char", "c")];
        let mut values: Vec<_> =
            typed.into_iter().map(|(kind, text)| RuleValue::parse(kind, text).unwrap()).collect();
        values.extend([long, Value::Long(2).into(), Value::Time(1_700_000_000_123).into()]);
        for value in values {
            let text = serde_json::to_string(&value).unwrap();
            assert_eq!(from_json::<RuleValue>(&text).unwrap(), value, "{text}");
        }
        assert_eq!(from_json::<RuleValue>("2").unwrap(), Value::Long(2).into());
        let refused = |text| from_json::<RuleValue>(text).unwrap_err().to_string();
        assert!(
            refused(r#"{"type": "int", "value": "2147483648"}"#).contains("is not a value of the type int")
        );
        assert!(refused(r#"{"type": "uid", "value": "x"}"#).contains("'uid' is not a type"));
    }

    #[test]
    fn invalid_values_are_rejected() {
        let refused = |text| from_json::<PropertyValue>(text).unwrap_err().to_string();
        assert!(refused(r#"{"type": "uid", "value": "x"}"#).contains("'uid' is not a type; write boolean"));
        assert!(refused(r#"{"type": "uuid", "value": "x"}"#).contains("'x' is not a UUID"));
        assert!(refused(r#"{"type": "uuid"}"#).contains("'value' is missing"));
        assert!(refused(r#"{"typ": "uuid"}"#).contains("did you mean 'type'?"));
        assert!(refused("[1]").contains("a list where text, a number"));
        assert!(refused("18446744073709551615").contains("more than 64 bits"));
    }
}
