//! Incoming transfers: numbering, credit, and assembling deliveries of several frames.
//!
//! A delivery that the driver never gets (too large, or aborted) returns its credit, because no other code would.

use bytes::{Bytes, BytesMut};

use super::error::Fault;
use super::link::{Link, Partial, State};
use super::ring::Slot;
use super::{Connection, Delivery, DeliveryId, Event, LinkId, Part, SessionId};
use crate::{AmqpError, DeliveryState, Role, Transfer, condition};

/// The capacity of an incomplete delivery, as a multiple of its bytes. Untouched capacity costs next to nothing.
const ROOM_FACTOR: usize = 4;

impl Connection {
    pub(super) fn on_transfer(
        &mut self,
        session_id: SessionId,
        transfer: Transfer,
        payload: Bytes,
    ) -> Result<(), Fault> {
        let Some(session) = self.sessions.get_mut(session_id) else { return Ok(()) };
        let is_window_due = session.count_incoming(&self.config);
        let link_id = session.remote_handles.get(transfer.handle);
        if is_window_due {
            self.mark_dirty(session_id);
        }
        let Some((id, link)) = link_id.and_then(|id| Some((id, self.links.get_mut(id)?))) else {
            let text = format!("transfer on handle {}, which has no link", transfer.handle);
            return Err(Fault::session(session_id, condition::UNATTACHED_HANDLE, text));
        };
        match (link.role, link.state) {
            (Role::Receiver, State::Attached) if link.partial.is_some() => {
                self.continue_delivery(id, transfer, payload)
            }
            (Role::Receiver, State::Attached) => self.start_delivery(session_id, id, transfer, payload),
            // The delivery may have been in flight when we sent our detach. Its id is used up all the same.
            (Role::Receiver, State::DetachSent { .. }) => self.skip_delivery(session_id, &transfer),
            (Role::Receiver, _) => {
                let text = "transfer on a link whose attach has not been answered";
                Err(Fault::session(session_id, condition::ILLEGAL_STATE, text))
            }
            (Role::Sender, _) => {
                let text = format!("transfer on handle {}, where the peer is the receiver", transfer.handle);
                Err(Fault::session(session_id, condition::NOT_ALLOWED, text))
            }
        }
    }

    #[inline]
    fn start_delivery(
        &mut self,
        session_id: SessionId,
        id: LinkId,
        transfer: Transfer,
        payload: Bytes,
    ) -> Result<(), Fault> {
        let (Some(delivery_id), Some(tag)) = (transfer.delivery_id.map(DeliveryId), transfer.delivery_tag)
        else {
            let text = "the first transfer of a delivery has no delivery-id or no delivery-tag";
            return Err(Fault::session(session_id, condition::INVALID_FIELD, text));
        };
        let settled = transfer.settled.unwrap_or(false);
        let entry = (!settled && !transfer.aborted).then(|| Slot::new(id, tag));
        let is_unsettled = entry.is_some();
        self.number_delivery(session_id, delivery_id, entry)?;
        let Some(link) = self.links.get_mut(id) else { return Ok(()) };
        link.unsettled += u32::from(is_unsettled);
        let has_credit = count_delivery(link, id, self.config.limits.overrun_max)?;
        if transfer.aborted {
            self.drop_delivery(id, has_credit);
            return Ok(());
        }
        let message_format = transfer.message_format.unwrap_or(0);
        if transfer.more {
            let partial = Partial {
                id: delivery_id,
                tag,
                message_format,
                settled,
                state: transfer.state,
                has_credit,
                size: 0,
                payload: BytesMut::new(),
                is_in_parts: false,
                verdict: None,
            };
            link.partial = Some(Box::new(partial));
            return self.extend_partial(id, payload);
        }
        let size = payload.len() as u64;
        if size > link.max_message_size {
            if !settled {
                self.reject_oversized(id, delivery_id, size);
            }
            self.drop_oversized(id, has_credit, transfer.state);
            return Ok(());
        }
        let state = transfer.state.map(Box::new);
        let delivery = Delivery { id: delivery_id, tag, message_format, settled, state, payload };
        self.events.push_back(Event::Delivery { link: id, delivery });
        self.tell_if_drained(id);
        Ok(())
    }

    /// Records a delivery under the id that its sender assigned, new or not.
    #[inline]
    fn number_delivery(
        &mut self,
        session_id: SessionId,
        id: DeliveryId,
        entry: Option<Slot>,
    ) -> Result<(), Fault> {
        let Some(session) = self.sessions.get_mut(session_id) else { return Ok(()) };
        session.incoming.push_at(id, entry);
        let limits = &self.config.limits;
        // A peer that respects the window stops at the first of the two limits.
        if session.incoming.unsettled()
            > limits.unsettled_incoming_max.saturating_add(self.config.incoming_window)
        {
            let text =
                format!("{} deliveries are unsettled, which is the limit", session.incoming.unsettled());
            return Err(Fault::session(session_id, condition::RESOURCE_LIMIT_EXCEEDED, text));
        }
        Ok(())
    }

