//! What is known of a message beside its bytes, as bytes.
//!
//! ```text
//! flags, then what they announce: session, time to live, time due, message id, origin, transfer, view, receipt, upper half of the delivery
//! count, end of the last lock, patch, lane, reserved number
//! origin:   sequence number, hops (1 byte), dead-letter source (optional)
//! transfer: target, number, reason (1 byte), reserved number (for one of the reasons)
//! reserved number: entity, sequence number
//! ```

use std::time::Duration;

use bytes::Bytes;
use peeklock_types::{Timestamp, limits};

use crate::message::{Attributes, Details, MESSAGE_ID_BYTES_MAX, Origin, Reserved, Transfer, TransferReason};
use crate::order::put_key;
use crate::patch::Patch;
use crate::wire::{DecodeError, Decoder, put_bytes, put_fixed, put_number, put_optional, put_patch};

const SESSION: u64 = 1;
const TIME_TO_LIVE: u64 = 2;
const DUE: u64 = 4;
const MESSAGE_ID: u64 = 8;
const ORIGIN: u64 = 16;
const TRANSFER: u64 = 32;
/// In attributes only: messages that are stored have their lane and their patch elsewhere.
const LANE: u64 = 64;
const PATCH: u64 = 128;
const VIEW: u64 = 256;
/// In details only: a new message has none of them yet.
const RECEIPT: u64 = 512;
const DELIVERY_COUNT: u64 = 1024;
const WAS_LOCKED: u64 = 2048;
/// In attributes only: a stored message has its number.
const RESERVED: u64 = 4096;
const FLAGS_END: u64 = 8192;

pub(crate) fn put_attributes(attributes: &Attributes, out: &mut Vec<u8>) {
    // Most messages of a queue with an order say nothing else.
    if let Some(lane) = attributes.lane.as_ref().filter(|_| attributes.is_only_lane()) {
        put_number(LANE, out);
        return put_key(lane, out);
    }
    let details = Details {
        session: attributes.session.clone(),
        time_to_live: attributes.time_to_live,
        due: attributes.scheduled_for,
        message_id: attributes.message_id.clone(),
        origin: attributes.origin.clone(),
        transfer: None,
        view: attributes.view.clone(),
        receipt: None,
        delivery_count_high: 0,
        was_locked_until: None,
    };
    let is_patched = !attributes.patch.is_empty();
    let flag = |set: bool, flag: u64| if set { flag } else { 0 };
    let more = flag(is_patched, PATCH)
        | flag(attributes.lane.is_some(), LANE)
        | flag(attributes.reserved.is_some(), RESERVED);
    put_flagged(&details, more, out);
    if is_patched {
        put_patch(&attributes.patch, out);
    }
    if let Some(lane) = &attributes.lane {
        put_key(lane, out);
    }
    if let Some(reserved) = attributes.reserved {
        put_reserved(reserved, out);
    }
}

fn put_reserved(reserved: Reserved, out: &mut Vec<u8>) {
    put_number(reserved.entity.0.into(), out);
    put_number(reserved.sequence_number.0, out);
}

pub(crate) fn put_details(details: &Details, out: &mut Vec<u8>) {
    put_flagged(details, 0, out);
}

fn put_flagged(details: &Details, more: u64, out: &mut Vec<u8>) {
    let flag = |set: bool, flag: u64| if set { flag } else { 0 };
    put_number(
        flag(details.session.is_some(), SESSION)
            | flag(details.time_to_live.is_some(), TIME_TO_LIVE)
            | flag(details.due.is_some(), DUE)
            | flag(details.message_id.is_some(), MESSAGE_ID)
            | flag(details.origin.is_some(), ORIGIN)
            | flag(details.transfer.is_some(), TRANSFER)
            | flag(details.view.is_some(), VIEW)
            | flag(details.receipt.is_some(), RECEIPT)
            | flag(details.delivery_count_high > 0, DELIVERY_COUNT)
            | flag(details.was_locked_until.is_some(), WAS_LOCKED)
            | more,
        out,
    );
    if let Some(session) = &details.session {
        put_bytes(session.as_str().as_bytes(), out);
    }
    if let Some(span) = details.time_to_live {
        put_number(u64::try_from(span.as_millis()).unwrap_or(u64::MAX), out);
    }
    if let Some(due) = details.due {
        put_number(due.as_millis(), out);
    }
    if let Some(id) = &details.message_id {
        put_bytes(id, out);
    }
    if let Some(origin) = &details.origin {
        put_origin(origin, out);
    }
    if let Some(transfer) = &details.transfer {
        put_bytes(transfer.target.as_str().as_bytes(), out);
        put_number(transfer.number, out);
        out.push(match transfer.why {
            TransferReason::Forward => 0,
            TransferReason::DeadLetter => 1,
            TransferReason::Transaction if transfer.reserved.is_some() => 3,
            TransferReason::Transaction => 2,
        });
        if let Some(reserved) = transfer.reserved {
            put_reserved(reserved, out);
        }
    }
    if let Some(view) = &details.view {
        put_bytes(view, out);
    }
    if let Some(nonce) = details.receipt {
        put_fixed(nonce, out);
    }
    if details.delivery_count_high > 0 {
        put_number(details.delivery_count_high.into(), out);
    }
    if let Some(until) = details.was_locked_until {
        put_number(until.as_millis(), out);
    }
}

