//! Reports on the order of a queue.

use peeklock_types::{ClassName, OrderPolicy, SequenceNumber, SubQueue, Timestamp};

use crate::delivery::queue_up;
use crate::engine::Engine;
use crate::error::Error;
use crate::message::{EntityId, MessageState, ReceiverId};
use crate::order::{Candidate, ExplainedMessage, Order, OrderView};
use crate::queue::{MessageRow, Queue};
use crate::watch::note_room;

impl Engine {
    /// Returns the state of the classes and tenants of a queue; `None` if it has no order.
    pub fn order_view(&self, now: Timestamp, entity: EntityId) -> Option<OrderView> {
        let messages = &self.queues.get(&entity)?.main.messages;
        Some(messages.order()?.view(now, &|number| messages.came(number)))
    }

    /// Samples how all classes meet their targets. The caller calls it approximately every ten seconds, for
    /// [`TargetView::windows`].
    ///
    /// [`TargetView::windows`]: crate::TargetView::windows
    pub fn sample_orders(&mut self, now: Timestamp) {
        self.queues.values_mut().for_each(|queue| queue.main.messages.sample_order(now));
    }

    /// Explains why a message waits, and which messages are ahead of it.
    pub fn explain_message(
        &self,
        now: Timestamp,
        entity: EntityId,
        number: SequenceNumber,
    ) -> Result<ExplainedMessage, Error> {
        let queue = self.queues.get(&entity).ok_or(Error::NoSuchEntity { entity })?;
        let entry = queue.main.messages.get(number).ok_or_else(|| Error::NoSuchMessage {
            path: queue.path(SubQueue::Main),
            sequence_number: number,
        })?;
        Ok(explain(now, queue, number, &entry))
    }

    /// Applies the current order of the queue to the receiver's limit of unsettled messages.
    pub(crate) fn follow_bound(&mut self, entity: EntityId, id: ReceiverId) {
        let (queue, receiver) = (self.queues.get_mut(&entity), self.receivers.by_id.get_mut(&id));
        let (Some(queue), Some(receiver)) = (queue, receiver) else { return };
        let had_room = receiver.has_room();
        receiver.set_bound(queue.settings.order.as_deref());
        if !had_room && receiver.has_room() {
            note_room(queue, id, receiver.address, &mut self.receivers.made_room);
        }
        queue_up(queue, id, receiver);
        self.agenda.note(queue);
    }
}

fn explain(now: Timestamp, queue: &Queue, number: SequenceNumber, entry: &MessageRow) -> ExplainedMessage {
    let messages = &queue.main.messages;
    let order = messages.order().zip(entry.lane);
    let mut explained = ExplainedMessage {
        sequence_number: number,
        class: order.and_then(|(order, lane)| order.class_of(lane)),
        tenant_class: order.and_then(|(order, lane)| order.tenant_class_of(lane)),
        tenant: order.and_then(|(order, lane)| order.tenant_of(lane)).map(|tenant| tenant.to_string()),
        state: "waiting",
        why: String::new(),
        ahead: Vec::new(),
    };
    let due = messages.details_of(number).and_then(|details| details.due);
    let wait = |until: Option<Timestamp>| seconds(until.map_or(0, |until| millis(until.since(now))));
    (explained.state, explained.why) = match entry.state {
        _ if entry.lock.is_some() => {
            let until = messages.view(number, entry).locked_until;
            (
                "locked",
                format!(
                    "A receiver has it, and its lock lasts another {} if it is not renewed.",
                    wait(until)
                ),
            )
        }
        MessageState::Scheduled => ("scheduled", format!("It is due in {}.", wait(due))),
        MessageState::Delayed => {
            let count = messages.delivery_count(number, entry);
            ("delayed", format!("It failed {count} times and is tried again in {}.", wait(due)))
        }
        MessageState::Deferred => {
            ("deferred", "A receiver has deferred it: only its sequence number gets it.".to_owned())
        }
        MessageState::Active if entry.session.is_some() => ("in-session", in_session(queue, number, entry)),
        MessageState::Active => {
            explained.ahead = ahead(queue, number, entry);
            waiting(now, queue, entry, &explained.ahead)
        }
    };
    explained
}

