//! Requests about hubs and their partitions.
//!
//! A hub is in the shard of its name, each partition in the shard of
//! [`Broker::place_partition`](crate::Broker::place_partition).

use peeklock_hubs::{Checkpoint, CheckpointBy, HubView, Ownership, Producer, StreamSpec};
use peeklock_types::{ConsumerGroup, EntityName, Etag, HubId, HubSettings};

use super::requests;
use crate::hub::{Partition, PartitionInfo};

requests! {
    HubRequest, HubAnswer;

    /// Creates a hub whose streams are already open.
    CreateHub {
        name: EntityName,
        id: HubId,
        settings: Box<HubSettings>,
        groups: Vec<ConsumerGroup>,
    } -> HubView;

    UpdateHub {
        name: EntityName,
        settings: Box<HubSettings>,
        expected: Option<u64>,
    } -> HubView;

    DeleteHub {
        name: EntityName,
        expected: Option<u64>,
    } -> HubView;

    ShowHub {
        name: EntityName,
    } -> HubView;

    /// Lists hubs by name, after `after`, at most `top`.
    ListHubs {
        after: Option<EntityName>,
        top: usize,
    } -> Vec<HubView>;

    CreateConsumerGroup {
        name: EntityName,
        group: ConsumerGroup,
        user_metadata: Option<String>,
    } -> HubView;

    UpdateConsumerGroup {
        name: EntityName,
        group: ConsumerGroup,
        user_metadata: Option<String>,
    } -> HubView;

    DeleteConsumerGroup {
        name: EntityName,
        group: ConsumerGroup,
    } -> HubView;

    /// Claims, renews or (with an empty owner) releases a partition.
    Claim {
        name: EntityName,
        group: ConsumerGroup,
        partition: u32,
        owner: String,
        expected: Option<Etag>,
    } -> Ownership;

    ListOwnerships {
        name: EntityName,
        group: ConsumerGroup,
    } -> Vec<Ownership>;

    /// Sets a checkpoint. `None` removes it.
    SetCheckpoint {
        name: EntityName,
        group: ConsumerGroup,
        partition: u32,
        sequence: Option<u64>,
        by: CheckpointBy,
    } -> Option<Checkpoint>;

    ListCheckpoints {
        name: EntityName,
        group: ConsumerGroup,
    } -> Vec<(u32, Checkpoint)>;

    /// Opens the streams of partitions. This request and all that follow are for the shard of the partition.
    OpenStreams {
        specs: Vec<StreamSpec>,
    } -> ();

    DeleteStreams {
        partitions: Vec<Partition>,
    } -> ();

    /// Shows one partition. [`PartitionInfo::enqueued_after`] refers to `after`.
    ShowPartition {
        partition: Partition,
        after: Option<u64>,
    } -> PartitionInfo;

    /// Shows several partitions, in the same order.
    ShowPartitions {
        partitions: Vec<(Partition, Option<u64>)>,
    } -> Vec<PartitionInfo>;

    /// Lists all partitions of the shard, of all hubs.
    ListPartitions {} -> Vec<(Partition, EntityName)>;

    /// Shows the last number of a producer.
    ShowProducer {
        partition: Partition,
        id: i64,
    } -> Option<Producer>;

    /// Ends all readers of a consumer group that was deleted in this revision of the hub.
    EndConsumerGroup {
        hub: HubId,
        group: ConsumerGroup,
        revision: u64,
    } -> ();
}
