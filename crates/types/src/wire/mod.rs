//! The one codec of records, settings, snapshots and stored rules.
//!
//! ```text
//! number   seven bits per byte, the lowest first; the top bit is set while more bytes follow
//! sized    length (number), then so many bytes
//! field    tag (number), then a sized value
//! struct   fields with rising tags
//! record   kind (number), then sized: positional values, then fields with rising tags
//! ```
//! [`tags`] registers every kind and every tag. A decoder that finds an unregistered one returns
//! [`DecodeError::Unknown`]: it never skips a field. Decoding checks everything, because the bytes come from a disk.

#[macro_use]
mod fields;
#[macro_use]
mod records;
pub mod tags;
mod values;

pub use self::fields::{Fields, found_or, put_field, put_large_field};
pub use self::records::{Codec, Fixed, Large, Place, Plain, begin_record, end_record, take_record};

/// Bytes that are not a valid encoding.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("the bytes end inside of {0}")]
    Short(&'static str),
    #[error("{0} has an impossible value")]
    Value(&'static str),
    #[error("{0} is missing")]
    Missing(&'static str),
    /// The kind or tag is not registered here: a newer version wrote the bytes.
    #[error("the {of} {tag} is unknown")]
    Unknown { of: &'static str, tag: u64 },
    #[error("the checksum of the snapshot does not match its bytes")]
    Checksum,
}

/// A value that can be encoded.
pub trait Wire: Sized {
    /// Whether the value extends to the end of its bytes, so that it needs a length where something follows it.
    const IS_OPEN: bool;

    fn put_value(&self, out: &mut Vec<u8>);

    /// Decodes the value at the front of `input`, or all of `input` if the value is open. `what` names it in errors.
    fn take_value(input: &mut Decoder<'_>, what: &'static str) -> Result<Self, DecodeError>;

    /// Returns the value of an omitted field, for types that can be omitted.
    fn absent() -> Option<Self> {
        None
    }

    /// Returns whether a field with this value is omitted.
    fn is_absent(&self) -> bool {
        false
    }

    /// Returns whether the value has so many bytes that they should not be moved once more; see [`put_large`].
    fn is_large(&self) -> bool {
        false
    }

    /// Appends the value so that others can follow it.
    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        if Self::IS_OPEN { put_sized_value(self, out) } else { self.put_value(out) }
    }

    /// Decodes a value that [`Wire::put`] appended.
    #[inline]
    fn take(input: &mut Decoder<'_>, what: &'static str) -> Result<Self, DecodeError> {
        if Self::IS_OPEN { input.sized(what)?.whole(what) } else { Self::take_value(input, what) }
    }
}

#[inline]
pub fn put_number(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

/// Appends the step from one number to another, short if they are close, whichever is larger.
pub fn put_step(from: u64, to: u64, out: &mut Vec<u8>) {
    let step = to.wrapping_sub(from).cast_signed();
    put_number(((step << 1) ^ (step >> 63)).cast_unsigned(), out);
}

#[inline]
pub fn put_fixed(number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&number.to_le_bytes());
}

pub fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    put_number(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Appends the bytes that `write` appends, with their length in front.
#[inline]
pub fn put_sized(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    put_sized_in::<1>(out, write);
}

/// Like [`put_sized`], for many bytes: the length takes eight bytes, so that the bytes after it need not move when it
/// is known.
pub fn put_large(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    put_sized_in::<8>(out, write);
}

#[inline]
fn put_sized_value<T: Wire>(value: &T, out: &mut Vec<u8>) {
    if value.is_large() {
        put_large(out, |out| value.put_value(out));
    } else {
        put_sized(out, |out| value.put_value(out));
    }
}

#[inline]
fn put_sized_in<const ROOM: usize>(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = open_sized::<ROOM>(out);
    write(out);
    close_sized::<ROOM>(start, out);
}

/// Reserves space for a length and returns where the sized bytes start.
#[inline]
fn open_sized<const ROOM: usize>(out: &mut Vec<u8>) -> usize {
    out.extend_from_slice(&[0; ROOM]);
    out.len()
}

/// Writes the length of everything from `start` on into the space before it. A length that needs more space moves the
/// bytes.
#[inline]
fn close_sized<const ROOM: usize>(start: usize, out: &mut Vec<u8>) {
    let length = (out.len() - start) as u64;
    if length >> (7 * ROOM) != 0 {
        return widen::<ROOM>(start, length, out);
    }
    let Some(room) = out.get_mut(start - ROOM..start) else { return };
    let last = ROOM - 1;
    for (at, byte) in room.iter_mut().enumerate() {
        let more = if at < last { 0x80 } else { 0 };
        *byte = ((length >> (7 * at)) & 0x7f).to_le_bytes()[0] | more;
    }
}

#[cold]
fn widen<const ROOM: usize>(start: usize, length: u64, out: &mut Vec<u8>) {
    let mut number = Vec::with_capacity(10);
    put_number(length, &mut number);
    out.splice(start - ROOM..start, number);
}

/// Decodes values from the front of its bytes. Each method takes the name of the value, for errors.
#[derive(Clone, Copy, Debug)]
pub struct Decoder<'a> {
    pub rest: &'a [u8],
}

impl<'a> Decoder<'a> {
    pub fn new(rest: &'a [u8]) -> Self {
        Decoder { rest }
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    #[inline]
    pub fn byte(&mut self, what: &'static str) -> Result<u8, DecodeError> {
        let (&byte, rest) = self.rest.split_first().ok_or(DecodeError::Short(what))?;
        self.rest = rest;
        Ok(byte)
    }

    pub fn flag(&mut self, what: &'static str) -> Result<bool, DecodeError> {
        match self.byte(what)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(DecodeError::Value(what)),
        }
    }

    #[inline]
    pub fn number(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte(what)?;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has space for one bit only.
            if shift == 63 && bits > 1 {
                break;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(DecodeError::Value(what))
    }

    pub fn number32(&mut self, what: &'static str) -> Result<u32, DecodeError> {
        u32::try_from(self.number(what)?).map_err(|_| DecodeError::Value(what))
    }

    /// Decodes a count of items that take at least a byte each, so that a wrong count cannot make the caller reserve
    /// memory.
    pub fn count(&mut self, what: &'static str) -> Result<usize, DecodeError> {
        let count = usize::try_from(self.number(what)?).map_err(|_| DecodeError::Value(what))?;
        if count > self.rest.len() { Err(DecodeError::Short(what)) } else { Ok(count) }
    }

    pub fn step(&mut self, from: u64, what: &'static str) -> Result<u64, DecodeError> {
        let zigzag = self.number(what)?;
        let step = (zigzag >> 1) ^ (zigzag & 1).wrapping_neg();
        Ok(from.wrapping_add(step))
    }

    #[inline]
    pub fn fixed(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        self.array(what).map(u64::from_le_bytes)
    }

    pub fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], DecodeError> {
        let (array, rest) = self.rest.split_first_chunk().ok_or(DecodeError::Short(what))?;
        self.rest = rest;
        Ok(*array)
    }

    pub fn bytes(&mut self, what: &'static str) -> Result<&'a [u8], DecodeError> {
        let len = self.count(what)?;
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or(DecodeError::Short(what))?;
        self.rest = rest;
        Ok(bytes)
    }

    /// Returns a decoder of sized bytes.
    pub fn sized(&mut self, what: &'static str) -> Result<Decoder<'a>, DecodeError> {
        self.bytes(what).map(Decoder::new)
    }

    pub fn text(&mut self, what: &'static str) -> Result<&'a str, DecodeError> {
        std::str::from_utf8(self.bytes(what)?).map_err(|_| DecodeError::Value(what))
    }

    /// Returns all remaining bytes.
    pub fn remaining(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// Ends a row of positional values: a newer version may have added fields after them, which are unknown here.
    pub fn end_row(mut self, of: &'static str) -> Result<(), DecodeError> {
        match Fields::new(&mut self).next_field()? {
            Some((tag, _)) => Err(DecodeError::Unknown { of, tag }),
            None => Ok(()),
        }
    }

    pub fn take<T: Wire>(&mut self, what: &'static str) -> Result<T, DecodeError> {
        T::take(self, what)
    }

    /// Decodes one value that takes all the bytes.
    pub fn whole<T: Wire>(mut self, what: &'static str) -> Result<T, DecodeError> {
        let value = T::take_value(&mut self, what)?;
        if self.rest.is_empty() { Ok(value) } else { Err(DecodeError::Value(what)) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_are_decoded_as_encoded(number: u64, shift in 0..64u32, from: u64) {
            let number = number >> shift;
            let mut bytes = Vec::new();
            put_number(number, &mut bytes);
            put_step(from, number, &mut bytes);
            let mut decoder = Decoder::new(&bytes);
            prop_assert_eq!(decoder.number("it"), Ok(number));
            prop_assert_eq!(decoder.step(from, "it"), Ok(number));
            prop_assert!(decoder.is_empty());
        }

        #[test]
        fn sized_bytes_are_decoded_as_encoded(length in 0..40_000usize, is_large: bool) {
            let content = vec![7; length];
            let mut bytes = vec![1];
            let write = |out: &mut Vec<u8>| out.extend_from_slice(&content);
            if is_large { put_large(&mut bytes, write) } else { put_sized(&mut bytes, write) }
            bytes.push(2);
            let mut decoder = Decoder::new(&bytes[1..]);
            prop_assert_eq!(decoder.bytes("it").unwrap(), &content);
            prop_assert_eq!(decoder.rest, &[2]);
        }
    }

    #[test]
    fn a_number_beyond_64_bits_is_rejected() {
        let mut decoder = Decoder::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02]);
        assert_eq!(decoder.number("it"), Err(DecodeError::Value("it")));
        let mut decoder = Decoder::new(&[0x80; 20]);
        assert_eq!(decoder.number("it"), Err(DecodeError::Value("it")));
    }
}
