//! The deliveries of a queue by time, and the messages that certainly waited meanwhile.
//!
//! The time of a pick is that of its lock, which the broker reports in milliseconds. A message certainly waits from the
//! answer to its sender until its first delivery, by its delivery count. In between it may have been locked for a
//! receiver that never saw it: such a lock lasts until it expires and then counts, or ends with the receiver. Therefore
//! nothing is judged at times at which a receiver may have missed a delivery.

use std::collections::BTreeSet;

use super::history::{Delivery, History, Message, TOLERANCE_MS};
use crate::log::{Answer, MessageNumber, Part, QueueIndex};

/// A delivery with a lock of its own.
#[derive(Clone, Debug)]
pub(super) struct Pick {
    pub(super) number: MessageNumber,
    pub(super) at_ms: i64,
    pub(super) place: u64,
    pub(super) enqueued_ms: i64,
    /// The class; `None` if unknown.
    pub(super) class: Option<String>,
    pub(super) tenant: Option<u32>,
    /// Whether the queue determined the tenant when the message was enqueued, and has used the same rule since.
    pub(super) has_tenant: bool,
    /// Whether the order has not changed since the message was sent. A message from before the change may be in another
    /// lane than its tenant's.
    pub(super) is_steady: bool,
    /// Whether the message was never delivered before, by its delivery count.
    pub(super) is_first: bool,
    pub(super) run: u32,
}

/// A message that waited in its queue.
#[derive(Clone, Debug)]
pub(super) struct Wait {
    pub(super) pick: Pick,
    /// The time since which it certainly waited; `None` if it was enqueued at an unknown time, before all messages with
    /// higher numbers.
    pub(super) since_ms: Option<i64>,
}

/// A queue whose messages have locks of their own.
pub(super) struct Stage {
    pub(super) queue: QueueIndex,
    /// The deliveries, by time.
    pub(super) picks: Vec<Pick>,
    pub(super) waits: Vec<Wait>,
    pub(super) dim: BTreeSet<(i64, i64)>,
}

pub(super) fn stages(history: &History<'_>) -> Vec<Stage> {
    let queues = 0..history.scenario.queues.len();
    // A processor of the SDK may hand messages back that it has not shown to its handler.
    let is_seen = |queue: &usize| !history.has_sessions(*queue) && !history.scenario.is_of_programs(*queue);
    queues.filter(is_seen).map(|queue| Stage::new(history, queue)).collect()
}

impl Stage {
    fn new(history: &History<'_>, queue: QueueIndex) -> Self {
        let mut stage = Stage { queue, picks: Vec::new(), waits: Vec::new(), dim: history.dim_times(queue) };
        for (number, message) in &history.messages {
            stage.add(history, *number, message);
        }
        stage.picks.sort_by_key(|pick| (pick.at_ms, pick.place));
        stage
    }

    fn add(&mut self, history: &History<'_>, number: MessageNumber, message: &Message) {
        let here = |delivery: &&Delivery| delivery.seen.queue == self.queue;
        let mut is_first = true;
        for delivery in message.deliveries.iter().filter(here) {
            let is_locked =
                !delivery.is_deleted() && !delivery.seen.by_number && delivery.seen.part == Part::Main;
            if is_locked {
                let pick =
                    pick(history, number, message, delivery, is_first && delivery.seen.delivery_count == 0);
                if pick.is_first {
                    let since_ms = self.confirmed_ms(history, message);
                    self.waits.push(Wait { pick: pick.clone(), since_ms });
                }
                self.picks.push(pick);
            }
            is_first = false;
        }
    }

    /// Returns when the sender got the confirmation for this queue.
    fn confirmed_ms(&self, history: &History<'_>, message: &Message) -> Option<i64> {
        let sends = message.sends.iter().filter_map(|send| history.sends.get(*send));
        let plain = sends.filter(|send| {
            send.queue == self.queue && send.terms.due_ms.is_none() && send.terms.transaction.is_none()
        });
        plain.filter(|send| send.answer == Answer::Done).filter_map(|send| send.answered_ms).min()
    }

    /// Returns whether no receiver may have missed a lock at that time.
    pub(super) fn is_clear(&self, at_ms: i64) -> bool {
        !self
            .dim
            .iter()
            .any(|(from, upto)| (from - TOLERANCE_MS..=upto.saturating_add(TOLERANCE_MS)).contains(&at_ms))
    }
}

impl Wait {
    /// Returns whether the message certainly waited at that time.
    pub(super) fn is_at(&self, at_ms: i64) -> bool {
        let is_there = self.since_ms.is_some_and(|since| since + TOLERANCE_MS < at_ms);
        is_there && at_ms < self.pick.at_ms - TOLERANCE_MS
    }
}

fn pick(
    history: &History<'_>,
    number: MessageNumber,
    message: &Message,
    delivery: &Delivery,
    is_first: bool,
) -> Pick {
    let wish = history.wish(number);
    let sent_ms =
        message.sends.iter().filter_map(|send| history.sends.get(*send)).map(|send| send.at_ms).min();
    let at_ms = delivery.locked_at_ms;
    let classes = history.classes(delivery.seen.queue, wish, sent_ms.unwrap_or(i64::MIN), at_ms);
    let has_tenant = history.asks_for_tenants(delivery.seen.queue, sent_ms.unwrap_or(i64::MIN), at_ms);
    let is_steady = history.order(delivery.seen.queue, sent_ms.unwrap_or(i64::MIN), at_ms).is_some();
    let only = classes.filter(|classes| classes.len() == 1).and_then(|classes| classes.into_iter().next());
    Pick {
        number,
        at_ms,
        place: delivery.seen.sequence_number,
        enqueued_ms: i64::try_from(delivery.seen.enqueued_ms).unwrap_or(i64::MAX),
        class: only,
        tenant: wish.tenant,
        has_tenant,
        is_steady,
        is_first,
        run: delivery.seen.run,
    }
}
