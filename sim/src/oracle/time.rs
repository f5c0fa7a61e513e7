//! Checks that a message is not delivered before its due time, after its expiry, or before the end of its delay. The
//! checks run only where the broker's clock never steps.

use peeklock_types::RetryPolicy;

use super::Violation;
use super::counting::EXPIRED;
use super::history::{Attempt, Delivery, History, Message, TOLERANCE_MS, is_abandon};
use crate::log::{Answer, Part};

/// Returns the latest time of the lock, or the earliest one in a session.
fn at_latest(history: &History<'_>, delivery: &Delivery) -> i64 {
    if history.has_sessions(delivery.seen.queue) { delivery.at_ms } else { delivery.locked_at_ms }
}

pub(super) fn nothing_is_delivered_before_it_is_due(history: &History<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (number, message) in history.messages.iter().filter(|_| history.is_steady()) {
        let Some(due_ms) = message.terms.due_ms.and_then(|due| i64::try_from(due).ok()) else { continue };
        if let Some(early) = message.deliveries.iter().find(|d| at_latest(history, d) < due_ms - TOLERANCE_MS)
        {
            let what = format!("{} got it before {due_ms}", early.party);
            violations.push(Violation::new("nothing is delivered before it is due", *number, what));
        }
    }
    violations
}

pub(super) fn nothing_is_delivered_after_its_time(history: &History<'_>) -> Vec<Violation> {
    const PROMISE: &str = "nothing is delivered after its time";
    let mut violations = Vec::new();
    for (number, message) in history.messages.iter().filter(|_| history.is_steady()) {
        let Some(life_ms) = history.time_to_live_ms(message) else { continue };
        let Some((from_ms, upto_ms)) = life(history, message, life_ms) else { continue };
        for delivery in message.deliveries.iter().filter(|d| d.seen.queue == message.queue) {
            let is_dead = delivery.seen.part == Part::DeadLetter;
            let has_lock = !delivery.is_deleted() && !delivery.seen.by_number;
            if !is_dead && has_lock && delivery.locked_at_ms > upto_ms + TOLERANCE_MS {
                let what = format!("{} got it, and it lived until {upto_ms}", delivery.party);
                violations.push(Violation::new(PROMISE, *number, what));
            }
            let says_expired = delivery.seen.dead_letter_reason.as_deref() == Some(EXPIRED);
            if is_dead && says_expired && delivery.at_ms < from_ms - TOLERANCE_MS {
                let what =
                    format!("it was taken for expired at {}, and lives until {from_ms}", delivery.at_ms);
                violations.push(Violation::new(PROMISE, *number, what));
            }
        }
    }
    violations
}

/// Returns the earliest and the latest expiry of a message, if they are known: for a plain send with an answer, to a
/// queue that keeps the message.
fn life(history: &History<'_>, message: &Message, life_ms: i64) -> Option<(i64, i64)> {
    let [send] = message.sends.as_slice() else { return None };
    let send = history.sends.get(*send)?;
    let is_plain = send.terms.due_ms.is_none() && send.terms.transaction.is_none();
    let known = is_plain && send.answer == Answer::Done && history.scenario.places(message.queue).len() == 1;
    known.then_some((send.at_ms + life_ms, send.answered_ms?.saturating_add(life_ms)))
}

pub(super) fn delays_are_kept(history: &History<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (number, message) in history.messages.iter().filter(|_| history.is_steady()) {
        for (earlier, later) in message.deliveries.iter().zip(message.deliveries.iter().skip(1)) {
            let is_again = (earlier.seen.queue, Part::Main, false, Part::Main)
                == (later.seen.queue, earlier.seen.part, later.seen.by_number, later.seen.part);
            let abandoned =
                earlier.attempts.iter().find(|attempt| attempt.is_done() && is_abandon(&attempt.outcome));
            let Some(abandoned) = abandoned.filter(|_| is_again) else { continue };
            let not_before = abandoned.at_ms + delay_ms(history, earlier, abandoned);
            if at_latest(history, later) < not_before - TOLERANCE_MS {
                let what = format!("{} got it before {not_before}", later.party);
                violations.push(Violation::new("delays are kept", *number, what));
            }
        }
    }
    violations
}

/// Returns the shortest delay of an abandoned message.
fn delay_ms(history: &History<'_>, delivery: &Delivery, abandoned: &Attempt) -> i64 {
    let own = match &abandoned.outcome {
        peeklock_client::Outcome::AbandonWith { delay, .. } => *delay,
        _ => None,
    };
    let failed_count = delivery.seen.delivery_count + 1;
    let policy = history.scenario.queues.get(delivery.seen.queue).map(|queue| queue.settings.retry);
    let delay = own.unwrap_or_else(|| match policy.unwrap_or_default() {
        RetryPolicy::Immediate | RetryPolicy::Exponential { jitter: true, .. } => std::time::Duration::ZERO,
        RetryPolicy::Fixed { delay } => delay,
        RetryPolicy::Linear { step, cap } => step.saturating_mul(failed_count).min(cap),
        RetryPolicy::Exponential { base, cap, jitter: false } => {
            base.saturating_mul(2_u32.saturating_pow(failed_count - 1)).min(cap)
        }
    });
    i64::try_from(delay.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use peeklock_client::{Fields, Outcome};

    use super::super::forge::{Forge, promises};
    use super::*;
    use crate::log::{Seen, Terms};

    #[test]
    fn an_early_scheduled_message_is_found() {
        let mut forge = Forge::new();
        forge.sent_on(1, Terms { due_ms: Some(500), ..Terms::default() });
        forge.pass(500);
        forge.received(1, 1);
        assert!(promises(nothing_is_delivered_before_it_is_due, &forge).is_empty());
        forge.sent_on(2, Terms { due_ms: Some(600), ..Terms::default() });
        forge.received(2, 2);
        assert_eq!(promises(nothing_is_delivered_before_it_is_due, &forge).len(), 1);
    }

    #[test]
    fn expired_and_unexpired_messages_are_judged() {
        let terms = Terms { time_to_live_ms: Some(500), ..Terms::default() };
        let mut forge = Forge::new();
        forge.sent_on(1, terms);
        forge.pass(490);
        forge.received(1, 1);
        assert!(promises(nothing_is_delivered_after_its_time, &forge).is_empty());
        forge.pass(20);
        forge.received(1, 2);
        assert_eq!(promises(nothing_is_delivered_after_its_time, &forge).len(), 1);
        let mut forge = Forge::new();
        forge.sent_on(1, terms);
        let dead =
            Seen { part: Part::DeadLetter, dead_letter_reason: Some(EXPIRED.to_owned()), ..forge.seen(1, 1) };
        forge.received_as(dead);
        assert_eq!(promises(nothing_is_delivered_after_its_time, &forge).len(), 1, "it had not expired yet");
    }

    #[test]
    fn a_message_that_returns_before_its_delay_is_found() {
        let mut forge = Forge::new();
        forge.sent(1);
        let token = forge.received(1, 1);
        let delay = Some(Duration::from_secs(1));
        forge.settled(token, Outcome::AbandonWith { properties: Fields::default(), delay }, Answer::Done);
        forge.pass(1000);
        let token = forge.received(1, 2);
        assert!(promises(delays_are_kept, &forge).is_empty());
        forge.settled(token, Outcome::AbandonWith { properties: Fields::default(), delay }, Answer::Done);
        forge.pass(900);
        forge.received(1, 3);
        assert_eq!(promises(delays_are_kept, &forge).len(), 1);
    }
}