    fn skip_delivery(&mut self, session_id: SessionId, transfer: &Transfer) -> Result<(), Fault> {
        let Some(session) = self.sessions.get_mut(session_id) else { return Ok(()) };
        if let Some(id) = transfer.delivery_id {
            // Continuation frames may repeat the id of a delivery that began before our detach.
            session.incoming.push_at(DeliveryId(id), None);
        }
        Ok(())
    }

    // SDK quirk: pyamqp repeats id, tag and format on every frame; other clients omit them.
    fn continue_delivery(&mut self, id: LinkId, transfer: Transfer, payload: Bytes) -> Result<(), Fault> {
        let Some(link) = self.links.get_mut(id) else { return Ok(()) };
        let Some(partial) = &mut link.partial else { return Ok(()) };
        if transfer.delivery_id.is_some_and(|delivery_id| delivery_id != partial.id.0) {
            let text =
                format!("delivery {} is not complete, but another one begins on its link", partial.id.0);
            return Err(Fault::session(link.session, condition::NOT_ALLOWED, text));
        }
        if transfer.aborted {
            // A driver that settled the delivery early also renews its credit.
            let (partial_id, has_credit) = (partial.id, partial.has_credit && partial.verdict.is_none());
            let is_unsettled = !partial.settled;
            self.tell_dropped(id);
            self.drop_partial(id);
            if is_unsettled {
                self.forget_incoming(id, partial_id);
            }
            self.drop_delivery(id, has_credit);
            return Ok(());
        }
        // AMQP 1.0 §2.7.5: a delivery is settled as soon as one of its frames is; the last state sent is its state.
        let is_now_settled = !partial.settled && transfer.settled.unwrap_or(false);
        partial.settled |= is_now_settled;
        if transfer.state.is_some() {
            partial.state = transfer.state;
        }
        if is_now_settled {
            let partial_id = partial.id;
            self.forget_incoming(id, partial_id);
        }
        self.extend_partial(id, payload)?;
        if !transfer.more {
            self.finish_delivery(id);
        }
        Ok(())
    }

    /// Adds a frame's payload. No bytes of a too large message are kept, but its frames are counted: it is rejected
    /// after the last one. The limit on all incomplete messages together ends the link that exceeds it.
    fn extend_partial(&mut self, id: LinkId, payload: Bytes) -> Result<(), Fault> {
        let Some(link) = self.links.get_mut(id) else { return Ok(()) };
        let Some(partial) = &mut link.partial else { return Ok(()) };
        if partial.verdict.is_some() {
            return Ok(());
        }
        partial.size = partial.size.saturating_add(payload.len() as u64);
        if partial.size > link.max_message_size {
            self.incomplete_bytes -= partial.payload.len();
            partial.payload = BytesMut::new();
            self.tell_dropped(id);
            return Ok(());
        }
        if partial.size > self.config.limits.whole_size_bytes_max && !link.takes_whole {
            self.hand_up(id, payload);
            return Ok(());
        }
        let limit = self.config.limits.incomplete_bytes_max;
        if self.incomplete_bytes + payload.len() > limit {
            let text = format!("incomplete deliveries of the connection exceed {limit} bytes");
            return Err(Fault::link(id, condition::RESOURCE_LIMIT_EXCEEDED, text));
        }
        self.incomplete_bytes += payload.len();
        make_room(&mut partial.payload, payload.len());
        partial.payload.extend_from_slice(&payload);
        Ok(())
    }

    /// Passes a large delivery on as it arrives.
    fn hand_up(&mut self, link: LinkId, payload: Bytes) {
        let Some(partial) = self.links.get_mut(link).and_then(|link| link.partial.as_mut()) else { return };
        let id = partial.id;
        if !partial.is_in_parts {
            partial.is_in_parts = true;
            self.incomplete_bytes -= partial.payload.len();
            let first = Delivery {
                id,
                tag: partial.tag,
                message_format: partial.message_format,
                settled: partial.settled,
                state: partial.state.clone().map(Box::new),
                payload: std::mem::take(&mut partial.payload).freeze(),
            };
            self.events.push_back(Event::Part { link, id, part: Part::First(Box::new(first)) });
        }
        if !payload.is_empty() {
            self.events.push_back(Event::Part { link, id, part: Part::More(payload) });
        }
    }

    /// Emits `Part::Dropped` for a delivery of which the driver has parts.
    fn tell_dropped(&mut self, link: LinkId) {
        let Some(partial) = self.links.get_mut(link).and_then(|link| link.partial.as_mut()) else { return };
        if std::mem::take(&mut partial.is_in_parts) && partial.verdict.is_none() {
            self.events.push_back(Event::Part { link, id: partial.id, part: Part::Dropped });
        }
    }

