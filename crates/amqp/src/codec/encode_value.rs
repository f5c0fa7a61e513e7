//! Encodes values, alone and as elements of an array.

use bytes::{BufMut, BytesMut};

use super::constructor as c;
use super::encode::{CompoundWriter, Encode, length_u32};
use crate::value::{Array, Kind, Value};

impl Encode for Value {
    fn encode(&self, out: &mut BytesMut) {
        match self {
            Self::Null => out.put_u8(c::NULL),
            Self::Boolean(value) => value.encode(out),
            Self::Uint(value) => value.encode(out),
            Self::Ulong(value) => value.encode(out),
            Self::Int(value) => put_signed(out, (*value).into(), c::SMALL_INT, self),
            Self::Long(value) => put_signed(out, *value, c::SMALL_LONG, self),
            Self::Binary(value) => value.encode(out),
            Self::String(value) => value.encode(out),
            Self::Symbol(value) => value.encode(out),
            Self::List(values) => values.encode(out),
            Self::Map(entries) => entries.encode(out),
            Self::Array(array) => array.encode(out),
            Self::Described(described) => {
                out.put_u8(c::DESCRIBED);
                described.descriptor.encode(out);
                described.value.encode(out);
            }
            _ => {
                out.put_u8(wide_code(self.kind()));
                put_wide_body(out, self);
            }
        }
    }

    fn is_absent(&self) -> bool {
        self.is_null()
    }
}

impl Encode for Vec<Value> {
    fn encode(&self, out: &mut BytesMut) {
        if self.is_empty() {
            return out.put_u8(c::LIST0);
        }
        let list = CompoundWriter::list(out);
        self.iter().for_each(|value| value.encode(out));
        list.finish(out, self.len());
    }
}

impl Encode for Vec<(Value, Value)> {
    fn encode(&self, out: &mut BytesMut) {
        let map = CompoundWriter::map(out);
        put_entries(out, self);
        map.finish(out, self.len() * 2);
    }
}

impl Encode for Array {
    fn encode(&self, out: &mut BytesMut) {
        let array = CompoundWriter::array(out);
        put_array_content(out, self);
        array.finish(out, self.elements().len());
    }
}

fn put_array_content(out: &mut BytesMut, array: &Array) {
    for descriptor in array.descriptors() {
        out.put_u8(c::DESCRIBED);
        descriptor.encode(out);
    }
    let code = element_code(array);
    out.put_u8(code);
    array.elements().iter().for_each(|element| put_element(out, code, element));
}

fn put_signed(out: &mut BytesMut, number: i64, small_code: u8, value: &Value) {
    match i8::try_from(number) {
        Ok(small) => out.put_slice(&[small_code, small.to_be_bytes()[0]]),
        Err(_) => {
            out.put_u8(wide_code(value.kind()));
            put_wide_body(out, value);
        }
    }
}

fn put_entries(out: &mut BytesMut, entries: &[(Value, Value)]) {
    for (key, value) in entries {
        key.encode(out);
        value.encode(out);
    }
}

/// Returns the format code for all elements of the array: a small one only if every element fits it.
fn element_code(array: &Array) -> u8 {
    let fits = |fits: fn(&Value) -> bool| array.elements().iter().all(fits);
    match array.kind() {
        Kind::Uint if fits(fits_small) => c::SMALL_UINT,
        Kind::Ulong if fits(fits_small) => c::SMALL_ULONG,
        Kind::Int if fits(fits_small) => c::SMALL_INT,
        Kind::Long if fits(fits_small) => c::SMALL_LONG,
        Kind::Binary if fits(fits_small) => c::BINARY8,
        Kind::String if fits(fits_small) => c::STRING8,
        Kind::Symbol if fits(fits_small) => c::SYMBOL8,
        kind => wide_code(kind),
    }
}

fn fits_small(value: &Value) -> bool {
    let byte_max = usize::from(u8::MAX);
    match value {
        Value::Uint(number) => *number <= u8::MAX.into(),
        Value::Ulong(number) => *number <= u8::MAX.into(),
        Value::Int(number) => i8::try_from(*number).is_ok(),
        Value::Long(number) => i8::try_from(*number).is_ok(),
        Value::Binary(bytes) => bytes.len() <= byte_max,
        Value::String(text) => text.len() <= byte_max,
        Value::Symbol(symbol) => symbol.len() <= byte_max,
        _ => false,
    }
}

