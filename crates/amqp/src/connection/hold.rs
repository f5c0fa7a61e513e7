//! Outcomes that wait before they leave, for peers that lose an outcome that comes too early.
//!
//! Only the link of such an outcome waits: what the driver says about that link afterwards stays behind it, everything else on the
//! connection goes on. The driver need not know; it wakes the connection as for any other timer.

use std::collections::VecDeque;
use std::time::Duration;

use super::link::State;
use super::{Connection, DeliveryId, LinkId, Millis};
use crate::{AmqpError, DeliveryState, Role};

/// What waits, in the order of the calls.
#[derive(Debug, Default)]
pub(super) struct Holding {
    /// How long an outcome waits; `None` for a peer that takes outcomes at any time.
    pub(super) span: Option<Duration>,
    held: VecDeque<Held>,
}

#[derive(Debug)]
struct Held {
    due: Millis,
    link: LinkId,
    call: Call,
}

/// A call of the driver that is made later. A link that is gone by then makes it do nothing.
#[derive(Debug)]
pub(super) enum Call {
    Settle(DeliveryId, DeliveryState),
    Detach(Option<AmqpError>),
}

impl Holding {
    pub(super) fn next_due(&self) -> Option<Millis> {
        self.held.front().map(|held| held.due)
    }

    pub(super) fn clear(&mut self) {
        self.held.clear();
    }
}

impl Connection {
    /// Whether an outcome of a delivery that we received has to wait: on its own account, or behind another one of its link.
    pub(super) fn must_hold(&self, id: LinkId, state: &DeliveryState) -> bool {
        self.holding.span.is_some()
            && self.links.get(id).is_some_and(|link| {
                link.role == Role::Receiver && (link.held_count > 0 || !is_accepted(state))
            })
    }

    /// Puts a call off. An outcome on its own account waits for the whole span since the last input, which is no earlier
    /// than the last frame of its delivery; what follows on the link waits only for what is before it.
    pub(super) fn hold(&mut self, id: LinkId, call: Call) {
        let Some(span) = self.holding.span else { return };
        let Some(link) = self.links.get_mut(id) else { return };
        let is_early = matches!(&call, Call::Settle(_, state) if !is_accepted(state));
        if is_early {
            link.held_until = self.now.after(span);
        }
        link.held_count += 1;
        self.holding.held.push_back(Held { due: link.held_until, link: id, call });
    }

    /// Makes the calls that are due.
    pub(super) fn release_due(&mut self, now: Millis) {
        while let Some(held) = self.holding.held.pop_front_if(|held| held.due <= now) {
            self.release(held);
        }
    }

    /// Makes all calls at once: nothing can follow.
    pub(super) fn release_all(&mut self) {
        while let Some(held) = self.holding.held.pop_front() {
            self.release(held);
        }
    }

    fn release(&mut self, Held { link: id, call, .. }: Held) {
        let Some(link) = self.links.get_mut(id) else { return };
        link.held_count = link.held_count.saturating_sub(1);
        match call {
            Call::Settle(delivery, state) => self.settle_now(id, delivery, state),
            Call::Detach(error) if link.state == State::Attached => self.detach_now(id, error),
            Call::Detach(_) => {}
        }
    }
}

fn is_accepted(state: &DeliveryState) -> bool {
    match state {
        DeliveryState::Accepted => true,
        DeliveryState::Transactional { outcome: Some(outcome), .. } => is_accepted(outcome),
        _ => false,
    }
}
