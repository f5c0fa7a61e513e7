//! Requests of transactions: steps that are checked when they are requested, and the commit that applies them.

use std::ops::Range;

use bytes::Bytes;
use peeklock_engine::{EntityId, Settlement};
use peeklock_types::{EntityName, LockToken, SequenceNumber, SubQueue};

use super::requests;
use super::sessions::SessionHold;

/// A settlement that is part of a transaction.
#[derive(Clone, Debug)]
pub struct TransactionSettle {
    pub sub_queue: SubQueue,
    pub token: LockToken,
    pub settlement: Settlement,
}

/// A session state that is set as part of a transaction.
#[derive(Clone, Debug)]
pub struct TransactionState {
    pub entity: EntityId,
    pub hold: SessionHold,
    pub state: Option<Bytes>,
}

/// A send that is part of a transaction.
#[derive(Clone, Debug)]
pub struct TransactionSend {
    pub target: EntityName,
    /// Numbers of messages that were written to the batch.
    pub messages: Range<usize>,
}

requests! {
    TransactionRequest, TransactionAnswer;

    /// Checks that the lock is held now, for a settlement that is part of a transaction.
    CheckLock {
        entity: EntityId,
        sub_queue: SubQueue,
        token: LockToken,
    } -> ();

    /// Checks that all these messages are scheduled. A transaction cancels them at its commit.
    CheckScheduled {
        entity: EntityId,
        numbers: Vec<SequenceNumber>,
    } -> ();

    /// Checks that the session is held and that the state is not too large. A transaction sets it at its commit.
    CheckState {
        state: TransactionState,
    } -> ();

    /// Reserves sequence numbers for messages that a transaction schedules.
    ReserveNumbers {
        entity: EntityId,
        count: usize,
    } -> Vec<SequenceNumber>;

    /// Applies settlements of one queue and sends to any queues: all or none. The queue `entity` forwards sends to
    /// other shards. Scheduled messages to cancel and states to set belong to entities of the same shard.
    Commit {
        entity: EntityId,
        settles: Vec<TransactionSettle>,
        cancels: Vec<(EntityId, SequenceNumber)>,
        states: Vec<TransactionState>,
        sends: Vec<TransactionSend>,
    } -> ();
}
