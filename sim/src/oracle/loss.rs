//! Checks that confirmed messages are delivered until they are completed, and that completed messages never return.

use std::collections::BTreeMap;

use peeklock_client::Outcome;

use super::Violation;
use super::history::{Delivery, History, Message, is_complete};
use crate::log::{Answer, Part};

pub(super) fn nothing_confirmed_is_lost(history: &History<'_>) -> Vec<Violation> {
    const PROMISE: &str = "nothing confirmed is lost";
    let mut missing: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
    for (number, message) in &history.messages {
        let mut sends = message.sends.iter().filter_map(|send| history.sends.get(*send));
        if sends.any(|send| history.is_stored(send))
            && !is_accounted_for(message)
            && !history.may_be_gone(message)
        {
            missing.entry(message.queue).or_default().push(*number);
        }
    }
    let mut violations = Vec::new();
    for (queue, numbers) in missing {
        // A receiver in mode receive-and-delete that leaves loses the messages in flight, but no more than its credit.
        let unseen = |queue: &usize| history.unseen_max.get(queue).copied().unwrap_or(0);
        let excused = history.scenario.places(queue).iter().map(unseen).fold(0, u64::saturating_add);
        if numbers.len() as u64 > excused {
            let what = format!(
                "in queue {queue} {} messages are missing, and {excused} could be excused: {numbers:?}",
                numbers.len()
            );
            violations.push(Violation::new(PROMISE, numbers.first().copied(), what));
        }
    }
    violations
}

/// Returns whether the last holder may have completed it. A rejected completion does not count.
fn is_accounted_for(message: &Message) -> bool {
    message.deliveries.last().is_some_and(|last| last.is_deleted() || last.may_have_done(is_complete))
}

pub(super) fn nothing_completed_comes_back(history: &History<'_>) -> Vec<Violation> {
    const PROMISE: &str = "nothing settled for good comes back";
    let mut violations = Vec::new();
    for (number, message) in &history.messages {
        let mut gone: Option<&Delivery> = None;
        for delivery in &message.deliveries {
            if let Some(gone) = gone {
                let what = format!("{} settled it, and {} got it afterwards", gone.party, delivery.party);
                violations.push(Violation::new(PROMISE, *number, what));
            }
            if delivery.is_deleted() || delivery.has_done(is_complete) {
                gone = Some(delivery);
            }
        }
        if message.cancelled == Some(Answer::Done) && !message.deliveries.is_empty() {
            violations.push(Violation::new(
                PROMISE,
                *number,
                "it was taken back before it was due, and delivered",
            ));
        }
        violations.extend(returns(message).map(|what| Violation::new(PROMISE, *number, what)));
    }
    violations
}

