use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
pub use peeklock_types::ReceiverId;
use peeklock_types::{BodyRef, ClassName, EntityName, SequenceNumber, SessionId, Timestamp, limits};

use crate::error::Error;
use crate::order::LaneKey;
use crate::patch::Patch;

/// Identifies one queue with its dead-letter queue, one topic, or one subscription. A shard never reuses an id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntityId(pub u32);

impl fmt::Display for EntityId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "entity {}", self.0)
    }
}

/// The effect of a delivery on the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveMode {
    /// The message is locked until it is settled or the lock expires.
    PeekLock,
    /// The message is deleted.
    ReceiveAndDelete,
}

/// A message to enqueue. Its bytes go into the same commit group as the fact that it was enqueued, or are a
/// standalone body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewMessage {
    pub body: BodyRef,
    pub size_bytes: u32,
    /// `None` for a message without special attributes, as most are.
    pub attributes: Option<Box<Attributes>>,
}

impl NewMessage {
    /// Returns the seed of `newid()` in filters: different for each message, the same on each evaluation.
    pub(crate) fn seed(&self, now: Timestamp) -> u64 {
        self.body.to_raw().rotate_left(32) ^ now.as_millis()
    }
}

/// The longest message id: four bytes per character, and its type.
pub(crate) const MESSAGE_ID_BYTES_MAX: usize = limits::MESSAGE_ID_CHARS_MAX * 4 + 16;

/// The attributes of a message that a queue needs beside its bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    pub session: Option<SessionId>,
    /// The time to live in whole milliseconds; fractions are truncated.
    pub time_to_live: Option<Duration>,
    /// The time of the earliest delivery. A past time means at once. The copies of a topic's message have this time if
    /// the message waited for it in the topic.
    pub scheduled_for: Option<Timestamp>,
    /// The message id. It is required where duplicates are detected or messages are forwarded, and omitted elsewhere to
    /// save work.
    pub message_id: Option<Bytes>,
    /// The origin of the message, if it was forwarded from another queue.
    pub origin: Option<Origin>,
    /// The differences from the stored bytes, which settlements made before the message was forwarded, or the action of
    /// a rule.
    pub patch: Patch,
    /// The properties of the message, for the filters of a topic and the classes of a queue; see `peeklock_filter`.
    /// Omitted elsewhere.
    pub view: Option<Bytes>,
    /// The lane of the message, in a queue with an order. The queue determines it from the view.
    pub lane: Option<LaneKey>,
    /// The reserved sequence number of a message that a transaction scheduled.
    pub reserved: Option<Reserved>,
}

/// Identifies a sequence number that was assigned before its message is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// The queue or topic that assigned it. An entity of the same name that was created later has its own numbers.
    pub entity: EntityId,
    pub sequence_number: SequenceNumber,
}

impl Attributes {
    pub fn is_empty(&self) -> bool {
        self.is_only_lane() && self.lane.is_none()
    }

    /// Estimates the bytes that the attributes add to the journal, without the lane, which the queue determines later.
    pub fn size_bytes(&self) -> usize {
        const NUMBERS: usize = 32;
        // Only a scheduled message keeps its view, in a topic.
        let view = self.view.as_ref().filter(|_| self.scheduled_for.is_some());
        let session = self.session.as_ref().map(|session| session.as_str().as_bytes());
        let said = [view.map(Bytes::as_ref), session, self.message_id.as_deref()];
        let size_bytes =
            said.iter().flatten().map(|bytes| bytes.len()).sum::<usize>() + self.patch.size_bytes();
        let is_said = size_bytes > 0 || self.time_to_live.is_some() || self.scheduled_for.is_some();
        if is_said || self.origin.is_some() { NUMBERS + size_bytes } else { 0 }
    }

    /// Returns whether the lane is the only attribute.
    fn is_only_lane(&self) -> bool {
        self.is_only_named() && self.message_id.is_none()
    }

    /// Returns whether the message has no other attributes than an id and a lane.
    pub(crate) fn is_only_named(&self) -> bool {
        self.session.is_none()
            && self.time_to_live.is_none()
            && self.scheduled_for.is_none()
            && self.origin.is_none()
            && self.patch.is_empty()
            && self.view.is_none()
            && self.reserved.is_none()
    }

    /// Returns only the attributes that a record stores: after a restart a message must have exactly the same ones.
    /// Only a topic keeps the view.
    pub(crate) fn kept(attributes: Option<Box<Attributes>>, keeps_view: bool) -> Option<Box<Attributes>> {
        let mut attributes = attributes?;
        if !keeps_view {
            attributes.view = None;
        }
        if let Some(span) = &mut attributes.time_to_live {
            *span = Duration::from_millis(u64::try_from(span.as_millis()).unwrap_or(u64::MAX));
        }
        (!attributes.is_empty()).then_some(attributes)
    }
}

/// The origin of a forwarded message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The sequence number in the queue to which the message was first sent.
    pub sequence_number: SequenceNumber,
    /// The number of times that the message was forwarded.
    pub hop_count: u8,
    /// The queue that dead-lettered the message, if it was forwarded for that reason.
    pub dead_letter_source: Option<EntityName>,
}

