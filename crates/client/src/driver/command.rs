//! The commands that handles send to the task that owns the connection.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bytes::Bytes;
use peeklock_amqp::connection::{DeliveryId, LinkId};
use peeklock_amqp::{DeliveryState, Message};
use peeklock_types::Timestamp;
use smallvec::SmallVec;
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::coordinator::Unsent;
use crate::error::{Ending, Error};
use crate::extensions::Extensions;
use crate::pipeline::Failure;
use crate::producer::Producer;
use crate::receiver::{Arrival, ReceiveMode};
use crate::session::{HeldSession, SessionWish};
use crate::settler::Batch;
use crate::spares::Declared;

/// The capacity of the command queue.
pub(crate) const COMMANDS_MAX: usize = 1024;

pub(crate) type Reply<T> = oneshot::Sender<Result<T, Error>>;

pub(crate) enum Command {
    Open {
        request: Box<LinkRequest>,
        reply: Reply<Opened>,
    },
    Send {
        link: LinkId,
        payload: Bytes,
        message_format: u32,
        transaction: Option<Bytes>,
        reply: Reply<()>,
    },
    /// Each payload is its own delivery, without a reply. The driver returns permits as deliveries are confirmed.
    SendMany {
        link: LinkId,
        message_format: u32,
        payloads: SmallVec<[Bytes; 1]>,
        failures: mpsc::Sender<Failure>,
    },
    Receiver {
        link: LinkId,
        command: ReceiverCommand,
    },
    /// Ends a link. The `unseen` deliveries are released first.
    Detach {
        link: LinkId,
        unseen: Vec<DeliveryId>,
        reply: Option<Reply<()>>,
    },
    Request {
        node: Arc<str>,
        message: Box<Message>,
        transaction: Option<Bytes>,
        reply: Reply<Message>,
    },
    /// A message of a transaction, without a reply: the commit reports a failure.
    SendStep {
        link: LinkId,
        payload: Bytes,
        message_format: u32,
        transaction: Bytes,
        unsent: Unsent,
    },
    /// Begins a transaction.
    Declare {
        reply: Reply<Declared>,
    },
    /// Commits a transaction or rolls it back.
    Discharge(Discharge),
    Close {
        reply: oneshot::Sender<()>,
    },
}

/// The end of a transaction.
pub(crate) struct Discharge {
    pub(crate) id: Bytes,
    pub(crate) fail: bool,
    /// The number of steps on links, for a broker that compares it.
    pub(crate) step_count: Option<u32>,
    /// The steps that must leave before.
    pub(crate) unsent: Unsent,
    pub(crate) reply: Reply<DeliveryState>,
}

/// The commands of a receiver to its link.
pub(crate) enum ReceiverCommand {
    /// Grants credit for so many more deliveries.
    AddCredit(u32),
    /// Stops the broker from sending. Deliveries in flight are passed on, and then the channel is closed.
    Stop,
    /// Takes back the credit. Replies when the deliveries in flight have been passed on; the link stays open.
    Drain(Reply<()>),
    Settle {
        id: DeliveryId,
        state: DeliveryState,
        reply: Reply<()>,
    },
    /// A settlement in a transaction, without a reply: the commit reports a failure.
    SettleStep {
        id: DeliveryId,
        state: DeliveryState,
    },
    /// Settlements whose results go to one list.
    SettleEach(Batch),
    SettleMany {
        ids: Vec<DeliveryId>,
        state: DeliveryState,
    },
    /// Replies when no settlement waits for its confirmation, with the first failure since the last flush.
    Flush(Reply<()>),
}

/// A link that a handle requests, with the channel ends that the driver keeps.
pub(crate) struct LinkRequest {
    pub(crate) entity: Arc<str>,
    pub(crate) ending: Ending,
    pub(crate) kind: LinkKind,
}

pub(crate) enum LinkKind {
    Send {
        permits: Arc<Semaphore>,
        producer: Option<Producer>,
    },
    Receive {
        mode: ReceiveMode,
        session: SessionWish,
        selector: Option<String>,
        owner_level: Option<i64>,
        credit: u32,
        arrivals: mpsc::Sender<Arrival>,
        confirmed_count: Arc<AtomicU64>,
    },
}

impl LinkKind {
    /// Returns how much longer than usual the broker may take to answer.
    pub(crate) fn wait(&self) -> Duration {
        match self {
            LinkKind::Send { .. } => Duration::ZERO,
            LinkKind::Receive { session, .. } => session.wait(),
        }
    }
}

/// The result of an attach.
#[derive(Clone, Debug)]
pub(crate) struct Opened {
    pub(crate) link: LinkId,
    /// The largest message that the broker accepts on the link, if it sent a limit.
    pub(crate) message_size_bytes_max: Option<u64>,
    /// The last number that the broker has stored, for a producer that numbers its events.
    pub(crate) last_number: Option<i32>,
    /// The broker's time when it opened the link, if it sent it.
    pub(crate) broker_time: Option<Timestamp>,
    /// The lock duration of the entity, if the broker sent it.
    pub(crate) lock_duration: Option<Duration>,
    pub(crate) extensions: Extensions,
    /// The session that the broker has locked for the link.
    pub(crate) session: Option<HeldSession>,
}
