//! Passes the events of the connection to its links.

use std::sync::Arc;
use std::time::Duration;

use peeklock_amqp::connection::{self, Event, LinkId};
use peeklock_amqp::{AmqpError, Attach, DeliveryState, DeliveryTag, SaslCode, condition};
use peeklock_types::Timestamp;

use super::command::{LinkKind, LinkRequest, Opened, Reply};
use super::receiving::ReceivingLink;
use super::sending::SendingLink;
use super::{Driver, Link, OpenFailure};
use crate::clock::{BROKER_TIME, LOCK_DURATION};
use crate::error::Error;
use crate::extensions::Extensions;
use crate::producer::Producer;
use crate::session::HeldSession;

impl Driver {
    pub(super) fn handle_events(&mut self) {
        while let Some(event) = self.connection.poll_event() {
            self.handle_event(event);
        }
    }

    fn handle_event(&mut self, event: Event) {
        match event {
            Event::Delivery { link, delivery } => self.handle_delivery(link, delivery),
            Event::Disposition { link, id, tag, state, settled } => {
                self.handle_disposition(link, id, tag, state, settled);
            }
            Event::Flow { link, drain, .. } => match self.links.get_mut(&link) {
                Some(Link::Receiving(receiving)) if drain => receiving.handle_drained(),
                Some(Link::Sending(sending)) => {
                    if drain {
                        // The pending messages leave before the rest of the credit is returned.
                        sending.pump(link, &mut self.connection);
                        self.connection.drained(link);
                    }
                    self.touch(link);
                }
                Some(Link::Request(_)) => self.touch(link),
                _ => {}
            },
            Event::Unblocked { .. } => self.touch_all(),
            Event::Attached { link, attach } => self.handle_attached(link, &attach),
            Event::Detached { link, error, .. } => self.handle_detached(link, error),
            Event::Opened { .. } => {
                if let Some(opening) = self.opening.take() {
                    let _ = opening.send(Ok(()));
                }
            }
            Event::SaslOutcome { code, .. } if code != SaslCode::Ok => {
                let failure = match code {
                    SaslCode::Auth => OpenFailure::Credentials,
                    code => OpenFailure::Other(format!("SASL ended with {code:?}")),
                };
                self.refuse_opening(failure);
            }
            Event::Closed { error: Some(error) } => {
                let _ = self.ending.set(self.lost(&error.to_string()));
                self.refuse_opening(OpenFailure::Other(error.to_string()));
            }
            // A broker begins neither sessions nor links, and reports a lost session by its links.
            Event::SessionEnded { session, .. } => self.sessions.ended(session),
            Event::SessionBegun { .. } | Event::SaslOutcome { .. } => {}
            Event::Closed { error: None } | Event::SaslInit { .. } => {}
            // The client does not enable these events: every delivery is passed on as a whole.
            Event::Part { .. } | Event::Oversized { .. } => {}
            Event::Attach { link, .. } => self
                .connection
                .refuse(link, AmqpError::new(condition::NOT_ALLOWED, "a client serves no links")),
        }
    }

    fn handle_delivery(&mut self, link: LinkId, delivery: connection::Delivery) {
        match self.links.get_mut(&link) {
            Some(Link::Receiving(receiving)) => {
                receiving.handle_delivery(link, delivery, &mut self.connection)
            }
            Some(Link::Request(address)) => {
                if let Some(node) = self.nodes.get_mut(address) {
                    node.handle_response(&delivery, &mut self.connection);
                }
            }
            _ => {}
        }
    }

    fn handle_disposition(
        &mut self,
        link: LinkId,
        id: connection::DeliveryId,
        tag: DeliveryTag,
        state: Option<DeliveryState>,
        settled: bool,
    ) {
        match self.links.get_mut(&link) {
            Some(Link::Sending(sending)) => {
                if !settled {
                    self.connection.settle(link, id, state.clone().unwrap_or(DeliveryState::Accepted));
                }
                sending.handle_outcome(tag, state);
                self.touch(link);
            }
            Some(Link::Coordinator) => {
                if !settled {
                    self.connection.settle(link, id, state.clone().unwrap_or(DeliveryState::Accepted));
                }
                if let Some(coordinator) = &mut self.coordinator {
                    coordinator.handle_outcome(tag, state);
                }
            }
            Some(Link::Receiving(receiving)) => {
                let is_step = matches!(state, Some(DeliveryState::Transactional { .. }));
                if settled || is_step {
                    receiving.handle_confirmation(id, state);
                }
                // The broker settles a step of a transaction with the commit. The delivery has no holder any more, so the update is
                // ignored.
                if is_step && !settled {
                    self.connection.forget(link, id);
                }
            }
            Some(Link::Request(address)) => {
                if let Some(node) = self.nodes.get_mut(address) {
                    node.handle_outcome(tag, state);
                }
            }
            _ => {}
        }
    }

