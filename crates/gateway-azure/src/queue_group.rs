//! Groups: several queues or subscriptions behind one link, and the most urgent message of all of them first.
//!
//! A link of a group has a receiver at each member, with a number of its own, that looks to the rest of the gateway like a receiver of a queue.
//! None of them has standing credit. The [`Arbiter`] knows what each member would hand out next, and asks the one whose turn it is for a run that
//! ends by itself: so no message is locked that is not for the peer, and nothing that it asked for waits at the wrong member.

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
    /// When they must be looked at.
    wake_at: Option<Millis>,
}

impl QueueGroups {
    pub(crate) fn next_deadline(&self) -> Option<Millis> {
        self.wake_at
    }
}

/// The peer receives from a group.
pub(crate) struct QueueGroupLink {
    pub(crate) path: EntityPath,
    pub(crate) settings: Arc<QueueGroupSettings>,
    pub(crate) mode: ReceiveMode,
    /// Until the link is open.
    pub(crate) attach: Option<Box<Attach>>,
    /// In the order of the settings.
    pub(crate) members: Vec<Membership>,
    pub(crate) arbiter: Arbiter,
    pub(crate) held: HeldLocks,
    pub(crate) is_draining: bool,
}

/// How a member stands to one link of the group.
pub(crate) enum Membership {
    /// Its shard is being asked.
    Joining(LinkNumber),
    Here(LinkNumber),
    /// It does not exist, or hands nothing out. It is looked for again.
    Absent {
        why: Refusal,
        look_again_at: Millis,
        /// Its number waits to be used for that, unless it has been in use.
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

/// Where a receiver at a member belongs.
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
