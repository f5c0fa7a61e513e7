//! One link: its negotiated terms, its credit, and the incoming delivery of several frames.

use bytes::BytesMut;

use super::{DeliveryId, LinkInfo, LinkName, Millis, SessionId};
use crate::{
    Attach, DeliveryState, DeliveryTag, ReceiverSettleMode, Role, SenderSettleMode, Source, Target, Text,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// The peer sent attach, we have not answered.
    Requested,
    /// We sent attach, the peer has not answered.
    AttachSent,
    /// We sent attach, the peer answered without a terminus: its detach is on the way.
    Refused,
    Attached,
    /// We sent detach. `announce`: the driver still expects its `Detached`.
    DetachSent {
        announce: bool,
    },
}

#[derive(Debug)]
pub(super) struct Link {
    pub(super) session: SessionId,
    pub(super) state: State,
    pub(super) name: Text,
    /// The address of our end.
    pub(super) address: Option<Text>,
    /// Our role.
    pub(super) role: Role,
    pub(super) snd_settle_mode: SenderSettleMode,
    pub(super) rcv_settle_mode: ReceiverSettleMode,
    /// The handle in frames we send; none before we attach.
    pub(super) handle: Option<u32>,
    /// The handle in frames the peer sends; none before it attaches.
    pub(super) remote_handle: Option<u32>,
    /// The peer's request, until it is answered.
    pub(super) wish: Option<Box<Wish>>,
    pub(super) remote_max_message_size: Option<u64>,
    /// The largest message we accept, in bytes.
    pub(super) max_message_size: u64,
    /// Deliveries are not handed up in parts.
    pub(super) takes_whole: bool,

    /// Deliveries that were begun on this link; wraps.
    pub(super) delivery_count: u32,
    /// Deliveries that may still be begun. As sender, it includes those that wait for the window.
    pub(super) credit: u32,
    /// Unsettled deliveries in the session's ring, to know whether a detach has to search it.
    pub(super) unsettled: u32,
    /// Sender: the receiver requests that its credit be used or returned. Receiver: we request that.
    pub(super) drain: bool,

    /// Sender: deliveries that wait for the peer's session window and have not begun.
    pub(super) waiting: u32,
    /// Sender: `drained` was called while deliveries waited.
    pub(super) drained_after_waiting: bool,
    pub(super) available: u32,
    /// Sender: the count the first flow without `delivery-count` refers to.
    pub(super) initial_delivery_count: u32,
    /// Sender: the newest delivery is sent in parts, and more of them are to come.
    pub(super) is_open: bool,
    /// Sender: the newest delivery of which a frame has left.
    pub(super) last_begun: DeliveryId,
    /// A flow arrived before our attach; the driver gets it when it accepts the link.
    pub(super) early_flow: bool,

    /// Receiver: deliveries beyond the credit since it was last set.
    pub(super) overrun: u32,
    /// Receiver: an incomplete delivery.
    pub(super) partial: Option<Box<Partial>>,
    /// Receiver: the number of delayed calls, and the end of their delay.
    pub(super) held_count: u32,
    pub(super) held_until: Millis,
}

/// The termini that a peer requested, echoed unless the reply names others.
#[derive(Debug)]
pub(super) struct Wish {
    pub(super) source: Option<Source>,
    pub(super) target: Option<Target>,
}

/// A delivery of several frames, so far.
#[derive(Debug)]
pub(super) struct Partial {
    pub(super) id: DeliveryId,
    pub(super) tag: DeliveryTag,
    pub(super) message_format: u32,
    pub(super) settled: bool,
    pub(super) state: Option<DeliveryState>,
    /// The delivery took one credit, which the link gets back if the driver never gets the delivery.
    pub(super) has_credit: bool,
    /// Bytes of all its frames so far.
    pub(super) size: u64,
    /// Empty once `size` exceeds the link's limit: no bytes of such a delivery are kept. Also empty while the delivery
    /// is handed up in parts.
    pub(super) payload: BytesMut,
    /// The driver gets the delivery in parts.
    pub(super) is_in_parts: bool,
    /// The driver's early settlement; sent to the peer after the last frame.
    pub(super) verdict: Option<DeliveryState>,
}

