//! Requests between shards: messages of an outbox, and what became of them.

use peeklock_types::{EntityName, ShardId};

use super::requests;

/// A message from another shard.
#[derive(Debug)]
pub struct Brought {
    pub(crate) number: u64,
    pub(crate) target: EntityName,
    /// Its number among those that were written to the batch.
    pub(crate) message: usize,
}

/// How far a shard has taken the messages of an outbox.
#[derive(Debug, Default)]
pub struct TransferOutcome {
    /// Everything up to this number is taken.
    pub(crate) upto: u64,
    /// The next one is refused. The shard did not look at those behind it.
    pub(crate) refused: Option<(u64, String)>,
}

requests! {
    OutboxRequest, OutboxAnswer;

    /// Takes messages from the outbox of a shard, in order.
    Bring {
        source: ShardId,
        messages: Vec<Brought>,
    } -> TransferOutcome;

    @notices;

    /// Reports to the source what became of messages that were brought to `target`.
    Transferred {
        target: ShardId,
        outcome: TransferOutcome,
    }
}
