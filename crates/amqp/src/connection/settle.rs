//! Dispositions, in both directions and both roles.

use super::hold::Call;
use super::link::State;
use super::{Connection, DeliveryId, Event, LinkId, SessionId};
use crate::{DeliveryState, Disposition, Role};

impl Connection {
    /// Handles a disposition. A receiver's concerns deliveries that we sent, a sender's those that we received.
    pub(super) fn on_disposition(&mut self, session_id: SessionId, disposition: Disposition) {
        let Disposition { role, first, last, settled, state, .. } = disposition;
        if !settled && !state.as_ref().is_some_and(DeliveryState::is_outcome) {
            return;
        }
        let was_blocked = self.is_blocked(session_id);
        let Some(session) = self.sessions.get_mut(session_id) else { return };
        let ring = match role {
            Role::Receiver => &mut session.outgoing,
            Role::Sender => &mut session.incoming,
        };
        let last = DeliveryId(last.unwrap_or(first));
        let (links, events) = (&mut self.links, &mut self.events);
        ring.visit(DeliveryId(first), last, |id, entry| {
            // A second outcome before our answer would let a peer multiply events, and has no meaning.
            if entry.has_outcome && !settled {
                return true;
            }
            let (link, tag) = (entry.link, entry.tag);
            events.push_back(Event::Disposition { link, id, tag, state: state.clone(), settled });
            entry.has_outcome = true;
            if settled && let Some(link) = links.get_mut(link) {
                link.unsettled -= 1;
            }
            !settled
        });
        if role == Role::Sender && settled {
            self.mark_dirty(session_id);
        }
        self.tell_if_unblocked(session_id, was_blocked);
    }

    pub(super) fn settle_delivery(&mut self, id: LinkId, delivery: DeliveryId, state: DeliveryState) {
        let Some(link) = self.links.get_mut(id).filter(|link| link.state == State::Attached) else { return };
        let Some(session) = self.sessions.get_mut(link.session) else { return };
        if let Some(partial) =
            link.partial.as_mut().filter(|partial| partial.is_in_parts && partial.id == delivery)
        {
            // An earlier delivery with the same id is settled first.
            if session.incoming.count(delivery, id) <= usize::from(!partial.settled) {
                // SDK quirk: pyamqp does not read an answer before it has sent the last frame.
                partial.verdict = Some(state);
                return;
            }
        }
        if self.must_hold(id, &state) {
            return self.hold_outcome(id, delivery, state);
        }
        self.settle_now(id, delivery, state);
    }

    /// Settles deliveries with consecutive ids. Usually all of them are unsettled, and then one lookup serves all.
    pub(super) fn settle_deliveries(
        &mut self,
        id: LinkId,
        first: DeliveryId,
        last: DeliveryId,
        state: DeliveryState,
    ) {
        if self.settle_together(id, first, last, &state) {
            return;
        }
        for step in 0..=last.0.wrapping_sub(first.0) {
            self.settle_delivery(id, DeliveryId(first.0.wrapping_add(step)), state.clone());
        }
    }

    /// Settles all deliveries of a run, or none of them and returns false.
    fn settle_together(
        &mut self,
        id: LinkId,
        first: DeliveryId,
        last: DeliveryId,
        state: &DeliveryState,
    ) -> bool {
        if self.must_hold(id, state) {
            return false;
        }
        // The outcome of a delivery in parts may have to wait for its last frame.
        let link = self.links.get_mut(id);
        let link = link.filter(|link| link.state == State::Attached && link.partial.is_none());
        let Some(link) = link else { return false };
        let Some(session) = self.sessions.get_mut(link.session) else { return false };
        let was_blocked = session.room(&self.config.limits) == 0;
        let ring = match link.role {
            Role::Sender => &mut session.outgoing,
            Role::Receiver => &mut session.incoming,
        };
        let Some(count) = ring.take_run(first, last, id) else { return false };
        link.unsettled -= count;
        let session_id = link.session;
        session.dispose(&mut self.out, link.role, first..=last, true, state.clone());
        self.mark_dirty(session_id);
        self.tell_if_unblocked(session_id, was_blocked);
        true
    }

    /// Delays an outcome, unless the peer has settled the delivery and expects none.
    #[cold]
    fn hold_outcome(&mut self, id: LinkId, delivery: DeliveryId, state: DeliveryState) {
        let Some(link) = self.links.get(id) else { return };
        let Some(session) = self.sessions.get_mut(link.session) else { return };
        if session.incoming.count(delivery, id) > 0 {
            self.hold(id, Call::Settle(delivery, state));
        }
    }

    pub(super) fn settle_now(&mut self, id: LinkId, delivery: DeliveryId, state: DeliveryState) {
        let Some(link) = self.links.get_mut(id).filter(|link| link.state == State::Attached) else { return };
        let Some(session) = self.sessions.get_mut(link.session) else { return };
        let was_blocked = session.room(&self.config.limits) == 0;
        let ring = match link.role {
            Role::Sender => &mut session.outgoing,
            Role::Receiver => &mut session.incoming,
        };
        if ring.take(delivery, id).is_some() {
            let concluded = ring.conclude(delivery, Some(state));
            link.unsettled -= 1;
            let session_id = link.session;
            if let Some(state) = concluded {
                session.dispose(&mut self.out, link.role, delivery..=delivery, true, state);
            }
            self.mark_dirty(session_id);
            self.tell_if_unblocked(session_id, was_blocked);
        }
    }

    pub(super) fn propose_outcome(&mut self, id: LinkId, delivery: DeliveryId, state: DeliveryState) {
        let Some(link) = self.links.get_mut(id).filter(|link| link.state == State::Attached) else { return };
        let Some(session) = self.sessions.get_mut(link.session) else { return };
        let (role, session_id) = (link.role, link.session);
        let ring = match role {
            Role::Sender => &mut session.outgoing,
            Role::Receiver => &mut session.incoming,
        };
        if ring.count(delivery, id) == 0 {
            return;
        }
        // The peer may answer our proposal, and may propose again after our answer.
        if let Some(entry) = ring.get_mut(delivery).filter(|entry| entry.link == id) {
            entry.has_outcome = false;
        }
        session.dispose(&mut self.out, role, delivery..=delivery, false, state);
        self.mark_dirty(session_id);
    }
}
