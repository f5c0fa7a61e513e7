//! Checks that links stay alive: while a message waits, each receiver with credit gets messages.

use std::collections::BTreeMap;

use super::Violation;
use super::history::{History, Message};
use crate::log::{Answer, Event, Part, QueueIndex};

/// The longest time in which a receiver may get nothing although a message waits. A client may keep its receiver open for
/// half of it without looking at its messages, and the retries of failed reads take a few seconds.
const SILENCE_MS_MAX: i64 = 60_000;

/// Checks receivers of queues that deliver at once. The disk must work, apart from its reads: while it is full or slow,
/// nothing is delivered.
pub(super) fn every_link_gets_its_turn(history: &History<'_>) -> Vec<Violation> {
    let machine = &history.scenario.machine;
    if machine.disk_stall_ms_max > 0 || machine.disk_fills || machine.disk_errors {
        return Vec::new();
    }
    let rest_ms = history.entries.iter().find(|entry| entry.event == Event::Resting);
    let rest_ms = rest_ms.map_or(i64::MAX, |entry| i64::try_from(entry.at_ms).unwrap_or(i64::MAX));
    let waits = waits(history);
    let mut seen: BTreeMap<u32, Vec<i64>> = BTreeMap::new();
    for delivery in history.messages.values().flat_map(|message| &message.deliveries) {
        seen.entry(delivery.seen.link.unwrap_or_default()).or_default().push(delivery.at_ms);
    }
    let mut violations = Vec::new();
    for (number, link) in history.links.iter().filter(|(_, link)| link.part == Part::Main) {
        let (opened_ms, ended_ms) = History::attached(link);
        let mut times = seen.remove(number).unwrap_or_default();
        times.extend([opened_ms, ended_ms.min(rest_ms)]);
        times.sort_unstable();
        let Some(waits) = waits.get(&link.queue) else { continue };
        let silent = times.windows(2).filter_map(|pair| match pair {
            [from_ms, upto_ms] if upto_ms - from_ms > SILENCE_MS_MAX => Some((*from_ms, *upto_ms)),
            _ => None,
        });
        for (from_ms, upto_ms) in silent {
            let mut waited = waits.iter().filter(|(since, until, _)| *since <= from_ms && *until >= upto_ms);
            // Some of them may have been locked for receivers that never saw them.
            let unseen_max = unseen_max(history, link.queue, from_ms, upto_ms);
            if let Some((_, _, message)) = waited.nth(unseen_max) {
                let what = format!("link {number} got nothing from {from_ms} to {upto_ms}, and it waited");
                violations.push(Violation::new("every link gets its turn", *message, what));
            }
        }
    }
    violations
}

/// Returns the number of messages that may have been locked for receivers that were attached at a time or shortly before.
fn unseen_max(history: &History<'_>, queue: QueueIndex, from_ms: i64, upto_ms: i64) -> usize {
    let scenario = history.scenario;
    let consumers = scenario.consumers.iter().filter(|consumer| consumer.queue == queue);
    let deleters = scenario.deleters.iter().filter(|(of, _)| *of == queue);
    let credits = consumers.map(|consumer| consumer.credit).chain(deleters.map(|(_, credit)| *credit));
    let credit_max = credits.max().unwrap_or(1);
    let lock_ms = history.lock_ms(queue);
    let was_there = |link: &&super::history::Link| {
        let (opened_ms, ended_ms) = History::attached(link);
        link.queue == queue && opened_ms <= upto_ms && ended_ms.saturating_add(lock_ms) >= from_ms
    };
    history.links.values().filter(was_there).count() * credit_max as usize
}

/// Returns the times from and until which messages certainly waited for their first delivery, by queue.
fn waits(history: &History<'_>) -> BTreeMap<QueueIndex, Vec<(i64, i64, u32)>> {
    let mut waits: BTreeMap<QueueIndex, Vec<(i64, i64, u32)>> = BTreeMap::new();
    for (number, message) in &history.messages {
        if let Some(since_ms) = waits_since(history, message) {
            let until_ms = message.deliveries.iter().map(|delivery| delivery.locked_at_ms).min();
            let Some(until_ms) = until_ms.or_else(|| (!history.may_vanish(message)).then_some(i64::MAX))
            else {
                continue;
            };
            waits.entry(message.queue).or_default().push((since_ms, until_ms, *number));
        }
    }
    waits
}

/// Returns the time from which the message is available; `None` if it is not available at once, or not to every receiver.
fn waits_since(history: &History<'_>, message: &Message) -> Option<i64> {
    let [send] = message.sends.as_slice() else { return None };
    let send = history.sends.get(*send).filter(|send| send.answer == Answer::Done)?;
    let settings = history.scenario.queues.get(message.queue).map(|queue| &queue.settings)?;
    let is_plain = message.topic.is_none()
        && !history.has_sessions(message.queue)
        && send.terms.due_ms.is_none()
        && send.terms.transaction.is_none()
        && history.time_to_live_ms(message).is_none()
        && history.scenario.reorders_every_ms.is_none()
        && settings.order.is_none()
        && settings.forward_to.is_none();
    send.answered_ms.filter(|_| is_plain)
}

#[cfg(test)]
mod tests {
    use super::super::forge::{Forge, promises};
    use super::*;
    use crate::log::Seen;

    /// Returns whether a link is found silent that gets a message after each of these times, and has one waiting.
    fn is_found(forge: &mut Forge, spans_ms: &[u64]) -> bool {
        forge.attached(7);
        for (number, span_ms) in (2..).zip(spans_ms) {
            forge.pass(*span_ms);
            forge.sent(number);
            forge.received_as(Seen { link: Some(7), ..forge.seen(number, 1) });
        }
        forge.broken(7);
        !promises(every_link_gets_its_turn, forge).is_empty()
    }

    #[test]
    fn a_link_that_gets_nothing_while_a_message_waits_is_found() {
        for (spans_ms, found) in [(&[59_000, 59_000][..], false), (&[1_000, 61_000], true)] {
            let mut forge = Forge::new();
            // More than the credit of any receiver.
            (1000..1200).for_each(|number| forge.sent(number));
            assert_eq!(is_found(&mut forge, spans_ms), found, "{spans_ms:?}");
        }
    }

    #[test]
    fn a_link_without_waiting_messages_may_be_silent() {
        assert!(!is_found(&mut Forge::new(), &[1_000, 100_000]));
    }
}
