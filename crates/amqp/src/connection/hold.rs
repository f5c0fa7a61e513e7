//! Delays outcomes for peers that lose an outcome that arrives too early.
//!
//! Only the link of such an outcome is delayed: later dispositions of that link and its detach stay behind it.
//! Everything else on the connection continues. The driver wakes the connection as for any other timer.

use std::collections::VecDeque;
use std::time::Duration;

use super::link::State;
use super::{Connection, DeliveryId, LinkId, Millis};
use crate::{AmqpError, DeliveryState, Role};

/// Holds delayed calls in the order in which they were made.
#[derive(Debug, Default)]
pub(super) struct Holding {
    /// The delay; `None` for a peer that accepts outcomes at any time.
    pub(super) span: Option<Duration>,
    held: VecDeque<Held>,
}

#[derive(Debug)]
struct Held {
    due: Millis,
    link: LinkId,
    call: Call,
}

/// A delayed call of the driver. It does nothing if its link no longer exists.
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
    /// Returns whether an outcome of a received delivery is delayed: because it is not *accepted*, or because a delayed
    /// call of the same link precedes it.
    pub(super) fn must_hold(&self, id: LinkId, state: &DeliveryState) -> bool {
        self.holding.span.is_some()
            && self.links.get(id).is_some_and(|link| {
                link.role == Role::Receiver && (link.held_count > 0 || !is_accepted(state))
            })
    }

    /// Delays a call. An outcome that is not *accepted* waits for the whole delay after the last input, which is no
    /// earlier than the last frame of its delivery. Other calls wait only for those before them on the link.
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

    /// Makes all calls at once, before the connection closes.
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
