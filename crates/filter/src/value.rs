//! The values of properties: owned in rules and changes, borrowed from a view during evaluation.

use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use bytes::Bytes;

use crate::wire::{DecodeError, Decoder, keep, put_bytes, put_text};
use crate::{guid, time};

/// An owned value. Two values are equal if every bit is equal, so that rules can be compared. Equality in filters is wider.
#[derive(Clone, Debug)]
pub enum Value {
    Null,
    Bool(bool),
    Long(i64),
    Double(f64),
    Text(Arc<str>),
    Binary(Bytes),
    /// The bytes in the order of the text form.
    Uuid([u8; 16]),
    /// Milliseconds since 1970.
    Time(i64),
    /// Ticks of 100 nanoseconds.
    Span(i64),
}

impl Value {
    pub fn text(text: impl Into<Arc<str>>) -> Self {
        Value::Text(text.into())
    }

    pub fn borrow(&self) -> ValueRef<'_> {
        match self {
            Value::Null => ValueRef::Null,
            Value::Bool(value) => ValueRef::Bool(*value),
            Value::Long(value) => ValueRef::Long(*value),
            Value::Double(value) => ValueRef::Double(*value),
            Value::Text(text) => ValueRef::Text(Cow::Borrowed(text)),
            Value::Binary(bytes) => ValueRef::Binary(bytes),
            Value::Uuid(bytes) => ValueRef::Uuid(*bytes),
            Value::Time(time) => ValueRef::Time(*time),
            Value::Span(span) => ValueRef::Span(*span),
        }
    }

    pub(crate) fn size_bytes(&self) -> usize {
        match self {
            Value::Text(text) => text.len(),
            Value::Binary(bytes) => bytes.len(),
            _ => 16,
        }
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        self.borrow().encode(out);
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Value::Null, Value::Null) => true,
            (Value::Bool(left), Value::Bool(right)) => left == right,
            (Value::Double(left), Value::Double(right)) => left.to_bits() == right.to_bits(),
            (Value::Text(left), Value::Text(right)) => left == right,
            (Value::Binary(left), Value::Binary(right)) => left == right,
            (Value::Uuid(left), Value::Uuid(right)) => left == right,
            (Value::Long(left), Value::Long(right))
            | (Value::Time(left), Value::Time(right))
            | (Value::Span(left), Value::Span(right)) => left == right,
            _ => false,
        }
    }
}

impl Eq for Value {}

impl Hash for Value {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::mem::discriminant(self).hash(state);
        match self {
            Value::Null => (),
            Value::Bool(value) => value.hash(state),
            Value::Double(value) => value.to_bits().hash(state),
            Value::Text(text) => text.hash(state),
            Value::Binary(bytes) => bytes.hash(state),
            Value::Uuid(bytes) => bytes.hash(state),
            Value::Long(number) | Value::Time(number) | Value::Span(number) => number.hash(state),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.borrow().fmt(f)
    }
}

