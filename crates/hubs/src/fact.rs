use peeklock_types::wire::{DecodeError, Decoder};
use peeklock_types::{
    BodyRef, CommitGroupNumber, ConsumerGroup, EntityName, Etag, HubId, HubSettings, Timestamp,
};

use crate::checkpoint::Checkpoint;
use crate::record;
use crate::stream::{Producer, StreamId, StreamSpec};

/// A durable change of hubs and streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    HubCreated {
        name: EntityName,
        id: HubId,
        settings: Box<HubSettings>,
        at: Timestamp,
    },
    HubUpdated {
        name: EntityName,
        settings: Box<HubSettings>,
        at: Timestamp,
    },
    HubDeleted {
        name: EntityName,
    },
    /// A consumer group was created or changed.
    GroupSet {
        name: EntityName,
        group: ConsumerGroup,
        user_metadata: Option<String>,
        at: Timestamp,
    },
    GroupDeleted {
        name: EntityName,
        group: ConsumerGroup,
    },
    Claimed {
        name: EntityName,
        group: ConsumerGroup,
        partition: u32,
        owner: String,
        epoch: u64,
        etag: Etag,
        at: Timestamp,
    },
    Checkpointed {
        name: EntityName,
        group: ConsumerGroup,
        partition: u32,
        /// `None`: the checkpoint was removed, and readers choose their start.
        checkpoint: Option<Checkpoint>,
    },
    /// A stream was created, or its settings have changed.
    StreamOpened {
        stream: StreamId,
        spec: Box<StreamSpec>,
    },
    StreamDeleted {
        stream: StreamId,
    },
    /// The events of one send were stored as a block at `body`.
    Appended {
        stream: StreamId,
        first_sequence: u64,
        count: u32,
        enqueued_at: Timestamp,
        body: BodyRef,
        size_bytes: u32,
        /// The producer's state after these events.
        producer: Option<Producer>,
    },
    /// The `extent_count` extents from `first_sequence` on were joined into one extent at `body`.
    Gathered {
        stream: StreamId,
        first_sequence: u64,
        extent_count: u32,
        body: BodyRef,
        size_bytes: u32,
    },
    /// The extent that starts with this event was damaged on the disk: its events are lost, and all others remain.
    Lost {
        stream: StreamId,
        first_sequence: u64,
    },
    /// The events before `upto` were retired.
    Retired {
        stream: StreamId,
        upto: u64,
    },
}

impl Fact {
    /// Appends the fact to `out`, as part of commit group `group`, as a self-delimiting record.
    pub fn encode(&self, group: CommitGroupNumber, out: &mut Vec<u8>) {
        record::put_record(self, group, out);
    }

    /// Takes one fact from the front of `input`, which is part of commit group `group`. After an error `input` is
    /// unchanged.
    pub fn decode(input: &mut &[u8], group: CommitGroupNumber) -> Result<Fact, DecodeError> {
        record::decode(input, group)
    }

    /// Returns the fact of a record of this kind; `None` if hubs have no such kind.
    pub fn of_record(
        kind: u64,
        fields: Decoder<'_>,
        group: CommitGroupNumber,
    ) -> Result<Option<Fact>, DecodeError> {
        record::take_fields(kind, fields, group)
    }
}
