//! Requests about messages without receivers, as storage queues have them: each message has a receipt.

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

    /// Hands out up to `count_max` messages, each for `hidden_for`.
    TakeMessages {
        name: EntityName,
        count_max: usize,
        hidden_for: Duration,
    } -> Vec<Message>;

    /// Shows the first messages that could be taken.
    PeekWaiting {
        name: EntityName,
        count_max: usize,
    } -> Vec<Message>;

    /// Hides a message for `hidden_for` from now, and gives it the body that was written to the batch, if there is one. `None`: the message
    /// has failed too often and is among the dead letters now.
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

    /// Deletes all messages, held ones too. The answer has their number.
    ClearMessages {
        name: EntityName,
    } -> u64;
}
