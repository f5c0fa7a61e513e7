//! Records the links, sessions and connections that we ended with an error, for a log.

use super::link::{Link, State};
use super::{Connection, LinkId, SessionId};
use crate::{AmqpError, Text};

/// Records that are kept until the driver takes them. Further ones are only counted.
const KEPT_MAX: usize = 16;
/// Links that are listed with their session.
const LINKS_MAX: usize = 4;

/// A link, a session or a connection that we ended with an error.
#[derive(Debug, Clone, PartialEq)]
pub struct Ended {
    pub scope: Scope,
    pub error: AmqpError,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Scope {
    /// A link that the peer requested and that was refused.
    Refusal(LinkName),
    Link(LinkName),
    /// A session, with the names of some of its links.
    Session(Vec<LinkName>),
    Connection,
}

#[derive(Debug, Clone, PartialEq)]
pub struct LinkName {
    pub name: Text,
    /// The address of our end; none for a coordinator.
    pub address: Option<Text>,
}

/// The records since the driver last took them.
#[derive(Debug, Default)]
pub struct Endings {
    pub list: Vec<Ended>,
    /// The number of further records, which were dropped.
    pub omitted: u32,
}

impl Endings {
    fn note(&mut self, scope: impl FnOnce() -> Scope, error: &AmqpError) {
        if self.list.len() < KEPT_MAX {
            self.list.push(Ended { scope: scope(), error: error.clone() });
        } else {
            self.omitted = self.omitted.saturating_add(1);
        }
    }
}

impl Connection {
    pub(super) fn note_refusal(&mut self, id: LinkId, error: Option<&AmqpError>) {
        if let (Some(link), Some(error)) = (self.links.get(id), error) {
            self.endings.note(|| Scope::Refusal(link.full_name()), error);
        }
    }

    pub(super) fn note_detach(&mut self, id: LinkId, error: Option<&AmqpError>) {
        if let (Some(link), Some(error)) = (self.links.get(id), error) {
            self.endings.note(|| Scope::Link(link.full_name()), error);
        }
    }

    pub(super) fn note_end(&mut self, id: SessionId, error: Option<&AmqpError>) {
        if let (Some(session), Some(error)) = (self.sessions.get(id), error) {
            let links = || {
                let links = session.remote_handles.owners().filter_map(|id| self.links.get(id));
                let attached = links.filter(|link| link.state == State::Attached);
                Scope::Session(attached.take(LINKS_MAX).map(Link::full_name).collect())
            };
            self.endings.note(links, error);
        }
    }

    pub(super) fn note_close(&mut self, error: Option<&AmqpError>) {
        if let Some(error) = error {
            self.endings.note(|| Scope::Connection, error);
        }
    }
}
