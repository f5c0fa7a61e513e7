//! Decodes the types of fields.

use bytes::Bytes;

use super::constructor as c;
use super::decoder::{Compound, Decoder};
use super::error::{DecodeError, Problem};
use crate::performative::{DeliveryTag, ReceiverSettleMode, Role, SenderSettleMode};
use crate::sasl::SaslCode;
use crate::text::{Symbol, Text};
use crate::value::{Fields, Value};

/// A type that can be read from AMQP bytes.
pub trait Decode: Sized {
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError>;

    /// Returns the meaning of a null or missing field of this type, if the field may be missing.
    fn absent() -> Option<Self> {
        None
    }

    /// Decodes exactly one value that fills the whole slice.
    fn decode_all(input: &[u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(input);
        let value = Self::decode(&mut decoder)?;
        match decoder.remaining().len() {
            0 => Ok(value),
            excess => Err(decoder.error(Problem::Excess { excess })),
        }
    }
}

/// Reads the next field of a composite. Returns None when it is null or missing and its type defines no default.
#[inline]
pub(crate) fn read_field<T: Decode>(
    decoder: &mut Decoder<'_>,
    list: &mut Compound<'_>,
) -> Result<Option<T>, DecodeError> {
    if list.next_is_set(decoder) { T::decode(decoder).map(Some) } else { Ok(T::absent()) }
}

impl<T: Decode> Decode for Option<T> {
    #[inline]
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        if decoder.take_null() { Ok(None) } else { T::decode(decoder).map(Some) }
    }

    fn absent() -> Option<Self> {
        Some(None)
    }
}

impl<T: Decode> Decode for Box<T> {
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        T::decode(decoder).map(Box::new)
    }
}

impl Decode for bool {
    #[inline]
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        match decoder.byte()? {
            c::TRUE => Ok(true),
            c::FALSE => Ok(false),
            c::BOOLEAN => decoder.boolean(),
            code => Err(decoder.unexpected("a boolean", code)),
        }
    }
}

impl Decode for u8 {
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        match decoder.byte()? {
            c::UBYTE => decoder.byte(),
            code => Err(decoder.unexpected("a ubyte", code)),
        }
    }
}

impl Decode for u16 {
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        match decoder.byte()? {
            c::USHORT => decoder.array().map(u16::from_be_bytes),
            code => Err(decoder.unexpected("a ushort", code)),
        }
    }
}

impl Decode for u32 {
    #[inline]
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        match decoder.byte()? {
            c::UINT0 => Ok(0),
            c::SMALL_UINT => decoder.byte().map(u32::from),
            c::UINT => decoder.be_u32(),
            code => Err(decoder.unexpected("a uint", code)),
        }
    }
}

impl Decode for u64 {
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        match decoder.byte()? {
            c::ULONG0 => Ok(0),
            c::SMALL_ULONG => decoder.byte().map(u64::from),
            c::ULONG => decoder.array().map(u64::from_be_bytes),
            code => Err(decoder.unexpected("a ulong", code)),
        }
    }
}

impl Decode for Bytes {
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        decoder.binary().map(Bytes::copy_from_slice)
    }
}

impl Decode for Text {
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        decoder.characters("a string").and_then(|bytes| decoder.text(bytes))
    }
}

impl Decode for Symbol {
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        decoder.characters("a symbol").and_then(|bytes| decoder.symbol(bytes))
    }
}

/// A field that may hold several symbols: null, one symbol, or an array of them.
impl Decode for Vec<Symbol> {
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let offset = decoder.position();
        let elements = match Value::decode(decoder)? {
            Value::Null => return Ok(Vec::new()),
            Value::Array(array) => array.into_elements(),
            Value::List(values) => values,
            single => vec![single],
        };
        elements.into_iter().map(|element| into_symbol(element, offset)).collect()
    }

    fn absent() -> Option<Self> {
        Some(Vec::new())
    }
}

fn into_symbol(value: Value, offset: usize) -> Result<Symbol, DecodeError> {
    let error = |problem| DecodeError::new(offset, problem);
    match value {
        Value::Symbol(symbol) => Ok(symbol),
        Value::String(text) => Symbol::parse(text.as_str()).map_err(|_| error(Problem::NotAscii)),
        _ => Err(error(Problem::Unexpected { expected: "symbols", code: c::SYMBOL8 })),
    }
}

