//! Waiters: the gateway's state for a request, packed into the number of its ticket.

use peeklock_amqp::DeliveryState;
use peeklock_amqp::connection::{Delivery, DeliveryId};
use peeklock_broker::Ticket;
use peeklock_broker::request::entities::Find;
use peeklock_broker::request::events::{Append, AttachReader};
use peeklock_broker::request::hubs::{ShowHub, ShowProducer};
use peeklock_broker::request::receiving::Attach;
use peeklock_broker::request::sending::SendMessages;
use peeklock_broker::request::settling::Settle;
use peeklock_broker::request::transactions::CheckLock;

use crate::connection::link::LinkNumber;

/// The waiter for the answer to a request of type `R`.
pub(crate) trait Waiter<R>: Sized {
    fn ticket(self) -> Ticket<R>;
    fn of(ticket: Ticket<R>) -> Self;
}

/// The link of a delivery that stores messages or events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendWaiter {
    Delivery(LinkNumber, DeliveryId),
    /// The delivery was sent settled. Its id is omitted: an unsettled one may have the same.
    Settled(LinkNumber),
}

/// The link of a delivery that a receiver settles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SettleWaiter {
    /// The answer mirrors the outcome that the receiver sent.
    Delivery(LinkNumber, DeliveryId, Mirror),
    /// The last part of a large message, which leaves when the message is removed.
    Removal(LinkNumber),
    Nobody,
}

/// The waiter for the lookup of an entity by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FindWaiter {
    Link(LinkNumber),
    /// A management request, by its number.
    Management(u32),
    /// A token, by its number.
    Token(u32),
}

/// The waiter for the description of a hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HubWaiter {
    Link(LinkNumber),
    /// A management request about a hub, by its number.
    Management(u32),
    /// A publisher that follows the number of partitions.
    Publisher(LinkNumber),
}

/// The waiter for the check of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockWaiter {
    /// A settlement in a transaction, by its number.
    Settlement(u32),
    /// A management request, by its number.
    Management(u32),
}

/// The outcome that answers a settlement: the same kind that the peer sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mirror {
    Accepted,
    Modified,
    /// SDK quirk: a dead-letter request is answered by a rejection *without* an error; SDKs treat a rejection with an
    /// error as a failure.
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

/// The parts of a ticket's number: four bits, 28 bits, 32 bits.
struct Parts {
    kind: u64,
    link: LinkNumber,
    low: u32,
}

impl Parts {
    fn of_link(kind: u64, link: LinkNumber) -> Self {
        Parts { kind, link, low: 0 }
    }

    fn of_number(kind: u64, low: u32) -> Self {
        Parts { kind, link: LinkNumber(0), low }
    }

    fn pack(self) -> u64 {
        (self.kind << KIND_SHIFT) | (u64::from(self.link.0) << LINK_SHIFT) | u64::from(self.low)
    }

    #[expect(clippy::cast_possible_truncation, reason = "each part is cut to the width it was packed with")]
    fn unpack(number: u64) -> Self {
        let link = LinkNumber(((number >> LINK_SHIFT) & ((1 << (KIND_SHIFT - LINK_SHIFT)) - 1)) as u32);
        Parts { kind: number >> KIND_SHIFT, link, low: number as u32 }
    }
}

/// Returns the ticket of a request that has one kind of waiter, by the waiter's number.
pub(crate) fn numbered<R>(number: u32) -> Ticket<R> {
    Ticket::new(Parts::of_number(0, number).pack())
}

/// Returns the number in a ticket from [`numbered`].
pub(crate) fn number_of<R>(ticket: Ticket<R>) -> u32 {
    Parts::unpack(ticket.number()).low
}

/// Packs a waiter into the number of a ticket for each of these requests.
macro_rules! waiters {
    ($($waiter:ty: $($request:ty),*;)*) => {
        $($(
            impl Waiter<$request> for $waiter {
                fn ticket(self) -> Ticket<$request> {
                    Ticket::new(self.parts().pack())
                }

                fn of(ticket: Ticket<$request>) -> Self {
                    Self::from_parts(&Parts::unpack(ticket.number()))
                }
            }
        )*)*
    };
}

waiters! {
    SendWaiter: SendMessages, Append;
    SettleWaiter: Settle;
    FindWaiter: Find;
    HubWaiter: ShowHub;
    LockWaiter: CheckLock;
    LinkNumber: Attach, AttachReader, ShowProducer;
}

impl SendWaiter {
    pub(crate) fn for_delivery(link: LinkNumber, delivery: &Delivery) -> Self {
        if delivery.settled { SendWaiter::Settled(link) } else { SendWaiter::Delivery(link, delivery.id) }
    }

    /// Returns the link, and the delivery if its sender waits for the outcome.
    pub(crate) fn delivery(self) -> (LinkNumber, Option<DeliveryId>) {
        match self {
            SendWaiter::Delivery(link, id) => (link, Some(id)),
            SendWaiter::Settled(link) => (link, None),
        }
    }

