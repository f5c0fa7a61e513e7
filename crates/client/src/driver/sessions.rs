//! The AMQP sessions of a connection, and the links on them.

use std::collections::BTreeMap;

use peeklock_amqp::Attach;
use peeklock_amqp::connection::{Connection, LinkId, SessionId};

/// Gives each link a session of its own, so that a link with a closed window does not block another one. When the broker permits no more
/// sessions, links share them.
///
/// A session ends with its last link. The last session of all stays: while the others end, a new link finds room on it.
#[derive(Default)]
pub(super) struct Sessions {
    link_counts: BTreeMap<SessionId, usize>,
    of_link: BTreeMap<LinkId, SessionId>,
}

impl Sessions {
    /// Returns the session for new links. Returns `None` if there is none and the broker permits none.
    pub(super) fn pick(&mut self, connection: &mut Connection) -> Option<SessionId> {
        let least_used = self.link_counts.iter().min_by_key(|(_, count)| **count);
        let session = match least_used {
            Some((unused, 0)) => *unused,
            least_used => connection.begin().or_else(|| least_used.map(|(session, _)| *session))?,
        };
        self.link_counts.entry(session).or_default();
        Some(session)
    }

    /// Attaches a link on a session that was picked. Returns `None` if the session has no room for it.
    pub(super) fn attach(
        &mut self,
        session: SessionId,
        attach: Attach,
        connection: &mut Connection,
    ) -> Option<LinkId> {
        let Some(link) = connection.attach(session, attach) else {
            self.end_if_unused(session, connection);
            return None;
        };
        self.of_link.insert(link, session);
        *self.link_counts.entry(session).or_default() += 1;
        Some(link)
    }

    /// Forgets a link that is detached.
    pub(super) fn leave(&mut self, link: LinkId, connection: &mut Connection) {
        let Some(session) = self.of_link.remove(&link) else { return };
        if let Some(count) = self.link_counts.get_mut(&session) {
            *count = count.saturating_sub(1);
        }
        self.end_if_unused(session, connection);
    }

    fn end_if_unused(&mut self, session: SessionId, connection: &mut Connection) {
        if self.link_counts.get(&session) == Some(&0) && self.link_counts.len() > 1 {
            self.link_counts.remove(&session);
            connection.end(session, None);
        }
    }

    /// Forgets a session that the broker has ended.
    pub(super) fn ended(&mut self, session: SessionId) {
        self.link_counts.remove(&session);
    }
}
