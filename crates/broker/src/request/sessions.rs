//! Requests about the sessions of a queue.

use bytes::Bytes;
use peeklock_engine::{EntityId, ReceiverId};
use peeklock_types::{SessionId, Timestamp};

use super::requests;

/// A session, and the receiver that claims to have locked it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionHold {
    pub session: SessionId,
    pub receiver: ReceiverId,
}

requests! {
    SessionRequest, SessionAnswer;

    /// Renews the lock of a session. The answer has its new expiry time.
    RenewSession {
        entity: EntityId,
        hold: SessionHold,
    } -> Timestamp;

    ShowState {
        entity: EntityId,
        hold: SessionHold,
    } -> Option<Bytes>;

    SetState {
        entity: EntityId,
        hold: SessionHold,
        state: Option<Bytes>,
    } -> ();

    /// Lists sessions by name: those with messages, or those whose state was set after a time.
    ListSessions {
        entity: EntityId,
        updated_since: Option<Timestamp>,
        skip: usize,
        top: usize,
    } -> Vec<SessionId>;
}
