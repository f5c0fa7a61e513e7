use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
pub use peeklock_types::ReceiverId;
use peeklock_types::{BodyRef, ClassName, EntityName, SequenceNumber, SessionId, Timestamp, limits};

use crate::error::Error;
use crate::order::LaneKey;
use crate::patch::Patch;

/// One queue with its dead-letter queue, one topic, or one subscription. Never given out twice by a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntityId(pub u32);

impl fmt::Display for EntityId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "entity {}", self.0)
    }
}

/// What happens to a message when it is handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveMode {
    /// It is locked until it is settled or the lock runs out.
    PeekLock,
    /// It is gone.
    ReceiveAndDelete,
}

/// A message on its way in. Its bytes go into the same journal group as the fact that it was enqueued, or lie in a cold segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewMessage {
    pub body: BodyRef,
    pub size_bytes: u32,
    /// `None` for a message that says nothing special, as most do.
    pub attributes: Option<Box<Attributes>>,
}

impl NewMessage {
    /// What `newid()` rests on in filters: different for each message, the same whenever it is asked.
    pub(crate) fn seed(&self, now: Timestamp) -> u64 {
        self.body.to_raw().rotate_left(32) ^ now.as_millis()
    }
}

/// A message id of the longest kind: four bytes per character, and its type.
pub(crate) const MESSAGE_ID_BYTES_MAX: usize = limits::MESSAGE_ID_CHARS_MAX * 4 + 16;

/// What a queue must know of a message beside its bytes, when there is something to know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    pub session: Option<SessionId>,
    /// In whole milliseconds; what is beyond is cut off.
    pub time_to_live: Option<Duration>,
    /// Not before this time. A time that has passed means at once; a topic's copies have it if they had to wait for it.
    pub scheduled_for: Option<Timestamp>,
    /// Needed where duplicates are detected or messages are forwarded; left out elsewhere to save work.
    pub message_id: Option<Bytes>,
    /// Of a message that comes from another queue.
    pub origin: Option<Origin>,
    /// What differs from the stored bytes: settlements before it was forwarded, or a rule's action, have changed it.
    pub patch: Patch,
    /// Its properties, for the filters of a topic and the classes of a queue; see `peeklock_filter`. Left out elsewhere.
    pub view: Option<Bytes>,
    /// Where it waits, in a queue with an order. The queue finds that out by itself, from the view.
    pub lane: Option<LaneKey>,
    /// Names the sequence number of a message that a transaction scheduled.
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

    /// Estimates what it adds to the journal, without the lane, which the queue determines later.
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

    /// Whether nothing is said but where it waits.
    pub(crate) fn is_only_lane(&self) -> bool {
        self.session.is_none()
            && self.time_to_live.is_none()
            && self.scheduled_for.is_none()
            && self.message_id.is_none()
            && self.origin.is_none()
            && self.patch.is_empty()
            && self.view.is_none()
            && self.reserved.is_none()
    }

    /// Just what a record says: after a restart a message must not know more or less than before. Only a topic keeps the view.
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

/// Where a forwarded message comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The number that it had where it was sent first.
    pub sequence_number: SequenceNumber,
    /// How often it was forwarded.
    pub hop_count: u8,
    /// The queue that dead-lettered it, if that is why it was forwarded.
    pub dead_letter_source: Option<EntityName>,
}

/// What the holder of a lock says about the message. The `patch` bytes are an encoded map of properties, opaque here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// Done: the message is gone for good.
    Complete,
    /// Failed: the message returns to its place, or is dead-lettered when it failed too often. It stays away for `delay`; without one, for
    /// as long as the queue's retry policy says.
    Abandon { patch: Option<Bytes>, delay: Option<Duration> },
    /// Set aside: from now on only its sequence number gets it.
    Defer { patch: Option<Bytes> },
    /// Hopeless: moves to the dead-letter queue. Refused for a message that is there already.
    DeadLetter { reason: Option<String>, description: Option<String>, patch: Option<Bytes> },
    /// Never looked at: the message returns to its place, and the delivery does not count as failed.
    Release,
}

