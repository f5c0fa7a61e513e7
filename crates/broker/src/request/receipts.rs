//! Requests about messages without receivers, as in storage queues: each message has a receipt.

use std::ops::Range;
use std::time::Duration;

use peeklock_engine::{Metadata, Received};
use peeklock_types::{EntityName, LockToken, QueueSettings};

use super::requests;
use crate::reply::{EntityInfo, Message};

requests! {
    ReceiptRequest, ReceiptAnswer;

    CreateWithMetadata {
        name: EntityName,
        settings: Box<QueueSettings>,
        metadata: Metadata,
    } -> EntityInfo;

    SetMetadata {
        name: EntityName,
        metadata: Metadata,
    } -> EntityInfo;

    /// Stores the message that was written to the batch and hides it for `hidden_for`.
    PutMessage {
        name: EntityName,
        message: Range<usize>,
        hidden_for: Duration,
    } -> Received;

    /// Takes up to `count_max` messages, and hides each for `hidden_for`.
    TakeMessages {
        name: EntityName,
        count_max: usize,
        hidden_for: Duration,
    } -> Vec<Message>;

    /// Shows the first available messages without taking them.
    PeekWaiting {
        name: EntityName,
        count_max: usize,
    } -> Vec<Message>;

    /// Hides a message for `hidden_for` from now, and replaces its body by the one that was written to the batch, if
    /// there is one. `None`: the message exceeded its delivery count and was dead-lettered.
    ChangeMessage {
        name: EntityName,
        token: LockToken,
        hidden_for: Duration,
        body: Option<Range<usize>>,
    } -> Option<Received>;

    DeleteMessage {
        name: EntityName,
        token: LockToken,
    } -> ();

    /// Deletes all messages, including locked ones. The answer has their number.
    ClearMessages {
        name: EntityName,
    } -> u64;
}