fn put_origin(origin: &Origin, out: &mut Vec<u8>) {
    put_number(origin.sequence_number.0, out);
    out.push(origin.hop_count);
    put_optional(origin.dead_letter_source.as_ref().map(|name| name.as_str().as_bytes()), out);
}

impl Decoder<'_> {
    pub(crate) fn attributes(&mut self) -> Result<Attributes, DecodeError> {
        let (details, more) = self.flagged()?;
        let patch = if more & PATCH != 0 { self.patch()? } else { Patch::default() };
        let lane = (more & LANE != 0).then(|| self.lane_key()).transpose()?;
        let reserved = (more & RESERVED != 0).then(|| self.reserved()).transpose()?;
        let is_old = details.delivery_count_high > 0 || details.was_locked_until.is_some();
        if details.transfer.is_some() || details.receipt.is_some() || is_old {
            return Err(DecodeError::Value("a message's attributes"));
        }
        Ok(Attributes {
            session: details.session,
            time_to_live: details.time_to_live,
            scheduled_for: details.due,
            message_id: details.message_id,
            origin: details.origin,
            patch,
            view: details.view,
            lane,
            reserved,
        })
    }

    pub(crate) fn details(&mut self) -> Result<Details, DecodeError> {
        match self.flagged()? {
            (details, 0) => Ok(details),
            _ => Err(DecodeError::Value("a message's attributes")),
        }
    }

    /// With the flags that are not about the details themselves.
    fn flagged(&mut self) -> Result<(Details, u64), DecodeError> {
        let flags = self.number("a message's attributes")?;
        if flags >= FLAGS_END {
            return Err(DecodeError::Value("a message's attributes"));
        }
        let has = |flag: u64| flags & flag != 0;
        let details = Details {
            session: has(SESSION).then(|| self.session()).transpose()?,
            time_to_live: has(TIME_TO_LIVE)
                .then(|| self.number("a time to live"))
                .transpose()?
                .map(Duration::from_millis),
            due: has(DUE).then(|| self.number("a time")).transpose()?.map(Timestamp::from_millis),
            message_id: has(MESSAGE_ID).then(|| self.message_id()).transpose()?,
            origin: has(ORIGIN).then(|| self.origin()).transpose()?,
            transfer: has(TRANSFER).then(|| self.transfer()).transpose()?,
            view: has(VIEW).then(|| self.view()).transpose()?,
            receipt: has(RECEIPT).then(|| self.fixed("a receipt")).transpose()?,
            delivery_count_high: if has(DELIVERY_COUNT) { self.delivery_count_high()? } else { 0 },
            was_locked_until: has(WAS_LOCKED).then(|| self.timestamp()).transpose()?,
        };
        Ok((details, flags & (PATCH | LANE | RESERVED)))
    }

    fn delivery_count_high(&mut self) -> Result<u16, DecodeError> {
        let wrong = DecodeError::Value("a delivery count");
        u16::try_from(self.number("a delivery count")?).ok().filter(|high| *high > 0).ok_or(wrong)
    }

    fn view(&mut self) -> Result<Bytes, DecodeError> {
        self.bytes(limits::VIEW_SIZE_BYTES_MAX, "a message's view").map(Bytes::copy_from_slice)
    }

    pub(crate) fn message_id(&mut self) -> Result<Bytes, DecodeError> {
        self.bytes(MESSAGE_ID_BYTES_MAX, "a message id").map(Bytes::copy_from_slice)
    }

    fn origin(&mut self) -> Result<Origin, DecodeError> {
        Ok(Origin {
            sequence_number: self.sequence_number()?,
            hop_count: self.byte("a number of hops")?,
            dead_letter_source: self.flag("a dead-letter source")?.then(|| self.name()).transpose()?,
        })
    }

    fn transfer(&mut self) -> Result<Transfer, DecodeError> {
        let (target, number) = (self.name()?, self.number("a number in an outbox")?);
        let (why, reserved) = match self.byte("a transfer")? {
            0 => (TransferReason::Forward, None),
            1 => (TransferReason::DeadLetter, None),
            2 => (TransferReason::Transaction, None),
            3 => (TransferReason::Transaction, Some(self.reserved()?)),
            _ => return Err(DecodeError::Value("a transfer")),
        };
        Ok(Transfer { target, number, why, reserved })
    }

    fn reserved(&mut self) -> Result<Reserved, DecodeError> {
        let entity = self.entity()?;
        Ok(Reserved { entity, sequence_number: self.sequence_number()? })
    }
}
