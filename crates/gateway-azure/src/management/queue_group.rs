//! Requests to the `$management` of a queue group: each lock is looked up at the members, and a peek returns messages
//! of all members.

use std::collections::VecDeque;

use peeklock_broker::engine::{self, Settlement};
use peeklock_broker::request::entities::Find;
use peeklock_broker::request::receiving::Peek;
use peeklock_broker::request::settling::{RenewLocks, SettleAll};
use peeklock_broker::{Error, Message, Named};
use peeklock_types::{
    EntityPath, LockToken, QueueGroupSettings, SequenceNumber, SubQueue, Timestamp, limits,
};

use super::PendingRequest;
use super::answer::Content;
use super::operation::Operation;
use crate::access::Access;
use crate::connection::context::Context;
use crate::connection::link::{EntityRef, LinkKind, LinkNumber};
use crate::connection::request::FindWaiter;
use crate::error::{Refusal, refusal};
use crate::management::Management;
use crate::queue_group::join::queue_group_needs;
use crate::queue_group::runs::entity_of;
use crate::queue_group::{LockEnd, QueueGroups, check_sub_queue, lock_lost, takes_no_messages};
use crate::transaction::Transactions;

/// A request that is sent to the members one at a time.
pub(super) struct QueueGroupRequest {
    work: Work,
    members: Vec<EntityPath>,
    /// The member whose answer is awaited.
    at: usize,
    /// The new ends of the renewed locks.
    renewed: Vec<Timestamp>,
}

enum Work {
    /// Finds the member that holds the first lock, then continues with the next lock.
    Locks {
        tokens: VecDeque<LockToken>,
        settlement: Option<Settlement>,
    },
    Peek(Look),
}

/// Messages of all members, by sequence number, so that a peer that continues after the last one misses none.
struct Look<M = Message> {
    from: SequenceNumber,
    count_max: usize,
    /// The sequence number at which to continue at the current member.
    next: SequenceNumber,
    found: Vec<M>,
    /// The last sequence number that fits into the response.
    upto: SequenceNumber,
}

impl Management {
    pub(super) fn start_queue_group_request(
        &mut self,
        context: &mut Context<'_>,
        access: &Access,
        transactions: &mut Transactions,
        mut pending: PendingRequest,
        (settings, operation): (&QueueGroupSettings, Operation),
    ) -> Result<(), Refusal> {
        queue_group_needs(context, access, &pending.path, settings)?;
        check_sub_queue(&pending.path, settings)?;
        let work = work_of(operation, &pending.path, settings)?;
        if pending.transaction.is_some() {
            return Err(Refusal::not_implemented(
                "messages of a group are settled in a transaction over the link that they came by, or at the management of their queue",
            ));
        }
        let member = |name: &_| EntityPath { name: Clone::clone(name), sub_queue: SubQueue::Main };
        let members = settings.members.iter().map(|settings| member(&settings.name)).collect();
        pending.group = Some(QueueGroupRequest { work, members, at: 0, renewed: Vec::new() });
        let number = self.insert(pending);
        self.ask_next(context, transactions, number);
        Ok(())
    }

    /// Sends the request for the next lock, or to the next member.
    fn ask_next(&mut self, context: &mut Context<'_>, transactions: &mut Transactions, number: u32) {
        let Some(pending) = self.requests.get_mut(&number) else { return };
        let Some(group) = &mut pending.group else { return };
        let token = match &group.work {
            Work::Locks { tokens, .. } => match tokens.front() {
                Some(token) => Some(*token),
                None => return self.end_queue_group_request(context, transactions, number, None),
            },
            Work::Peek(_) => None,
        };
        let known = token.filter(|_| group.at == 0);
        if let Some(entity) = known.and_then(|token| self.holder_of(context, token)) {
            return self.ask_member_found(context, number, entity);
        }
        let Some(pending) = self.requests.get_mut(&number) else { return };
        let Some(group) = &mut pending.group else { return };
        match group.members.get(group.at) {
            Some(member) => {
                let name = member.name.clone();
                let shard = context.namespace.broker.place(&name);
                context.ask(shard, FindWaiter::Management(number), Find { name });
            }
            None => {
                let refusal = token.map(|token| lock_lost(&pending.path, token));
                self.end_queue_group_request(context, transactions, number, refusal);
            }
        }
    }

    /// Returns the entity of a message that was sent on a link of this connection.
    fn holder_of(&self, context: &Context<'_>, token: LockToken) -> Option<EntityRef> {
        context.links.iter().find_map(|(number, link)| match &link.kind {
            LinkKind::QueueGroup(_) => entity_of(context, number, token),
            _ => None,
        })
    }

