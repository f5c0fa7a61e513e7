//! Encodes the types of fields, always in their smallest form.

use bytes::{BufMut, Bytes, BytesMut};

use super::constructor as c;
use crate::performative::{DeliveryTag, ReceiverSettleMode, Role, SenderSettleMode};
use crate::sasl::SaslCode;
use crate::text::{Symbol, Text};
use crate::value::Fields;

/// A type that can be written as AMQP bytes.
pub trait Encode {
    fn encode(&self, out: &mut BytesMut);

    /// Returns whether a field with this value is written as null.
    fn is_absent(&self) -> bool {
        false
    }

    /// Returns the encoding in a buffer of its own.
    fn to_bytes(&self) -> Bytes {
        let mut out = BytesMut::new();
        self.encode(&mut out);
        out.freeze()
    }
}

/// Returns the length of an encoded value. Frame and message limits are far below 4 GiB.
pub fn length_u32(len: usize) -> u32 {
    u32::try_from(len).expect("frames and messages are limited to sizes far below 4 GiB")
}

/// Writes the descriptor of a type.
/// SDK quirk: pyamqp expects the code at byte 2, so a descriptor is always a smallulong.
pub fn put_descriptor(out: &mut BytesMut, code: u8) {
    out.put_slice(&[c::DESCRIBED, c::SMALL_ULONG, code]);
}

/// Writes a list, map or array whose size is known only at its end.
#[derive(Debug)]
pub struct CompoundWriter {
    start: usize,
}

impl CompoundWriter {
    const HEADER8_LEN: usize = 3;
    const HEADER32_LEN: usize = 9;

    pub fn list(out: &mut BytesMut) -> Self {
        Self::begin(out, c::LIST8)
    }

    pub fn map(out: &mut BytesMut) -> Self {
        Self::begin(out, c::MAP8)
    }

    pub(crate) fn array(out: &mut BytesMut) -> Self {
        Self::begin(out, c::ARRAY8)
    }

    fn begin(out: &mut BytesMut, code: u8) -> Self {
        let start = out.len();
        out.put_slice(&[code, 0, 0]);
        Self { start }
    }

    /// Fills in size and count. Content that is too long for the small form is moved to make room for the large one.
    pub fn finish(self, out: &mut BytesMut, count: usize) {
        let content_len = out.len() - self.start - Self::HEADER8_LEN;
        match (u8::try_from(content_len + 1), u8::try_from(count)) {
            (Ok(size), Ok(count)) => {
                out[self.start + 1] = size;
                out[self.start + 2] = count;
            }
            _ => self.widen(out, content_len, count),
        }
    }

    #[cold]
    fn widen(self, out: &mut BytesMut, content_len: usize, count: usize) {
        let content = self.start + Self::HEADER8_LEN;
        out.resize(out.len() + Self::HEADER32_LEN - Self::HEADER8_LEN, 0);
        out.copy_within(content..content + content_len, self.start + Self::HEADER32_LEN);
        out[self.start] += c::LIST32 - c::LIST8;
        out[self.start + 1..self.start + 5].copy_from_slice(&length_u32(content_len + 4).to_be_bytes());
        out[self.start + 5..self.start + 9].copy_from_slice(&length_u32(count).to_be_bytes());
    }
}

/// Writes the list of a composite.
#[derive(Debug)]
pub(crate) struct ListWriter {
    list: CompoundWriter,
    count: usize,
    /// Fields up to the last one that is set, and where it ends.
    set_count: usize,
    set_end: usize,
}

impl ListWriter {
    pub(crate) fn begin(out: &mut BytesMut) -> Self {
        let list = CompoundWriter::list(out);
        Self { list, count: 0, set_count: 0, set_end: out.len() }
    }

    #[inline]
    pub(crate) fn field<T: Encode>(&mut self, out: &mut BytesMut, value: &T) {
        self.count += 1;
        if value.is_absent() {
            out.put_u8(c::NULL);
        } else {
            value.encode(out);
            self.set_count = self.count;
            self.set_end = out.len();
        }
    }

    /// Writes a flag whose absence means false.
    #[inline]
    pub(crate) fn flag(&mut self, out: &mut BytesMut, value: bool) {
        self.field(out, &value.then_some(true));
    }

    /// Ends the list behind the last field that is set.
    pub(crate) fn finish_trimmed(self, out: &mut BytesMut) {
        out.truncate(self.set_end);
        if self.set_count == 0 {
            out.truncate(self.list.start);
            out.put_u8(c::LIST0);
        } else {
            self.list.finish(out, self.set_count);
        }
    }

    /// Ends the list with all its fields, nulls included.
    pub(crate) fn finish(self, out: &mut BytesMut) {
        self.list.finish(out, self.count);
    }
}

