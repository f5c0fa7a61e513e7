//! The encoding of views, changes and stored rules. Decoding checks everything, because the bytes come from disk or from a peer.

use bytes::Bytes;

/// The reason why bytes cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("the bytes end inside of {0}")]
    Short(&'static str),
    #[error("{0} has an impossible value")]
    Value(&'static str),
}

/// Writes a number with seven bits per byte, the lowest first. The top bit marks that more bytes follow.
pub(crate) fn put_number(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

pub(crate) fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    put_number(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

pub(crate) fn put_text(text: &str, out: &mut Vec<u8>) {
    put_bytes(text.as_bytes(), out);
}

/// Decodes from the front. Each method names its value for errors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decoder<'a> {
    pub(crate) rest: &'a [u8],
}

impl<'a> Decoder<'a> {
    pub(crate) fn byte(&mut self, what: &'static str) -> Result<u8, DecodeError> {
        let (&byte, rest) = self.rest.split_first().ok_or(DecodeError::Short(what))?;
        self.rest = rest;
        Ok(byte)
    }

    pub(crate) fn flag(&mut self, what: &'static str) -> Result<bool, DecodeError> {
        match self.byte(what)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(DecodeError::Value(what)),
        }
    }

    pub(crate) fn number(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte(what)?;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte holds one bit only.
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

    /// Decodes a count of items of at least one byte each, so that a wrong count cannot reserve much memory.
    pub(crate) fn count(&mut self, what: &'static str) -> Result<usize, DecodeError> {
        let count = usize::try_from(self.number(what)?).map_err(|_| DecodeError::Value(what))?;
        if count > self.rest.len() { Err(DecodeError::Short(what)) } else { Ok(count) }
    }

    pub(crate) fn bytes(&mut self, what: &'static str) -> Result<&'a [u8], DecodeError> {
        let len = self.count(what)?;
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or(DecodeError::Short(what))?;
        self.rest = rest;
        Ok(bytes)
    }

    pub(crate) fn text(&mut self, what: &'static str) -> Result<&'a str, DecodeError> {
        std::str::from_utf8(self.bytes(what)?).map_err(|_| DecodeError::Value(what))
    }

    pub(crate) fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], DecodeError> {
        let (array, rest) = self.rest.split_first_chunk().ok_or(DecodeError::Short(what))?;
        self.rest = rest;
        Ok(*array)
    }
}

/// Copies bytes, so that the result does not keep a whole frame in memory.
pub(crate) fn keep(bytes: &[u8]) -> Bytes {
    Bytes::copy_from_slice(bytes)
}
