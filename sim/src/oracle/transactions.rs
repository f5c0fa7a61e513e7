//! Checks that a transaction takes effect as a whole or not at all.
//!
//! Transactions with a known end are judged by the other checkers: their sends and settlements are confirmed or
//! rejected. This checker judges unknown ends by the disappearance of messages.

use std::collections::BTreeMap;

use super::Violation;
use super::history::{History, Message, is_complete};
use crate::log::{Answer, MessageNumber};

pub(super) fn transactions_are_all_or_nothing(history: &History<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut settled: BTreeMap<u32, MessageNumber> = BTreeMap::new();
    for (number, message) in &history.messages {
        if let Some(transaction) = gone_with(history, message) {
            settled.insert(transaction, *number);
        }
    }
    for send in &history.sends {
        let Some(number) = send.terms.transaction.and_then(|transaction| settled.get(&transaction)) else {
            continue;
        };
        let may_be_gone = |number: &MessageNumber| {
            history.messages.get(number).is_some_and(|message| history.may_vanish(message))
        };
        if !send.messages.iter().all(|sent| history.was_seen(*sent) || may_be_gone(sent)) {
            let what =
                format!("it is gone, and {:?}, sent in the same transaction, never came", send.messages);
            violations.push(Violation::new("transactions are all or nothing", *number, what));
        }
    }
    violations
}

/// Returns the transaction with an unknown end that must have removed the message.
fn gone_with(history: &History<'_>, message: &Message) -> Option<u32> {
    let last = message.deliveries.last().filter(|_| !history.may_vanish(message))?;
    let mut completing =
        last.attempts.iter().filter(|attempt| attempt.may_count() && is_complete(&attempt.outcome));
    let (only, None) = (completing.next()?, completing.next()) else { return None };
    only.transaction.filter(|_| only.answer == Answer::Unknown)
}

#[cfg(test)]
mod tests {
    use peeklock_client::Outcome;

    use super::super::forge::{Forge, promises};
    use super::super::identity::all_or_nothing;
    use super::super::loss::{nothing_completed_comes_back, nothing_confirmed_is_lost};
    use super::*;
    use crate::log::Event;

    /// Completes message 1 and sends message 2 in transaction 7.
    fn forged(answer: Option<Answer>) -> Forge {
        let mut forge = Forge::new();
        forge.sent(1);
        let token = forge.received(1, 1);
        forge.sent_in(2, 7);
        forge.settled_in(token, Outcome::Complete, 7);
        if let Some(answer) = answer {
            forge.add(Event::Committing { transaction: 7 });
            forge.add(Event::Committed { transaction: 7, answer });
        }
        forge.later();
        forge
    }

    #[test]
    fn a_missing_part_of_a_committed_transaction_is_found() {
        let mut forge = forged(Some(Answer::Done));
        assert_eq!(
            promises(nothing_confirmed_is_lost, &forge).len(),
            1,
            "the message sent in the transaction"
        );
        forge.received(1, 2);
        assert_eq!(promises(nothing_completed_comes_back, &forge).len(), 1);
    }

    #[test]
    fn effects_of_an_uncommitted_transaction_are_found() {
        let mut forge = forged(None);
        assert_eq!(
            promises(nothing_confirmed_is_lost, &forge).len(),
            1,
            "the message completed in the transaction"
        );
        forge.received(2, 2);
        assert_eq!(promises(all_or_nothing, &forge).len(), 1);
    }

    #[test]
    fn half_of_a_transaction_with_an_unknown_end_is_found() {
        let forge = forged(Some(Answer::Unknown));
        assert_eq!(
            promises(transactions_are_all_or_nothing, &forge).len(),
            1,
            "one is gone, the other was never stored"
        );
        let mut forge = forged(Some(Answer::Unknown));
        let token = forge.received(2, 2);
        forge.settled(token, Outcome::Complete, Answer::Done);
        assert!(promises(transactions_are_all_or_nothing, &forge).is_empty());
        assert!(promises(nothing_confirmed_is_lost, &forge).is_empty());
        forge.received(1, 3);
        assert_eq!(promises(nothing_completed_comes_back, &forge).len(), 1, "message 1 was completed");
    }
}
