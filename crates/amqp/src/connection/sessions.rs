//! Sessions: begin and end, by either side.

use super::error::Fault;
use super::handshake::Phase;
use super::link;
use super::session::{Session, State, Waiting};
use super::{Connection, Event, LinkId, SessionId, wire};
use crate::{AmqpError, Begin, End, condition};

impl Connection {
    pub(super) fn begin_session(&mut self) -> Option<SessionId> {
        let is_early = self.is_client && !matches!(self.phase, Phase::Closing | Phase::Closed);
        if self.phase != Phase::Running && !is_early {
            return None;
        }
        let channel = self.free_channel()?;
        let session = Session::new(State::BeginSent, channel, &self.config);
        Some(self.insert_session(session))
    }

    /// Returns the lowest channel that is free on our side and that the peer permits.
    fn free_channel(&self) -> Option<u16> {
        let channel = u16::try_from(self.channels.lowest_free()).ok()?;
        (channel <= self.remote_channel_max).then_some(channel)
    }

    /// Adds a session and sends its begin.
    fn insert_session(&mut self, session: Session) -> SessionId {
        let (channel, remote_channel) = (session.channel, session.remote_channel);
        wire::put_frame(&mut self.out, channel, &session.begin(&self.config));
        let id = self.sessions.insert(session);
        self.channels.set(u32::from(channel), id);
        if let Some(remote_channel) = remote_channel {
            self.remote_channels.set(u32::from(remote_channel), id);
        }
        id
    }

    pub(super) fn on_begin(&mut self, channel: u16, begin: Box<Begin>) -> Result<(), Fault> {
        if channel > self.config.channel_max {
            let text = format!("channel {channel} is above the agreed {}", self.config.channel_max);
            return Err(Fault::connection(condition::FRAMING_ERROR, text));
        }
        if self.remote_channels.get(u32::from(channel)).is_some() {
            let text = format!("channel {channel} has a session already");
            return Err(Fault::connection(condition::NOT_ALLOWED, text));
        }
        match begin.remote_channel {
            Some(ours) => self.on_begin_reply(channel, ours, begin),
            None => self.on_begin_request(channel, begin),
        }
    }

    fn on_begin_reply(&mut self, channel: u16, ours: u16, begin: Box<Begin>) -> Result<(), Fault> {
        let waiting =
            self.channels.get(u32::from(ours)).and_then(|id| Some((id, self.sessions.get_mut(id)?)));
        let Some((id, session)) = waiting.filter(|(_, session)| session.remote_channel.is_none()) else {
            let text = format!("channel {ours} waits for no begin");
            return Err(Fault::connection(condition::NOT_ALLOWED, text));
        };
        session.learn(channel, &begin);
        self.remote_channels.set(u32::from(channel), id);
        // A session that we ended meanwhile stays ended: its end is in flight.
        if session.state == State::BeginSent {
            session.state = State::Mapped;
            self.events.push_back(Event::SessionBegun { session: id, begin });
        }
        Ok(())
    }

    fn on_begin_request(&mut self, channel: u16, begin: Box<Begin>) -> Result<(), Fault> {
        let Some(our_channel) = self.free_channel() else {
            let text = "the peer began more sessions than it allows us to answer";
            return Err(Fault::connection(condition::RESOURCE_LIMIT_EXCEEDED, text));
        };
        let mut session = Session::new(State::Mapped, our_channel, &self.config);
        session.learn(channel, &begin);
        let session = self.insert_session(session);
        self.events.push_back(Event::SessionBegun { session, begin });
        Ok(())
    }

    pub(super) fn end_session(&mut self, id: SessionId, error: Option<AmqpError>) {
        self.send_end(id, error, true);
    }

    /// Ends a session whose peer violated a rule, and emits its event at once.
    pub(super) fn expel_session(&mut self, id: SessionId, error: AmqpError) {
        if self.send_end(id, Some(error.clone()), false) {
            self.events.push_back(Event::SessionEnded { session: id, error: Some(error) });
        }
    }

    /// Returns false when the session is gone or was ended before.
    fn send_end(&mut self, id: SessionId, error: Option<AmqpError>, announce: bool) -> bool {
        if self.sessions.get(id).is_none_or(|session| matches!(session.state, State::EndSent { .. })) {
            return false;
        }
        self.note_end(id, error.as_ref());
        let Some(session) = self.sessions.get_mut(id) else { return false };
        session.flush_run(&mut self.out);
        wire::put_frame(&mut self.out, session.channel, &End { error });
        session.state = State::EndSent { announce };
        self.drop_links(id);
        true
    }

    pub(super) fn on_end(&mut self, id: SessionId, end: End) {
        let Some(session) = self.sessions.get(id) else { return };
        let (state, channel) = (session.state, session.channel);
        let announce = match state {
            State::EndSent { announce } => announce,
            State::BeginSent | State::Mapped => {
                self.drop_links(id);
                wire::put_frame(&mut self.out, channel, &End::default());
                true
            }
        };
        self.remove_session(id);
        if announce {
            self.events.push_back(Event::SessionEnded { session: id, error: end.error });
        }
    }

    fn remove_session(&mut self, id: SessionId) {
        let Some(session) = self.sessions.remove(id) else { return };
        self.channels.clear(u32::from(session.channel));
        if let Some(channel) = session.remote_channel {
            self.remote_channels.clear(u32::from(channel));
        }
    }

    /// Removes the links of a session and their queued sends. A driver that waits for room gets an event.
    fn drop_links(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        let waiting = std::mem::take(&mut session.waiting);
        self.blocked_bytes -= waiting.iter().map(Waiting::cost).sum::<usize>();
        let mut links: Vec<LinkId> =
            session.handles.owners().chain(session.remote_handles.owners()).collect();
        links.sort_unstable();
        links.dedup();
        for link in links {
            self.drop_link(link);
        }
        if !waiting.is_empty() {
            self.events.push_back(Event::Unblocked { session: id });
        }
    }

    fn drop_link(&mut self, id: LinkId) {
        let Some(state) = self.links.get(id).map(|link| link.state) else { return };
        self.remove_link(id);
        if state != (link::State::DetachSent { announce: false }) {
            self.events.push_back(Event::Detached { link: id, closed: true, error: None });
        }
    }
}