/// Returns a violation if a deferred or dead-lettered message is delivered as an active one.
fn returns(message: &Message) -> Option<String> {
    let moved =
        |delivery: &Delivery| delivery.has_done(|outcome| matches!(outcome, Outcome::DeadLetter { .. }));
    let deferred = |delivery: &Delivery| delivery.has_done(|outcome| *outcome == Outcome::Defer);
    // Dead letters may be forwarded to another queue, where they are ordinary messages.
    let is_home = |delivery: &&Delivery| delivery.seen.queue == message.queue;
    let at_home = || message.deliveries.iter().filter(is_home);
    let main: Vec<_> = at_home().filter(|d| d.seen.part == Part::Main).collect();
    let first_dead = at_home().find(|d| d.seen.part == Part::DeadLetter);
    for (at, delivery) in main.iter().enumerate() {
        let mut later = main.iter().skip(at + 1);
        if moved(delivery) && later.clone().next().is_some() {
            return Some("it was dead-lettered, and delivered from the queue afterwards".to_owned());
        }
        if deferred(delivery) && later.any(|d| !d.seen.by_number) {
            return Some("it was deferred, and delivered on a link afterwards".to_owned());
        }
        if first_dead.is_some_and(|dead| dead.locked_at_ms < delivery.locked_at_ms) {
            return Some("it was a dead letter, and delivered from the queue afterwards".to_owned());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::forge::{Forge, promises};
    use super::super::identity::nothing_is_invented;
    use super::*;
    use crate::log::Seen;
    use crate::scenario::topic::Traits;

    #[test]
    fn a_confirmed_message_must_be_delivered() {
        let mut forge = Forge::new();
        forge.sent(1);
        forge.unknown(2);
        assert_eq!(
            promises(nothing_confirmed_is_lost, &forge).len(),
            1,
            "only the send with an unknown outcome may be lost"
        );
        let token = forge.received(1, 1);
        assert_eq!(promises(nothing_confirmed_is_lost, &forge).len(), 1, "it was not completed");
        forge.settled(token, Outcome::Complete, Answer::Unknown);
        assert!(promises(nothing_confirmed_is_lost, &forge).is_empty());
    }

    #[test]
    fn a_rejected_completion_accounts_for_nothing() {
        let mut forge = Forge::new();
        forge.sent(1);
        let token = forge.received(1, 1);
        forge.settled(token, Outcome::Complete, Answer::Refused { lock_lost: true, why: String::new() });
        assert_eq!(promises(nothing_confirmed_is_lost, &forge).len(), 1);
    }

    #[test]
    fn a_missing_part_of_a_batch_is_found() {
        let mut forge = Forge::new();
        forge.unknown_batch(&[1, 2]);
        assert!(promises(nothing_confirmed_is_lost, &forge).is_empty());
        let token = forge.received(1, 1);
        forge.settled(token, Outcome::Complete, Answer::Done);
        assert_eq!(promises(nothing_confirmed_is_lost, &forge).len(), 1, "the other half is missing");
    }

    #[test]
    fn a_lost_receiver_that_deletes_excuses_no_more_than_its_credit() {
        let mut forge = Forge::new();
        forge.sent(1);
        forge.deleting(1);
        assert!(promises(nothing_confirmed_is_lost, &forge).is_empty());
        forge.sent(2);
        assert_eq!(promises(nothing_confirmed_is_lost, &forge).len(), 1);
    }

    /// Returns the number of a message with a wanted level, far from others.
    fn number_with(is_wanted: impl Fn(u32) -> bool) -> u32 {
        (1..100).map(|n| n * 10).find(|n| is_wanted(Traits::of(*n).level)).unwrap()
    }

    #[test]
    fn every_copy_of_the_rules_and_no_other_must_be_delivered() {
        let mut forge = Forge::with_topic();
        let number = number_with(|level| level > 7);
        forge.published(number, Answer::Done);
        for (copy, queue) in [(number + 1, 1), (number + 2, 2)] {
            assert!(!promises(nothing_confirmed_is_lost, &forge).is_empty());
            forge.took(copy, queue);
        }
        assert_eq!(promises(nothing_confirmed_is_lost, &forge).len(), 1, "the marked copy is missing");
        forge.took(number + 3, 2);
        assert!(promises(nothing_confirmed_is_lost, &forge).is_empty());
        assert!(promises(nothing_is_invented, &forge).is_empty());
        let low = number_with(|level| level <= 4);
        forge.published(low, Answer::Done);
        forge.took(low + 1, 1);
        assert!(promises(nothing_confirmed_is_lost, &forge).is_empty());
        forge.took(low + 2, 2);
        assert_eq!(promises(nothing_is_invented, &forge).len(), 1, "no rule matches it");
    }

    #[test]
    fn one_copy_shows_that_all_exist() {
        let mut forge = Forge::with_topic();
        let number = number_with(|level| level == 6);
        forge.published(number, Answer::Unknown);
        assert!(promises(nothing_confirmed_is_lost, &forge).is_empty());
        forge.took(number + 1, 1);
        assert_eq!(
            promises(nothing_confirmed_is_lost, &forge).len(),
            1,
            "the copy of the other subscription"
        );
    }

    #[test]
    fn a_completed_message_that_returns_is_found() {
        let mut forge = Forge::new();
        forge.sent(1);
        let token = forge.received(1, 1);
        forge.settled(token, Outcome::Complete, Answer::Unknown);
        forge.later();
        let token = forge.received(1, 2);
        assert!(promises(nothing_completed_comes_back, &forge).is_empty());
        forge.settled(token, Outcome::Complete, Answer::Done);
        forge.later();
        forge.received(1, 3);
        assert_eq!(promises(nothing_completed_comes_back, &forge).len(), 1);
    }

    #[test]
    fn a_deferred_message_that_is_delivered_is_found() {
        let mut forge = Forge::new();
        forge.sent(1);
        let token = forge.received(1, 1);
        forge.settled(token, Outcome::Defer, Answer::Done);
        forge.later();
        forge.received_as(Seen { by_number: true, ..forge.seen(1, 2) });
        assert!(promises(nothing_completed_comes_back, &forge).is_empty());
        forge.later();
        forge.received(1, 3);
        assert_eq!(promises(nothing_completed_comes_back, &forge).len(), 1);
    }

    #[test]
    fn a_dead_letter_that_returns_is_found() {
        let mut forge = Forge::new();
        forge.sent(1);
        forge.received_as(Seen { part: Part::DeadLetter, ..forge.seen(1, 1) });
        forge.later();
        forge.received(1, 2);
        assert_eq!(promises(nothing_completed_comes_back, &forge).len(), 1);
    }
}
