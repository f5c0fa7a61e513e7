use std::ops::Range;

use bytes::{Bytes, BytesMut};
use peeklock_engine::{Counts, Delivery, EntityId, ReceiveMode, ReceiverId, Settlement};
use peeklock_types::{EntityName, LockToken, QueueSettings, SequenceNumber, ShardId, SubQueue, Timestamp};
use tokio::sync::mpsc;

/// One connection, unique while its broker lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PeerId(pub(crate) u64);

impl PeerId {
    const LOCAL_BITS: u32 = 24;
    /// How many receivers one peer can have.
    pub const RECEIVERS_MAX: u32 = 1 << Self::LOCAL_BITS;

    /// The receiver with the peer's own number `local`; the peer can be read off it again.
    pub fn receiver(self, local: u32) -> ReceiverId {
        debug_assert!(local < Self::RECEIVERS_MAX);
        ReceiverId((self.0 << Self::LOCAL_BITS) | u64::from(local))
    }

    pub fn of(receiver: ReceiverId) -> PeerId {
        PeerId(receiver.0 >> Self::LOCAL_BITS)
    }

    #[expect(clippy::cast_possible_truncation, reason = "masked to the width of the field")]
    pub fn local(receiver: ReceiverId) -> u32 {
        (receiver.0 & u64::from(Self::RECEIVERS_MAX - 1)) as u32
    }
}

/// How shards reach a peer: one channel for everything. It needs no bound of its own: what a peer can have waiting is bounded by the
/// credit and the byte window that it gave, and by the requests it has open.
#[derive(Clone, Debug)]
pub struct Peer {
    pub id: PeerId,
    pub replies: mpsc::UnboundedSender<Vec<Reply>>,
}

impl Peer {
    pub(crate) fn new(id: PeerId) -> (Self, mpsc::UnboundedReceiver<Vec<Reply>>) {
        let (replies, incoming) = mpsc::unbounded_channel();
        (Peer { id, replies }, incoming)
    }
}

/// A peer's own number for a request, given back with its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(pub u64);

/// Everything that one peer asks of one shard at one time. The bytes of new messages lie in one arena, so a message costs no allocation.
#[derive(Debug, Default)]
pub struct Batch {
    pub(crate) requests: Vec<Request>,
    arena: BytesMut,
    messages: Vec<Range<usize>>,
}

#[derive(Debug)]
pub enum Request {
    /// Store the messages that were written to the batch under these numbers: all or none.
    Send {
        ticket: Ticket,
        entity: EntityId,
        messages: Range<usize>,
    },
    Settle {
        ticket: Ticket,
        entity: EntityId,
        sub_queue: SubQueue,
        token: LockToken,
        settlement: Settlement,
    },
    /// A delivery that never reached its receiver goes back uncounted. Nobody waits for it.
    Release {
        entity: EntityId,
        sub_queue: SubQueue,
        token: LockToken,
    },
    /// The receiver takes deliveries until there were `limit` in all. A running count, not a rest: deliveries that are on their way to the
    /// peer while it says this are in it.
    Credit {
        receiver: ReceiverId,
        limit: u64,
        drain: Drain,
    },
    /// The peer has passed on this many bytes of deliveries.
    Window {
        receiver: ReceiverId,
        size_bytes: i64,
    },
    Attach {
        ticket: Ticket,
        entity: EntityId,
        sub_queue: SubQueue,
        receiver: ReceiverId,
        mode: ReceiveMode,
    },
    Detach {
        ticket: Ticket,
        receiver: ReceiverId,
    },
    Renew {
        ticket: Ticket,
        entity: EntityId,
        sub_queue: SubQueue,
        tokens: Vec<LockToken>,
    },
    Peek {
        ticket: Ticket,
        entity: EntityId,
        sub_queue: SubQueue,
        from: SequenceNumber,
        count_max: usize,
    },
    ReceiveDeferred {
        ticket: Ticket,
        entity: EntityId,
        sub_queue: SubQueue,
        numbers: Vec<SequenceNumber>,
        mode: ReceiveMode,
    },
    Find {
        ticket: Ticket,
        name: EntityName,
    },
    CreateQueue {
        ticket: Ticket,
        name: EntityName,
        settings: QueueSettings,
    },
    DeleteQueue {
        ticket: Ticket,
        name: EntityName,
    },
    ShowQueue {
        ticket: Ticket,
        name: EntityName,
    },
    ListQueues {
        ticket: Ticket,
    },
    /// The peer has gone; what it had attached is detached.
    Gone,
}

/// What a word about credit means for a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drain {
    /// Nothing: one that is under way goes on.
    Keep,
    /// Hand out what there is, take the rest of the credit back, and say [`Reply::Drained`].
    Start,
    /// The receiver has changed its mind: the credit stands.
    Cancel,
}

