use std::fmt;

use bytes::Bytes;
use peeklock_types::{BodyRef, SequenceNumber, Timestamp, limits};

use crate::error::Error;
use crate::patch::Patch;

/// One queue, with its dead-letter queue. Never given out twice by a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntityId(pub u32);

impl fmt::Display for EntityId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "entity {}", self.0)
    }
}

/// Somebody who takes messages, numbered by whoever drives the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReceiverId(pub u64);

/// What happens to a message when it is handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveMode {
    /// It is locked until it is settled or the lock runs out.
    PeekLock,
    /// It is gone.
    ReceiveAndDelete,
}

/// A message on its way in. Its bytes go into the same journal group as the fact that it was enqueued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewMessage {
    pub body: BodyRef,
    pub size_bytes: u32,
}

/// What the holder of a lock says about the message. The `patch` bytes are an encoded map of properties, opaque here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// Done: the message is gone for good.
    Complete,
    /// Failed: the message returns to its place, or is dead-lettered when it failed too often.
    Abandon { patch: Option<Bytes> },
    /// Set aside: from now on only its sequence number gets it.
    Defer { patch: Option<Bytes> },
    /// Hopeless: moves to the dead-letter queue. A message that is there already stays there, is unlocked and takes the new reason.
    DeadLetter { reason: Option<String>, description: Option<String>, patch: Option<Bytes> },
    /// Never looked at: the message returns to its place, and the delivery does not count as failed.
    Release,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageState {
    Active,
    Deferred,
}

/// What a receiver is told about a message, beside its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub sequence_number: SequenceNumber,
    pub body: BodyRef,
    pub size_bytes: u32,
    /// How many deliveries of it failed so far: 0 on the first delivery.
    pub delivery_count: u32,
    pub enqueued_at: Timestamp,
    /// `None` when nobody holds a lock on it.
    pub locked_until: Option<Timestamp>,
    pub state: MessageState,
    pub patch: Patch,
}

/// How many messages one command may name.
pub(crate) fn check_count(count: usize) -> Result<(), Error> {
    match count {
        0 => Err(Error::Nothing),
        1..=limits::BATCH_COUNT_MAX => Ok(()),
        _ => Err(Error::TooMany { count }),
    }
}
