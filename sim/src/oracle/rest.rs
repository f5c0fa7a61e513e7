//! Checks that at rest a queue's counts equal its contents, and that nothing is left after draining.

use super::Violation;
use super::history::{Delivery, History};
use crate::log::{Counted, Part, QueueIndex};

pub(super) fn counts_equal_reality(history: &History<'_>) -> Vec<Violation> {
    const PROMISE: &str = "counts equal reality at rest";
    let mut violations = Vec::new();
    for (queue, counted) in &history.counted {
        let found = found_in(history, *queue);
        if *counted != found {
            let what = format!("queue {queue} says {counted:?}, and there was {found:?}");
            violations.push(Violation::new(PROMISE, None, what));
        }
    }
    for (queue, left) in &history.emptied {
        if *left != Counted::default() {
            let what = format!("queue {queue} was emptied and says {left:?}");
            violations.push(Violation::new(PROMISE, None, what));
        }
    }
    violations
}

fn found_in(history: &History<'_>, queue: QueueIndex) -> Counted {
    let mut found = Counted::default();
    let deliveries = history.messages.values().flat_map(|message| &message.deliveries);
    for delivery in deliveries.filter(|delivery| delivery.is_at_rest && delivery.seen.queue == queue) {
        let Delivery { seen, .. } = delivery;
        match (seen.part, seen.by_number) {
            (Part::DeadLetter, _) => found.dead_letter += 1,
            (Part::Main, true) => found.deferred += 1,
            (Part::Main, false) => found.active += 1,
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::forge::{Forge, promises};
    use super::*;

    #[test]
    fn wrong_counts_are_found() {
        let mut forge = Forge::new();
        forge.sent(1);
        forge.resting(Counted { active: 1, ..Counted::default() });
        assert_eq!(promises(counts_equal_reality, &forge).len(), 1);
        forge.received(1, 1);
        assert!(promises(counts_equal_reality, &forge).is_empty());
        forge.emptied(Counted { dead_letter: 1, ..Counted::default() });
        assert_eq!(promises(counts_equal_reality, &forge).len(), 1);
    }
}