    fn ask_member_found(
        &mut self,
        context: &mut Context<'_>,
        number: u32,
        EntityRef { shard, entity }: EntityRef,
    ) {
        let group = self.requests.get(&number).and_then(|pending| pending.group.as_ref());
        let Some(group) = group else { return };
        let sub_queue = SubQueue::Main;
        match &group.work {
            Work::Locks { tokens, settlement } => {
                let tokens = tokens.front().copied().into_iter().collect();
                match settlement.clone() {
                    Some(settlement) => {
                        let settle = SettleAll { entity, sub_queue, tokens, settlement, hold: None };
                        context.ask_numbered(shard, number, settle);
                    }
                    None => context.ask_numbered(shard, number, RenewLocks { entity, sub_queue, tokens }),
                }
            }
            Work::Peek(look) => {
                let (from, count_max) = (look.next, look.count_max);
                context.ask_numbered(
                    shard,
                    number,
                    Peek { entity, sub_queue, from, count_max, session: None },
                );
            }
        }
    }

    pub(crate) fn is_queue_group_request(&self, number: u32) -> bool {
        self.requests.get(&number).is_some_and(|pending| pending.group.is_some())
    }

    fn queue_group_request(&mut self, number: u32) -> Option<&mut QueueGroupRequest> {
        self.requests.get_mut(&number)?.group.as_mut()
    }

    /// Handles a shard's lookup of a member.
    pub(super) fn on_queue_group_found(
        &mut self,
        context: &mut Context<'_>,
        transactions: &mut Transactions,
        number: u32,
        result: Result<Named, Error>,
    ) {
        let Some(group) = self.queue_group_request(number) else { return };
        match result {
            Ok(Named::Entity(found)) => {
                let Some(member) = group.members.get(group.at) else { return };
                let name = member.name.clone();
                let shard = context.namespace.broker.place(&name);
                self.ask_member_found(context, number, EntityRef { shard, entity: found.entity });
            }
            // The name now belongs to a hub, which cannot be a member.
            Ok(Named::Hub(_)) => {
                group.skip();
                self.ask_next(context, transactions, number);
            }
            Err(error) => self.on_queue_group_refused(context, transactions, number, &error),
        }
    }

    /// Handles the messages that a member has returned for a peek.
    pub(crate) fn on_queue_group_peeked(
        &mut self,
        context: &mut Context<'_>,
        transactions: &mut Transactions,
        number: u32,
        result: Result<Vec<Message>, Error>,
    ) {
        let Some(group) = self.queue_group_request(number) else { return };
        match (result, &mut group.work) {
            (Err(error), _) => return self.on_queue_group_refused(context, transactions, number, &error),
            (Ok(messages), Work::Peek(look)) => {
                if look.take(messages) {
                    group.skip();
                }
            }
            (Ok(_), Work::Locks { .. }) => {}
        }
        self.ask_next(context, transactions, number);
    }

    /// Handles a member's answer about a settled or renewed lock. `until` is the new end of a renewed lock.
    pub(crate) fn on_queue_group_lock(
        &mut self,
        context: &mut Context<'_>,
        queue_groups: &mut QueueGroups,
        transactions: &mut Transactions,
        number: u32,
        result: Result<Option<Timestamp>, Error>,
    ) {
        let Some(group) = self.queue_group_request(number) else { return };
        let until = match result {
            Ok(until) => until,
            Err(error) => return self.on_queue_group_refused(context, transactions, number, &error),
        };
        group.at = 0;
        group.renewed.extend(until);
        if let Work::Locks { tokens, settlement } = &mut group.work {
            let (token, end) = (tokens.pop_front(), settlement.as_ref().map(LockEnd::of));
            if let Some(token) = token {
                self.note_lock(context, queue_groups, token, end, until);
            }
        }
        self.ask_next(context, transactions, number);
    }

    fn on_queue_group_refused(
        &mut self,
        context: &mut Context<'_>,
        transactions: &mut Transactions,
        number: u32,
        error: &Error,
    ) {
        let Some(pending) = self.requests.get_mut(&number) else { return };
        let Some(group) = &mut pending.group else { return };
        if is_elsewhere(error) {
            group.skip();
            return self.ask_next(context, transactions, number);
        }
        let refusal = refusal(error, Some(&pending.path));
        self.end_queue_group_request(context, transactions, number, Some(refusal));
    }

    /// Updates the links that may hold the lock.
    fn note_lock(
        &mut self,
        context: &mut Context<'_>,
        queue_groups: &mut QueueGroups,
        token: LockToken,
        end: Option<LockEnd>,
        until: Option<Timestamp>,
    ) {
        let groups = context.links.iter().filter(|(_, link)| matches!(link.kind, LinkKind::QueueGroup(_)));
        let numbers: Vec<LinkNumber> = groups.map(|(number, _)| number).collect();
        for number in numbers {
            if let Some(end) = end {
                queue_groups.release_lock(context, number, token, end);
            } else if let Some(LinkKind::QueueGroup(group)) =
                context.links.get_mut(number).map(|link| &mut link.kind)
                && let Some(until) = until
            {
                group.held.renew(token, until);
            }
        }
    }

    fn end_queue_group_request(
        &mut self,
        context: &mut Context<'_>,
        transactions: &mut Transactions,
        number: u32,
        refusal: Option<Refusal>,
    ) {
        let Some(pending) = self.requests.get_mut(&number) else { return };
        let Some(group) = pending.group.take() else { return };
        pending.remaining = 0;
        pending.result = match (refusal, group.work) {
            (Some(refusal), _) => Err(refusal),
            (None, Work::Peek(look)) => Ok(Content::peeked(pending.form, look.found)),
            (None, Work::Locks { settlement: None, .. }) => Ok(Content::expirations(&group.renewed)),
            (None, Work::Locks { settlement: Some(_), .. }) => Ok(Content::done()),
        };
        self.finish_request(context, transactions, number);
    }
}

