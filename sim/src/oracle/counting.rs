//! Checks that delivery counts rise with each failed delivery and each deferral, and that a message is dead-lettered at
//! their limit.

use peeklock_client::Outcome;
use peeklock_types::PoisonSession;

use super::Violation;
use super::history::{Delivery, History, is_abandon};
use crate::log::Part;

const TOO_MANY_DELIVERIES: &str = "MaxDeliveryCountExceeded";
pub(super) const EXPIRED: &str = "TTLExpiredException";

pub(super) fn delivery_counts_never_fall(history: &History<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (number, message) in &history.messages {
        for (earlier, later) in message.deliveries.iter().zip(message.deliveries.iter().skip(1)) {
            if (earlier.seen.queue, earlier.seen.part) != (later.seen.queue, later.seen.part) {
                continue;
            }
            // Deliveries of dead letters do not count.
            let counts = earlier.seen.part == Part::Main && has_failed(earlier);
            let least = earlier.seen.delivery_count + u32::from(counts);
            if later.seen.delivery_count < least {
                let what = format!(
                    "its delivery count went from {} to {}, and should be at least {least}",
                    earlier.seen.delivery_count, later.seen.delivery_count
                );
                violations.push(Violation::new("delivery counts never fall", *number, what));
            }
        }
    }
    violations
}

/// Returns whether the delivery counts as failed, whatever the outcome of settlements without an answer.
fn has_failed(delivery: &Delivery) -> bool {
    let has_given_up = delivery.has_done(is_abandon) || delivery.has_done(is_deferral);
    has_given_up || !delivery.attempts.iter().any(|attempt| attempt.may_count())
}

fn is_deferral(outcome: &Outcome) -> bool {
    *outcome == Outcome::Defer
}

pub(super) fn dead_lettered_exactly_at_the_limit(history: &History<'_>) -> Vec<Violation> {
    const PROMISE: &str = "dead-lettered exactly at the limit";
    let mut violations = Vec::new();
    for (number, message) in &history.messages {
        let has_life = history.time_to_live_ms(message).is_some();
        let by_choice = message
            .deliveries
            .iter()
            .any(|d| d.may_have_done(|outcome| matches!(outcome, Outcome::DeadLetter { .. })));
        let is_deferred = message.deliveries.iter().any(|d| d.may_have_done(is_deferral));
        for delivery in &message.deliveries {
            let Some(queue) = history.scenario.queues.get(delivery.seen.queue) else { continue };
            let limit = queue.settings.max_delivery_count;
            // A session may keep a message that fails repeatedly.
            let has_limit =
                queue.session_count == 0 || queue.settings.poison_session == PoisonSession::DeadLetter;
            let (count, reason) = (delivery.seen.delivery_count, delivery.seen.dead_letter_reason.as_deref());
            let wrong = match (delivery.seen.part, reason) {
                // A deferral counts, but keeps the message: from then on it is received by number only.
                (Part::Main, _) if delivery.seen.by_number && is_deferred => false,
                (Part::Main, _) => has_limit && count >= limit,
                (Part::DeadLetter, Some(TOO_MANY_DELIVERIES)) => count < limit,
                (Part::DeadLetter, Some(EXPIRED)) => !has_life,
                (Part::DeadLetter, _) => !by_choice && !history.scenario.fails_all(message.queue),
            };
            if wrong {
                let what =
                    format!("in {:?} with {count} of {limit} deliveries, {reason:?}", delivery.seen.part);
                violations.push(Violation::new(PROMISE, *number, what));
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::forge::{Forge, LIMIT, promises};
    use super::*;
    use crate::log::{Answer, Seen};

    #[test]
    fn a_delivery_count_that_falls_or_stays_is_found() {
        let mut forge = Forge::new();
        forge.sent(1);
        forge.received_as(Seen { delivery_count: 1, ..forge.seen(1, 1) });
        forge.later();
        forge.received_as(Seen { delivery_count: 1, ..forge.seen(1, 2) });
        assert_eq!(promises(delivery_counts_never_fall, &forge).len(), 1, "the first lock expired");
    }

    #[test]
    fn a_released_message_keeps_its_delivery_count() {
        let mut forge = Forge::new();
        forge.sent(1);
        let token = forge.received(1, 1);
        forge.settled(token, Outcome::Release, Answer::Done);
        forge.later();
        forge.received(1, 2);
        assert!(promises(delivery_counts_never_fall, &forge).is_empty());
    }

    #[test]
    fn a_delivery_beyond_the_maximum_is_found() {
        let mut forge = Forge::new();
        forge.sent(1);
        forge.received_as(Seen { delivery_count: LIMIT - 1, ..forge.seen(1, 1) });
        assert!(promises(dead_lettered_exactly_at_the_limit, &forge).is_empty());
        forge.later();
        forge.received_as(Seen { delivery_count: LIMIT, ..forge.seen(1, 2) });
        assert_eq!(promises(dead_lettered_exactly_at_the_limit, &forge).len(), 1);
    }

    #[test]
    fn a_dead_letter_that_is_early_or_has_no_reason_is_found() {
        let dead = |reason: Option<&str>, count| {
            let mut forge = Forge::new();
            forge.sent(1);
            let seen = forge.seen(1, 1);
            let dead_letter_reason = reason.map(str::to_owned);
            forge.received_as(Seen {
                part: Part::DeadLetter,
                dead_letter_reason,
                delivery_count: count,
                ..seen
            });
            promises(dead_lettered_exactly_at_the_limit, &forge).len()
        };
        assert_eq!(dead(Some(TOO_MANY_DELIVERIES), LIMIT), 0);
        assert_eq!(dead(Some(TOO_MANY_DELIVERIES), LIMIT - 1), 1);
        assert_eq!(dead(Some("Simulated"), 0), 1);
    }
}
