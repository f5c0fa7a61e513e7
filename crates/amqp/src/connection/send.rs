//! Outgoing deliveries: written as frames while the peer has room, else queued.

use bytes::{Bytes, BytesMut};

use super::link::{Link, State};
use super::ring::Slot;
use super::session::{End, Session, Waiting};
use super::wire::{self, Payload, Route};
use super::{Connection, DeliveryId, Event, Limits, LinkId, Outgoing, SendError, SessionId};
use crate::{DeliveryTag, Role};

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
        if link.is_open {
            return Err(SendError::Incomplete);
        }
        check_room(link, session, &self.config.limits)?;
        self.write_or_queue(id, delivery, parts, false, End::Whole)
    }

    pub(super) fn send_some(
        &mut self,
        id: LinkId,
        delivery: &Outgoing,
        parts: &[&[u8]],
        more: bool,
    ) -> Result<(), SendError> {
        let link = self.links.get_mut(id).filter(|link| link.is_attached(Role::Sender));
        let link = link.ok_or(SendError::NotAttached)?;
        let session = self.sessions.get_mut(link.session).ok_or(SendError::NotAttached)?;
        let has_begun = link.is_open;
        if !has_begun {
            check_room(link, session, &self.config.limits)?;
        }
        if more && parts.iter().all(|part| part.is_empty()) {
            return Ok(());
        }
        let end = if more { End::Open } else { End::Whole };
        self.write_or_queue(id, delivery, parts, has_begun, end)?;
        if let Some(link) = self.links.get_mut(id) {
            link.is_open = more;
        }
        self.answer_drain_if_due(id);
        Ok(())
    }

    /// Writes as much as the peer has room for and queues the rest.
    #[inline]
    fn write_or_queue(
        &mut self,
        id: LinkId,
        delivery: &Outgoing,
        parts: &[&[u8]],
        mut has_begun: bool,
        end: End,
    ) -> Result<(), SendError> {
        let link = self.links.get_mut(id).ok_or(SendError::NotAttached)?;
        let session = self.sessions.get_mut(link.session).ok_or(SendError::NotAttached)?;
        let mut payload = Payload::new(parts);
        if session.waiting.is_empty() && session.has_window() {
            session.flush_run(&mut self.out);
            let frame = FrameArgs { frame_size_max: self.frame_size_out_max, id, has_begun, end };
            write_frames(&mut self.out, session, link, frame, delivery, &mut payload);
            if payload.is_empty() {
                return Ok(());
            }
            has_begun = true;
        } else if self.blocked_bytes >= self.config.limits.blocked_bytes_max {
            return Err(SendError::Blocked);
        }
        link.waiting += u32::from(!has_begun);
        let payload = copy(&mut payload);
        let send = Waiting { link: id, delivery: delivery.clone(), has_begun, payload, end };
        self.blocked_bytes += send.cost();
        session.waiting.push_back(send);
        Ok(())
    }

    /// Aborts a delivery in parts. Queued frames are removed; if some have left, an abort is sent to the peer.
    pub(super) fn abort_delivery(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(id).filter(|link| link.is_attached(Role::Sender) && link.is_open)
        else {
            return;
        };
        link.is_open = false;
        // Deliveries of a link leave in order, and this is its newest.
        let has_begun = link.waiting == 0;
        let last_begun = link.last_begun;
        self.take_back_newest(id, has_begun);
        if has_begun {
            self.forget_outgoing(id, last_begun);
            self.put_abort(id);
        }
        self.answer_drain_if_due(id);
    }

    fn take_back_newest(&mut self, id: LinkId, has_begun: bool) {
        let Some(link) = self.links.get_mut(id) else { return };
        let Some(session) = self.sessions.get_mut(link.session) else { return };
        let is_first = |send: &Waiting| send.link == id && !send.has_begun;
        let from = if has_begun { 0 } else { session.waiting.iter().rposition(is_first).unwrap_or(0) };
        link.waiting -= u32::from(!has_begun);
        let (mut at, mut dropped) = (0, 0);
        session.waiting.retain(|send| {
            let is_kept = send.link != id || at < from;
            at += 1;
            dropped += if is_kept { 0 } else { send.cost() };
            is_kept
        });
        self.blocked_bytes -= dropped;
        if dropped > 0 {
            self.events.push_back(Event::Unblocked { session: link.session });
        }
    }

    fn forget_outgoing(&mut self, id: LinkId, delivery: DeliveryId) {
        let Some(link) = self.links.get_mut(id) else { return };
        let Some(session) = self.sessions.get_mut(link.session) else { return };
        if session.outgoing.take(delivery, id).is_some() {
            link.unsettled -= 1;
        }
    }

    fn put_abort(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(id) else { return };
        let Some(session) = self.sessions.get_mut(link.session) else { return };
        if session.waiting.is_empty() && session.has_window() {
            session.flush_run(&mut self.out);
            wire::put_abort(&mut self.out, session.channel, link.handle.unwrap_or_default());
            session.count_outgoing();
            return;
        }
        let delivery = Outgoing { tag: DeliveryTag::from(0), message_format: 0, settled: false, state: None };
        let payload = Bytes::new();
        let send = Waiting { link: id, delivery, has_begun: true, payload, end: End::Aborted };
        self.blocked_bytes += send.cost();
        session.waiting.push_back(send);
    }

    /// Answers a drain that waited for sends, when the last of them has left.
    fn answer_drain_if_due(&mut self, id: LinkId) {
        if self.links.get(id).is_some_and(|link| link.drained_after_waiting) {
            self.answer_drain(id);
        }
    }

    /// Returns whether frames of a delivery are still to be sent, including the rest of one that has begun.
    // SDK quirk: a flow between two frames of a delivery ends the drain of rhea before it returns that message.
    pub(super) fn has_incomplete_send(&self, id: LinkId) -> bool {
        let Some(link) = self.links.get(id) else { return false };
        let queued = |session: &Session| session.waiting.iter().any(|send| send.link == id);
        link.waiting > 0 || link.is_open || self.sessions.get(link.session).is_some_and(queued)
    }

    /// Sends queued deliveries, as far as the peer's window permits.
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
        if send.end == End::Aborted {
            wire::put_abort(&mut self.out, session.channel, link.handle.unwrap_or_default());
            session.count_outgoing();
            return self.answer_drain_if_due(send.link);
        }
        let (id, has_begun) = (send.link, send.has_begun);
        let frame = FrameArgs { frame_size_max: self.frame_size_out_max, id, has_begun, end: send.end };
        write_frames(&mut self.out, session, link, frame, &send.delivery, &mut payload);
        if payload.is_empty() {
            self.answer_drain_if_due(send.link);
        } else {
            let sent_len = bytes.len() - payload.len();
            let rest = Waiting { has_begun: true, payload: bytes.slice(sent_len..), ..send };
            self.blocked_bytes += rest.cost();
            session.waiting.push_front(rest);
        }
    }

    /// Removes queued sends of a link that will not leave any more. A driver that waits for room gets an event.
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

