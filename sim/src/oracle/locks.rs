//! Checks locks: one holder at a time, for the duration of the lock, and one settlement.

use super::Violation;
use super::history::{Delivery, History, TOLERANCE_MS};
use crate::log::{Answer, Part};

pub(super) fn one_holder_at_a_time(history: &History<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (number, message) in &history.messages {
        let deliveries = &message.deliveries;
        for (at, later) in deliveries.iter().enumerate().skip(1) {
            for earlier in deliveries.iter().take(at).filter(|earlier| is_same_place(earlier, later)) {
                if later.locked_at_ms < certain_end(history, earlier) - TOLERANCE_MS {
                    let what = format!("{} got it while {} held it", later.party, earlier.party);
                    violations.push(Violation::new("one holder at a time", *number, what));
                }
            }
        }
    }
    violations
}

/// Returns whether both deliveries are in the same queue, and not under one hold of a session, whose end is the end of
/// both.
fn is_same_place(one: &Delivery, other: &Delivery) -> bool {
    let is_one_hold = one.seen.hold.is_some() && one.seen.hold == other.seen.hold;
    (one.seen.queue, one.seen.part) == (other.seen.queue, other.seen.part) && !is_one_hold
}

/// Returns the time until which only the holder could have the message: its lock had not expired, and it had sent no
/// settlement.
pub(super) fn certain_end(history: &History<'_>, delivery: &Delivery) -> i64 {
    // A message that its delivery deletes has no holder. A program with the SDK does not show its holds of sessions, which end with their
    // connections.
    if delivery.is_deleted() || is_hidden(history, delivery) {
        return 0;
    }
    let spoke_at = delivery.attempts.iter().map(|attempt| attempt.at_ms).min();
    history.lock_end(delivery).min(spoke_at.unwrap_or(i64::MAX))
}

fn is_hidden(history: &History<'_>, delivery: &Delivery) -> bool {
    delivery.seen.session.is_some() && history.scenario.is_of_programs(delivery.seen.queue)
}

/// Checks that a holder is rejected only when its lock has expired, or when it may have settled before.
pub(super) fn a_lock_lasts_as_promised(history: &History<'_>) -> Vec<Violation> {
    const PROMISE: &str = "a lock lasts as promised";
    let mut violations = Vec::new();
    for (number, message) in &history.messages {
        for delivery in &message.deliveries {
            for (at, attempt) in delivery.attempts.iter().enumerate() {
                let is_lost = matches!(attempt.answer, Answer::Refused { lock_lost: true, .. });
                let spoke_else = delivery.attempts.iter().enumerate().any(|(n, a)| n != at && a.may_count());
                let end = history.lock_end(delivery);
                if is_lost && !spoke_else && attempt.answered_ms < end - TOLERANCE_MS {
                    let what = format!(
                        "{} was refused at {}, before the lock ended at {end}",
                        delivery.party, attempt.answered_ms
                    );
                    violations.push(Violation::new(PROMISE, *number, what));
                }
            }
            for renewal in &delivery.renewals {
                let is_lost = matches!(renewal.answer, Answer::Refused { lock_lost: true, .. });
                let end = history.lock_end(delivery);
                if is_lost && delivery.attempts.is_empty() && renewal.answered_ms < end - TOLERANCE_MS {
                    violations.push(Violation::new(
                        PROMISE,
                        *number,
                        "its lock could not be renewed in time",
                    ));
                }
            }
        }
    }
    violations
}

/// Checks that of all settlements of one lock, one succeeds, and only for its holder.
pub(super) fn a_lock_is_settled_once(history: &History<'_>) -> Vec<Violation> {
    const PROMISE: &str = "a lock is settled once, by its holder";
    let mut violations = Vec::new();
    for (number, message) in &history.messages {
        for (at, delivery) in message.deliveries.iter().enumerate() {
            let done: Vec<_> = delivery.attempts.iter().filter(|attempt| attempt.is_done()).collect();
            if done.len() > 1 {
                let what = format!("{} settled it {} times", delivery.party, done.len());
                violations.push(Violation::new(PROMISE, *number, what));
            }
            let Some(first) = done.first() else { continue };
            let later = message.deliveries.iter().skip(at + 1).filter(|d| is_same_place(d, delivery));
            let taken = later
                .filter(|d| d.seen.part == delivery.seen.part)
                .find(|d| d.locked_at_ms < first.at_ms - TOLERANCE_MS);
            if let Some(taken) = taken {
                let what = format!("{} settled it when {} had it already", delivery.party, taken.party);
                violations.push(Violation::new(PROMISE, *number, what));
            }
        }
    }
    violations
}

