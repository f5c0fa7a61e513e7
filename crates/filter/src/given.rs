//! Values in rules, with the types in which they were given.
//!
//! A filter compares numbers by value and times by the millisecond, so it has fewer types than AMQP and XML. A rule that is read back must
//! have its original types and digits. They are stored here beside the value for comparisons.

use std::sync::Arc;

use crate::time;
use crate::value::{Value, ValueRef};
use crate::wire::{DecodeError, Decoder, put_text};

/// A type that [`Value`] does not distinguish from another one, or whose digits it does not store completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Byte,
    Ubyte,
    Short,
    Ushort,
    Int,
    Uint,
    Long,
    Ulong,
    Float,
    Decimal,
    Char,
    /// A time with digits below a millisecond, or with a zone other than UTC.
    Time,
}

/// A parameter of a rule, or the value that a correlation filter compares with.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Given {
    value: Value,
    /// The original type and text, if the value does not determine them.
    exact: Option<(Kind, Arc<str>)>,
}

impl From<Value> for Given {
    fn from(value: Value) -> Self {
        Given { value, exact: None }
    }
}

impl Given {
    /// Parses `text` as a value of this type: numbers in decimal notation, a time in ISO 8601. Returns `None` if it is not a value of the
    /// type.
    pub fn parse(kind: Kind, text: &str) -> Option<Given> {
        let (value, text) = match kind {
            Kind::Byte => whole(text.parse::<i8>().ok()?),
            Kind::Ubyte => whole(text.parse::<u8>().ok()?),
            Kind::Short => whole(text.parse::<i16>().ok()?),
            Kind::Ushort => whole(text.parse::<u16>().ok()?),
            Kind::Int => whole(text.parse::<i32>().ok()?),
            Kind::Uint => whole(text.parse::<u32>().ok()?),
            Kind::Long => whole(text.parse::<i64>().ok()?),
            Kind::Ulong => {
                let number: u64 = text.parse().ok()?;
                // Beyond the largest signed number, a filter compares the nearest double.
                let value = i64::try_from(number).map_or(Value::Double(number as f64), Value::Long);
                (value, number.to_string())
            }
            Kind::Float => {
                let number: f32 = text.parse().ok()?;
                (Value::Double(number.into()), number.to_string())
            }
            Kind::Decimal => (decimal(text)?, text.to_owned()),
            Kind::Char => {
                let mut letters = text.chars();
                let (Some(letter), None) = (letters.next(), letters.next()) else { return None };
                (Value::text(letter.to_string()), text.to_owned())
            }
            Kind::Time => {
                let value = Value::Time(time::parse_time(text)?);
                if is_plain_time(text) {
                    return Some(value.into());
                }
                (value, text.to_owned())
            }
        };
        Some(Given { value, exact: Some((kind, text.into())) })
    }

    /// Returns the value that filters compare and actions assign.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// Returns the original type and text, or `None` if the value determines them.
    pub fn exact(&self) -> Option<(Kind, &str)> {
        self.exact.as_ref().map(|(kind, text)| (*kind, &**text))
    }

    pub(crate) fn size_bytes(&self) -> usize {
        self.exact.as_ref().map_or(0, |(_, text)| text.len()).max(self.value.size_bytes())
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match &self.exact {
            None => {
                out.push(PLAIN);
                self.value.encode(out);
            }
            Some((kind, text)) => {
                out.push(kind.code());
                put_text(text, out);
            }
        }
    }

    pub(crate) fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        const WHAT: &str = "a value of a rule";
        let code = decoder.byte(WHAT)?;
        if code == PLAIN {
            return Ok(ValueRef::decode(decoder)?.to_value().into());
        }
        let kind = Kind::of_code(code)
            .ok_or_else(|| DecodeError::Unknown { of: "type of a value", tag: code.into() })?;
        Given::parse(kind, decoder.text(WHAT)?).ok_or(DecodeError::Value(WHAT))
    }
}

fn whole(number: impl Into<i64> + ToString + Copy) -> (Value, String) {
    (Value::Long(number.into()), number.to_string())
}

/// Returns the nearest double.
fn decimal(text: &str) -> Option<Value> {
    // The standard library parses `inf` and `nan`, but they are not decimals.
    let is_written = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E'));
    let number: f64 = if is_written { text.parse().ok()? } else { return None };
    number.is_finite().then_some(Value::Double(number))
}

