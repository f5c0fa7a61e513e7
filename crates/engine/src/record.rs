//! Facts as records, consecutive in a commit group. [`peeklock_types::wire`] defines the form of a record.
//!
//! Most records are about a message of the main queue, and short: the sub-queue and all other values that are usually
//! absent are tagged fields.

use peeklock_types::wire::tags::{queue_field, record};
use peeklock_types::wire::{Codec, Fixed, Place, put_number, put_step, take_record};
use peeklock_types::{CommitGroupNumber, SequenceNumber, records};

use crate::fact::Fact;
use crate::message::EntityId;
use crate::wire::{DecodeError, Decoder, Wire};

records! { Fact, kinds record, fields queue_field, room 1 {
    ENQUEUED: Enqueued { entity, sequence_number, enqueued_at, body as Place, size_bytes } { ATTRIBUTES: attributes },
    LOCKED: Locked { entity, sequence_number, nonce as Fixed, until } { SUB_QUEUE: sub_queue },
    COMPLETED: Completed { entity, sequence_number } { SUB_QUEUE: sub_queue },
    RENEWED: Renewed { entity, sequence_number, until } { SUB_QUEUE: sub_queue },
    ABANDONED: Abandoned { entity, sequence_number } { SUB_QUEUE: sub_queue, DUE: due, PROPERTIES: patch },
    LOCK_EXPIRED: LockExpired { entity, sequence_number } { SUB_QUEUE: sub_queue, DUE: due },
    DELAY_ENDED: DelayEnded { entity, sequence_number } { SUB_QUEUE: sub_queue },
    RELEASED: Released { entity, sequence_number } { SUB_QUEUE: sub_queue },
    DEFERRED: Deferred { entity, sequence_number, locked_until } { SUB_QUEUE: sub_queue, PROPERTIES: patch },
    DEAD_LETTERED: DeadLettered { entity, sequence_number, failed } { SUB_QUEUE: sub_queue, PATCH: patch },
    CHARGED: Charged { entity, sequence_number, cost_ms } {},
    ACTIVATED: Activated { entity, sequence_number, new_number, at } {},
    RECEIPTED: Receipted { entity, sequence_number, nonce as Fixed } { UNTIL: until },
    REPLACED: Replaced { entity, sequence_number, body as Place, size_bytes } {},
    MOVED: Moved { entity, sequence_number, from as Place, to as Place, again } {},
    BODY_LOST: BodyLost { entity, sequence_number, body as Place } { PATCH: patch },
    FANNED_OUT: FannedOut { copies as Copies, enqueued_at, body as Place, size_bytes, again } { ATTRIBUTES: attributes },
    SEEN: Seen { entity, message_id, at } {},
    TRANSFER_STARTED: TransferStarted { entity, sequence_number, target, number } { SUB_QUEUE: sub_queue },
    TRANSFER_FAILED: TransferFailed { entity, sequence_number } { SUB_QUEUE: sub_queue, PATCH: patch },
    SENT_ON: SentOn { entity, sequence_number, enqueued_at, body as Place, size_bytes, target, number } { ATTRIBUTES: attributes },
    ARRIVED: Arrived { source, number } {},
    SESSION_STATE_SET: SessionStateSet { entity, session, at } { STATE: state },
    QUEUE_CREATED: QueueCreated { entity, name, kind, settings, created_at } {},
    QUEUE_UPDATED: QueueUpdated { entity, settings, at } {},
    QUEUE_DELETED: QueueDeleted { entity } {},
    RULE_SET: RuleSet { entity, rule, at } {},
    RULE_REMOVED: RuleRemoved { entity, name } {},
    PURGED: Purged { entity, before, count_max } { SUB_QUEUE: sub_queue },
    CLEARED: Cleared { entity } {},
    NUMBERS_RESERVED: NumbersReserved { entity, next } {},
    METADATA_SET: MetadataSet { entity, metadata } {},
}}

/// Appends `fact` to `out`, as part of commit group `group`.
pub fn encode(fact: &Fact, group: CommitGroupNumber, out: &mut Vec<u8>) {
    put_record(fact, group, out);
}

/// Decodes one fact at the front of `input`, which is part of commit group `group`, and advances `input`. After an
/// error `input` is unchanged.
pub fn decode(input: &mut &[u8], group: CommitGroupNumber) -> Result<Fact, DecodeError> {
    let mut decoder = Decoder::new(input);
    let (kind, fields) = take_record(&mut decoder)?;
    let fact = of_fields(kind, fields, group)?.ok_or(DecodeError::Unknown { of: record::LIST, tag: kind })?;
    *input = decoder.rest;
    Ok(fact)
}

/// Returns the fact of a record of this kind; `None` if the engine has no facts of this kind.
pub fn of_fields(
    kind: u64,
    fields: Decoder<'_>,
    group: CommitGroupNumber,
) -> Result<Option<Fact>, DecodeError> {
    take_fields(kind, fields, group)
}

/// Encodes sequence numbers by subscription. The ids of the subscriptions are steps, because neighbouring ids are
/// close.
struct Copies;

impl Codec<Box<[(EntityId, SequenceNumber)]>> for Copies {
    fn put(copies: &Box<[(EntityId, SequenceNumber)]>, _: CommitGroupNumber, out: &mut Vec<u8>) {
        put_number(copies.len() as u64, out);
        let mut last = 0;
        for (entity, number) in copies {
            put_step(last, entity.0.into(), out);
            last = entity.0.into();
            number.put(out);
        }
    }

    fn take(
        input: &mut Decoder<'_>,
        _: CommitGroupNumber,
        what: &'static str,
    ) -> Result<Box<[(EntityId, SequenceNumber)]>, DecodeError> {
        let mut last = 0;
        let count = input.count(what)?;
        let mut copy = || {
            last = input.step(last, what)?;
            let entity = u32::try_from(last).map_err(|_| DecodeError::Value(what))?;
            Ok((EntityId(entity), input.take(what)?))
        };
        (0..count).map(|_| copy()).collect()
    }
}
