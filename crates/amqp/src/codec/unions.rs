//! Types that are one of several described types, selected by the descriptor.

use bytes::{BufMut, Bytes, BytesMut};

use super::constructor as c;
use super::decode::{Decode, read_field};
use super::decoder::{Compound, Decoder};
use super::encode::{Encode, ListWriter, put_descriptor};
use super::error::{DecodeError, Problem};
use crate::performative::{
    Attach, Begin, Close, Detach, Disposition, End, Flow, Open, Performative, Transfer,
};
use crate::sasl::{SaslChallenge, SaslFrame, SaslInit, SaslMechanisms, SaslOutcome, SaslResponse};
use crate::state::DeliveryState;
use crate::terminus::{Coordinator, Target, TargetNode};

/// Implements the codec of `Union { Variant(Type), .. }`: encodes the variant's type; decodes by the type's code.
macro_rules! union_of_composites {
    ($union:ident as $expected:literal { $($variant:ident($type:ident)),* $(,)? }) => {
        impl Encode for $union {
            fn encode(&self, out: &mut BytesMut) {
                match self {
                    $(Self::$variant(value) => value.encode(out),)*
                }
            }
        }

        impl Decode for $union {
            #[inline]
            fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
                let offset = decoder.position();
                let code = decoder.descriptor_code($expected)?;
                $(if code == u64::from($type::CODE) {
                    return $type::decode_fields(decoder).map(|value| Self::$variant(value.into()));
                })*
                Err(DecodeError::new(offset, Problem::UnknownDescriptor { expected: $expected, code }))
            }
        }
    };
}

// Frequent types are first, because codes are compared in this order.
union_of_composites! {
    Performative as "a performative" {
        Transfer(Transfer), Disposition(Disposition), Flow(Flow), Attach(Attach), Detach(Detach), Begin(Begin), End(End),
        Open(Open), Close(Close),
    }
}

union_of_composites! {
    SaslFrame as "a SASL frame" {
        Mechanisms(SaslMechanisms), Init(SaslInit), Challenge(SaslChallenge), Response(SaslResponse),
        Outcome(SaslOutcome),
    }
}

union_of_composites! {
    Target as "a target" { Node(TargetNode), Coordinator(Coordinator) }
}

mod code {
    pub(super) const RECEIVED: u8 = 0x23;
    pub(super) const ACCEPTED: u8 = 0x24;
    pub(super) const REJECTED: u8 = 0x25;
    pub(super) const RELEASED: u8 = 0x26;
    pub(super) const MODIFIED: u8 = 0x27;
    pub(super) const DECLARED: u8 = 0x33;
    pub(super) const TRANSACTIONAL: u8 = 0x34;
}

impl Encode for DeliveryState {
    fn encode(&self, out: &mut BytesMut) {
        put_descriptor(out, state_code(self));
        if matches!(self, Self::Accepted | Self::Released) {
            return out.put_u8(c::LIST0);
        }
        let mut list = ListWriter::begin(out);
        match self {
            Self::Accepted | Self::Released => {}
            Self::Received { section_number, section_offset } => {
                list.field(out, section_number);
                list.field(out, section_offset);
            }
            Self::Rejected { error } => list.field(out, error),
            Self::Modified { delivery_failed, undeliverable_here, message_annotations } => {
                list.field(out, delivery_failed);
                list.field(out, undeliverable_here);
                list.field(out, message_annotations);
            }
            Self::Declared { txn_id } => list.field(out, txn_id),
            Self::Transactional { txn_id, outcome } => {
                list.field(out, txn_id);
                list.field(out, outcome);
            }
        }
        list.finish_trimmed(out);
    }
}

fn state_code(state: &DeliveryState) -> u8 {
    match state {
        DeliveryState::Received { .. } => code::RECEIVED,
        DeliveryState::Accepted => code::ACCEPTED,
        DeliveryState::Rejected { .. } => code::REJECTED,
        DeliveryState::Released => code::RELEASED,
        DeliveryState::Modified { .. } => code::MODIFIED,
        DeliveryState::Declared { .. } => code::DECLARED,
        DeliveryState::Transactional { .. } => code::TRANSACTIONAL,
    }
}

impl Decode for DeliveryState {
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let offset = decoder.position();
        let expected = "a delivery state";
        let code = decoder.descriptor_code(expected)?;
        let unknown = || DecodeError::new(offset, Problem::UnknownDescriptor { expected, code });
        let known = u8::try_from(code).map_err(|_| unknown())?;
        // An outcome inside a transactional state is again a delivery state.
        decoder.descend()?;
        let mut list = decoder.enter_list(expected)?;
        let state = match known {
            code::ACCEPTED => Self::Accepted,
            code::RELEASED => Self::Released,
            code::REJECTED => Self::Rejected { error: read_field(decoder, &mut list)?.flatten() },
            code::MODIFIED => Self::Modified {
                delivery_failed: read_field(decoder, &mut list)?.flatten(),
                undeliverable_here: read_field(decoder, &mut list)?.flatten(),
                message_annotations: read_field(decoder, &mut list)?.flatten(),
            },
            code::RECEIVED => Self::Received {
                section_number: read_field(decoder, &mut list)?.unwrap_or(0),
                section_offset: read_field(decoder, &mut list)?.unwrap_or(0),
            },
            code::DECLARED => Self::Declared { txn_id: txn_id(decoder, &mut list)? },
            code::TRANSACTIONAL => Self::Transactional {
                txn_id: txn_id(decoder, &mut list)?,
                outcome: read_field(decoder, &mut list)?.flatten(),
            },
            _ => return Err(unknown()),
        };
        decoder.leave(&list);
        decoder.ascend();
        Ok(state)
    }
}

fn txn_id(decoder: &mut Decoder<'_>, list: &mut Compound<'_>) -> Result<Bytes, DecodeError> {
    let missing = Problem::MissingField { composite: "a transaction's state", field: "txn_id" };
    read_field(decoder, list)?.ok_or_else(|| decoder.error(missing))
}