/// The settlement that the holder of a lock requests. The `patch` bytes are an encoded map of properties, opaque here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// Succeeded: the message is deleted.
    Complete,
    /// Failed: the message returns to its place, or is dead-lettered if it failed too often. It is not delivered for
    /// `delay`, by default for the time in the queue's retry policy.
    Abandon { patch: Option<Bytes>, delay: Option<Duration> },
    /// Deferred: the message can only be received by its sequence number from now on.
    Defer { patch: Option<Bytes> },
    /// Dead-lettered: the message moves to the dead-letter queue. The settlement is rejected if the message is already
    /// there.
    DeadLetter { reason: Option<String>, description: Option<String>, patch: Option<Bytes> },
    /// Not processed: the message returns to its place, and the delivery does not count as failed.
    Release,
    /// Interrupted: the message returns to its place at once, and the delivery does not count as failed, unless the message was
    /// interrupted more than [`INTERRUPTIONS_MAX`](crate::INTERRUPTIONS_MAX) times.
    Interrupt,
}

impl Settlement {
    /// Returns the bytes that the settlement adds to the journal, except for a small constant.
    pub(crate) fn size_bytes(&self) -> usize {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        match self {
            Settlement::Complete | Settlement::Release | Settlement::Interrupt => 0,
            Settlement::Abandon { patch, .. } | Settlement::Defer { patch } => {
                patch.as_ref().map_or(0, Bytes::len)
            }
            Settlement::DeadLetter { reason, description, patch } => {
                text(reason) + text(description) + patch.as_ref().map_or(0, Bytes::len)
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageState {
    Active,
    Deferred,
    Scheduled,
    /// Failed, and not to be delivered again before a certain time.
    Delayed,
}

/// The properties of a message that a receiver gets beside its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub sequence_number: SequenceNumber,
    pub body: BodyRef,
    pub size_bytes: u32,
    /// The number of deliveries that failed or ended with a deferral: 0 on the first delivery.
    pub delivery_count: u32,
    pub enqueued_at: Timestamp,
    /// The expiry of the lock. `None` if the message is not locked.
    pub locked_until: Option<Timestamp>,
    pub state: MessageState,
    /// Whether the message was scheduled and has become due.
    pub is_activated: bool,
    /// The class of the message, in a queue with an order.
    pub class: Option<ClassName>,
    pub tenant: Option<Arc<str>>,
    pub patch: Patch,
    pub details: Option<Box<Details>>,
}

impl Message {
    /// Invalidates the receipt, because another receiver gets the message.
    pub(crate) fn end_receipt(&mut self) {
        if let Some(details) = self.details.as_mut().filter(|details| details.receipt.is_some()) {
            details.receipt = None;
            if **details == Details::default() {
                self.details = None;
            }
        }
    }
}

/// The attributes of a message that are kept, and their changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details {
    /// The smaller value of those of the sender and the queue.
    pub time_to_live: Option<Duration>,
    /// The time when a scheduled or delayed message is due.
    pub due: Option<Timestamp>,
    /// The message id, which is kept where the message may be forwarded.
    pub message_id: Option<Bytes>,
    /// The session id, which is kept in case the message is forwarded. In a queue with sessions the message itself
    /// belongs to its session instead.
    pub session: Option<SessionId>,
    pub origin: Option<Origin>,
    /// The transfer of the message, if it is in transit to another queue.
    pub transfer: Option<Transfer>,
    /// The view of the message, if it waits in a topic until it is due.
    pub view: Option<Bytes>,
    /// The holder of this nonce may change or delete the message, locked or not, until another receiver gets it.
    pub receipt: Option<u64>,
    /// The upper half of the delivery count, for a message that failed more than 65,535 times.
    pub delivery_count_high: u16,
    /// For a deferred message: the expiry of the lock under which it was deferred. The service returns it on a peek.
    pub was_locked_until: Option<Timestamp>,
}

/// The transfer of a message to another queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    pub target: EntityName,
    /// The number of the message on the route to the target's shard.
    pub number: u64,
    pub why: TransferReason,
    /// The sequence number that was reserved for the message at the target.
    pub reserved: Option<Reserved>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferReason {
    /// The queue forwards its messages.
    Forward,
    /// The message was dead-lettered, and the queue forwards its dead letters.
    DeadLetter,
    /// A transaction of this queue has sent the message to another queue.
    Transaction,
}

/// The session that a receiver requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionWish {
    /// No session, because the queue has none.
    None,
    Named(SessionId),
    /// The next session that has messages and no holder.
    Next {
        give_up_at: Timestamp,
    },
}

/// Names and values that a queue stores for its owner, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata(pub Vec<(String, String)>);

impl Metadata {
    /// Checks the total size and the number of pairs.
    pub fn check(&self) -> Result<(), Error> {
        let size_bytes: usize = self.0.iter().map(|(name, value)| name.len() + value.len()).sum();
        let count = self.0.len();
        if size_bytes > limits::METADATA_SIZE_BYTES_MAX || count > limits::METADATA_COUNT_MAX {
            return Err(Error::MetadataTooLarge { size_bytes, count });
        }
        Ok(())
    }
}

/// Checks the number of messages that one command refers to.
pub(crate) fn check_count(count: usize) -> Result<(), Error> {
    match count {
        0 => Err(Error::Nothing),
        1..=limits::BATCH_COUNT_MAX => Ok(()),
        _ => Err(Error::TooMany { count }),
    }
}
