//! The few shapes of which records and snapshots are made. Reading checks everything: the bytes come from a disk.

use bytes::Bytes;
use peeklock_filter::{Rule, RuleName};
use peeklock_types::{EntityKind, EntityName, SequenceNumber, SessionId, Timestamp, limits};

use crate::message::{EntityId, Metadata};
use crate::patch::{PATCH_SIZE_BYTES_MAX, Patch, PatchPart};
pub(crate) use crate::wire_message::{put_attributes, put_details};
pub(crate) use crate::wire_settings::put_settings;

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

/// A patch of tiny parts has no more than this many, by its size limit.
const PATCH_PART_COUNT_MAX: u64 = PATCH_SIZE_BYTES_MAX as u64 / 16 + 2;
/// A character takes up to four bytes.
const TEXT_SIZE_BYTES_MAX: usize = limits::DEAD_LETTER_TEXT_CHARS_MAX * 4;
const PART_PROPERTIES: u8 = 0;
const PART_DEAD_LETTER: u8 = 1;
const PART_CHANGES: u8 = 2;

/// Seven bits per byte, the lowest first; the top bit says that more follow.
#[inline]
pub(crate) fn put_number(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

/// The step from one number to another, short if they are close, whichever is larger.
pub(crate) fn put_step(from: u64, to: u64, out: &mut Vec<u8>) {
    let step = to.wrapping_sub(from).cast_signed();
    put_number(((step << 1) ^ (step >> 63)).cast_unsigned(), out);
}

#[inline]
pub(crate) fn put_fixed(number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&number.to_le_bytes());
}

pub(crate) fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    put_number(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

pub(crate) fn put_optional(bytes: Option<&[u8]>, out: &mut Vec<u8>) {
    out.push(bytes.is_some().into());
    if let Some(bytes) = bytes {
        put_bytes(bytes, out);
    }
}

pub(crate) fn put_optional_number(number: Option<u64>, out: &mut Vec<u8>) {
    out.push(number.is_some().into());
    if let Some(number) = number {
        put_number(number, out);
    }
}

pub(crate) fn put_kind(kind: EntityKind, out: &mut Vec<u8>) {
    out.push(match kind {
        EntityKind::Queue => 0,
        EntityKind::Topic => 1,
        EntityKind::Subscription => 2,
    });
}

pub(crate) fn put_patch(patch: &Patch, out: &mut Vec<u8>) {
    put_number(patch.parts.len() as u64, out);
    for part in &patch.parts {
        match part {
            PatchPart::Properties(map) => {
                out.push(PART_PROPERTIES);
                put_bytes(map, out);
            }
            PatchPart::Changes(changes) => {
                out.push(PART_CHANGES);
                put_bytes(changes, out);
            }
            PatchPart::DeadLetter { reason, description } => {
                out.push(PART_DEAD_LETTER);
                put_optional(reason.as_deref().map(str::as_bytes), out);
                put_optional(description.as_deref().map(str::as_bytes), out);
            }
        }
    }
}

pub(crate) fn put_metadata(metadata: &Metadata, out: &mut Vec<u8>) {
    put_number(metadata.0.len() as u64, out);
    for (name, value) in &metadata.0 {
        put_bytes(name.as_bytes(), out);
        put_bytes(value.as_bytes(), out);
    }
}

/// Reads from the front; each method says what it looks for, so that an error can name it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    pub(crate) rest: &'a [u8],
}

impl<'a> Reader<'a> {
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

    pub(crate) fn number32(&mut self, what: &'static str) -> Result<u32, DecodeError> {
        u32::try_from(self.number(what)?).map_err(|_| DecodeError::Value(what))
    }

    pub(crate) fn step(&mut self, from: u64, what: &'static str) -> Result<u64, DecodeError> {
        let zigzag = self.number(what)?;
        let step = (zigzag >> 1) ^ (zigzag & 1).wrapping_neg();
        Ok(from.wrapping_add(step))
    }

    pub(crate) fn fixed(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(DecodeError::Short(what))?;
        self.rest = rest;
        Ok(u64::from_le_bytes(*bytes))
    }