impl Link {
    pub(super) fn new(session: SessionId, state: State, role: Role, attach: &Attach) -> Self {
        Self {
            session,
            state,
            name: attach.name.clone(),
            address: address_of(role, attach),
            role,
            snd_settle_mode: attach.snd_settle_mode,
            rcv_settle_mode: attach.rcv_settle_mode,
            handle: None,
            remote_handle: None,
            wish: None,
            remote_max_message_size: None,
            max_message_size: 0,
            takes_whole: false,
            delivery_count: 0,
            credit: 0,
            unsettled: 0,
            drain: false,
            waiting: 0,
            drained_after_waiting: false,
            available: 0,
            initial_delivery_count: 0,
            is_open: false,
            last_begun: DeliveryId(0),
            early_flow: false,
            overrun: 0,
            partial: None,
            held_count: 0,
            held_until: Millis(0),
        }
    }

    /// Stores the peer's terms from its attach.
    pub(super) fn learn(&mut self, attach: &Attach) {
        self.remote_handle = Some(attach.handle);
        self.remote_max_message_size = attach.max_message_size.filter(|size| *size != 0);
        if self.role == Role::Receiver {
            self.delivery_count = attach.initial_delivery_count.unwrap_or(0);
        }
    }

    pub(super) fn is_attached(&self, role: Role) -> bool {
        self.state == State::Attached && self.role == role
    }

    /// Returns the credit that no waiting delivery has claimed.
    pub(super) fn free_credit(&self) -> u32 {
        self.credit.saturating_sub(self.waiting)
    }

    pub(super) fn begin_delivery(&mut self) {
        self.delivery_count = self.delivery_count.wrapping_add(1);
        self.credit = self.credit.saturating_sub(1);
    }

    /// Stops an incomplete delivery from returning its credit, because the receiver has set the credit again.
    pub(super) fn keep_credit_of_partial(&mut self) {
        if let Some(partial) = &mut self.partial {
            partial.has_credit = false;
        }
    }

    /// Computes the credit of a sender from the receiver's count (AMQP 1.0 §2.6.7). Deliveries that the receiver had
    /// not seen yet are subtracted.
    pub(super) fn grant(&mut self, delivery_count: Option<u32>, link_credit: u32) {
        let seen = delivery_count.unwrap_or(self.initial_delivery_count);
        let unseen = self.delivery_count.wrapping_sub(seen).cast_signed();
        let credit = i64::from(link_credit) - i64::from(unseen);
        self.credit = u32::try_from(credit.max(0)).unwrap_or(u32::MAX);
    }

    /// Returns all credit of a sender by counting it as used.
    pub(super) fn return_credit(&mut self) {
        self.delivery_count = self.delivery_count.wrapping_add(self.credit);
        self.credit = 0;
        self.drain = false;
        self.drained_after_waiting = false;
    }

    pub(super) fn full_name(&self) -> LinkName {
        LinkName { name: self.name.clone(), address: self.address.clone() }
    }

    pub(super) fn info(&self) -> LinkInfo {
        LinkInfo {
            session: self.session,
            name: self.name.clone(),
            role: self.role,
            snd_settle_mode: self.snd_settle_mode,
            rcv_settle_mode: self.rcv_settle_mode,
            remote_max_message_size: self.remote_max_message_size,
        }
    }
}

fn address_of(role: Role, attach: &Attach) -> Option<Text> {
    match (role, &attach.source, &attach.target) {
        (Role::Sender, Some(source), _) => source.address.clone(),
        (Role::Receiver, _, Some(Target::Node(node))) => node.address.clone(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::id::Arena;
    use super::*;

    fn sender() -> Link {
        let mut sessions = Arena::new();
        let attach = Attach::new("x", 0, Role::Receiver);
        Link::new(sessions.insert(()), State::Attached, Role::Sender, &attach)
    }

    #[test]
    fn credit_counts_from_the_deliveries_that_the_receiver_has_seen() {
        let mut link = sender();
        link.grant(None, 10);
        (0..3).for_each(|_| link.begin_delivery());
        link.grant(Some(1), 10);
        assert_eq!(link.credit, 8, "two deliveries are in flight");
        link.grant(Some(3), 0);
        assert_eq!(link.credit, 0);
        link.grant(None, 5);
        assert_eq!(link.credit, 2, "no count means the initial one");
    }

    #[test]
    fn credit_arithmetic_wraps() {
        let mut link = sender();
        link.delivery_count = u32::MAX;
        link.grant(Some(u32::MAX - 1), 4);
        assert_eq!(link.credit, 3);
        link.begin_delivery();
        assert_eq!((link.delivery_count, link.credit), (0, 2));
        link.grant(Some(u32::MAX), u32::MAX);
        assert_eq!(link.credit, u32::MAX - 1);
        link.return_credit();
        assert_eq!((link.delivery_count, link.credit), (u32::MAX - 1, 0));
    }
}
