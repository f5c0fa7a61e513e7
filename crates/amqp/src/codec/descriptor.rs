//! Descriptors: the names of the standard's types, as numbers and as symbols.

use super::constructor as c;
use super::decoder::Decoder;
use super::error::DecodeError;

/// A descriptor as received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Descriptor<'a> {
    Code(u64),
    Symbol(&'a [u8]),
}

impl<'a> Descriptor<'a> {
    pub(super) fn read(decoder: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        Ok(match decoder.byte()? {
            c::ULONG0 => Self::Code(0),
            c::SMALL_ULONG => Self::Code(decoder.byte()?.into()),
            c::ULONG => Self::Code(decoder.array().map(u64::from_be_bytes)?),
            c::SYMBOL8 => Self::Symbol(decoder.counted(false)?),
            c::SYMBOL32 => Self::Symbol(decoder.counted(true)?),
            code => return Err(decoder.unexpected("a descriptor", code)),
        })
    }

    pub(crate) fn code(self) -> Option<u64> {
        match self {
            Self::Code(code) => Some(code),
            Self::Symbol(symbol) => code_of(symbol),
        }
    }
}

/// Codes of the sections of a message.
pub mod section {
    pub const HEADER: u8 = 0x70;
    pub const DELIVERY_ANNOTATIONS: u8 = 0x71;
    pub const MESSAGE_ANNOTATIONS: u8 = 0x72;
    pub const PROPERTIES: u8 = 0x73;
    pub const APPLICATION_PROPERTIES: u8 = 0x74;
    pub const DATA: u8 = 0x75;
    pub const SEQUENCE: u8 = 0x76;
    pub const VALUE: u8 = 0x77;
    pub const FOOTER: u8 = 0x78;
}

fn code_of(symbol: &[u8]) -> Option<u64> {
    Some(match symbol {
        b"amqp:open:list" => 0x10,
        b"amqp:begin:list" => 0x11,
        b"amqp:attach:list" => 0x12,
        b"amqp:flow:list" => 0x13,
        b"amqp:transfer:list" => 0x14,
        b"amqp:disposition:list" => 0x15,
        b"amqp:detach:list" => 0x16,
        b"amqp:end:list" => 0x17,
        b"amqp:close:list" => 0x18,
        b"amqp:error:list" => 0x1d,
        b"amqp:received:list" => 0x23,
        b"amqp:accepted:list" => 0x24,
        b"amqp:rejected:list" => 0x25,
        b"amqp:released:list" => 0x26,
        b"amqp:modified:list" => 0x27,
        b"amqp:source:list" => 0x28,
        b"amqp:target:list" => 0x29,
        b"amqp:coordinator:list" => 0x30,
        b"amqp:declare:list" => 0x31,
        b"amqp:discharge:list" => 0x32,
        b"amqp:declared:list" => 0x33,
        b"amqp:transactional-state:list" => 0x34,
        b"amqp:sasl-mechanisms:list" => 0x40,
        b"amqp:sasl-init:list" => 0x41,
        b"amqp:sasl-challenge:list" => 0x42,
        b"amqp:sasl-response:list" => 0x43,
        b"amqp:sasl-outcome:list" => 0x44,
        b"amqp:header:list" => section::HEADER.into(),
        b"amqp:delivery-annotations:map" => section::DELIVERY_ANNOTATIONS.into(),
        b"amqp:message-annotations:map" => section::MESSAGE_ANNOTATIONS.into(),
        b"amqp:properties:list" => section::PROPERTIES.into(),
        b"amqp:application-properties:map" => section::APPLICATION_PROPERTIES.into(),
        b"amqp:data:binary" => section::DATA.into(),
        b"amqp:amqp-sequence:list" => section::SEQUENCE.into(),
        b"amqp:amqp-value:*" => section::VALUE.into(),
        b"amqp:footer:map" => section::FOOTER.into(),
        _ => return None,
    })
}