    pub(crate) fn bytes(&mut self, max: usize, what: &'static str) -> Result<&'a [u8], DecodeError> {
        let len = usize::try_from(self.number(what)?).ok().filter(|&len| len <= max);
        let len = len.ok_or(DecodeError::Value(what))?;
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or(DecodeError::Short(what))?;
        self.rest = rest;
        Ok(bytes)
    }

    pub(crate) fn text(&mut self, max: usize, what: &'static str) -> Result<&'a str, DecodeError> {
        std::str::from_utf8(self.bytes(max, what)?).map_err(|_| DecodeError::Value(what))
    }

    pub(crate) fn entity(&mut self) -> Result<EntityId, DecodeError> {
        self.number32("an entity number").map(EntityId)
    }

    pub(crate) fn sequence_number(&mut self) -> Result<SequenceNumber, DecodeError> {
        self.number("a sequence number").map(SequenceNumber)
    }

    pub(crate) fn timestamp(&mut self) -> Result<Timestamp, DecodeError> {
        self.number("a time").map(Timestamp::from_millis)
    }

    pub(crate) fn name(&mut self) -> Result<EntityName, DecodeError> {
        let text = self.text(limits::ENTITY_NAME_CHARS_MAX * 4, "an entity name")?;
        EntityName::parse_stored(text).map_err(|_| DecodeError::Value("an entity name"))
    }

    pub(crate) fn kind(&mut self) -> Result<EntityKind, DecodeError> {
        match self.byte("the kind of an entity")? {
            0 => Ok(EntityKind::Queue),
            1 => Ok(EntityKind::Topic),
            2 => Ok(EntityKind::Subscription),
            _ => Err(DecodeError::Value("the kind of an entity")),
        }
    }

    pub(crate) fn rule(&mut self) -> Result<Rule, DecodeError> {
        Rule::decode(&mut self.rest).map_err(|error| match error {
            peeklock_filter::DecodeError::Short(what) => DecodeError::Short(what),
            peeklock_filter::DecodeError::Value(what) => DecodeError::Value(what),
        })
    }

    pub(crate) fn rule_name(&mut self) -> Result<RuleName, DecodeError> {
        let text = self.text(limits::RULE_NAME_CHARS_MAX * 4, "the name of a rule")?;
        RuleName::parse(text).map_err(|_| DecodeError::Value("the name of a rule"))
    }

    pub(crate) fn session(&mut self) -> Result<SessionId, DecodeError> {
        let text = self.text(limits::SESSION_ID_CHARS_MAX * 4, "a session id")?;
        SessionId::parse(text).map_err(|_| DecodeError::Value("a session id"))
    }

    pub(crate) fn optional_number(&mut self, what: &'static str) -> Result<Option<u64>, DecodeError> {
        self.flag(what)?.then(|| self.number(what)).transpose()
    }

    pub(crate) fn optional_timestamp(&mut self) -> Result<Option<Timestamp>, DecodeError> {
        Ok(self.optional_number("a time")?.map(Timestamp::from_millis))
    }

    /// What a session keeps.
    pub(crate) fn optional_state(&mut self) -> Result<Option<Bytes>, DecodeError> {
        let what = "a session's state";
        let state = |reader: &mut Self| {
            reader.bytes(limits::SESSION_STATE_BYTES_MAX, what).map(Bytes::copy_from_slice)
        };
        self.flag(what)?.then(|| state(self)).transpose()
    }

    pub(crate) fn metadata(&mut self) -> Result<Metadata, DecodeError> {
        let what = "the metadata of a queue";
        let count = self.number(what)?;
        if count > limits::METADATA_COUNT_MAX as u64 {
            return Err(DecodeError::Value(what));
        }
        let mut text = || self.text(limits::METADATA_SIZE_BYTES_MAX, what).map(str::to_owned);
        let pairs = (0..count).map(|_| Ok((text()?, text()?))).collect::<Result<_, DecodeError>>()?;
        let metadata = Metadata(pairs);
        metadata.check().map_err(|_| DecodeError::Value(what))?;
        Ok(metadata)
    }

    pub(crate) fn properties(&mut self) -> Result<Bytes, DecodeError> {
        self.bytes(PATCH_SIZE_BYTES_MAX, "changed properties").map(Bytes::copy_from_slice)
    }

    pub(crate) fn optional_properties(&mut self) -> Result<Option<Bytes>, DecodeError> {
        self.flag("changed properties")?.then(|| self.properties()).transpose()
    }

    fn optional_text(&mut self, what: &'static str) -> Result<Option<String>, DecodeError> {
        self.flag(what)?.then(|| self.text(TEXT_SIZE_BYTES_MAX, what).map(str::to_owned)).transpose()
    }

    pub(crate) fn patch(&mut self) -> Result<Patch, DecodeError> {
        let count = self.number("a patch")?;
        if count > PATCH_PART_COUNT_MAX {
            return Err(DecodeError::Value("a patch"));
        }
        let parts = (0..count).map(|_| self.patch_part()).collect::<Result<_, _>>()?;
        Ok(Patch { parts })
    }

    fn patch_part(&mut self) -> Result<PatchPart, DecodeError> {
        match self.byte("a part of a patch")? {
            PART_PROPERTIES => self.properties().map(PatchPart::Properties),
            PART_CHANGES => self.properties().map(PatchPart::Changes),
            PART_DEAD_LETTER => {
                let reason = self.optional_text("a dead-letter reason")?;
                let description = self.optional_text("a dead-letter description")?;
                Ok(PatchPart::DeadLetter { reason, description })
            }
            _ => Err(DecodeError::Value("a part of a patch")),
        }
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
            let mut reader = Reader { rest: &bytes };
            prop_assert_eq!(reader.number("it"), Ok(number));
            prop_assert_eq!(reader.step(from, "it"), Ok(number));
            prop_assert!(reader.rest.is_empty());
        }
    }

    #[test]
    fn a_number_beyond_64_bits_is_refused() {
        let mut reader = Reader { rest: &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02] };
        assert_eq!(reader.number("it"), Err(DecodeError::Value("it")));
        let mut reader = Reader { rest: &[0x80; 20] };
        assert_eq!(reader.number("it"), Err(DecodeError::Value("it")));
    }
}