impl Decode for Fields {
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        decoder.descend()?;
        let map = decoder.enter_map("a map of fields")?;
        let count = decoder.charge(map.count)?;
        let fields = (0..count / 2)
            .map(|_| Ok((Symbol::decode(decoder)?, Value::decode(decoder)?)))
            .collect::<Result<Self, DecodeError>>()?;
        decoder.leave_exact(&map)?;
        decoder.ascend();
        Ok(fields)
    }
}

impl Decode for Vec<Value> {
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        match decoder.byte()? {
            c::LIST0 => Ok(Vec::new()),
            c::LIST8 => decoder.list(false),
            c::LIST32 => decoder.list(true),
            code => Err(decoder.unexpected("a list", code)),
        }
    }
}

impl Decode for Vec<(Value, Value)> {
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        match decoder.byte()? {
            c::MAP8 => decoder.map(false),
            c::MAP32 => decoder.map(true),
            code => Err(decoder.unexpected("a map", code)),
        }
    }
}

impl Decode for DeliveryTag {
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let tag = decoder.binary()?;
        DeliveryTag::new(tag).map_err(|error| decoder.error(Problem::TagTooLong { len: error.len }))
    }
}

impl Decode for Role {
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(if bool::decode(decoder)? { Self::Receiver } else { Self::Sender })
    }
}

impl Decode for SenderSettleMode {
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        match u8::decode(decoder)? {
            0 => Ok(Self::Unsettled),
            1 => Ok(Self::Settled),
            2 => Ok(Self::Mixed),
            value => Err(decoder.out_of_range("sender settle mode", value)),
        }
    }
}

impl Decode for ReceiverSettleMode {
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        match u8::decode(decoder)? {
            0 => Ok(Self::First),
            1 => Ok(Self::Second),
            value => Err(decoder.out_of_range("receiver settle mode", value)),
        }
    }
}

impl Decode for SaslCode {
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(match u8::decode(decoder)? {
            0 => Self::Ok,
            1 => Self::Auth,
            2 => Self::Sys,
            3 => Self::SysPerm,
            4 => Self::SysTemp,
            value => return Err(decoder.out_of_range("SASL outcome code", value)),
        })
    }
}

impl<'a> Decoder<'a> {
    pub(super) fn boolean(&mut self) -> Result<bool, DecodeError> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(self.out_of_range("boolean", value)),
        }
    }

    pub(super) fn out_of_range(&self, what: &'static str, value: u8) -> DecodeError {
        self.error(Problem::OutOfRange { what, value: value.into() })
    }

    /// Reads a binary, borrowed.
    pub(crate) fn binary(&mut self) -> Result<&'a [u8], DecodeError> {
        match self.byte()? {
            c::BINARY8 => self.counted(false),
            c::BINARY32 => self.counted(true),
            code => Err(self.unexpected("a binary", code)),
        }
    }

    /// Reads a string or a symbol, borrowed: some clients write one where the standard requires the other.
    pub(crate) fn characters(&mut self, expected: &'static str) -> Result<&'a [u8], DecodeError> {
        match self.byte()? {
            c::STRING8 | c::SYMBOL8 => self.counted(false),
            c::STRING32 | c::SYMBOL32 => self.counted(true),
            code => Err(self.unexpected(expected, code)),
        }
    }

    pub(super) fn text(&self, bytes: &[u8]) -> Result<Text, DecodeError> {
        Text::from_utf8(Bytes::copy_from_slice(bytes)).map_err(|_| self.error(Problem::NotUtf8))
    }

    pub(super) fn symbol(&self, bytes: &[u8]) -> Result<Symbol, DecodeError> {
        Symbol::from_ascii(Bytes::copy_from_slice(bytes)).map_err(|_| self.error(Problem::NotAscii))
    }

    /// Reads the descriptor of a type that is known by its position.
    pub(crate) fn expect_descriptor(&mut self, code: u8, expected: &'static str) -> Result<(), DecodeError> {
        let offset = self.position();
        match self.descriptor_code(expected)? {
            found if found == u64::from(code) => Ok(()),
            found => Err(DecodeError::new(offset, Problem::UnknownDescriptor { expected, code: found })),
        }
    }
}
