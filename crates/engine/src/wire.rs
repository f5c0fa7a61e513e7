//! The few shapes of which records and snapshots are made. Reading checks everything: the bytes come from a disk.

use std::ops::{Deref, DerefMut};

use bytes::Bytes;
use peeklock_filter::{Rule, RuleName};
use peeklock_types::wire;
pub(crate) use peeklock_types::wire::{
    DecodeError, put_bytes, put_fixed, put_number, put_optional, put_optional_number, put_step,
};
use peeklock_types::{EntityKind, SequenceNumber, SessionId, limits};

use crate::message::{EntityId, Metadata};
use crate::patch::{PATCH_SIZE_BYTES_MAX, Patch, PatchPart};
pub(crate) use crate::wire_message::{put_attributes, put_details};
pub(crate) use crate::wire_settings::put_settings;

/// A patch of tiny parts has no more than this many, by its size limit.
const PATCH_PART_COUNT_MAX: u64 = PATCH_SIZE_BYTES_MAX as u64 / 16 + 2;
/// A character takes up to four bytes.
const TEXT_SIZE_BYTES_MAX: usize = limits::DEAD_LETTER_TEXT_CHARS_MAX * 4;
const PART_PROPERTIES: u8 = 0;
const PART_DEAD_LETTER: u8 = 1;
const PART_CHANGES: u8 = 2;

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

/// Reads from the front what is particular to queues; the rest is [`wire::Decoder`]'s.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decoder<'a>(wire::Decoder<'a>);

impl<'a> Decoder<'a> {
    pub(crate) fn new(rest: &'a [u8]) -> Self {
        Decoder(wire::Decoder { rest })
    }
}

impl<'a> Deref for Decoder<'a> {
    type Target = wire::Decoder<'a>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Decoder<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl Decoder<'_> {
    pub(crate) fn entity(&mut self) -> Result<EntityId, DecodeError> {
        self.number32("an entity number").map(EntityId)
    }

    pub(crate) fn sequence_number(&mut self) -> Result<SequenceNumber, DecodeError> {
        self.number("a sequence number").map(SequenceNumber)
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

    /// What a session keeps.
    pub(crate) fn optional_state(&mut self) -> Result<Option<Bytes>, DecodeError> {
        let what = "a session's state";
        let state = |decoder: &mut Self| {
            decoder.bytes(limits::SESSION_STATE_BYTES_MAX, what).map(Bytes::copy_from_slice)
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