fn put_element(out: &mut BytesMut, code: u8, element: &Value) {
    match (code, element) {
        (c::SMALL_UINT | c::SMALL_ULONG | c::SMALL_INT | c::SMALL_LONG, _) => out.put_u8(low_byte(element)),
        (c::BINARY8, Value::Binary(bytes)) => put_counted_body(out, false, bytes),
        (c::STRING8, Value::String(text)) => put_counted_body(out, false, text.as_bytes()),
        (c::SYMBOL8, Value::Symbol(symbol)) => put_counted_body(out, false, symbol.as_bytes()),
        _ => put_wide_body(out, element),
    }
}

/// Returns the one byte of an integer that `fits_small`.
fn low_byte(value: &Value) -> u8 {
    match value {
        Value::Uint(number) => number.to_be_bytes()[3],
        Value::Ulong(number) => number.to_be_bytes()[7],
        Value::Int(number) => number.to_be_bytes()[3],
        Value::Long(number) => number.to_be_bytes()[7],
        _ => 0,
    }
}

/// Writes a length and the bytes, without a format code.
pub(super) fn put_counted_body(out: &mut BytesMut, wide: bool, bytes: &[u8]) {
    match u8::try_from(bytes.len()) {
        Ok(len) if !wide => out.put_u8(len),
        _ => out.put_u32(length_u32(bytes.len())),
    }
    out.put_slice(bytes);
}

/// Returns the format code that holds every value of a kind.
fn wide_code(kind: Kind) -> u8 {
    match kind {
        Kind::Null => c::NULL,
        Kind::Boolean => c::BOOLEAN,
        Kind::Ubyte => c::UBYTE,
        Kind::Ushort => c::USHORT,
        Kind::Uint => c::UINT,
        Kind::Ulong => c::ULONG,
        Kind::Byte => c::BYTE,
        Kind::Short => c::SHORT,
        Kind::Int => c::INT,
        Kind::Long => c::LONG,
        Kind::Float => c::FLOAT,
        Kind::Double => c::DOUBLE,
        Kind::Decimal32 => c::DECIMAL32,
        Kind::Decimal64 => c::DECIMAL64,
        Kind::Decimal128 => c::DECIMAL128,
        Kind::Char => c::CHAR,
        Kind::Timestamp => c::TIMESTAMP,
        Kind::Uuid => c::UUID,
        Kind::Binary => c::BINARY32,
        Kind::String => c::STRING32,
        Kind::Symbol => c::SYMBOL32,
        Kind::List => c::LIST32,
        Kind::Map => c::MAP32,
        Kind::Array => c::ARRAY32,
        Kind::Described => c::DESCRIBED,
    }
}

/// Writes the body for `wide_code`.
fn put_wide_body(out: &mut BytesMut, value: &Value) {
    match value {
        // No array has described elements: their descriptors belong to the array.
        Value::Null | Value::Described(_) => {}
        Value::Boolean(value) => out.put_u8((*value).into()),
        Value::Ubyte(value) => out.put_u8(*value),
        Value::Ushort(value) => out.put_u16(*value),
        Value::Uint(value) => out.put_u32(*value),
        Value::Ulong(value) => out.put_u64(*value),
        Value::Byte(value) => out.put_i8(*value),
        Value::Short(value) => out.put_i16(*value),
        Value::Int(value) => out.put_i32(*value),
        Value::Long(value) | Value::Timestamp(value) => out.put_i64(*value),
        Value::Float(value) => out.put_f32(*value),
        Value::Double(value) => out.put_f64(*value),
        Value::Decimal32(bytes) => out.put_slice(bytes),
        Value::Decimal64(bytes) => out.put_slice(bytes),
        Value::Decimal128(bytes) | Value::Uuid(bytes) => out.put_slice(bytes),
        Value::Char(value) => out.put_u32((*value).into()),
        Value::Binary(bytes) => put_counted_body(out, true, bytes),
        Value::String(text) => put_counted_body(out, true, text.as_bytes()),
        Value::Symbol(symbol) => put_counted_body(out, true, symbol.as_bytes()),
        Value::List(_) | Value::Map(_) | Value::Array(_) => put_wide_compound(out, value),
    }
}

fn put_wide_compound(out: &mut BytesMut, value: &Value) {
    let start = out.len();
    out.put_u64(0);
    let count = match value {
        Value::List(values) => {
            values.iter().for_each(|value| value.encode(out));
            values.len()
        }
        Value::Map(entries) => {
            put_entries(out, entries);
            entries.len() * 2
        }
        Value::Array(array) => {
            put_array_content(out, array);
            array.elements().len()
        }
        _ => 0,
    };
    let size = length_u32(out.len() - start - 4);
    out[start..start + 4].copy_from_slice(&size.to_be_bytes());
    out[start + 4..start + 8].copy_from_slice(&length_u32(count).to_be_bytes());
}
