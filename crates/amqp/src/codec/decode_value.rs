//! Decodes values whose type is known only from the bytes.

use bytes::Bytes;

use super::constructor as c;
use super::decode::Decode;
use super::decoder::{Decoder, ZERO_WIDTH_ELEMENTS_MAX};
use super::error::{DecodeError, Problem};
use crate::value::{Array, Value};

impl Decode for Value {
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        match decoder.byte()? {
            c::DESCRIBED => decoder.described(),
            code => decoder.value_body(code),
        }
    }

    fn absent() -> Option<Self> {
        Some(Value::Null)
    }
}

impl Decoder<'_> {
    fn described(&mut self) -> Result<Value, DecodeError> {
        self.descend()?;
        self.charge(2)?;
        let descriptor = Value::decode(self)?;
        let value = Value::decode(self)?;
        self.ascend();
        Ok(Value::described(descriptor, value))
    }

    /// Reads the content after a format code, which an array states once for all its elements.
    pub(super) fn value_body(&mut self, code: u8) -> Result<Value, DecodeError> {
        Ok(match code {
            c::NULL => Value::Null,
            c::TRUE => Value::Boolean(true),
            c::FALSE => Value::Boolean(false),
            c::BOOLEAN => Value::Boolean(self.boolean()?),
            c::BINARY8 | c::BINARY32 => {
                Value::Binary(Bytes::copy_from_slice(self.counted(code == c::BINARY32)?))
            }
            c::STRING8 | c::STRING32 => {
                let bytes = self.counted(code == c::STRING32)?;
                Value::String(self.text(bytes)?)
            }
            c::SYMBOL8 | c::SYMBOL32 => {
                let bytes = self.counted(code == c::SYMBOL32)?;
                Value::Symbol(self.symbol(bytes)?)
            }
            c::LIST0 => Value::List(Vec::new()),
            c::LIST8 | c::LIST32 => Value::List(self.list(code == c::LIST32)?),
            c::MAP8 | c::MAP32 => Value::Map(self.map(code == c::MAP32)?),
            c::ARRAY8 | c::ARRAY32 => Value::Array(self.array_value(code == c::ARRAY32)?),
            _ => return self.number_body(code),
        })
    }

    fn number_body(&mut self, code: u8) -> Result<Value, DecodeError> {
        Ok(match code {
            c::UINT0 => Value::Uint(0),
            c::ULONG0 => Value::Ulong(0),
            c::UBYTE => Value::Ubyte(self.byte()?),
            c::BYTE => Value::Byte(i8::from_be_bytes(self.array()?)),
            c::SMALL_UINT => Value::Uint(self.byte()?.into()),
            c::SMALL_ULONG => Value::Ulong(self.byte()?.into()),
            c::SMALL_INT => Value::Int(i8::from_be_bytes(self.array()?).into()),
            c::SMALL_LONG => Value::Long(i8::from_be_bytes(self.array()?).into()),
            c::USHORT => Value::Ushort(u16::from_be_bytes(self.array()?)),
            c::SHORT => Value::Short(i16::from_be_bytes(self.array()?)),
            c::UINT => Value::Uint(self.be_u32()?),
            c::INT => Value::Int(i32::from_be_bytes(self.array()?)),
            c::FLOAT => Value::Float(f32::from_be_bytes(self.array()?)),
            c::CHAR => Value::Char(self.character()?),
            c::DECIMAL32 => Value::Decimal32(self.array()?),
            c::ULONG => Value::Ulong(u64::from_be_bytes(self.array()?)),
            c::LONG => Value::Long(i64::from_be_bytes(self.array()?)),
            c::DOUBLE => Value::Double(f64::from_be_bytes(self.array()?)),
            c::TIMESTAMP => Value::Timestamp(i64::from_be_bytes(self.array()?)),
            c::DECIMAL64 => Value::Decimal64(self.array()?),
            c::DECIMAL128 => Value::Decimal128(self.array()?),
            c::UUID => Value::Uuid(self.array()?),
            _ => return Err(self.unknown_constructor(code)),
        })
    }

    fn character(&mut self) -> Result<char, DecodeError> {
        let value = self.be_u32()?;
        char::from_u32(value).ok_or_else(|| self.error(Problem::NotChar { value }))
    }

    pub(super) fn list(&mut self, wide: bool) -> Result<Vec<Value>, DecodeError> {
        self.descend()?;
        let list = self.enter(wide)?;
        self.check_count(list.count)?;
        let count = self.charge(list.count)?;
        let mut values = Vec::with_capacity(count);
        for _ in 0..count {
            values.push(Value::decode(self)?);
        }
        self.leave_exact(&list)?;
        self.ascend();
        Ok(values)
    }

    pub(super) fn map(&mut self, wide: bool) -> Result<Vec<(Value, Value)>, DecodeError> {
        self.descend()?;
        let map = self.enter(wide)?;
        self.check_map_count(map.count)?;
        let count = self.charge(map.count)? / 2;
        let mut entries = Vec::with_capacity(count);
        for _ in 0..count {
            entries.push((Value::decode(self)?, Value::decode(self)?));
        }
        self.leave_exact(&map)?;
        self.ascend();
        Ok(entries)
    }

    fn array_value(&mut self, wide: bool) -> Result<Array, DecodeError> {
        self.descend()?;
        let array = self.enter(wide)?;
        let (descriptors, code) = self.array_constructor()?;
        let kind = c::kind(code).ok_or_else(|| self.unknown_constructor(code))?;
        self.check_array_count(array.count, code)?;
        let count = self.charge(array.count)?;
        let mut elements = Vec::with_capacity(count);
        for _ in 0..count {
            elements.push(self.value_body(code)?);
        }
        self.leave_exact(&array)?;
        self.ascend();
        Ok(Array::decoded(descriptors, kind, elements))
    }

    /// Reads the constructor that all elements share: descriptors, if any, then a format code.
    fn array_constructor(&mut self) -> Result<(Vec<Value>, u8), DecodeError> {
        let mut descriptors = Vec::new();
        let mut code = self.byte()?;
        while code == c::DESCRIBED {
            if descriptors.len() >= usize::from(super::DEPTH_MAX) {
                return Err(self.error(Problem::TooDeep));
            }
            self.charge(1)?;
            descriptors.push(Value::decode(self)?);
            code = self.byte()?;
        }
        Ok((descriptors, code))
    }

    fn check_array_count(&self, count: u32, code: u8) -> Result<(), DecodeError> {
        if !matches!(c::width(code), Some(c::Width::Fixed(0))) {
            return self.check_count(count);
        }
        if usize::try_from(count).is_ok_and(|count| count <= ZERO_WIDTH_ELEMENTS_MAX) {
            Ok(())
        } else {
            Err(self.error(Problem::TooMany { count, limit: ZERO_WIDTH_ELEMENTS_MAX }))
        }
    }
}