    fn finish_delivery(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(id) else { return };
        let limit = link.max_message_size;
        let Some(partial) = link.partial.take() else { return };
        self.incomplete_bytes -= partial.payload.len();
        if let Some(verdict) = partial.verdict {
            if !partial.settled {
                self.settle_delivery(id, partial.id, verdict);
            }
            return self.tell_if_drained(id);
        }
        if partial.size > limit {
            let Partial { id: delivery, size, settled, has_credit, state, .. } = *partial;
            if !settled {
                self.reject_oversized(id, delivery, size);
            }
            return self.drop_oversized(id, has_credit, state);
        }
        let state = partial.state.map(Box::new);
        self.events.push_back(if partial.is_in_parts {
            let part = Part::Last { settled: partial.settled, state };
            Event::Part { link: id, id: partial.id, part }
        } else {
            let delivery = Delivery {
                id: partial.id,
                tag: partial.tag,
                message_format: partial.message_format,
                settled: partial.settled,
                state,
                payload: partial.payload.freeze(),
            };
            Event::Delivery { link: id, delivery }
        });
        self.tell_if_drained(id);
    }

    /// Rejects a message above the link's limit. A message that was sent settled gets no answer: its sender expects
    /// none, and another delivery may have its id.
    // SDK quirk: no SDK connects a detach with the send that caused it; they time out and retry.
    #[cold]
    fn reject_oversized(&mut self, id: LinkId, delivery: DeliveryId, size: u64) {
        let Some(limit) = self.links.get(id).map(|link| link.max_message_size) else { return };
        // The words of Service Bus and Event Hubs, which programs search for.
        let text = format!(
            "The received message (delivery-id:{}, size:{size} bytes) exceeds the limit ({limit} bytes) currently allowed on the link.",
            delivery.0
        );
        let error = AmqpError::new(condition::MESSAGE_SIZE_EXCEEDED, text)
            .with_info("message-size", size)
            .with_info("max-message-size", limit);
        self.settle_delivery(id, delivery, DeliveryState::rejected(error));
    }

    #[cold]
    fn drop_oversized(&mut self, id: LinkId, has_credit: bool, state: Option<DeliveryState>) {
        self.events.extend(state.map(|state| Event::Oversized { link: id, state: Box::new(state) }));
        self.drop_delivery(id, has_credit);
    }

    /// Ends a delivery without an event. The driver will not renew the credit it took, so the credit is returned.
    fn drop_delivery(&mut self, id: LinkId, has_credit: bool) {
        if has_credit && let Some(link) = self.links.get_mut(id) {
            link.credit = link.credit.saturating_add(1);
            self.put_link_flow(id);
        }
        self.tell_if_drained(id);
    }

    pub(super) fn forget_incoming(&mut self, id: LinkId, delivery: DeliveryId) {
        let Some(link) = self.links.get_mut(id) else { return };
        let Some(session) = self.sessions.get_mut(link.session) else { return };
        if session.incoming.take(delivery, id).is_some() {
            link.unsettled -= 1;
            let session_id = link.session;
            if let Some(state) = session.incoming.conclude(delivery, None) {
                session.dispose(&mut self.out, Role::Receiver, delivery..=delivery, true, state);
                self.mark_dirty(session_id);
            }
        }
    }

    pub(super) fn drop_partial(&mut self, id: LinkId) {
        if let Some(partial) = self.links.get_mut(id).and_then(|link| link.partial.take()) {
            self.incomplete_bytes -= partial.payload.len();
        }
    }

    /// Emits the end of a drain, also when deliveries used up all the credit.
    #[inline]
    fn tell_if_drained(&mut self, id: LinkId) {
        if let Some(link) = self.links.get_mut(id)
            && link.drain
            && link.credit == 0
        {
            link.drain = false;
            self.events.push_back(Event::Flow { link: id, credit: 0, drain: true, available: None });
        }
    }
}

/// Reserves room for several more frames of that size when there is none, so that earlier bytes are moved seldom,
/// whatever the number of frames.
fn make_room(payload: &mut BytesMut, frame_len: usize) {
    if payload.capacity() - payload.len() < frame_len {
        let len = payload.len() + frame_len;
        payload.reserve(frame_len + (ROOM_FACTOR - 1) * len);
    }
}

/// Counts a delivery that begins. Returns true when it took credit that must be returned if the delivery fails.
// SDK quirk: pyamqp sends without regard to credit, so some excess is tolerated.
fn count_delivery(link: &mut Link, id: LinkId, overrun_max: u32) -> Result<bool, Fault> {
    // A drain exists to use up the credit.
    let has_credit = link.credit > 0 && !link.drain;
    if link.credit == 0 {
        link.overrun += 1;
        if link.overrun > overrun_max {
            let text = format!("{} deliveries came beyond the credit", link.overrun);
            return Err(Fault::link(id, condition::TRANSFER_LIMIT_EXCEEDED, text));
        }
    }
    link.begin_delivery();
    Ok(has_credit)
}
