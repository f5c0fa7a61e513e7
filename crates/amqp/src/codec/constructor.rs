//! Format codes of AMQP 1.0 §1.6.

use crate::value::Kind;

/// The code before a descriptor.
pub const DESCRIBED: u8 = 0x00;
/// The code of a null.
pub const NULL: u8 = 0x40;
pub(crate) const TRUE: u8 = 0x41;
pub(crate) const FALSE: u8 = 0x42;
pub(crate) const UINT0: u8 = 0x43;
pub(crate) const ULONG0: u8 = 0x44;
/// The code of the empty list.
pub const LIST0: u8 = 0x45;
pub(crate) const UBYTE: u8 = 0x50;
pub(crate) const BYTE: u8 = 0x51;
pub(crate) const SMALL_UINT: u8 = 0x52;
pub(crate) const SMALL_ULONG: u8 = 0x53;
pub(crate) const SMALL_INT: u8 = 0x54;
pub(crate) const SMALL_LONG: u8 = 0x55;
pub(crate) const BOOLEAN: u8 = 0x56;
pub(crate) const USHORT: u8 = 0x60;
pub(crate) const SHORT: u8 = 0x61;
pub(crate) const UINT: u8 = 0x70;
pub(crate) const INT: u8 = 0x71;
pub(crate) const FLOAT: u8 = 0x72;
pub(crate) const CHAR: u8 = 0x73;
pub(crate) const DECIMAL32: u8 = 0x74;
pub(crate) const ULONG: u8 = 0x80;
pub(crate) const LONG: u8 = 0x81;
pub(crate) const DOUBLE: u8 = 0x82;
pub(crate) const TIMESTAMP: u8 = 0x83;
pub(crate) const DECIMAL64: u8 = 0x84;
pub(crate) const DECIMAL128: u8 = 0x94;
pub(crate) const UUID: u8 = 0x98;
/// The code of a binary with a length of one byte.
pub const BINARY8: u8 = 0xa0;
/// The code of a string with a length of one byte.
pub const STRING8: u8 = 0xa1;
pub(crate) const SYMBOL8: u8 = 0xa3;
/// The code of a binary with a length of four bytes.
pub const BINARY32: u8 = 0xb0;
pub(crate) const STRING32: u8 = 0xb1;
pub(crate) const SYMBOL32: u8 = 0xb3;
/// The code of a list with a size of one byte.
pub const LIST8: u8 = 0xc0;
pub(crate) const MAP8: u8 = 0xc1;
/// The code of a list with a size of four bytes.
pub const LIST32: u8 = 0xd0;
pub(crate) const MAP32: u8 = 0xd1;
pub(crate) const ARRAY8: u8 = 0xe0;
pub(crate) const ARRAY32: u8 = 0xf0;

/// The number of bytes after a format code.
pub enum Width {
    Fixed(usize),
    /// A length in one byte, then that many bytes.
    Counted8,
    /// A length in four bytes, then that many bytes.
    Counted32,
}

/// Returns the width of a format code. The high half of a code defines it, also for codes that no type uses yet.
pub fn width(code: u8) -> Option<Width> {
    Some(match code >> 4 {
        0x4 => Width::Fixed(0),
        0x5 => Width::Fixed(1),
        0x6 => Width::Fixed(2),
        0x7 => Width::Fixed(4),
        0x8 => Width::Fixed(8),
        0x9 => Width::Fixed(16),
        0xa | 0xc | 0xe => Width::Counted8,
        0xb | 0xd | 0xf => Width::Counted32,
        _ => return None,
    })
}

pub(crate) fn kind(code: u8) -> Option<Kind> {
    Some(match code {
        NULL => Kind::Null,
        TRUE | FALSE | BOOLEAN => Kind::Boolean,
        UBYTE => Kind::Ubyte,
        USHORT => Kind::Ushort,
        UINT0 | SMALL_UINT | UINT => Kind::Uint,
        ULONG0 | SMALL_ULONG | ULONG => Kind::Ulong,
        BYTE => Kind::Byte,
        SHORT => Kind::Short,
        SMALL_INT | INT => Kind::Int,
        SMALL_LONG | LONG => Kind::Long,
        FLOAT => Kind::Float,
        DOUBLE => Kind::Double,
        CHAR => Kind::Char,
        DECIMAL32 => Kind::Decimal32,
        DECIMAL64 => Kind::Decimal64,
        DECIMAL128 => Kind::Decimal128,
        TIMESTAMP => Kind::Timestamp,
        UUID => Kind::Uuid,
        BINARY8 | BINARY32 => Kind::Binary,
        STRING8 | STRING32 => Kind::String,
        SYMBOL8 | SYMBOL32 => Kind::Symbol,
        LIST0 | LIST8 | LIST32 => Kind::List,
        MAP8 | MAP32 => Kind::Map,
        ARRAY8 | ARRAY32 => Kind::Array,
        _ => return None,
    })
}