/// Checks that a lock was made in its own run, before it was seen, and for the queue's lock duration.
pub(super) fn lock_times_are_true(history: &History<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (number, message) in &history.messages {
        let is_own = |delivery: &&Delivery| {
            let in_session = history.has_sessions(delivery.seen.queue) && delivery.seen.part == Part::Main;
            !delivery.is_deleted() && !in_session
        };
        for delivery in message.deliveries.iter().filter(is_own) {
            let first = history.run_start(delivery.seen.run) - TOLERANCE_MS;
            let last = delivery.at_ms + TOLERANCE_MS;
            if !(first..=last).contains(&delivery.locked_at_ms) {
                let what = format!(
                    "{} saw it at {} with a lock that was made at {}",
                    delivery.party, delivery.at_ms, delivery.locked_at_ms
                );
                violations.push(Violation::new("lock times are true", *number, what));
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use peeklock_client::Outcome;

    use super::super::forge::{Forge, LOCK_MS, promises};
    use super::*;
    use crate::log::Seen;

    fn lost() -> Answer {
        Answer::Refused { lock_lost: true, why: String::new() }
    }

    #[test]
    fn two_holders_are_found() {
        let mut forge = Forge::new();
        forge.sent(1);
        forge.received(1, 1);
        forge.pass(LOCK_MS / 2);
        forge.received(1, 2);
        assert_eq!(promises(one_holder_at_a_time, &forge).len(), 1);
    }

    #[test]
    fn a_deleted_message_has_no_holder() {
        let mut forge = Forge::new();
        forge.sent(1);
        forge.received_as(Seen { token: None, ..forge.seen(1, 1) });
        forge.received(1, 2);
        assert!(promises(one_holder_at_a_time, &forge).is_empty(), "another checker reports its return");
    }

    #[test]
    fn a_second_holder_after_the_lock_or_the_settlement_of_the_first_is_correct() {
        let mut forge = Forge::new();
        forge.sent(1);
        let token = forge.received(1, 1);
        forge.pass(10);
        forge.settled(token, Outcome::Abandon, Answer::Unknown);
        forge.pass(10);
        forge.received(1, 2);
        forge.pass(LOCK_MS);
        forge.received(1, 3);
        assert!(promises(one_holder_at_a_time, &forge).is_empty());
    }

    #[test]
    fn a_renewed_lock_is_held_longer() {
        let mut forge = Forge::new();
        forge.sent(1);
        let token = forge.received(1, 1);
        forge.pass(LOCK_MS / 2);
        forge.renewed(token);
        forge.pass(LOCK_MS / 2 + 10);
        forge.received(1, 2);
        assert_eq!(promises(one_holder_at_a_time, &forge).len(), 1);
    }

    #[test]
    fn a_clock_that_was_set_forward_ends_a_lock_with_the_next_run() {
        let mut forge = Forge::new();
        forge.sent(1);
        forge.received(1, 1);
        forge.restarted(LOCK_MS);
        forge.received(1, 2);
        assert!(promises(one_holder_at_a_time, &forge).is_empty());
        let mut forge = Forge::new();
        forge.sent(1);
        forge.received(1, 1);
        forge.restarted(0);
        forge.received(1, 2);
        assert_eq!(promises(one_holder_at_a_time, &forge).len(), 1);
    }

    #[test]
    fn a_step_of_the_clock_ends_no_lock() {
        for (passed, found) in [(LOCK_MS - 10, 1), (LOCK_MS + 10, 0)] {
            let mut forge = Forge::new();
            forge.sent(1);
            forge.received(1, 1);
            forge.stepped(LOCK_MS * 5);
            forge.pass(passed);
            forge.received(1, 2);
            assert_eq!(promises(one_holder_at_a_time, &forge).len(), found, "after {passed} ms");
            assert!(promises(lock_times_are_true, &forge).is_empty());
        }
        // A lock after the step, and one that was renewed after it.
        let mut forge = Forge::new();
        forge.sent(1);
        forge.stepped(LOCK_MS * 5);
        let token = forge.received(1, 1);
        forge.pass(LOCK_MS / 2);
        forge.stepped(LOCK_MS * 5);
        forge.renewed(token);
        forge.pass(LOCK_MS - 10);
        forge.settled(token, Outcome::Complete, lost());
        assert_eq!(promises(a_lock_lasts_as_promised, &forge).len(), 1);
    }

    #[test]
    fn the_broker_does_not_follow_a_clock_that_is_set_back() {
        let mut forge = Forge::new();
        forge.sent(1);
        forge.stepped_back(LOCK_MS * 5);
        forge.received(1, 1);
        assert!(promises(lock_times_are_true, &forge).is_empty());
        forge.pass(LOCK_MS + 10);
        forge.received(1, 2);
        assert!(promises(one_holder_at_a_time, &forge).is_empty());
    }

    #[test]
    fn a_lock_may_end_early_in_the_run_after_a_step() {
        let mut forge = Forge::new();
        forge.sent(1);
        forge.received(1, 1);
        forge.stepped(LOCK_MS * 5);
        forge.restarted(0);
        forge.received(1, 2);
        assert!(promises(one_holder_at_a_time, &forge).is_empty());
    }

    #[test]
    fn a_clock_that_was_set_back_holds_no_lock_for_longer() {
        let mut forge = Forge::new();
        forge.sent(1);
        forge.received(1, 1);
        forge.set_back(LOCK_MS * 5);
        forge.pass(LOCK_MS + 10);
        forge.received(1, 2);
        assert!(promises(one_holder_at_a_time, &forge).is_empty());
    }

    #[test]
    fn a_holder_that_is_rejected_in_time_is_found() {
        let mut forge = Forge::new();
        forge.sent(1);
        let token = forge.received(1, 1);
        forge.pass(LOCK_MS / 2);
        forge.settled(token, Outcome::Complete, lost());
        assert_eq!(promises(a_lock_lasts_as_promised, &forge).len(), 1);
    }

    #[test]
    fn a_holder_that_is_rejected_late_or_after_an_unknown_end_is_correct() {
        let mut forge = Forge::new();
        forge.sent(1);
        let token = forge.received(1, 1);
        forge.settled(token, Outcome::Complete, Answer::Unknown);
        forge.settled(token, Outcome::Complete, lost());
        forge.later();
        let token = forge.received(1, 2);
        forge.later();
        forge.settled(token, Outcome::Complete, lost());
        assert!(promises(a_lock_lasts_as_promised, &forge).is_empty());
    }

    #[test]
    fn a_lock_that_is_settled_twice_is_found() {
        let mut forge = Forge::new();
        forge.sent(1);
        let token = forge.received(1, 1);
        forge.settled(token, Outcome::Abandon, Answer::Done);
        forge.settled(token, Outcome::Complete, Answer::Done);
        assert_eq!(promises(a_lock_is_settled_once, &forge).len(), 1);
    }

    #[test]
    fn a_settlement_after_the_lock_was_lost_is_found() {
        let mut forge = Forge::new();
        forge.sent(1);
        let token = forge.received(1, 1);
        forge.later();
        forge.received(1, 2);
        forge.pass(10);
        forge.settled(token, Outcome::Complete, Answer::Done);
        assert_eq!(promises(a_lock_is_settled_once, &forge).len(), 1);
    }

    #[test]
    fn a_lock_from_the_future_or_the_previous_run_is_found() {
        let mut forge = Forge::new();
        forge.sent(1);
        let seen = forge.seen(1, 1);
        forge.received_as(Seen { locked_until_ms: seen.locked_until_ms + 100, ..seen });
        assert_eq!(promises(lock_times_are_true, &forge).len(), 1);
        let mut forge = Forge::new();
        forge.sent(1);
        let seen = forge.seen(1, 1);
        forge.pass(100);
        forge.restarted(0);
        forge.received_as(Seen { run: 2, ..seen });
        assert_eq!(promises(lock_times_are_true, &forge).len(), 1);
    }
}
