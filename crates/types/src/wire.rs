//! The few shapes of which records and snapshots are made. Reading checks everything: the bytes come from a disk.

use crate::{EntityName, Timestamp, limits};

/// Bytes that do not say what they should.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("the bytes end inside of {0}")]
    Short(&'static str),
    #[error("{0} has an impossible value")]
    Value(&'static str),
    #[error(
        "the snapshot has format {found}, this program knows {known}; use the version of the program that wrote it"
    )]
    Version { found: u8, known: u8 },
    #[error("the checksum of the snapshot does not fit its bytes")]
    Checksum,
}

/// Seven bits per byte, the lowest first; the top bit says that more follow.
#[inline]
pub fn put_number(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

/// The step from one number to another, short if they are close, whichever is larger.
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

pub fn put_optional(bytes: Option<&[u8]>, out: &mut Vec<u8>) {
    out.push(bytes.is_some().into());
    if let Some(bytes) = bytes {
        put_bytes(bytes, out);
    }
}

pub fn put_optional_number(number: Option<u64>, out: &mut Vec<u8>) {
    out.push(number.is_some().into());
    if let Some(number) = number {
        put_number(number, out);
    }
}

/// Reads from the front; each method says what it looks for, so that an error can name it.
#[derive(Clone, Copy, Debug)]
pub struct Decoder<'a> {
    pub rest: &'a [u8],
}

impl<'a> Decoder<'a> {
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

    pub fn number(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte(what)?;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit only.
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

    pub fn step(&mut self, from: u64, what: &'static str) -> Result<u64, DecodeError> {
        let zigzag = self.number(what)?;
        let step = (zigzag >> 1) ^ (zigzag & 1).wrapping_neg();
        Ok(from.wrapping_add(step))
    }

    pub fn fixed(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(DecodeError::Short(what))?;
        self.rest = rest;
        Ok(u64::from_le_bytes(*bytes))
    }

    pub fn bytes(&mut self, max: usize, what: &'static str) -> Result<&'a [u8], DecodeError> {
        let len = usize::try_from(self.number(what)?).ok().filter(|&len| len <= max);
        let len = len.ok_or(DecodeError::Value(what))?;
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or(DecodeError::Short(what))?;
        self.rest = rest;
        Ok(bytes)
    }

    pub fn text(&mut self, max: usize, what: &'static str) -> Result<&'a str, DecodeError> {
        std::str::from_utf8(self.bytes(max, what)?).map_err(|_| DecodeError::Value(what))
    }

    pub fn timestamp(&mut self) -> Result<Timestamp, DecodeError> {
        self.number("a time").map(Timestamp::from_millis)
    }

    pub fn name(&mut self) -> Result<EntityName, DecodeError> {
        let text = self.text(limits::ENTITY_NAME_CHARS_MAX * 4, "an entity name")?;
        EntityName::parse_stored(text).map_err(|_| DecodeError::Value("an entity name"))
    }

    pub fn optional_number(&mut self, what: &'static str) -> Result<Option<u64>, DecodeError> {
        self.flag(what)?.then(|| self.number(what)).transpose()
    }

    pub fn optional_timestamp(&mut self) -> Result<Option<Timestamp>, DecodeError> {
        Ok(self.optional_number("a time")?.map(Timestamp::from_millis))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_come_back(number: u64, shift in 0..64u32, from: u64) {
            let number = number >> shift;
            let mut bytes = Vec::new();
            put_number(number, &mut bytes);
            put_step(from, number, &mut bytes);
            let mut decoder = Decoder { rest: &bytes };
            prop_assert_eq!(decoder.number("it"), Ok(number));
            prop_assert_eq!(decoder.step(from, "it"), Ok(number));
            prop_assert!(decoder.rest.is_empty());
        }
    }

    #[test]
    fn a_number_beyond_64_bits_is_refused() {
        let mut decoder = Decoder { rest: &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02] };
        assert_eq!(decoder.number("it"), Err(DecodeError::Value("it")));
        let mut decoder = Decoder { rest: &[0x80; 20] };
        assert_eq!(decoder.number("it"), Err(DecodeError::Value("it")));
    }
}