/// Returns whether a link may begin a delivery.
#[inline]
fn check_room(link: &Link, session: &Session, limits: &Limits) -> Result<(), SendError> {
    if link.free_credit() == 0 {
        return Err(SendError::NoCredit);
    }
    if session.outgoing.unsettled() >= limits.unsettled_outgoing_max {
        return Err(SendError::TooManyUnsettled);
    }
    Ok(())
}

/// The common values of the frames of one payload.
#[derive(Clone, Copy)]
struct FrameArgs {
    frame_size_max: usize,
    id: LinkId,
    /// Frames of the delivery have left before.
    has_begun: bool,
    end: End,
}

/// Writes frames of one delivery until its payload is complete or the peer's window, which has room for at least one,
/// is used up.
#[inline]
fn write_frames(
    out: &mut BytesMut,
    session: &mut Session,
    link: &mut Link,
    frame: FrameArgs,
    delivery: &Outgoing,
    payload: &mut Payload<'_>,
) {
    let FrameArgs { frame_size_max, id, has_begun, end } = frame;
    debug_assert_eq!(link.state, State::Attached);
    let route = Route { channel: session.channel, handle: link.handle.unwrap_or_default(), frame_size_max };
    let mut delivery_id = (!has_begun).then(|| {
        link.begin_delivery();
        link.unsettled += u32::from(!delivery.settled);
        link.last_begun = session.outgoing.push((!delivery.settled).then(|| Slot::new(id, delivery.tag)));
        link.last_begun
    });
    loop {
        wire::put_transfer(out, route, delivery_id.take(), delivery, payload, end == End::Open);
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