    fn handle_attached(&mut self, link: LinkId, attach: &Attach) {
        match self.links.remove(&link) {
            Some(Link::Opening(request, reply)) => self.handle_opened(link, *request, reply, attach),
            Some(Link::Request(address)) => {
                if let Some(node) = self.nodes.get(&address) {
                    node.handle_attached(link, &mut self.connection);
                }
                self.links.insert(link, Link::Request(address));
            }
            Some(other) => {
                if let (Link::Coordinator, Some(coordinator)) = (&other, &mut self.coordinator) {
                    coordinator.handle_attached(attach);
                }
                self.links.insert(link, other);
            }
            None => {}
        }
    }

    fn handle_opened(&mut self, link: LinkId, request: LinkRequest, reply: Reply<Opened>, attach: &Attach) {
        let LinkRequest { entity, ending, kind } = request;
        let open = match kind {
            LinkKind::Send { permits, .. } => Link::Sending(SendingLink::new(entity, ending, permits)),
            LinkKind::Receive { credit, arrivals, confirmed_count, .. } => {
                Link::Receiving(ReceivingLink::new(entity, ending, arrivals, credit, confirmed_count))
            }
        };
        let message_size_bytes_max = self.connection.link(link).and_then(|info| info.remote_max_message_size);
        let credit = if let Link::Receiving(receiving) = &open { receiving.initial_credit() } else { 0 };
        self.links.insert(link, open);
        let (last_number, session) = (Producer::last_number(attach), HeldSession::of(attach));
        let (broker_time, lock_duration) = (broker_time(attach), lock_duration(attach));
        let extensions = Extensions::of(attach);
        let opened = Opened {
            link,
            message_size_bytes_max,
            last_number,
            broker_time,
            lock_duration,
            extensions,
            session,
        };
        if reply.send(Ok(opened)).is_err() {
            // The caller has stopped waiting.
            self.detach(link, Vec::new(), None);
        } else if credit > 0 {
            self.connection.set_credit(link, credit);
        }
    }

    fn handle_detached(&mut self, link: LinkId, error: Option<AmqpError>) {
        self.sessions.leave(link, &mut self.connection);
        match self.links.remove(&link) {
            Some(Link::Request(address)) => self.handle_node_lost(link, &address, error),
            Some(Link::Coordinator) => self.handle_coordinator_lost(error),
            Some(open) => {
                let error = Error::link_ended(&open.entity().unwrap_or_else(|| Arc::from("")), error);
                open.end(&error);
            }
            None => {}
        }
    }

    /// Handles the end of the coordinator's link. The broker rolls the open transactions back, and the next transaction attaches the link
    /// again.
    fn handle_coordinator_lost(&mut self, error: Option<AmqpError>) {
        if let Some(coordinator) = self.coordinator.take() {
            coordinator.end(&Error::link_ended(&"$coordinator".into(), error));
        }
    }

    /// Handles the end of one link of a node. A node needs both links; the next request attaches them again.
    fn handle_node_lost(&mut self, link: LinkId, address: &Arc<str>, error: Option<AmqpError>) {
        // The second link may end after a new pair was attached, which must stay.
        if !self.nodes.get(address).is_some_and(|node| node.sender == link || node.receiver == link) {
            return;
        }
        let Some(node) = self.nodes.remove(address) else { return };
        let other = if node.sender == link { node.receiver } else { node.sender };
        self.connection.detach(other, None);
        self.links.insert(other, Link::Closing(None));
        self.sessions.leave(other, &mut self.connection);
        let entity = node.address().trim_end_matches("/$management").into();
        node.end(&Error::link_ended(&entity, error));
    }
}

/// Reads the broker's time from its attach response.
fn broker_time(attach: &Attach) -> Option<Timestamp> {
    let millis = attach.properties.as_ref()?.get(BROKER_TIME)?.as_timestamp()?;
    u64::try_from(millis).ok().map(Timestamp::from_millis)
}

/// Reads the lock duration from its attach response.
fn lock_duration(attach: &Attach) -> Option<Duration> {
    let millis = attach.properties.as_ref()?.get(LOCK_DURATION)?.as_u64()?;
    Some(Duration::from_millis(millis))
}