/// A value that is borrowed from a view or a rule, or computed.
#[derive(Clone, Debug)]
pub enum ValueRef<'a> {
    Null,
    Bool(bool),
    Long(i64),
    Double(f64),
    Text(Cow<'a, str>),
    Binary(&'a [u8]),
    Uuid([u8; 16]),
    Time(i64),
    Span(i64),
}

const NULL: u8 = 0;
const FALSE: u8 = 1;
const TRUE: u8 = 2;
const LONG: u8 = 3;
const DOUBLE: u8 = 4;
const TEXT: u8 = 5;
const BINARY: u8 = 6;
const UUID: u8 = 7;
const TIME: u8 = 8;
const SPAN: u8 = 9;

impl<'a> ValueRef<'a> {
    pub fn is_null(&self) -> bool {
        matches!(self, ValueRef::Null)
    }

    pub fn to_value(&self) -> Value {
        match self {
            ValueRef::Null => Value::Null,
            ValueRef::Bool(value) => Value::Bool(*value),
            ValueRef::Long(value) => Value::Long(*value),
            ValueRef::Double(value) => Value::Double(*value),
            ValueRef::Text(text) => Value::Text(Arc::from(&**text)),
            ValueRef::Binary(bytes) => Value::Binary(keep(bytes)),
            ValueRef::Uuid(bytes) => Value::Uuid(*bytes),
            ValueRef::Time(time) => Value::Time(*time),
            ValueRef::Span(span) => Value::Span(*span),
        }
    }

    /// Returns the name of the kind for errors.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            ValueRef::Null => "null",
            ValueRef::Bool(_) => "a truth value",
            ValueRef::Long(_) | ValueRef::Double(_) => "a number",
            ValueRef::Text(_) => "text",
            ValueRef::Binary(_) => "binary",
            ValueRef::Uuid(_) => "a GUID",
            ValueRef::Time(_) => "a time",
            ValueRef::Span(_) => "a duration",
        }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            ValueRef::Null => out.push(NULL),
            ValueRef::Bool(false) => out.push(FALSE),
            ValueRef::Bool(true) => out.push(TRUE),
            ValueRef::Long(number) => put_fixed(LONG, number.to_le_bytes(), out),
            ValueRef::Double(number) => put_fixed(DOUBLE, number.to_bits().to_le_bytes(), out),
            ValueRef::Text(text) => {
                out.push(TEXT);
                put_text(text, out);
            }
            ValueRef::Binary(bytes) => {
                out.push(BINARY);
                put_bytes(bytes, out);
            }
            ValueRef::Uuid(bytes) => put_fixed(UUID, *bytes, out),
            ValueRef::Time(time) => put_fixed(TIME, time.to_le_bytes(), out),
            ValueRef::Span(span) => put_fixed(SPAN, span.to_le_bytes(), out),
        }
    }

    pub(crate) fn decode(decoder: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        const WHAT: &str = "a value";
        Ok(match decoder.byte(WHAT)? {
            NULL => ValueRef::Null,
            FALSE => ValueRef::Bool(false),
            TRUE => ValueRef::Bool(true),
            LONG => ValueRef::Long(i64::from_le_bytes(decoder.array(WHAT)?)),
            DOUBLE => ValueRef::Double(f64::from_bits(u64::from_le_bytes(decoder.array(WHAT)?))),
            TEXT => ValueRef::Text(Cow::Borrowed(decoder.text(WHAT)?)),
            BINARY => ValueRef::Binary(decoder.bytes(WHAT)?),
            UUID => ValueRef::Uuid(decoder.array(WHAT)?),
            TIME => ValueRef::Time(i64::from_le_bytes(decoder.array(WHAT)?)),
            SPAN => ValueRef::Span(i64::from_le_bytes(decoder.array(WHAT)?)),
            kind => return Err(DecodeError::Unknown { of: "kind of a value", tag: kind.into() }),
        })
    }
}

fn put_fixed<const N: usize>(tag: u8, bytes: [u8; N], out: &mut Vec<u8>) {
    out.push(tag);
    out.extend_from_slice(&bytes);
}

/// Longer texts are cut in errors.
const SHOWN_CHARS_MAX: usize = 60;
const SHOWN_BYTES_MAX: usize = 16;

/// Writes the value in the syntax of filters, where it has one.
impl fmt::Display for ValueRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValueRef::Null => f.write_str("null"),
            ValueRef::Bool(value) => write!(f, "{value}"),
            ValueRef::Long(number) => write!(f, "{number}"),
            ValueRef::Double(number) => write!(f, "{number:?}"),
            ValueRef::Text(text) => match text.char_indices().nth(SHOWN_CHARS_MAX) {
                Some((end, _)) => write!(f, "'{}…'", text.get(..end).unwrap_or_default()),
                None => write!(f, "'{text}'"),
            },
            ValueRef::Binary(bytes) => {
                write!(f, "{} bytes", bytes.len())?;
                bytes.iter().take(SHOWN_BYTES_MAX).try_for_each(|byte| write!(f, " {byte:02x}"))
            }
            ValueRef::Uuid(bytes) => f.write_str(&guid::print(bytes)),
            ValueRef::Time(ms) => f.write_str(&time::print_time(*ms)),
            ValueRef::Span(ticks) => f.write_str(&time::print_span(*ticks)),
        }
    }
}
