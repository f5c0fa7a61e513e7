//! Queue groups: several queues or subscriptions behind one link, with the most urgent message of all members first.
//!
//! A link to a queue group has a receiver at each member, each with its own number, which the rest of the gateway
//! treats like a receiver of a queue. None of them has permanent credit. The [`Arbiter`] tracks the next message of
//! each member and grants the member whose turn it is a run that ends by itself. So no message is locked without a
//! demand for it, and no credit is left at a member whose turn it is not.

mod arbiter;
mod held;
pub(crate) mod join;
pub(crate) mod runs;

use std::sync::Arc;

use peeklock_amqp::connection::Millis;
use peeklock_amqp::{Attach, condition};
use peeklock_broker::engine::ReceiveMode;
use peeklock_types::{EntityPath, LockToken, QueueGroupSettings};

use crate::connection::link::{EntityRef, LinkNumber};
use crate::error::Refusal;
pub(crate) use arbiter::Arbiter;
pub(crate) use held::{HeldLocks, LockEnd};
pub(crate) use join::{check_sub_queue, takes_no_messages};

/// The links of a connection to queue groups. Their state is in the links.
#[derive(Default)]
pub(crate) struct QueueGroups {
    /// The time of the next check.
    wake_at: Option<Millis>,
}

impl QueueGroups {
    pub(crate) fn next_deadline(&self) -> Option<Millis> {
        self.wake_at
    }
}

/// A link on which the peer receives from a queue group.
pub(crate) struct QueueGroupLink {
    pub(crate) path: EntityPath,
    pub(crate) settings: Arc<QueueGroupSettings>,
    pub(crate) mode: ReceiveMode,
    /// The attach, until the link is open.
    pub(crate) attach: Option<Box<Attach>>,
    /// The members in the order of the settings.
    pub(crate) members: Vec<Membership>,
    pub(crate) arbiter: Arbiter,
    pub(crate) held: HeldLocks,
    pub(crate) is_draining: bool,
}

/// The state of a member on one link of the queue group.
pub(crate) enum Membership {
    /// The attach at its shard is in flight.
    Joining(LinkNumber),
    Here(LinkNumber),
    /// The member does not exist, or delivers no messages. The lookup is repeated.
    Absent {
        why: Refusal,
        look_again_at: Millis,
        /// The number for the next lookup, if it was not used by a receiver.
        link: Option<LinkNumber>,
    },
}

/// A receiver at a member that is not attached yet.
pub(crate) struct JoiningLink {
    pub(crate) group: LinkNumber,
    pub(crate) member: usize,
    pub(crate) path: EntityPath,
    pub(crate) entity: Option<EntityRef>,
}

/// The queue group link of a receiver at a member, and the member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemberOf {
    pub(crate) group: LinkNumber,
    pub(crate) member: usize,
}

impl Membership {
    pub(crate) fn link(&self) -> Option<LinkNumber> {
        match self {
            Membership::Joining(number) | Membership::Here(number) => Some(*number),
            Membership::Absent { link, .. } => *link,
        }
    }
}

pub(crate) fn lock_lost(path: &EntityPath, token: LockToken) -> Refusal {
    let text = format!(
        "no member of the group '{path}' holds message {} under this token: the lock ran out, or the message was settled; receive it again",
        token.sequence_number()
    );
    Refusal::new(410, condition::MESSAGE_LOCK_LOST, text)
}
