//! Receivers that have lost their session and are not closed yet.

use std::collections::BTreeMap;

use peeklock_types::{SessionId, Timestamp};

use crate::message::ReceiverId;

#[derive(Debug, Default)]
pub(crate) struct Former {
    /// The time at which each receiver is to be closed, and the session that it held.
    deadlines: BTreeMap<(Timestamp, ReceiverId), SessionId>,
    /// The same by session, until another receiver has the session.
    by_session: BTreeMap<SessionId, (Timestamp, ReceiverId)>,
}

impl Former {
    pub(crate) const NONE: Former = Former { deadlines: BTreeMap::new(), by_session: BTreeMap::new() };

    /// Keeps the receiver attached until `close_at`, unless another receiver gets the session before.
    pub(crate) fn add(&mut self, session: SessionId, receiver: ReceiverId, close_at: Timestamp) {
        self.by_session.insert(session.clone(), (close_at, receiver));
        self.deadlines.insert((close_at, receiver), session);
    }

    /// Makes the receiver that lost the session due to be closed now, because another receiver has the session.
    pub(crate) fn displace(&mut self, session: &SessionId) {
        if let Some(place) = self.by_session.remove(session)
            && let Some(session) = self.deadlines.remove(&place)
        {
            self.deadlines.insert((Timestamp::ZERO, place.1), session);
        }
    }

    /// Removes a receiver that is closed. `close_at` is the argument of [`Former::add`].
    pub(crate) fn remove(&mut self, receiver: ReceiverId, close_at: Timestamp) {
        self.deadlines.remove(&(Timestamp::ZERO, receiver));
        if let Some(session) = self.deadlines.remove(&(close_at, receiver)) {
            self.by_session.remove(&session);
        }
    }

    /// Returns the receiver to be closed first, and the time at which it is due.
    pub(crate) fn first(&self) -> Option<(Timestamp, ReceiverId)> {
        self.deadlines.first_key_value().map(|(place, _)| *place)
    }
}
