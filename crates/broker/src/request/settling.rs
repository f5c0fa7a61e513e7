//! Requests about locks: settlements, renewals, and bulk deletion of messages.

use peeklock_engine::{EntityId, Settlement};
use peeklock_types::{LockToken, SubQueue, Timestamp};

use super::sessions::SessionHold;
use super::{Answer, Answered, Ask, Request, Ticket, requests};

/// Settles one message.
#[derive(Debug)]
pub struct Settle {
    pub entity: EntityId,
    pub sub_queue: SubQueue,
    pub token: LockToken,
    pub settlement: Settlement,
}

/// Consecutive settlements in one entity, each with its own outcome.
#[derive(Debug)]
pub struct SettleRun {
    pub entity: EntityId,
    pub sub_queue: SubQueue,
    pub(crate) settles: Vec<SettleOfRun>,
}

#[derive(Debug)]
pub(crate) struct SettleOfRun {
    pub(crate) ticket: Ticket<Settle>,
    pub(crate) token: LockToken,
    pub(crate) settlement: Settlement,
}

impl Ask for Settle {
    type Answer = ();

    fn asked(self, ticket: Ticket<Self>) -> Request {
        let Settle { entity, sub_queue, token, settlement } = self;
        Request::Settle(SettleRun {
            entity,
            sub_queue,
            settles: vec![SettleOfRun { ticket, token, settlement }],
        })
    }

    fn answer(answered: Answered<Self>) -> Answer {
        Answer::Settled(vec![answered])
    }

    fn answered(answer: Answer) -> Option<Answered<Self>> {
        match answer {
            Answer::Settled(mut run) => run.pop(),
            _ => None,
        }
    }
}

requests! {
    SettlingRequest, SettlingAnswer;

    /// Settles several messages: all or none. In a queue with sessions and with a `hold`, the messages must belong to
    /// that session.
    SettleAll {
        entity: EntityId,
        sub_queue: SubQueue,
        tokens: Vec<LockToken>,
        settlement: Settlement,
        hold: Option<SessionHold>,
    } -> ();

    /// Renews locks: all or none. The answer has the new expiry time of each.
    RenewLocks {
        entity: EntityId,
        sub_queue: SubQueue,
        tokens: Vec<LockToken>,
    } -> Vec<Timestamp>;

    /// Deletes messages that are not locked: the oldest `count_max` of those that were enqueued before `before`. The
    /// answer has their number.
    Purge {
        entity: EntityId,
        sub_queue: SubQueue,
        before: Option<Timestamp>,
        count_max: Option<u64>,
    } -> u64;

    /// Deletes messages of a session that the peer has locked, like [`Purge`]. If fewer than `count_max` were deleted,
    /// more may be left for the next request.
    PurgeSession {
        entity: EntityId,
        hold: SessionHold,
        before: Option<Timestamp>,
        count_max: u64,
    } -> u64;

    @notices;

    /// Returns a delivery that never reached its receiver to its queue. It does not count as a delivery.
    Release {
        entity: EntityId,
        sub_queue: SubQueue,
        token: LockToken,
    }
}
