//! Flow, transfer and disposition. They occur once per message or per few messages, so their codecs are written by
//! hand.
//!
//! All fields are written, as in every composite (see `composite!`).

use bytes::{BufMut, BytesMut};

use super::constructor as c;
use super::decode::{Decode, read_field};
use super::decoder::{Compound, Decoder};
use super::encode::{Encode, ListWriter, put_descriptor};
use super::error::{DecodeError, Problem};
use super::short::Short;
use crate::performative::{Disposition, Flow, ReceiverSettleMode, Transfer};

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
        let handle = uint(decoder, list)?.ok_or_else(|| missing_handle(decoder))?;
        let transfer = Self {
            handle,
            delivery_id: uint(decoder, list)?,
            delivery_tag: read_optional(decoder, list)?,
            message_format: uint(decoder, list)?,
            settled: boolean(decoder, list)?,
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
            last: uint(decoder, list)?,
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

/// Reads a uint. Its format code is read once, also if it is a null.
#[inline]
fn uint(decoder: &mut Decoder<'_>, list: &mut Compound<'_>) -> Result<Option<u32>, DecodeError> {
    Ok(match list.next_code(decoder)? {
        None => None,
        Some(c::UINT0) => Some(0),
        Some(c::SMALL_UINT) => Some(decoder.byte()?.into()),
        Some(c::UINT) => Some(decoder.be_u32()?),
        Some(code) => return Err(decoder.unexpected("a uint", code)),
    })
}

#[inline]
fn boolean(decoder: &mut Decoder<'_>, list: &mut Compound<'_>) -> Result<Option<bool>, DecodeError> {
    Ok(match list.next_code(decoder)? {
        None => None,
        Some(c::TRUE) => Some(true),
        Some(c::FALSE) => Some(false),
        Some(c::BOOLEAN) => Some(decoder.boolean()?),
        Some(code) => return Err(decoder.unexpected("a boolean", code)),
    })
}

/// Reads a flag whose absence means false.
#[inline]
fn flag(decoder: &mut Decoder<'_>, list: &mut Compound<'_>) -> Result<bool, DecodeError> {
    Ok(boolean(decoder, list)?.unwrap_or(false))
}

#[cold]
fn missing_handle(decoder: &Decoder<'_>) -> DecodeError {
    decoder.error(Problem::MissingField { composite: "Transfer", field: "handle" })
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
        match &self.state {
            None => out.put_slice(self.without_state().as_slice()),
            Some(_) => self.encode_with_state(out),
        }
    }
}

impl Transfer {
    const FIELD_COUNT: u8 = 11;
    /// The largest transfer without a state: descriptor and list (6), three numbers (5 each), the tag (34), and a byte
    /// for each other field except the settle mode (2). Tags are copied with their padding.
    const LEN_MAX: usize = 128;

    fn without_state(&self) -> Short<{ Self::LEN_MAX }> {
        let mut list = Short::new();
        let start = list.begin_composite(Self::CODE, Self::FIELD_COUNT);
        list.put_uint(Some(self.handle));
        list.put_uint(self.delivery_id);
        match &self.delivery_tag {
            None => list.put_null(),
            Some(tag) => {
                let (bytes, len) = tag.padded();
                list.put_binary(bytes, len);
            }
        }
        list.put_uint(self.message_format);
        list.put_bool(self.settled);
        list.put_flag(self.more);
        list.put_ubyte(self.rcv_settle_mode.map(ReceiverSettleMode::code));
        list.put_null();
        list.put_flag(self.resume);
        list.put_flag(self.aborted);
        list.put_flag(self.batchable);
        list.finish_composite(start);
        list
    }

    #[cold]
    fn encode_with_state(&self, out: &mut BytesMut) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::performative::DeliveryTag;

    #[test]
    fn a_transfer_has_the_same_bytes_whether_it_is_composed_or_written_field_by_field() {
        let tag = |len: usize| DeliveryTag::new(&[7; 32][..len]).ok();
        let modes = [None, Some(ReceiverSettleMode::First), Some(ReceiverSettleMode::Second)];
        for (number, rcv_settle_mode) in [0, 1, 255, 256, u32::MAX].into_iter().zip(modes.into_iter().cycle())
        {
            for delivery_tag in [None, tag(0), tag(4), tag(16), tag(32)] {
                for flag in [false, true] {
                    let transfer = Transfer {
                        handle: number,
                        delivery_id: flag.then_some(number),
                        delivery_tag,
                        message_format: flag.then_some(number),
                        settled: delivery_tag.map(|_| flag),
                        more: flag,
                        rcv_settle_mode,
                        state: None,
                        resume: !flag,
                        aborted: flag,
                        batchable: flag,
                    };
                    let (mut composed, mut written) = (BytesMut::new(), BytesMut::new());
                    transfer.encode(&mut composed);
                    transfer.encode_with_state(&mut written);
                    assert_eq!(composed, written, "{transfer:?}");
                }
            }
        }
    }
}
