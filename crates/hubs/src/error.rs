use peeklock_types::{ConsumerGroup, EntityName, HubId, HubSettingsError, Timestamp, limits};

use crate::checkpoint::Ownership;
use crate::stream::StreamId;

/// The reason why a command was rejected. A rejected command changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("the hub '{name}' does not exist; create it first")]
    NoSuchHub { name: EntityName },
    #[error("the hub '{name}' exists already")]
    HubExists { name: EntityName },
    #[error("the hub '{name}' has changed since it was read; read it again, and repeat the change")]
    Changed { name: EntityName },
    #[error(
        "the hub '{name}' has no consumer group '{group}'; create it with: peeklock hub group create {name} {group}"
    )]
    NoSuchGroup { name: EntityName, group: ConsumerGroup },
    #[error("the hub '{name}' has a consumer group '{group}' already")]
    GroupExists { name: EntityName, group: ConsumerGroup },
    #[error("every hub has the consumer group '{}'; it cannot be deleted", ConsumerGroup::DEFAULT)]
    DefaultGroup,
    #[error("the hub '{name}' would have more than {max} consumer groups", max = limits::CONSUMER_GROUPS_MAX)]
    TooManyGroups { name: EntityName },
    #[error("the hub '{name}' has no partition {partition}; its {count} partitions are numbered from 0")]
    NoSuchPartition { name: EntityName, partition: u32, count: u32 },
    #[error("there is no such partition in this shard ({hub:?}, {partition}); its hub was deleted")]
    NoSuchStream { hub: HubId, partition: u32 },
    #[error("the partition was deleted with its hub ({stream:?})")]
    StreamGone { stream: StreamId },
    #[error(transparent)]
    Settings(#[from] HubSettingsError),
    #[error("the hub '{name}' is disabled for {what}")]
    Disabled { name: EntityName, what: &'static str },
    #[error("{given} is no owner's or reader's name: it has more than {max} characters", max = limits::OWNER_CHARS_MAX)]
    OwnerName { given: String },

    // Producers.
    #[error(
        "the producer's sequence number {found} does not follow {last}, the last that was taken: an event in between is missing. Send from {last} + 1 on"
    )]
    OutOfOrderSequence { last: i32, found: i32 },
    #[error(
        "the epoch of the producer {producer} is too low. Received: {found}, Current: {current}. Use a higher epoch, or another producer id"
    )]
    ProducerEpoch { producer: i64, current: i16, found: i16 },

    // Readers.
    // Programs search for the service's sentences, so these come first.
    #[error(
        "Receiver '{holder}' with a higher epoch '{current}' already exists. Receiver '{name}' with epoch {found} cannot be created. Make sure \
         you are creating receiver with increasing epoch value to ensure connectivity, or ensure all old epoch receivers are closed or \
         disconnected. Received: {found}, Current: {current} (partition {partition}, consumer group '{group}')"
    )]
    OwnerLevel {
        group: ConsumerGroup,
        partition: u32,
        current: i64,
        holder: String,
        found: i64,
        name: String,
    },
    #[error(
        "At least one receiver for the endpoint is created with epoch of '{current}', and so non-epoch receiver is not allowed. Either \
         reconnect with a higher epoch, or make sure all epoch receivers are closed or disconnected. (partition {partition}, consumer \
         group '{group}', receiver '{holder}')"
    )]
    NoOwnerLevel { group: ConsumerGroup, partition: u32, current: i64, holder: String },
    #[error(
        "Exceeded the maximum number of allowed receivers per partition in a consumer group which is {max}. List of connected receivers - \
         {}. Close one, use an owner level, or another consumer group (partition {partition}, consumer group '{group}')",
        receivers.join(", "),
        max = limits::PLAIN_READERS_MAX
    )]
    TooManyReaders { group: ConsumerGroup, partition: u32, receivers: Vec<String> },
    #[error(
        "the position {given} is beyond the end of partition {partition}, which has {}; has the hub been created anew? Name an event that \
         is there, the earliest or the latest",
        up_to(*last)
    )]
    BeyondEnd { partition: u32, given: u64, last: i64 },
    #[error(
        "the events from {given} on are no longer in partition {partition}: they were older than the retention. The first that is \
         there has sequence number {first}; start there to go on"
    )]
    Expired { partition: u32, given: u64, first: u64 },

    #[error(
        "the events from {from} on, up to {upto}, were damaged on the disk of partition {partition} and are lost; the broker's log says more. \
         Start at {upto} to go on"
    )]
    Lost { partition: u32, from: u64, upto: u64 },

    // Ownership and checkpoints.
    #[error("the ownership was changed since it was read: '{}' has it now, with etag {}. Read it again before another claim", current.owner, current.etag.0)]
    StaleEtag { current: Box<Ownership> },
    #[error("nobody has owned the partition yet, so no etag fits; claim it without one")]
    NeverOwned,
    #[error(
        "'{owner}' with epoch {epoch} does not own the partition any more: '{current}' does, with epoch {current_epoch}. Stop \
         reading it, or claim it again"
    )]
    NotOwner { owner: String, epoch: u64, current: String, current_epoch: u64 },
    #[error(
        "'{current}' owns the partition, with epoch {current_epoch}; only it may move the checkpoint. Name the owner and its epoch, or ask for a reset"
    )]
    Owned { current: String, current_epoch: u64 },
    #[error("a checkpoint is only taken away by a reset; ask for one if it is meant")]
    OnlyReset,
    #[error(
        "the checkpoint {found} lies before {current}, where the consumer group is; checkpoints only go forward. Ask for a reset if it is meant"
    )]
    Backwards { current: u64, found: u64, at: Timestamp },
    #[error("there is no checkpoint of the consumer group for the partition")]
    NoCheckpoint,
}

/// Describes the content of a partition by its last sequence number.
fn up_to(last: i64) -> String {
    if last < 0 { "no event yet".to_owned() } else { format!("events up to sequence number {last}") }
}

/// A fact does not fit the state before it: the journal is damaged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a fact about hubs does not fit what is known: {what}")]
pub struct ReplayError {
    pub what: &'static str,
}
