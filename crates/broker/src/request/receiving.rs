//! Requests of receivers: attaching, credit, and messages that are fetched without a link.

use std::time::Duration;

use peeklock_engine::{EntityId, HeldSession, ReceiveMode, ReceiverId};
use peeklock_types::{SequenceNumber, SessionId, SubQueue, Timestamp};

use super::requests;
use super::sessions::SessionHold;
use crate::reply::Message;

/// The session that a receiver requires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionAsk {
    /// No session: the queue has no sessions.
    None,
    Named(SessionId),
    /// The next free session with messages. The shard answers when there is one, or with an error after `timeout`.
    Next {
        timeout: Duration,
    },
}

/// The effect of a change of credit on a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drain {
    /// No effect: a drain in progress continues.
    Keep,
    /// Delivers the available messages, removes the rest of the credit and then reports the receiver as drained.
    Start,
    /// Ends a drain. The credit remains.
    Cancel,
}

requests! {
    ReceivingRequest, ReceivingAnswer;

    /// Attaches a receiver. The answer has its session, if the queue has sessions.
    Attach {
        entity: EntityId,
        sub_queue: SubQueue,
        receiver: ReceiverId,
        mode: ReceiveMode,
        session: SessionAsk,
    } -> Option<HeldSession>;

    /// Detaches a receiver, or a reader of events.
    Detach {
        receiver: ReceiverId,
    } -> ();

    /// Shows messages in any state without a lock.
    Peek {
        entity: EntityId,
        sub_queue: SubQueue,
        from: SequenceNumber,
        count_max: usize,
        session: Option<SessionId>,
    } -> Vec<Message>;

    ReceiveDeferred {
        entity: EntityId,
        sub_queue: SubQueue,
        numbers: Vec<SequenceNumber>,
        mode: ReceiveMode,
        /// The session of the messages, in a queue with sessions.
        hold: Option<SessionHold>,
    } -> Vec<Message>;

    @notices;

    /// Permits deliveries to the receiver, or reader, up to a total of `limit`. The total includes deliveries in flight
    /// to the peer.
    Credit {
        receiver: ReceiverId,
        limit: u64,
        drain: Drain,
    }

    /// Permits deliveries to the receiver up to a total of `limit`, none less urgent than `not_after`, and no more than
    /// are available now. [`ReceiverReply::Drained`](crate::ReceiverReply::Drained) reports the end. See [`Watch`].
    Take {
        receiver: ReceiverId,
        limit: u64,
        not_after: Option<Timestamp>,
    }

    /// Watches the next message of the receiver's queue: the shard reports it by
    /// [`ReceiverReply::Head`](crate::ReceiverReply::Head), now and on each change. `None` stops the reports.
    Watch {
        receiver: ReceiverId,
        serial: Option<u32>,
    }

    /// Reports that the peer has passed on this many bytes of deliveries, or of events.
    Window {
        receiver: ReceiverId,
        size_bytes: i64,
    }
}