fn in_session(queue: &Queue, number: SequenceNumber, entry: &MessageRow) -> String {
    let sessions = queue.main.messages.sessions();
    let Some(session) = entry.session.and_then(|slot| sessions.get(slot)) else { return String::new() };
    let before = session.numbers_from(0).take_while(|other| *other < number.0).count();
    let held = match session.holder() {
        Some(holder) if holder.receiver.is_some() => "a receiver holds the session",
        Some(_) => "the session is being freed",
        None => "no receiver holds the session",
    };
    format!("It belongs to the session '{}', behind {before} others of it; {held}.", session.id)
}

/// The limit for counting the messages ahead in a queue without an order, so that a count does not delay the other
/// queues of the shard.
const COUNT_MAX: usize = 1_000_000;

/// Counts the messages of each class that are ahead of this message.
fn ahead(queue: &Queue, number: SequenceNumber, entry: &MessageRow) -> Vec<(ClassName, u64)> {
    let messages = &queue.main.messages;
    let Some((order, lane)) = messages.order().zip(entry.lane) else {
        let before = messages.iter_from(SequenceNumber(0)).take_while(|(other, _)| *other < number);
        let count = before.filter(|(_, entry)| entry.is_waiting()).take(COUNT_MAX).count() as u64;
        return if count > 0 { vec![(ClassName::only(), count)] } else { Vec::new() };
    };
    let candidate = Candidate { number: number.0, lane, came: entry.enqueued_at() };
    let ahead = order.ahead(candidate, &|number| messages.came(number));
    ahead.into_iter().filter_map(|(class, count)| Some((order.class_name(class)?, count))).collect()
}

fn waiting(
    now: Timestamp,
    queue: &Queue,
    entry: &MessageRow,
    ahead: &[(ClassName, u64)],
) -> (&'static str, String) {
    let messages = &queue.main.messages;
    let order = messages.order().zip(entry.lane);
    let mut state = "waiting";
    let mut why = format!("It has waited {}. ", seconds(millis(now.since(entry.enqueued_at()))));
    if let Some((order, lane)) = order
        && let Some(until) = order.start_at(now, lane)
    {
        state = "limited";
        why += &format!(
            "Its class, its tenant or the queue is over its rate for another {}. ",
            seconds(millis(until.since(now)))
        );
    }
    let counts: Vec<_> =
        ahead.iter().map(|(class, count)| format!("{count} of the class '{class}'")).collect();
    why += &match (order, counts.is_empty()) {
        (_, true) => "It is next. ".to_owned(),
        (None, false) => {
            format!("{} messages came before it. ", ahead.iter().map(|(_, count)| count).sum::<u64>())
        }
        (Some((order, _)), false) => format!("Before it there are {}: {}. ", counts.join(", "), rule(order)),
    };
    why += &receivers(queue);
    (state, why.trim_end().to_owned())
}

fn rule(order: &Order) -> &'static str {
    match (order.policy(), order.charges()) {
        (OrderPolicy::Fifo, false) => "they came before it (policy fifo)",
        (OrderPolicy::Strict, false) => "their class is more urgent, or they came before it (policy strict)",
        (OrderPolicy::Aged, false) => {
            "they have waited longer, counted with the offset of their class (policy aged)"
        }
        (OrderPolicy::Weighted, false) => {
            "they came before it; classes take turns by weight (policy weighted)"
        }
        (_, true) => {
            "their class and when they came say so, but tenants of a class take turns by the time that workers spend on them"
        }
    }
}

fn receivers(queue: &Queue) -> String {
    if !queue.settings.status.can_receive() {
        return "The queue is disabled for receiving.".to_owned();
    }
    match (queue.receiver_count, queue.main.asking.is_empty()) {
        (0, _) => "No receiver is attached.".to_owned(),
        (count, true) => {
            format!("{count} receivers are attached, and all have as much as they ask for or may hold.")
        }
        (count, false) => format!("{count} receivers are attached."),
    }
}

fn millis(span: std::time::Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn seconds(millis: u64) -> String {
    format!("{}.{} s", millis / 1000, millis / 100 % 10)
}
