//! Links: attach and detach, by either side.

use super::error::Fault;
use super::hold::Call;
use super::link::{Link, State, Wish};
use super::session::{self, Session};
use super::{AttachReply, Connection, Event, LinkId, SessionId, wire};
use crate::{AmqpError, Attach, Detach, Role, Source, Symbol, Target, TargetNode, condition};

impl Connection {
    pub(super) fn attach_link(&mut self, session_id: SessionId, mut attach: Attach) -> Option<LinkId> {
        let session = self.sessions.get_mut(session_id)?;
        if matches!(session.state, session::State::EndSent { .. })
            || self.links.len() >= self.config.limits.links_max
        {
            return None;
        }
        attach.handle =
            Some(session.handles.lowest_free()).filter(|handle| *handle <= session.remote_handle_max)?;
        attach.unsettled = None;
        let mut link = Link::new(session_id, State::AttachSent, attach.role, &attach);
        link.handle = Some(attach.handle);
        link.max_message_size = attach
            .max_message_size
            .filter(|size| *size > 0)
            .unwrap_or(self.config.limits.message_size_bytes_max);
        if attach.role == Role::Sender {
            let count = *attach.initial_delivery_count.get_or_insert(0);
            (link.initial_delivery_count, link.delivery_count) = (count, count);
        }
        let id = self.links.insert(link);
        session.handles.set(attach.handle, id);
        wire::put_frame(&mut self.out, session.channel, &attach);
        Some(id)
    }

    pub(super) fn on_attach(&mut self, session_id: SessionId, attach: Box<Attach>) -> Result<(), Fault> {
        if attach.handle > self.config.handle_max {
            let text = format!("handle {} is above the agreed {}", attach.handle, self.config.handle_max);
            return Err(Fault::connection(condition::FRAMING_ERROR, text));
        }
        let Some(session) = self.sessions.get(session_id) else { return Ok(()) };
        if session.remote_handles.get(attach.handle).is_some() {
            let text = format!("handle {} has a link already", attach.handle);
            return Err(Fault::session(session_id, condition::HANDLE_IN_USE, text));
        }
        if let Some(id) = self.namesake(session, &attach, |link| link.remote_handle.is_none()) {
            self.on_attach_reply(id, attach);
            return Ok(());
        }
        if let Some(id) = self.namesake(session, &attach, |link| link.state == State::Attached) {
            let text = "a new link of the same name and role took its place";
            self.expel_link(id, AmqpError::new(condition::STOLEN, text));
        }
        self.on_attach_request(session_id, attach)
    }

    /// Returns the link that an attach names, if it exists. A link is identified by its name and role, so one of each
    /// role may share a name.
    fn namesake(&self, session: &Session, attach: &Attach, is_it: impl Fn(&Link) -> bool) -> Option<LinkId> {
        let role = attach.role.opposite();
        let is_named = |link: &Link| link.role == role && link.name == attach.name && is_it(link);
        session.handles.owners().find(|id| self.links.get(*id).is_some_and(is_named))
    }

    fn on_attach_reply(&mut self, id: LinkId, attach: Box<Attach>) {
        let Some(link) = self.links.get_mut(id) else { return };
        let Some(session) = self.sessions.get_mut(link.session) else { return };
        session.remote_handles.set(attach.handle, id);
        link.learn(&attach);
        // A link that we detached meanwhile stays detached: its detach is in flight.
        if link.state != State::AttachSent {
            return;
        }
        let is_refused = match link.role {
            Role::Sender => attach.target.is_none(),
            Role::Receiver => attach.source.is_none(),
        };
        if is_refused {
            link.state = State::Refused;
            return;
        }
        link.state = State::Attached;
        link.snd_settle_mode = attach.snd_settle_mode;
        link.rcv_settle_mode = attach.rcv_settle_mode;
        let (has_credit, early_flow) = (link.role == Role::Receiver && link.credit > 0, link.early_flow);
        self.events.push_back(Event::Attached { link: id, attach });
        if has_credit {
            self.put_link_flow(id);
        }
        if early_flow {
            self.tell_credit(id, None);
        }
    }

