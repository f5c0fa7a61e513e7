//! Tickets: what the gateway must remember of a request, packed into the number that comes back with the answer.

use peeklock_amqp::DeliveryState;
use peeklock_amqp::connection::{Delivery, DeliveryId};
use peeklock_broker::Ticket;

use crate::connection::link::LinkNumber;
use crate::transaction::TransactionNumber;

/// Who waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiter {
    /// The sender of a delivery.
    Send(LinkNumber, DeliveryId),
    /// The link of a delivery that was sent settled. Its id is left out: one that is not settled may have the same.
    SendSettled(LinkNumber),
    /// The receiver that settled a delivery; the answer mirrors what it said.
    Settle(LinkNumber, DeliveryId, Mirror),
    /// A link that waits to be attached.
    Link(LinkNumber),
    /// A management request, by its number.
    Management(u32),
    /// A settlement in a transaction whose lock is looked at, by its number.
    Check(u32),
    /// The one who wants a transaction committed.
    Commit(TransactionNumber),
    /// A commit that waits for its large bodies to be durable.
    Kept(TransactionNumber),
    /// A management request about a hub, by its number.
    Hub(u32),
    /// A sender that wants to know how many partitions its hub has now.
    Look(LinkNumber),
    /// A token whose entity is looked for, by its number.
    Token(u32),
    Nobody,
}

/// The outcome to answer a settlement with: the kind that the peer sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mirror {
    Accepted,
    Modified,
    /// SDK quirk: a dead-letter request is answered by a rejection *without* an error; with one it reads as a failure.
    Rejected,
    Released,
}

impl Mirror {
    pub(crate) fn state(self) -> DeliveryState {
        match self {
            Mirror::Accepted => DeliveryState::Accepted,
            Mirror::Modified => DeliveryState::Modified {
                delivery_failed: None,
                undeliverable_here: None,
                message_annotations: None,
            },
            Mirror::Rejected => DeliveryState::Rejected { error: None },
            Mirror::Released => DeliveryState::Released,
        }
    }
}

const KIND_SHIFT: u32 = 60;
const LINK_SHIFT: u32 = 32;

impl Waiter {
    pub(crate) fn for_send(link: LinkNumber, delivery: &Delivery) -> Self {
        if delivery.settled { Waiter::SendSettled(link) } else { Waiter::Send(link, delivery.id) }
    }

    pub(crate) fn ticket(self) -> Ticket {
        let (kind, link, low) = match self {
            Waiter::Nobody => (0, 0, 0),
            Waiter::Send(link, id) => (1, link.0, id.0),
            Waiter::Settle(link, id, Mirror::Accepted) => (2, link.0, id.0),
            Waiter::Settle(link, id, Mirror::Modified) => (3, link.0, id.0),
            Waiter::Settle(link, id, Mirror::Rejected) => (4, link.0, id.0),
            Waiter::Settle(link, id, Mirror::Released) => (5, link.0, id.0),
            Waiter::Link(link) => (6, link.0, 0),
            Waiter::Management(number) => (7, 0, number),
            Waiter::Check(number) => (8, 0, number),
            Waiter::Commit(TransactionNumber(number)) => (9, 0, number),
            Waiter::Hub(number) => (10, 0, number),
            Waiter::Look(link) => (11, link.0, 0),
            Waiter::Token(number) => (12, 0, number),
            Waiter::SendSettled(link) => (13, link.0, 0),
            Waiter::Kept(TransactionNumber(number)) => (14, 0, number),
        };
        Ticket((kind << KIND_SHIFT) | (u64::from(link) << LINK_SHIFT) | u64::from(low))
    }

    #[expect(clippy::cast_possible_truncation, reason = "each part is cut to the width it was packed with")]
    pub(crate) fn of(ticket: Ticket) -> Self {
        let link = LinkNumber(((ticket.0 >> LINK_SHIFT) & ((1 << (KIND_SHIFT - LINK_SHIFT)) - 1)) as u32);
        let low = ticket.0 as u32;
        let id = DeliveryId(low);
        match ticket.0 >> KIND_SHIFT {
            1 => Waiter::Send(link, id),
            2 => Waiter::Settle(link, id, Mirror::Accepted),
            3 => Waiter::Settle(link, id, Mirror::Modified),
            4 => Waiter::Settle(link, id, Mirror::Rejected),
            5 => Waiter::Settle(link, id, Mirror::Released),
            6 => Waiter::Link(link),
            7 => Waiter::Management(low),
            8 => Waiter::Check(low),
            9 => Waiter::Commit(TransactionNumber(low)),
            10 => Waiter::Hub(low),
            11 => Waiter::Look(link),
            12 => Waiter::Token(low),
            13 => Waiter::SendSettled(link),
            14 => Waiter::Kept(TransactionNumber(low)),
            _ => Waiter::Nobody,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_brings_back_what_went_in() {
        let link = LinkNumber(peeklock_broker::PeerId::RECEIVERS_MAX - 1);
        let id = DeliveryId(u32::MAX);
        let mirrors = [Mirror::Accepted, Mirror::Modified, Mirror::Rejected, Mirror::Released];
        let settles = mirrors.map(|mirror| Waiter::Settle(link, id, mirror));
        let others = [
            Waiter::Nobody,
            Waiter::Send(link, id),
            Waiter::SendSettled(link),
            Waiter::Link(link),
            Waiter::Management(u32::MAX),
            Waiter::Check(u32::MAX),
            Waiter::Commit(TransactionNumber(u32::MAX)),
            Waiter::Kept(TransactionNumber(u32::MAX)),
            Waiter::Hub(u32::MAX),
            Waiter::Look(link),
            Waiter::Token(u32::MAX),
        ];
        for waiter in settles.into_iter().chain(others) {
            assert_eq!(Waiter::of(waiter.ticket()), waiter);
        }
    }
}