fn work_of(operation: Operation, path: &EntityPath, settings: &QueueGroupSettings) -> Result<Work, Refusal> {
    Ok(match operation {
        Operation::Renew { tokens } => Work::Locks { tokens: tokens.into(), settlement: None },
        Operation::Settle { tokens, settlement, session: None } => {
            Work::Locks { tokens: tokens.into(), settlement: Some(settlement) }
        }
        Operation::Peek { from, count_max, session: None, .. } => Work::Peek(Look::new(from, count_max)),
        Operation::Schedule { .. } | Operation::CancelScheduled { .. } => {
            return Err(takes_no_messages(path, settings));
        }
        _ => {
            let text = format!(
                "'{}' is a group: its management can settle and renew locks and peek; for anything else ask one of its members",
                path.name
            );
            return Err(Refusal::not_allowed(text));
        }
    })
}

impl QueueGroupRequest {
    /// Continues with the next member; a peek starts there from its first sequence number.
    fn skip(&mut self) {
        if let Work::Peek(look) = &mut self.work {
            look.next = look.from;
        }
        self.at += 1;
    }
}

/// Returns whether the message may be at another member.
fn is_elsewhere(error: &Error) -> bool {
    use engine::Error as E;
    let Error::Engine(error) = error else { return false };
    matches!(
        **error,
        E::LockLost { .. } | E::NoSuchQueue { .. } | E::NoSuchTopic { .. } | E::NoSuchEntity { .. }
    )
}

/// The values of a message that a peek requires.
trait Seen {
    fn number(&self) -> SequenceNumber;
    fn size_bytes(&self) -> usize;
}

impl Seen for Message {
    fn number(&self) -> SequenceNumber {
        self.message.sequence_number
    }

    fn size_bytes(&self) -> usize {
        self.message.size_bytes as usize
    }
}

impl<M: Seen> Look<M> {
    fn new(from: SequenceNumber, count_max: usize) -> Self {
        let count_max = count_max.min(limits::BATCH_COUNT_MAX);
        Look { from, count_max, next: from, found: Vec::new(), upto: SequenceNumber(u64::MAX) }
    }

    /// Adds messages of a member. Returns whether no further messages of the member are required.
    fn take(&mut self, messages: Vec<M>) -> bool {
        let Some(last) = messages.last().map(M::number) else { return true };
        self.next = last.next();
        self.found.extend(messages.into_iter().filter(|message| message.number() <= self.upto));
        self.found.sort_by_key(M::number);
        let mut size_bytes = 0;
        let fitting = self.found.iter().take(self.count_max).take_while(|message| {
            size_bytes += message.size_bytes();
            size_bytes <= limits::ANSWER_SIZE_BYTES_MAX
        });
        let fitting = fitting.count().max(1);
        if fitting < self.found.len() {
            // Messages with the same sequence number are kept or dropped together.
            let over = self.found.get(fitting).map(M::number);
            let mut kept = self.found.partition_point(|message| Some(message.number()) < over);
            if kept == 0 {
                kept = self.found.partition_point(|message| Some(message.number()) <= over);
            }
            self.found.truncate(kept);
            self.upto = self.found.last().map_or(self.upto, M::number);
        }
        last >= self.upto
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Seen for (u64, usize) {
        fn number(&self) -> SequenceNumber {
            SequenceNumber(self.0)
        }

        fn size_bytes(&self) -> usize {
            self.1
        }
    }

    fn messages(numbers: &[u64], size_bytes: usize) -> Vec<(u64, usize)> {
        numbers.iter().map(|number| (*number, size_bytes)).collect()
    }

    fn numbers(look: &Look<(u64, usize)>) -> Vec<u64> {
        look.found.iter().map(|(number, _)| *number).collect()
    }

    #[test]
    fn a_peek_that_continues_after_the_last_number_misses_no_message() {
        let mut look = Look::new(SequenceNumber(0), 4);
        assert!(!look.take(messages(&[1, 2, 5], 1)) && look.take(Vec::new()));
        assert!(look.take(messages(&[2, 3, 9], 1)));
        assert_eq!(numbers(&look), [1, 2, 2, 3]);
        assert!(
            look.take(messages(&[1, 2], 1)),
            "all messages with number 1, and none with number 2, which would not fit"
        );
        assert_eq!(numbers(&look), [1, 1]);
        let mut look = Look::new(SequenceNumber(0), 1);
        assert!(!look.take(messages(&[7], 1)) && look.take(Vec::new()));
        assert!(look.take(messages(&[7], 1)));
        assert_eq!(numbers(&look), [7, 7], "messages with the same number stay together");
        let mut look = Look::new(SequenceNumber(0), 100);
        assert!(look.take(messages(&[1, 2, 3], 3 << 20)));
        assert_eq!(numbers(&look), [1], "a response has a size limit");
    }
}
