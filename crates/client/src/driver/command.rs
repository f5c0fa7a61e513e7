//! What handles ask of the task that owns the connection.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bytes::Bytes;
use peeklock_amqp::connection::{DeliveryId, LinkId};
use peeklock_amqp::{DeliveryState, Message};
use smallvec::SmallVec;
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::error::{Ending, Error};
use crate::pipeline::Failure;
use crate::producer::Producer;
use crate::receiver::{Arrival, ReceiveMode};
use crate::session::{HeldSession, SessionWish};

/// Commands that may wait for the driver before handles have to wait too.
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
    /// Each payload is a delivery of its own; nobody waits for a single one. Permits come back as they are confirmed.
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
    /// Ends a link; `unseen` deliveries go back to the queue first.
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
    /// A request to the transaction coordinator; the outcome is the answer.
    Control {
        request: Bytes,
        reply: Reply<DeliveryState>,
    },
    Close {
        reply: oneshot::Sender<()>,
    },
}

/// What a receiver asks of its link.
pub(crate) enum ReceiverCommand {
    /// So many more deliveries are welcome.
    AddCredit(u32),
    /// No more deliveries: what is on its way still comes, then the line of arrivals ends.
    Stop,
    Settle {
        id: DeliveryId,
        state: DeliveryState,
        reply: Reply<()>,
    },
    SettleMany {
        ids: Vec<DeliveryId>,
        state: DeliveryState,
    },
    /// Answered when no counted settlement waits for its confirmation, with the first failure since the last time.
    Flush(Reply<()>),
}

/// A link that a handle wants, with the ends that the driver keeps.
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
    /// How long the broker may take over its answer beyond the usual.
    pub(crate) fn wait(&self) -> Duration {
        match self {
            LinkKind::Send { .. } => Duration::ZERO,
            LinkKind::Receive { session, .. } => session.wait(),
        }
    }
}

/// What both sides agreed on.
#[derive(Clone, Debug)]
pub(crate) struct Opened {
    pub(crate) link: LinkId,
    /// Largest message the broker takes on it, if it told.
    pub(crate) message_size_bytes_max: Option<u64>,
    /// The last number that the broker has of a producer that numbers its events.
    pub(crate) last_number: Option<i32>,
    /// What a receiver holds that asked for a session.
    pub(crate) session: Option<HeldSession>,
}
