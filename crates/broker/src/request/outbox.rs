//! Requests between shards: messages of an outbox, and their outcome.

use peeklock_types::{EntityName, ShardId};

use super::requests;

/// A message from another shard.
#[derive(Debug)]
pub struct Brought {
    pub(crate) number: u64,
    pub(crate) target: EntityName,
    /// The number of the message in the batch.
    pub(crate) message: usize,
}

/// The outcome of a transfer: how many messages of an outbox the target has accepted.
#[derive(Debug, Default)]
pub struct TransferOutcome {
    /// All messages up to this number are accepted.
    pub(crate) upto: u64,
    /// The next message is rejected. The target did not examine later ones.
    pub(crate) refused: Option<(u64, String)>,
}

requests! {
    OutboxRequest, OutboxAnswer;

    /// Accepts messages from the outbox of a shard, in order.
    Bring {
        source: ShardId,
        messages: Vec<Brought>,
    } -> TransferOutcome;

    @notices;

    /// Reports to the source the outcome of messages that were transferred to `target`.
    Transferred {
        target: ShardId,
        outcome: TransferOutcome,
    }
}