    fn parts(self) -> Parts {
        match self {
            SendWaiter::Delivery(link, id) => Parts { kind: 0, link, low: id.0 },
            SendWaiter::Settled(link) => Parts::of_link(1, link),
        }
    }

    fn from_parts(parts: &Parts) -> Self {
        match parts.kind {
            0 => SendWaiter::Delivery(parts.link, DeliveryId(parts.low)),
            _ => SendWaiter::Settled(parts.link),
        }
    }
}

impl SettleWaiter {
    fn parts(self) -> Parts {
        match self {
            SettleWaiter::Nobody => Parts::of_number(0, 0),
            SettleWaiter::Removal(link) => Parts::of_link(5, link),
            SettleWaiter::Delivery(link, id, mirror) => {
                let kind = match mirror {
                    Mirror::Accepted => 1,
                    Mirror::Modified => 2,
                    Mirror::Rejected => 3,
                    Mirror::Released => 4,
                };
                Parts { kind, link, low: id.0 }
            }
        }
    }

    fn from_parts(parts: &Parts) -> Self {
        let mirror = match parts.kind {
            1 => Mirror::Accepted,
            2 => Mirror::Modified,
            3 => Mirror::Rejected,
            4 => Mirror::Released,
            5 => return SettleWaiter::Removal(parts.link),
            _ => return SettleWaiter::Nobody,
        };
        SettleWaiter::Delivery(parts.link, DeliveryId(parts.low), mirror)
    }
}

impl FindWaiter {
    fn parts(self) -> Parts {
        match self {
            FindWaiter::Link(link) => Parts::of_link(0, link),
            FindWaiter::Management(number) => Parts::of_number(1, number),
            FindWaiter::Token(number) => Parts::of_number(2, number),
        }
    }

    fn from_parts(parts: &Parts) -> Self {
        match parts.kind {
            0 => FindWaiter::Link(parts.link),
            1 => FindWaiter::Management(parts.low),
            _ => FindWaiter::Token(parts.low),
        }
    }
}

impl HubWaiter {
    fn parts(self) -> Parts {
        match self {
            HubWaiter::Link(link) => Parts::of_link(0, link),
            HubWaiter::Management(number) => Parts::of_number(1, number),
            HubWaiter::Publisher(link) => Parts::of_link(2, link),
        }
    }

    fn from_parts(parts: &Parts) -> Self {
        match parts.kind {
            0 => HubWaiter::Link(parts.link),
            1 => HubWaiter::Management(parts.low),
            _ => HubWaiter::Publisher(parts.link),
        }
    }
}

impl LockWaiter {
    fn parts(self) -> Parts {
        match self {
            LockWaiter::Settlement(number) => Parts::of_number(0, number),
            LockWaiter::Management(number) => Parts::of_number(1, number),
        }
    }

    fn from_parts(parts: &Parts) -> Self {
        match parts.kind {
            0 => LockWaiter::Settlement(parts.low),
            _ => LockWaiter::Management(parts.low),
        }
    }
}

impl LinkNumber {
    fn parts(self) -> Parts {
        Parts::of_link(0, self)
    }

    fn from_parts(parts: &Parts) -> Self {
        parts.link
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use super::*;

    fn comes_back<R, W: Waiter<R> + Copy + Debug + PartialEq>(waiters: &[W]) {
        for waiter in waiters {
            assert_eq!(W::of(waiter.ticket()), *waiter);
        }
    }

    #[test]
    fn a_ticket_returns_its_waiter() {
        let link = LinkNumber(peeklock_broker::PeerId::RECEIVERS_MAX - 1);
        let id = DeliveryId(u32::MAX);
        let sends = [SendWaiter::Delivery(link, id), SendWaiter::Settled(link)];
        comes_back::<SendMessages, _>(&sends);
        comes_back::<Append, _>(&sends);
        let mirrors = [Mirror::Accepted, Mirror::Modified, Mirror::Rejected, Mirror::Released];
        comes_back::<Settle, _>(&mirrors.map(|mirror| SettleWaiter::Delivery(link, id, mirror)));
        comes_back::<Settle, _>(&[SettleWaiter::Nobody, SettleWaiter::Removal(link)]);
        comes_back::<Find, _>(&[
            FindWaiter::Link(link),
            FindWaiter::Management(u32::MAX),
            FindWaiter::Token(u32::MAX),
        ]);
        comes_back::<ShowHub, _>(&[
            HubWaiter::Link(link),
            HubWaiter::Management(u32::MAX),
            HubWaiter::Publisher(link),
        ]);
        comes_back::<CheckLock, _>(&[LockWaiter::Settlement(u32::MAX), LockWaiter::Management(u32::MAX)]);
        comes_back::<Attach, _>(&[link]);
        assert_eq!(number_of(numbered::<Find>(u32::MAX)), u32::MAX);
    }
}
