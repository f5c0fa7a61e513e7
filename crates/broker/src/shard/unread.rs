//! Bodies that the disk returns late or not now.
//!
//! A message that its receiver deletes is removed when its body was read, and delivered when that is durable. A message whose
//! body cannot be read now returns to its queue: the delivery does not count, and the receiver gets its credit and its
//! window back. The message is released after a pause, which grows with each failure; its lock keeps it from being
//! delivered before.

use std::collections::BTreeMap;
use std::time::Duration;

use peeklock_engine::{Delivery, EntityId, ReceiverId, Settlement};
use peeklock_journal::Log;
use peeklock_types::{LockToken, SequenceNumber, SubQueue, Timestamp};
use rustc_hash::FxHashMap;
use tokio::time::Instant;

use crate::shard::outgoing::{Effect, Read, Unread};
use crate::shard::{Failure, Shard};

/// The pause after the first failure of a message. It doubles with each further one.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// A lock is released this long before it would end, because its end would count as a failed delivery.
const BEFORE_END: Duration = Duration::from_secs(1);
/// The largest number of messages whose failures are counted. Beyond it the counts start anew.
const COUNTED_MAX: usize = 1024;

/// The locks of messages that wait for their release.
#[derive(Default)]
pub(crate) struct UnreadLocks {
    waiting: BTreeMap<(Instant, u64), UnreadLock>,
    next_number: u64,
    failure_counts: FxHashMap<(EntityId, SequenceNumber), u32>,
}

#[derive(Clone, Copy)]
struct UnreadLock {
    entity: EntityId,
    sub_queue: SubQueue,
    token: LockToken,
}

impl UnreadLocks {
    /// Returns the time of the next release.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.waiting.first_key_value().map(|((at, _), _)| *at)
    }

    /// Adds a lock that lasts for `left`.
    fn add(&mut self, lock: UnreadLock, left: Duration) {
        if self.failure_counts.len() >= COUNTED_MAX {
            self.failure_counts.clear();
        }
        let count = self.failure_counts.entry((lock.entity, lock.token.sequence_number())).or_default();
        let pause = PAUSE_MIN.saturating_mul(1 << (*count).min(16)).min(PAUSE_MAX);
        *count += 1;
        let pause = pause.min(left.saturating_sub(BEFORE_END));
        self.waiting.insert((Instant::now() + pause, self.next_number), lock);
        self.next_number += 1;
    }

    fn next_due(&mut self) -> Option<UnreadLock> {
        let due = self.waiting.first_entry().filter(|first| first.key().0 <= Instant::now());
        due.map(|first| first.remove())
    }
}

impl<L: Log> Shard<L> {
    /// Removes the messages whose bodies were read for receivers that delete what they receive.
    pub(crate) fn remove_read(&mut self) -> Result<(), Failure> {
        let read = self.outgoing.take_read();
        if read.is_empty() {
            return Ok(());
        }
        let now = self.read_clock();
        let mut removed = Vec::new();
        for read in read {
            match read {
                Read::Delivery(delivery, body) => {
                    if self.remove(now, &delivery) {
                        removed.push((delivery, body));
                    }
                }
                Read::Answer { peer, answer, removed } => {
                    for (entity, sub_queue, token) in removed {
                        let out = &mut self.output;
                        let settlement = Settlement::Complete;
                        let _ = self.state.engine.settle(now, entity, sub_queue, token, settlement, out);
                    }
                    self.held.push(Effect::Answer { peer, answer });
                }
            }
            self.collect_many();
        }
        self.collect();
        let mut removed = removed.into_iter().peekable();
        while let Some(first) = removed.next() {
            let receiver = first.0.receiver;
            let mut run = vec![first];
            while let Some(next) = removed.next_if(|(delivery, _)| delivery.receiver == receiver) {
                run.push(next);
            }
            self.held.push(Effect::Removed(run));
        }
        self.deliver_and_append(now)
    }

    /// Removes the message of a delivery, or returns it if its receiver has left. Returns whether it was removed.
    fn remove(&mut self, now: Timestamp, delivery: &Delivery) -> bool {
        let Delivery { entity, sub_queue, receiver, token, ref message, .. } = *delivery;
        let is_attached = self.receivers.is_attached(receiver);
        let settlement = if is_attached { Settlement::Complete } else { Settlement::Release };
        let settled =
            self.state.engine.settle(now, entity, sub_queue, token, settlement, &mut self.output).is_ok();
        if is_attached && settled {
            self.state.engine.end_removal(receiver);
            return true;
        }
        // The session of the message was lost, or its queue deleted.
        self.end_failed(receiver, message.size_bytes, true);
        false
    }

    /// Ends a delivery that does not reach its receiver, which gets its credit and its window back.
    pub(crate) fn end_failed(&mut self, receiver: ReceiverId, size_bytes: u32, removes_later: bool) {
        if removes_later {
            self.state.engine.end_removal(receiver);
        }
        if self.receivers.uncount_delivery(receiver) {
            let credit = self.state.engine.credit(receiver);
            self.state.engine.set_credit(receiver, credit.saturating_add(1));
            self.state.engine.add_window(receiver, size_bytes.into());
        }
    }

    /// Lets the messages wait whose bodies cannot be read now. In a session, no other message may overtake them: the hold
    /// ends, and the next one starts with them.
    pub(crate) fn return_unread(&mut self) -> Result<(), Failure> {
        let unread = self.outgoing.take_unread();
        if unread.is_empty() {
            return Ok(());
        }
        let now = self.read_clock();
        for Unread { entity, sub_queue, token, message, receiver, removes_later } in unread {
            if let Some(receiver) = receiver {
                if self.state.engine.let_go(now, receiver, &mut self.output) {
                    self.collect();
                    continue;
                }
                self.outgoing.resume(receiver);
                self.end_failed(receiver, message.size_bytes, removes_later);
                if message.locked_until.is_none() && !removes_later {
                    // Its body was in memory when it was removed, and has left the memory since.
                    tracing::error!(
                        shard = self.id.0,
                        "message {} was deleted as received, but is lost: its body cannot be read",
                        token.sequence_number()
                    );
                    continue;
                }
            }
            let left = message.locked_until.map_or(PAUSE_MAX * 2, |until| until.since(now));
            self.unread.add(UnreadLock { entity, sub_queue, token }, left);
        }
        self.deliver_and_append(now)
    }

    /// Returns messages whose pause is over.
    pub(crate) fn release_unread(&mut self, now: Timestamp) {
        while let Some(UnreadLock { entity, sub_queue, token }) = self.unread.next_due() {
            let settlement = Settlement::Release;
            // If the lock has ended meanwhile, the message is already back in the queue.
            let _ = self.state.engine.settle(now, entity, sub_queue, token, settlement, &mut self.output);
        }
    }
}