#[derive(Debug)]
pub enum Reply {
    Answer {
        ticket: Ticket,
        result: Result<Answer, Error>,
    },
    Delivery {
        shard: ShardId,
        delivery: Delivery,
        body: Bytes,
    },
    Drained {
        receiver: ReceiverId,
    },
    /// The queue was deleted; the receiver is detached.
    Closed {
        receiver: ReceiverId,
    },
    /// The shard has stopped and will answer nothing more.
    Stopped {
        reason: String,
    },
}

impl Reply {
    /// The delivery that it brings, if it brings one.
    pub fn into_delivery(self) -> Option<Delivery> {
        match self {
            Reply::Delivery { delivery, .. } => Some(delivery),
            Reply::Answer { .. } | Reply::Drained { .. } | Reply::Closed { .. } | Reply::Stopped { .. } => {
                None
            }
        }
    }
}

#[derive(Debug)]
pub enum Answer {
    Done,
    Found(EntityId),
    Renewed(Vec<Timestamp>),
    Messages(Vec<Message>),
    Queues(Vec<QueueInfo>),
}

/// A message that was asked for, with what the engine knows of it and its stored bytes.
#[derive(Debug)]
pub struct Message {
    /// `None` if it was only looked at.
    pub token: Option<LockToken>,
    pub message: peeklock_engine::Message,
    pub body: Bytes,
}

#[derive(Clone, Debug)]
pub struct QueueInfo {
    pub name: EntityName,
    pub settings: QueueSettings,
    pub counts: Counts,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Engine(Box<peeklock_engine::Error>),
    #[error(
        "the disk is nearly full, so no new messages are taken; receive and complete go on. Free disk space, or raise the limit, and send again"
    )]
    DiskFull,
    #[error("{size_bytes} bytes are over the limit of {limit_bytes} for one message or batch")]
    TooLarge { size_bytes: usize, limit_bytes: usize },
}

impl From<peeklock_engine::Error> for Error {
    fn from(error: peeklock_engine::Error) -> Self {
        Error::Engine(Box::new(error))
    }
}

impl Request {
    fn has_ticket(&self) -> bool {
        match self {
            Request::Release { .. } | Request::Credit { .. } | Request::Window { .. } | Request::Gone => {
                false
            }
            Request::Send { .. }
            | Request::Settle { .. }
            | Request::Attach { .. }
            | Request::Detach { .. }
            | Request::Renew { .. }
            | Request::Peek { .. }
            | Request::ReceiveDeferred { .. }
            | Request::Find { .. }
            | Request::CreateQueue { .. }
            | Request::DeleteQueue { .. }
            | Request::ShowQueue { .. }
            | Request::ListQueues { .. } => true,
        }
    }
}

impl From<Request> for Batch {
    fn from(request: Request) -> Self {
        Batch { requests: vec![request], ..Batch::default() }
    }
}

impl Batch {
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// How many answers it will bring.
    pub fn ticket_count(&self) -> usize {
        self.requests.iter().filter(|request| request.has_ticket()).count()
    }

    pub fn push(&mut self, request: Request) {
        self.requests.push(request);
    }

    /// Collects the messages of one send. Nothing is asked for until [`Messages::send`]; dropped before that, it leaves no trace.
    pub fn messages(&mut self) -> Messages<'_> {
        Messages { first_byte: self.arena.len(), first: self.messages.len(), batch: self, sent: false }
    }

    pub(crate) fn bodies(&self, messages: Range<usize>) -> impl ExactSizeIterator<Item = &[u8]> {
        let ranges = self.messages.get(messages).unwrap_or_default();
        ranges.iter().map(|range| self.arena.get(range.clone()).unwrap_or_default())
    }

    pub fn take(&mut self) -> Batch {
        std::mem::take(self)
    }
}

pub struct Messages<'a> {
    batch: &'a mut Batch,
    first_byte: usize,
    first: usize,
    sent: bool,
}

impl Messages<'_> {
    /// Adds one message, written by `write` behind what is there already.
    pub fn add<E>(&mut self, write: impl FnOnce(&mut BytesMut) -> Result<(), E>) -> Result<(), E> {
        let start = self.batch.arena.len();
        write(&mut self.batch.arena)?;
        self.batch.messages.push(start..self.batch.arena.len());
        Ok(())
    }

    pub fn count(&self) -> usize {
        self.batch.messages.len() - self.first
    }

    pub fn send(mut self, ticket: Ticket, entity: EntityId) {
        self.sent = true;
        let messages = self.first..self.batch.messages.len();
        self.batch.requests.push(Request::Send { ticket, entity, messages });
    }
}

impl Drop for Messages<'_> {
    fn drop(&mut self) {
        if !self.sent {
            self.batch.arena.truncate(self.first_byte);
            self.batch.messages.truncate(self.first);
        }
    }
}