    fn on_attach_request(&mut self, session_id: SessionId, attach: Box<Attach>) -> Result<(), Fault> {
        if self.links.len() >= self.config.limits.links_max {
            let text = format!("the connection has {} links, which is the limit", self.links.len());
            return Err(Fault::session(session_id, condition::RESOURCE_LIMIT_EXCEEDED, text));
        }
        let Some(session) = self.sessions.get_mut(session_id) else { return Ok(()) };
        let mut link = Link::new(session_id, State::Requested, attach.role.opposite(), &attach);
        link.learn(&attach);
        link.wish = Some(Box::new(Wish { source: attach.source.clone(), target: attach.target.clone() }));
        let id = self.links.insert(link);
        session.remote_handles.set(attach.handle, id);
        self.events.push_back(Event::Attach { session: session_id, link: id, attach });
        Ok(())
    }

    pub(super) fn accept_link(&mut self, id: LinkId, reply: AttachReply) {
        let limit = self.config.limits.message_size_bytes_max;
        let Some(channel) = self.give_handle(id) else { return };
        let Some(link) = self.links.get_mut(id) else { return };
        link.state = State::Attached;
        link.snd_settle_mode = reply.snd_settle_mode.unwrap_or(link.snd_settle_mode);
        link.rcv_settle_mode = reply.rcv_settle_mode.unwrap_or(link.rcv_settle_mode);
        link.takes_whole = reply.takes_whole;
        link.max_message_size = reply.max_message_size.filter(|size| *size > 0).unwrap_or(limit);
        let wish = link.wish.take().map_or(Wish { source: None, target: None }, |wish| *wish);
        let attach = Attach {
            source: Some(not_empty_source(reply.source.or(wish.source))),
            target: Some(not_empty_target(reply.target.or(wish.target))),
            max_message_size: Some(link.max_message_size),
            properties: reply.properties,
            offered_capabilities: reply.offered_capabilities,
            ..answer(link)
        };
        let early_flow = link.early_flow;
        wire::put_frame(&mut self.out, channel, &attach);
        if early_flow {
            self.tell_credit(id, None);
        }
    }

    pub(super) fn refuse_link(&mut self, id: LinkId, error: Option<AmqpError>) {
        let Some(channel) = self.give_handle(id) else { return };
        let Some(link) = self.links.get_mut(id) else { return };
        link.state = State::DetachSent { announce: false };
        let attach = answer(link);
        let handle = attach.handle;
        self.note_refusal(id, error.as_ref());
        wire::put_frame(&mut self.out, channel, &attach);
        wire::put_frame(&mut self.out, channel, &Detach { handle, closed: true, error });
    }

    /// Assigns a handle to a link that waits for our answer, and returns its channel.
    fn give_handle(&mut self, id: LinkId) -> Option<u16> {
        let link = self.links.get_mut(id).filter(|link| link.state == State::Requested)?;
        let session_id = link.session;
        let session = self.sessions.get_mut(session_id)?;
        let handle = session.handles.lowest_free();
        if handle > session.remote_handle_max {
            let text = "the peer asked for more links than it allows us to answer";
            self.expel_session(session_id, AmqpError::new(condition::RESOURCE_LIMIT_EXCEEDED, text));
            return None;
        }
        session.handles.set(handle, id);
        link.handle = Some(handle);
        Some(session.channel)
    }

    pub(super) fn detach_link(&mut self, id: LinkId, error: Option<AmqpError>) {
        if self.links.get(id).is_some_and(|link| link.held_count > 0) {
            return self.hold(id, Call::Detach(error));
        }
        self.detach_now(id, error);
    }

    pub(super) fn detach_now(&mut self, id: LinkId, error: Option<AmqpError>) {
        match self.links.get(id).map(|link| link.state) {
            Some(State::Requested) => self.refuse_link(id, error),
            Some(State::AttachSent | State::Attached) => self.send_detach(id, error, true),
            // The peer's detach is in flight and will be answered.
            Some(State::Refused | State::DetachSent { .. }) | None => {}
        }
    }