/// Returns whether milliseconds since 1970 represent the text completely.
fn is_plain_time(text: &str) -> bool {
    let fraction = text.rsplit_once('.').map_or("", |(_, fraction)| fraction).trim_end_matches('Z');
    text.ends_with('Z') && fraction.len() <= 3
}

/// The code of a value without an original type.
const PLAIN: u8 = 0;

impl Kind {
    const ALL: [Kind; 12] = [
        Kind::Byte,
        Kind::Ubyte,
        Kind::Short,
        Kind::Ushort,
        Kind::Int,
        Kind::Uint,
        Kind::Long,
        Kind::Ulong,
        Kind::Float,
        Kind::Decimal,
        Kind::Char,
        Kind::Time,
    ];

    fn code(self) -> u8 {
        match self {
            Kind::Byte => 1,
            Kind::Ubyte => 2,
            Kind::Short => 3,
            Kind::Ushort => 4,
            Kind::Int => 5,
            Kind::Uint => 6,
            Kind::Long => 7,
            Kind::Ulong => 8,
            Kind::Float => 9,
            Kind::Decimal => 10,
            Kind::Char => 11,
            Kind::Time => 12,
        }
    }

    fn of_code(code: u8) -> Option<Self> {
        Kind::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// Returns the name in documents.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Byte => "byte",
            Kind::Ubyte => "ubyte",
            Kind::Short => "short",
            Kind::Ushort => "ushort",
            Kind::Int => "int",
            Kind::Uint => "uint",
            Kind::Long => "long",
            Kind::Ulong => "ulong",
            Kind::Float => "float",
            Kind::Decimal => "decimal",
            Kind::Char => "char",
            Kind::Time => "time",
        }
    }

    pub fn of_name(name: &str) -> Option<Self> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_original_type_and_digits_are_kept_beside_the_value() {
        let cases = [
            (Kind::Byte, "-5", Value::Long(-5)),
            (Kind::Ubyte, "255", Value::Long(255)),
            (Kind::Int, "1", Value::Long(1)),
            (Kind::Long, "1", Value::Long(1)),
            (Kind::Ulong, "18446744073709551615", Value::Double(u64::MAX as f64)),
            (Kind::Float, "0.1", Value::Double(0.1_f32.into())),
            (Kind::Decimal, "3.250", Value::Double(3.25)),
            (Kind::Char, "ä", Value::text("ä")),
            (Kind::Time, "1970-01-01T00:00:01.1234567Z", Value::Time(1123)),
            (Kind::Time, "1970-01-01T00:00:01", Value::Time(1000)),
            (Kind::Time, "1970-01-01T02:00:01+02:00", Value::Time(1000)),
        ];
        for (kind, text, value) in cases {
            let given = Given::parse(kind, text).unwrap();
            assert_eq!((given.value(), given.exact()), (&value, Some((kind, text))));
            let mut bytes = Vec::new();
            given.encode(&mut bytes);
            let mut decoder = Decoder::new(&bytes);
            assert_eq!(Given::decode(&mut decoder), Ok(given), "{kind:?} {text}");
            assert!(decoder.rest.is_empty());
        }
        assert_eq!(Given::parse(Kind::Time, "1970-01-01T00:00:01.5Z"), Some(Value::Time(1500).into()));
        for kind in Kind::ALL {
            assert_eq!((Kind::of_code(kind.code()), Kind::of_name(kind.name())), (Some(kind), Some(kind)));
        }
    }

    #[test]
    fn a_text_that_is_not_a_value_of_its_type_is_rejected() {
        let cases = [
            (Kind::Byte, "128"),
            (Kind::Ubyte, "-1"),
            (Kind::Int, "2147483648"),
            (Kind::Long, "1.5"),
            (Kind::Decimal, "inf"),
            (Kind::Decimal, "1e999"),
            (Kind::Char, "ab"),
            (Kind::Char, ""),
            (Kind::Time, "yesterday"),
        ];
        for (kind, text) in cases {
            assert_eq!(Given::parse(kind, text), None, "{kind:?} {text}");
        }
    }
}