/// Writes a length and the bytes, with the format code that fits the length.
pub fn put_counted(out: &mut BytesMut, code8: u8, bytes: &[u8]) {
    match u8::try_from(bytes.len()) {
        Ok(len) => out.put_slice(&[code8, len]),
        Err(_) => {
            out.put_u8(code8 + (c::BINARY32 - c::BINARY8));
            out.put_u32(length_u32(bytes.len()));
        }
    }
    out.put_slice(bytes);
}

impl<T: Encode> Encode for Option<T> {
    #[inline]
    fn encode(&self, out: &mut BytesMut) {
        match self {
            Some(value) => value.encode(out),
            None => out.put_u8(c::NULL),
        }
    }

    #[inline]
    fn is_absent(&self) -> bool {
        self.as_ref().is_none_or(T::is_absent)
    }
}

impl<T: Encode> Encode for Box<T> {
    fn encode(&self, out: &mut BytesMut) {
        T::encode(self, out);
    }
}

impl Encode for bool {
    #[inline]
    fn encode(&self, out: &mut BytesMut) {
        out.put_u8(if *self { c::TRUE } else { c::FALSE });
    }
}

impl Encode for u8 {
    fn encode(&self, out: &mut BytesMut) {
        out.put_slice(&[c::UBYTE, *self]);
    }
}

impl Encode for u16 {
    fn encode(&self, out: &mut BytesMut) {
        out.put_u8(c::USHORT);
        out.put_u16(*self);
    }
}

impl Encode for u32 {
    #[inline]
    fn encode(&self, out: &mut BytesMut) {
        match u8::try_from(*self) {
            Ok(0) => out.put_u8(c::UINT0),
            Ok(small) => out.put_slice(&[c::SMALL_UINT, small]),
            Err(_) => {
                let [b0, b1, b2, b3] = self.to_be_bytes();
                out.put_slice(&[c::UINT, b0, b1, b2, b3]);
            }
        }
    }
}

impl Encode for u64 {
    fn encode(&self, out: &mut BytesMut) {
        match u8::try_from(*self) {
            Ok(0) => out.put_u8(c::ULONG0),
            Ok(small) => out.put_slice(&[c::SMALL_ULONG, small]),
            Err(_) => {
                out.put_u8(c::ULONG);
                out.put_u64(*self);
            }
        }
    }
}

impl Encode for Bytes {
    fn encode(&self, out: &mut BytesMut) {
        put_counted(out, c::BINARY8, self);
    }
}

impl Encode for Text {
    fn encode(&self, out: &mut BytesMut) {
        put_counted(out, c::STRING8, self.as_bytes());
    }
}

impl Encode for Symbol {
    fn encode(&self, out: &mut BytesMut) {
        put_counted(out, c::SYMBOL8, self.as_bytes());
    }
}

/// SDK quirk: pyamqp searches SASL mechanisms with `in`, so even a single symbol is written as an array.
impl Encode for Vec<Symbol> {
    fn encode(&self, out: &mut BytesMut) {
        let array = CompoundWriter::array(out);
        let wide = self.iter().any(|symbol| symbol.len() > usize::from(u8::MAX));
        out.put_u8(if wide { c::SYMBOL32 } else { c::SYMBOL8 });
        for symbol in self {
            super::encode_value::put_counted_body(out, wide, symbol.as_bytes());
        }
        array.finish(out, self.len());
    }

    fn is_absent(&self) -> bool {
        self.is_empty()
    }
}

impl Encode for Fields {
    fn encode(&self, out: &mut BytesMut) {
        let map = CompoundWriter::map(out);
        for (key, value) in self {
            key.encode(out);
            value.encode(out);
        }
        map.finish(out, self.len() * 2);
    }
}

impl Encode for DeliveryTag {
    fn encode(&self, out: &mut BytesMut) {
        put_counted(out, c::BINARY8, self.as_slice());
    }
}

impl Encode for Role {
    fn encode(&self, out: &mut BytesMut) {
        (*self == Self::Receiver).encode(out);
    }
}

impl Encode for SenderSettleMode {
    fn encode(&self, out: &mut BytesMut) {
        let mode: u8 = match self {
            Self::Unsettled => 0,
            Self::Settled => 1,
            Self::Mixed => 2,
        };
        mode.encode(out);
    }
}

impl Encode for ReceiverSettleMode {
    fn encode(&self, out: &mut BytesMut) {
        self.code().encode(out);
    }
}

impl Encode for SaslCode {
    fn encode(&self, out: &mut BytesMut) {
        let code: u8 = match self {
            Self::Ok => 0,
            Self::Auth => 1,
            Self::Sys => 2,
            Self::SysPerm => 3,
            Self::SysTemp => 4,
        };
        code.encode(out);
    }
}
