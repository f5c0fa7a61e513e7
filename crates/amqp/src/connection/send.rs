//! Deliveries that go out: into frames while the peer has room, else into a queue that waits for it.

use bytes::{Bytes, BytesMut};

use super::link::{Link, State};
use super::ring::Entry;
use super::session::{Session, Waiting};
use super::wire::{self, Payload, Route};
use super::{Connection, Event, LinkId, Outgoing, SendError, SessionId};
use crate::Role;

impl Connection {
    pub(super) fn send_delivery(
        &mut self,
        id: LinkId,
        delivery: &Outgoing,
        parts: &[&[u8]],
    ) -> Result<(), SendError> {
        let link = self.links.get_mut(id).filter(|link| link.is_attached(Role::Sender));
        let link = link.ok_or(SendError::NotAttached)?;
        let session = self.sessions.get_mut(link.session).ok_or(SendError::NotAttached)?;
        if link.free_credit() == 0 {
            return Err(SendError::NoCredit);
        }
        if session.outgoing.unsettled() >= self.config.limits.unsettled_outgoing_max {
            return Err(SendError::TooManyUnsettled);
        }
        let mut payload = Payload::new(parts);
        let mut has_begun = false;
        if session.waiting.is_empty() && session.has_window() {
            session.flush_run(&mut self.out);
            write_frames(
                &mut self.out,
                self.frame_size_out_max,
                session,
                link,
                id,
                delivery,
                false,
                &mut payload,
            );
            if payload.is_empty() {
                return Ok(());
            }
            has_begun = true;
        } else if self.blocked_bytes >= self.config.limits.blocked_bytes_max {
            return Err(SendError::Blocked);
        }
        link.waiting += u32::from(!has_begun);
        let payload = copy(&mut payload);
        let send = Waiting { link: id, delivery: delivery.clone(), has_begun, payload };
        self.blocked_bytes += send.cost();
        session.waiting.push_back(send);
        Ok(())
    }

    /// Sends what waited, as far as the peer's window goes.
    pub(super) fn pump(&mut self, session_id: SessionId) {
        loop {
            let Some(session) = self.sessions.get_mut(session_id) else { return };
            if session.waiting.is_empty() || !session.has_window() {
                return;
            }
            session.flush_run(&mut self.out);
            let Some(send) = session.waiting.pop_front() else { return };
            self.resume_send(session_id, send);
        }
    }

    fn resume_send(&mut self, session_id: SessionId, mut send: Waiting) {
        let Some(session) = self.sessions.get_mut(session_id) else { return };
        let Some(link) = self.links.get_mut(send.link) else { return };
        self.blocked_bytes -= send.cost();
        let bytes = std::mem::take(&mut send.payload);
        let parts = [&bytes[..]];
        let mut payload = Payload::new(&parts);
        link.waiting -= u32::from(!send.has_begun);
        write_frames(
            &mut self.out,
            self.frame_size_out_max,
            session,
            link,
            send.link,
            &send.delivery,
            send.has_begun,
            &mut payload,
        );
        if payload.is_empty() {
            let is_drained = link.drained_after_waiting && link.waiting == 0;
            if is_drained {
                self.answer_drain(send.link);
            }
        } else {
            let sent_len = bytes.len() - payload.len();
            let rest = Waiting { has_begun: true, payload: bytes.slice(sent_len..), ..send };
            self.blocked_bytes += rest.cost();
            session.waiting.push_front(rest);
        }
    }

    /// Takes back sends of a link that will not leave any more. A driver that waits for room hears of it.
    pub(super) fn drop_waiting(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(id) else { return };
        let Some(session) = self.sessions.get_mut(link.session) else { return };
        if link.role != Role::Sender || session.waiting.is_empty() {
            return;
        }
        link.waiting = 0;
        let mut dropped = 0;
        session.waiting.retain(|send| {
            let is_kept = send.link != id;
            dropped += if is_kept { 0 } else { send.cost() };
            is_kept
        });
        self.blocked_bytes -= dropped;
        if dropped > 0 {
            self.events.push_back(Event::Unblocked { session: link.session });
        }
    }
}

/// Writes frames of one delivery until it is complete or the peer's window is used up, which has room for one.
#[allow(clippy::too_many_arguments)] // Pieces of the connection that are borrowed one by one.
#[inline]
fn write_frames(
    out: &mut BytesMut,
    frame_size_max: usize,
    session: &mut Session,
    link: &mut Link,
    id: LinkId,
    delivery: &Outgoing,
    has_begun: bool,
    payload: &mut Payload<'_>,
) {
    debug_assert_eq!(link.state, State::Attached);
    let route = Route { channel: session.channel, handle: link.handle.unwrap_or_default(), frame_size_max };
    let mut delivery_id = (!has_begun).then(|| {
        link.begin_delivery();
        link.unsettled += u32::from(!delivery.settled);
        session.outgoing.push((!delivery.settled).then(|| Entry::new(id, delivery.tag)))
    });
    loop {
        wire::put_transfer(out, route, delivery_id.take(), delivery, payload);
        session.count_outgoing();
        if payload.is_empty() || !session.has_window() {
            return;
        }
    }
}

fn copy(payload: &mut Payload<'_>) -> Bytes {
    let mut bytes = BytesMut::new();
    payload.write(&mut bytes, usize::MAX);
    bytes.freeze()
}