impl Settlement {
    /// What it adds to the journal, beside a few bytes.
    pub(crate) fn size_bytes(&self) -> usize {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        match self {
            Settlement::Complete | Settlement::Release => 0,
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

/// What a receiver is told about a message, beside its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub sequence_number: SequenceNumber,
    pub body: BodyRef,
    pub size_bytes: u32,
    /// How many deliveries of it failed or ended with a deferral so far: 0 on the first delivery.
    pub delivery_count: u32,
    pub enqueued_at: Timestamp,
    /// `None` when nobody holds a lock on it.
    pub locked_until: Option<Timestamp>,
    pub state: MessageState,
    /// Whether the message was scheduled and its time has come.
    pub is_activated: bool,
    /// Of a queue with an order.
    pub class: Option<ClassName>,
    pub tenant: Option<Arc<str>>,
    pub patch: Patch,
    pub details: Option<Box<Details>>,
}

impl Message {
    /// Somebody else receives it.
    pub(crate) fn end_receipt(&mut self) {
        if let Some(details) = self.details.as_mut().filter(|details| details.receipt.is_some()) {
            details.receipt = None;
            if **details == Details::default() {
                self.details = None;
            }
        }
    }
}

/// What is kept of a message's attributes, and what became of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details {
    /// The shorter of what the sender and the queue say.
    pub time_to_live: Option<Duration>,
    /// When a scheduled or delayed message is due.
    pub due: Option<Timestamp>,
    /// Kept where the message may be forwarded.
    pub message_id: Option<Bytes>,
    /// For when the message is forwarded; in a queue with sessions the message itself belongs to one.
    pub session: Option<SessionId>,
    pub origin: Option<Origin>,
    /// Of a message on its way to another queue.
    pub transfer: Option<Transfer>,
    /// Of a message that waits in a topic until it is due.
    pub view: Option<Bytes>,
    /// Whoever shows this nonce may change or delete the message, locked or not, until somebody else receives it.
    pub receipt: Option<u64>,
    /// The upper half of the delivery count, of a message that failed more than 65,535 times.
    pub delivery_count_high: u16,
    /// Of a deferred message: the end of the lock under which it was deferred. The service shows it to those who peek.
    pub was_locked_until: Option<Timestamp>,
}

/// A message's way to another queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    pub target: EntityName,
    /// Its number among those that go to the target's shard.
    pub number: u64,
    pub why: TransferReason,
    /// The sequence number that was reserved for it at the target.
    pub reserved: Option<Reserved>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferReason {
    /// The queue forwards its messages.
    Forward,
    /// It was dead-lettered, and the queue forwards its dead letters.
    DeadLetter,
    /// A transaction of this queue has sent it to another one.
    Transaction,
}

/// Which session a receiver wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionWish {
    /// None: the queue has no sessions.
    None,
    Named(SessionId),
    /// The next that has messages and that nobody holds.
    Next {
        give_up_at: Timestamp,
    },
}

/// Names and values that a queue carries for its owner, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata(pub Vec<(String, String)>);

impl Metadata {
    /// Whether a queue can carry it.
    pub fn check(&self) -> Result<(), Error> {
        let size_bytes: usize = self.0.iter().map(|(name, value)| name.len() + value.len()).sum();
        let count = self.0.len();
        if size_bytes > limits::METADATA_SIZE_BYTES_MAX || count > limits::METADATA_COUNT_MAX {
            return Err(Error::MetadataTooLarge { size_bytes, count });
        }
        Ok(())
    }
}

/// How many messages one command may name.
pub(crate) fn check_count(count: usize) -> Result<(), Error> {
    match count {
        0 => Err(Error::Nothing),
        1..=limits::BATCH_COUNT_MAX => Ok(()),
        _ => Err(Error::TooMany { count }),
    }
}
