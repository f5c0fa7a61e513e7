//! Flow control: session windows and link credit, in both directions.

use super::error::Fault;
use super::link::State;
use super::{Connection, Event, LinkId, SessionId, wire};
use crate::{Flow, Role, condition};

impl Connection {
    pub(super) fn on_flow(&mut self, session_id: SessionId, flow: &Flow) -> Result<(), Fault> {
        let Some(session) = self.sessions.get_mut(session_id) else { return Ok(()) };
        let was_blocked = session.room(&self.config.limits) == 0;
        let was_shut = session.frame_room() == 0;
        session.handle_flow(flow);
        let link = match flow.handle {
            None => None,
            Some(handle) => {
                let Some(link) = session.remote_handles.get(handle) else {
                    let text = format!("flow on handle {handle}, which has no link");
                    return Err(Fault::session(session_id, condition::UNATTACHED_HANDLE, text));
                };
                self.on_link_flow(link, flow);
                Some(link)
            }
        };
        self.pump(session_id);
        self.tell_of_room(session_id, was_blocked, was_shut);
        if flow.echo {
            self.echo(session_id, link);
        }
        Ok(())
    }

    /// Returns whether a driver that respects `sendable` has to wait, whatever the credit of its links.
    pub(super) fn is_blocked(&self, id: SessionId) -> bool {
        self.sessions.get(id).is_some_and(|session| session.room(&self.config.limits) == 0)
    }

    /// Emits an event if a session that had no room for sends has room again.
    pub(super) fn tell_if_unblocked(&mut self, id: SessionId, was_blocked: bool) {
        if was_blocked && !self.is_blocked(id) {
            self.events.push_back(Event::Unblocked { session: id });
        }
    }

    /// Does the same after a change of the window: parts of a delivery that has begun need only the window.
    fn tell_of_room(&mut self, id: SessionId, was_blocked: bool, was_shut: bool) {
        let Some(session) = self.sessions.get(id) else { return };
        let is_free = was_blocked && session.room(&self.config.limits) > 0;
        if is_free || (was_shut && session.frame_room() > 0) {
            self.events.push_back(Event::Unblocked { session: id });
        }
    }

    fn on_link_flow(&mut self, id: LinkId, flow: &Flow) {
        let Some(link) = self.links.get_mut(id) else { return };
        match (link.role, link.state) {
            (Role::Sender, State::Attached | State::Requested) => {
                if let Some(credit) = flow.link_credit {
                    link.grant(flow.delivery_count, credit);
                }
                link.drain = flow.drain;
                if link.state == State::Attached {
                    self.tell_credit(id, flow.available);
                } else {
                    link.early_flow = true;
                }
            }
            (Role::Receiver, State::Attached) => self.on_sender_flow(id, flow),
            _ => {}
        }
    }

    /// Emits an event with the credit for sends.
    pub(super) fn tell_credit(&mut self, id: LinkId, available: Option<u32>) {
        if let Some(link) = self.links.get_mut(id) {
            link.early_flow = false;
            let (credit, drain) = (link.free_credit(), link.drain);
            self.events.push_back(Event::Flow { link: id, credit, drain, available });
        }
    }

    /// Handles a sender's flow. It matters only when it answers a drain or states the number of available messages.
    // SDK quirk: pyamqp senders send flows with a credit of their own. Only the receiver grants credit, so it is
    // ignored.
    fn on_sender_flow(&mut self, id: LinkId, flow: &Flow) {
        let Some(link) = self.links.get_mut(id) else { return };
        if link.drain
            && let Some(count) = flow.delivery_count
        {
            // The sender's count is authoritative: the credit may have been set again while its answer was in flight.
            let returned = count.wrapping_sub(link.delivery_count);
            if returned <= i32::MAX.unsigned_abs() {
                link.delivery_count = count;
                link.credit = link.credit.saturating_sub(returned);
            }
        }
        let drain = link.drain && link.credit == 0;
        if drain {
            link.drain = false;
        }
        if drain || flow.available.is_some() {
            let credit = link.credit;
            self.events.push_back(Event::Flow { link: id, credit, drain, available: flow.available });
        }
    }

    fn echo(&mut self, session_id: SessionId, link: Option<LinkId>) {
        let attached =
            link.filter(|id| self.links.get(*id).is_some_and(|link| link.state == State::Attached));
        match attached {
            Some(link) => self.put_link_flow(link),
            None => self.put_session_flow(session_id),
        }
    }

    fn put_session_flow(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(id) {
            let flow = session.flow(&self.config);
            wire::put_frame(&mut self.out, session.channel, &flow);
        }
    }

    pub(super) fn put_link_flow(&mut self, id: LinkId) {
        let drain = self.links.get(id).is_some_and(|link| link.drain);
        self.put_link_flow_with(id, drain);
    }

    fn put_link_flow_with(&mut self, id: LinkId, drain: bool) {
        let Some(link) = self.links.get(id) else { return };
        let Some(session) = self.sessions.get_mut(link.session) else { return };
        let flow = Flow {
            handle: link.handle,
            delivery_count: Some(link.delivery_count),
            link_credit: Some(link.credit),
            available: (link.role == Role::Sender).then_some(link.available),
            drain,
            ..session.flow(&self.config)
        };
        wire::put_frame(&mut self.out, session.channel, &flow);
    }

    pub(super) fn give_credit(&mut self, id: LinkId, credit: u32) {
        let Some(link) = self.links.get_mut(id).filter(|link| link.role == Role::Receiver) else { return };
        if !matches!(link.state, State::Attached | State::AttachSent) {
            return;
        }
        link.credit = credit;
        link.overrun = 0;
        link.keep_credit_of_partial();
        // The sender's delivery-count is unknown before its attach, so the credit is sent when the attach arrives.
        if link.state == State::Attached {
            self.put_link_flow(id);
        }
    }

    pub(super) fn ask_drain(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(id).filter(|link| link.is_attached(Role::Receiver)) else {
            return;
        };
        link.keep_credit_of_partial();
        if link.credit == 0 {
            self.events.push_back(Event::Flow { link: id, credit: 0, drain: true, available: None });
            return;
        }
        link.drain = true;
        self.put_link_flow(id);
    }

    pub(super) fn answer_drain(&mut self, id: LinkId) {
        let is_incomplete = self.has_incomplete_send(id);
        let Some(link) = self.links.get_mut(id).filter(|link| link.is_attached(Role::Sender)) else { return };
        if !link.drain {
            return;
        }
        if is_incomplete {
            link.drained_after_waiting = true;
            return;
        }
        link.return_credit();
        self.put_link_flow_with(id, true);
    }
}
