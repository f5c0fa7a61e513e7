//! Flow, transfer and disposition. They occur once per message or per few messages, so their codecs are written by
//! hand.
//!
//! All fields are written, as in every composite (see `composite!`).

use bytes::BytesMut;

use super::decode::{Decode, read_field};
use super::decoder::{Compound, Decoder};
use super::encode::{Encode, ListWriter, put_descriptor};
use super::error::{DecodeError, Problem};
use crate::performative::{Disposition, Flow, Transfer};

/// Room for any transfer without a state. With it the buffer grows at most once.
const TRANSFER_RESERVE_LEN: usize = 96;
const DISPOSITION_RESERVE_LEN: usize = 48;

impl Flow {
    pub(crate) const CODE: u8 = 0x13;

    pub(crate) fn decode_fields(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let mut list = decoder.enter_list("Flow")?;
        let list = &mut list;
        let flow = Self {
            next_incoming_id: read_optional(decoder, list)?,
            incoming_window: mandatory(decoder, list, "Flow", "incoming_window")?,
            next_outgoing_id: mandatory(decoder, list, "Flow", "next_outgoing_id")?,
            outgoing_window: mandatory(decoder, list, "Flow", "outgoing_window")?,
            handle: read_optional(decoder, list)?,
            delivery_count: read_optional(decoder, list)?,
            link_credit: read_optional(decoder, list)?,
            available: read_optional(decoder, list)?,
            drain: flag(decoder, list)?,
            echo: flag(decoder, list)?,
            properties: read_optional(decoder, list)?,
        };
        decoder.leave(list);
        Ok(flow)
    }
}

impl Transfer {
    pub(crate) const CODE: u8 = 0x14;

    pub(crate) fn decode_fields(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let mut list = decoder.enter_list("Transfer")?;
        let list = &mut list;
        let transfer = Self {
            handle: mandatory(decoder, list, "Transfer", "handle")?,
            delivery_id: read_optional(decoder, list)?,
            delivery_tag: read_optional(decoder, list)?,
            message_format: read_optional(decoder, list)?,
            settled: read_optional(decoder, list)?,
            more: flag(decoder, list)?,
            rcv_settle_mode: read_optional(decoder, list)?,
            state: read_optional(decoder, list)?,
            resume: flag(decoder, list)?,
            aborted: flag(decoder, list)?,
            batchable: flag(decoder, list)?,
        };
        decoder.leave(list);
        Ok(transfer)
    }
}

impl Disposition {
    pub(crate) const CODE: u8 = 0x15;

    pub(crate) fn decode_fields(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let mut list = decoder.enter_list("Disposition")?;
        let list = &mut list;
        let disposition = Self {
            role: mandatory(decoder, list, "Disposition", "role")?,
            first: mandatory(decoder, list, "Disposition", "first")?,
            last: read_optional(decoder, list)?,
            settled: flag(decoder, list)?,
            state: read_optional(decoder, list)?,
            batchable: flag(decoder, list)?,
        };
        decoder.leave(list);
        Ok(disposition)
    }
}

#[inline]
fn read_optional<T: Decode>(
    decoder: &mut Decoder<'_>,
    list: &mut Compound<'_>,
) -> Result<Option<T>, DecodeError> {
    if list.next_is_set(decoder) { T::decode(decoder).map(Some) } else { Ok(None) }
}

#[inline]
fn flag(decoder: &mut Decoder<'_>, list: &mut Compound<'_>) -> Result<bool, DecodeError> {
    if list.next_is_set(decoder) { bool::decode(decoder) } else { Ok(false) }
}

#[inline]
fn mandatory<T: Decode>(
    decoder: &mut Decoder<'_>,
    list: &mut Compound<'_>,
    composite: &'static str,
    field: &'static str,
) -> Result<T, DecodeError> {
    read_field(decoder, list)?.ok_or_else(|| decoder.error(Problem::MissingField { composite, field }))
}

impl Encode for Flow {
    fn encode(&self, out: &mut BytesMut) {
        put_descriptor(out, Self::CODE);
        let mut list = ListWriter::begin(out);
        list.field(out, &self.next_incoming_id);
        list.field(out, &self.incoming_window);
        list.field(out, &self.next_outgoing_id);
        list.field(out, &self.outgoing_window);
        list.field(out, &self.handle);
        list.field(out, &self.delivery_count);
        list.field(out, &self.link_credit);
        list.field(out, &self.available);
        list.flag(out, self.drain);
        list.flag(out, self.echo);
        list.field(out, &self.properties);
        list.finish(out);
    }
}

impl Encode for Transfer {
    fn encode(&self, out: &mut BytesMut) {
        out.reserve(TRANSFER_RESERVE_LEN);
        put_descriptor(out, Self::CODE);
        let mut list = ListWriter::begin(out);
        list.field(out, &self.handle);
        list.field(out, &self.delivery_id);
        list.field(out, &self.delivery_tag);
        list.field(out, &self.message_format);
        list.field(out, &self.settled);
        list.flag(out, self.more);
        list.field(out, &self.rcv_settle_mode);
        list.field(out, &self.state);
        list.flag(out, self.resume);
        list.flag(out, self.aborted);
        list.flag(out, self.batchable);
        list.finish(out);
    }
}

impl Encode for Disposition {
    fn encode(&self, out: &mut BytesMut) {
        out.reserve(DISPOSITION_RESERVE_LEN);
        put_descriptor(out, Self::CODE);
        let mut list = ListWriter::begin(out);
        list.field(out, &self.role);
        list.field(out, &self.first);
        list.field(out, &self.last);
        list.flag(out, self.settled);
        list.field(out, &self.state);
        list.flag(out, self.batchable);
        list.finish(out);
    }
}