    /// Detaches a link whose peer violated a rule, and emits its event at once.
    pub(super) fn expel_link(&mut self, id: LinkId, error: AmqpError) {
        self.send_detach(id, Some(error.clone()), false);
        self.events.push_back(Event::Detached { link: id, closed: true, error: Some(error) });
    }

    fn send_detach(&mut self, id: LinkId, error: Option<AmqpError>, announce: bool) {
        self.drop_waiting(id);
        self.drop_partial(id);
        self.note_detach(id, error.as_ref());
        let Some(link) = self.links.get_mut(id) else { return };
        let Some(session) = self.sessions.get_mut(link.session) else { return };
        let Some(handle) = link.handle else { return };
        link.state = State::DetachSent { announce };
        session.flush_run(&mut self.out);
        wire::put_frame(&mut self.out, session.channel, &Detach { handle, closed: true, error });
    }

    pub(super) fn on_detach(&mut self, session_id: SessionId, detach: Detach) -> Result<(), Fault> {
        let found =
            self.sessions.get(session_id).and_then(|session| session.remote_handles.get(detach.handle));
        let Some((id, state)) = found.and_then(|id| Some((id, self.links.get(id)?.state))) else {
            let text = format!("detach of handle {}, which has no link", detach.handle);
            return Err(Fault::session(session_id, condition::UNATTACHED_HANDLE, text));
        };
        let was_blocked = self.is_blocked(session_id);
        let announce = match state {
            State::DetachSent { announce } => announce,
            // Resumption is not supported, so a detach that keeps the link is answered with one that closes it.
            State::Requested => {
                self.refuse_link(id, None);
                true
            }
            State::AttachSent | State::Refused | State::Attached => {
                self.send_detach(id, None, true);
                true
            }
        };
        self.remove_link(id);
        if announce {
            self.events.push_back(Event::Detached { link: id, closed: detach.closed, error: detach.error });
        }
        // The unsettled deliveries of the link are forgotten, which makes room for those of other links.
        self.tell_if_unblocked(session_id, was_blocked);
        Ok(())
    }

    /// Forgets a link, its handles and its deliveries.
    pub(super) fn remove_link(&mut self, id: LinkId) {
        self.drop_partial(id);
        let Some(link) = self.links.remove(id) else { return };
        let Some(session) = self.sessions.get_mut(link.session) else { return };
        if let Some(handle) = link.handle {
            session.handles.clear(handle);
        }
        if let Some(handle) = link.remote_handle {
            session.remote_handles.clear(handle);
        }
        if link.unsettled > 0 {
            let ring = match link.role {
                Role::Sender => &mut session.outgoing,
                Role::Receiver => &mut session.incoming,
            };
            for (delivery, state) in ring.forget_link(id) {
                // No frame follows an end.
                if session.state == session::State::Mapped {
                    session.dispose(&mut self.out, link.role, delivery..=delivery, true, state);
                }
            }
            self.mark_dirty(link.session);
        }
    }
}

/// Builds our attach in answer to the peer's, without termini: in this form it refuses the link.
fn answer(link: &Link) -> Attach {
    Attach {
        snd_settle_mode: link.snd_settle_mode,
        rcv_settle_mode: link.rcv_settle_mode,
        initial_delivery_count: (link.role == Role::Sender).then_some(link.initial_delivery_count),
        ..Attach::new(link.name.clone(), link.handle.unwrap_or_default(), link.role)
    }
}

/// The default, written explicitly. SDK quirk: pyamqp treats a terminus without any field as missing, which means
/// refused.
const EXPIRY_POLICY: Symbol = Symbol::from_static("session-end");

fn not_empty_source(source: Option<Source>) -> Source {
    let mut source = source.unwrap_or_default();
    if source == Source::default() {
        source.expiry_policy = Some(EXPIRY_POLICY);
    }
    source
}

fn not_empty_target(target: Option<Target>) -> Target {
    match target {
        None => Target::Node(TargetNode { expiry_policy: Some(EXPIRY_POLICY), ..TargetNode::default() }),
        Some(Target::Node(node)) if node == TargetNode::default() => not_empty_target(None),
        Some(target) => target,
    }
}
