//! Checks that received messages are the sent ones: none is invented, changed, stored twice or stored in part.

use std::collections::{BTreeMap, BTreeSet};

use super::Violation;
use super::history::History;
use crate::log::Answer;

pub(super) fn nothing_is_invented(history: &History<'_>) -> Vec<Violation> {
    const PROMISE: &str = "nothing is invented or changed";
    let mut violations = Vec::new();
    for stranger in &history.strangers {
        violations.push(Violation::new(PROMISE, None, format!("nobody sent {:?}", stranger.seen)));
    }
    for (number, message) in &history.messages {
        for delivery in &message.deliveries {
            if !delivery.seen.is_intact {
                violations.push(Violation::new(PROMISE, *number, "its body is not the one that was sent"));
            }
            if !history.scenario.places(message.queue).contains(&delivery.seen.queue) {
                violations.push(Violation::new(PROMISE, *number, "it came out of another queue"));
            }
        }
    }
    violations
}

pub(super) fn nothing_is_stored_twice(history: &History<'_>) -> Vec<Violation> {
    const PROMISE: &str = "nothing is stored twice";
    let mut violations = Vec::new();
    let mut owners = BTreeMap::new();
    for (number, message) in &history.messages {
        let places: BTreeSet<_> =
            message.deliveries.iter().map(|d| (d.seen.queue, d.seen.sequence_number)).collect();
        let queues: BTreeSet<_> = places.iter().map(|(queue, _)| *queue).collect();
        // A duplicate window ends early when the clock steps; then both copies are correct.
        if places.len() > queues.len() && (message.sends.len() < 2 || history.is_steady()) {
            violations.push(Violation::new(PROMISE, *number, format!("it has the places {places:?}")));
        }
        for place in places {
            if let Some(other) = owners.insert(place, *number) {
                let what = format!("it has the place {place:?}, as message {other} has");
                violations.push(Violation::new(PROMISE, *number, what));
            }
        }
    }
    violations
}

/// Checks that a rejected message is nowhere. The loss checker covers partially stored batches.
pub(super) fn all_or_nothing(history: &History<'_>) -> Vec<Violation> {
    let is_refused = |send: &usize| {
        history.sends.get(*send).is_some_and(|send| matches!(send.answer, Answer::Refused { .. }))
    };
    let refused = history.messages.iter().filter(|(_, message)| message.sends.iter().all(is_refused));
    let seen = refused.map(|(number, _)| number).filter(|number| history.was_seen(**number));
    seen.map(|number| Violation::new("what is refused is not stored", *number, "it was delivered")).collect()
}

#[cfg(test)]
mod tests {
    use super::super::forge::{Forge, promises};
    use super::*;
    use crate::log::Seen;

    #[test]
    fn an_invented_message_is_found() {
        let mut forge = Forge::new();
        forge.sent(1);
        forge.received_as(Seen { message: Some(9), ..forge.seen(1, 1) });
        assert_eq!(promises(nothing_is_invented, &forge), ["nothing is invented or changed"]);
    }

    #[test]
    fn a_changed_or_moved_message_is_found() {
        let mut forge = Forge::new();
        forge.sent(1);
        forge.received_as(Seen { is_intact: false, ..forge.seen(1, 1) });
        forge.received_as(Seen { queue: 1, ..forge.seen(1, 2) });
        assert_eq!(promises(nothing_is_invented, &forge).len(), 2);
    }

    #[test]
    fn two_numbers_for_one_message_and_one_number_for_two_are_found() {
        let mut forge = Forge::new();
        forge.sent(1);
        forge.sent(2);
        forge.received_as(Seen { sequence_number: 5, ..forge.seen(1, 1) });
        forge.received_as(Seen { sequence_number: 6, ..forge.seen(1, 2) });
        assert_eq!(promises(nothing_is_stored_twice, &forge).len(), 1);
        forge.received_as(Seen { sequence_number: 6, ..forge.seen(2, 3) });
        assert_eq!(promises(nothing_is_stored_twice, &forge).len(), 2);
    }

    #[test]
    fn a_delivered_message_that_was_rejected_is_found() {
        let mut forge = Forge::new();
        forge.refused(1);
        assert!(promises(all_or_nothing, &forge).is_empty());
        forge.received(1, 1);
        assert_eq!(promises(all_or_nothing, &forge).len(), 1);
    }
}
