//! Facts as records, one after the other in a commit group. [`peeklock_types::wire`] has the form of a record.

use peeklock_types::wire::tags::{hub_field, record};
use peeklock_types::wire::{Place, take_record};
use peeklock_types::{CommitGroupNumber, records};

use crate::fact::Fact;
use crate::wire::{DecodeError, Decoder};

records! { Fact, kinds record, fields hub_field, room 1 {
    APPENDED: Appended { stream, first_sequence, count, enqueued_at, body as Place, size_bytes } { PRODUCER: producer },
    GATHERED: Gathered { stream, first_sequence, extent_count, body as Place, size_bytes } {},
    RETIRED: Retired { stream, upto } {},
    LOST: Lost { stream, first_sequence } {},
    STREAM_OPENED: StreamOpened { stream, spec } {},
    STREAM_DELETED: StreamDeleted { stream } {},
    HUB_CREATED: HubCreated { name, id, settings, at } {},
    HUB_UPDATED: HubUpdated { name, settings, at } {},
    HUB_DELETED: HubDeleted { name } {},
    CONSUMER_GROUP_SET: GroupSet { name, group, at } { USER_METADATA: user_metadata },
    CONSUMER_GROUP_DELETED: GroupDeleted { name, group } {},
    CLAIMED: Claimed { name, group, partition, owner, epoch, etag, at } {},
    CHECKPOINTED: Checkpointed { name, group, partition } { CHECKPOINT: checkpoint },
}}

pub(crate) fn decode(input: &mut &[u8], here: CommitGroupNumber) -> Result<Fact, DecodeError> {
    let mut decoder = Decoder::new(input);
    let (kind, fields) = take_record(&mut decoder)?;
    let fact =
        take_fields(kind, fields, here)?.ok_or(DecodeError::Unknown { of: record::LIST, tag: kind })?;
    *input = decoder.rest;
    Ok(fact)
}
