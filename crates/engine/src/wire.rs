//! The encoding of the types of queues. The forms are those of [`peeklock_types::wire`].

use peeklock_types::wire::tags::{
    attribute, dead_letter, detail, lane, origin, patch_part, reserved, stored_rule, transfer,
};
pub(crate) use peeklock_types::wire::{DecodeError, Decoder, Wire};
use peeklock_types::wire::{put_number, put_sized};
use peeklock_types::{QueueSettings, coded, tagged_fields};

use crate::message::{Attributes, Details, EntityId, Metadata, Origin, Reserved, Transfer, TransferReason};
use crate::order::LaneKey;
use crate::patch::{Patch, PatchPart};
use crate::queue::StoredRule;

tagged_fields! { Attributes in attribute {
    SESSION: session,
    TIME_TO_LIVE: time_to_live,
    SCHEDULED_FOR: scheduled_for,
    MESSAGE_ID: message_id,
    ORIGIN: origin,
    PATCH: patch,
    VIEW: view,
    LANE: lane,
    RESERVED: reserved,
}}

tagged_fields! { Details in detail {
    SESSION: session,
    TIME_TO_LIVE: time_to_live,
    DUE: due,
    MESSAGE_ID: message_id,
    ORIGIN: origin,
    TRANSFER: transfer,
    VIEW: view,
    RECEIPT: receipt,
    DELIVERY_COUNT_HIGH: delivery_count_high = 0,
    WAS_LOCKED_UNTIL: was_locked_until,
}}

tagged_fields! { Origin in origin {
    SEQUENCE_NUMBER: sequence_number,
    HOP_COUNT: hop_count,
    DEAD_LETTER_SOURCE: dead_letter_source,
}}

tagged_fields! { Transfer in transfer {
    TARGET: target,
    NUMBER: number,
    WHY: why,
    RESERVED: reserved,
}}

tagged_fields! { Reserved in reserved {
    ENTITY: entity,
    SEQUENCE_NUMBER: sequence_number,
}}

tagged_fields! { LaneKey in lane {
    CLASS: class = 0,
    TENANT_CLASS: tenant_class = 0,
    TENANT: tenant,
}}

tagged_fields! { StoredRule in stored_rule {
    RULE: rule,
    CREATED_AT: created_at,
}}

coded! { TransferReason, "reason of a transfer" { 0 = Forward, 1 = DeadLetter, 2 = Transaction } }

impl Wire for EntityId {
    const IS_OPEN: bool = false;

    #[inline]
    fn put_value(&self, out: &mut Vec<u8>) {
        put_number(self.0.into(), out);
    }

    #[inline]
    fn take_value(input: &mut Decoder<'_>, what: &'static str) -> Result<Self, DecodeError> {
        input.number32(what).map(EntityId)
    }
}

impl Wire for Metadata {
    const IS_OPEN: bool = true;

    fn put_value(&self, out: &mut Vec<u8>) {
        self.0.put_value(out);
    }

    fn take_value(input: &mut Decoder<'_>, what: &'static str) -> Result<Self, DecodeError> {
        let metadata = Metadata(Vec::take_value(input, what)?);
        metadata.check().map_err(|_| DecodeError::Value(what))?;
        Ok(metadata)
    }

    fn absent() -> Option<Self> {
        Some(Metadata::default())
    }

    fn is_absent(&self) -> bool {
        self.0.is_empty()
    }
}

impl Wire for Patch {
    const IS_OPEN: bool = true;

    fn put_value(&self, out: &mut Vec<u8>) {
        self.parts.put_value(out);
    }

    fn take_value(input: &mut Decoder<'_>, what: &'static str) -> Result<Self, DecodeError> {
        Ok(Patch { parts: Vec::take_value(input, what)? })
    }

    fn absent() -> Option<Self> {
        Some(Patch::default())
    }

    fn is_absent(&self) -> bool {
        self.is_empty()
    }
}

struct DeadLetter {
    reason: Option<String>,
    description: Option<String>,
}

tagged_fields! { DeadLetter in dead_letter {
    REASON: reason,
    DESCRIPTION: description,
}}

impl Wire for PatchPart {
    const IS_OPEN: bool = false;

    fn put_value(&self, out: &mut Vec<u8>) {
        let (kind, bytes) = match self {
            PatchPart::Properties(map) => (patch_part::PROPERTIES, map),
            PatchPart::Changes(changes) => (patch_part::CHANGES, changes),
            PatchPart::DeadLetter { reason, description } => {
                put_number(patch_part::DEAD_LETTER, out);
                let reason = DeadLetter { reason: reason.clone(), description: description.clone() };
                return put_sized(out, |out| reason.put_value(out));
            }
        };
        put_number(kind, out);
        bytes.put(out);
    }

    fn take_value(input: &mut Decoder<'_>, what: &'static str) -> Result<Self, DecodeError> {
        match input.number(what)? {
            patch_part::PROPERTIES => input.take(what).map(PatchPart::Properties),
            patch_part::CHANGES => input.take(what).map(PatchPart::Changes),
            patch_part::DEAD_LETTER => {
                let DeadLetter { reason, description } = input.take(what)?;
                Ok(PatchPart::DeadLetter { reason, description })
            }
            kind => Err(DecodeError::Unknown { of: patch_part::LIST, tag: kind }),
        }
    }
}

/// Returns the settings as a record stores them: times in whole milliseconds. After a restart a queue must have exactly
/// the same settings.
pub(crate) fn kept(settings: &QueueSettings) -> QueueSettings {
    let mut bytes = Vec::new();
    settings.put_value(&mut bytes);
    let kept = Decoder::new(&bytes).whole("a queue's settings");
    let mut kept: QueueSettings = kept.expect("the bytes were just encoded");
    if let Some(order) = &mut kept.order {
        order.sort();
    }
    kept
}
