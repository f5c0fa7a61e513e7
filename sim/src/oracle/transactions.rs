//! All of a transaction, or nothing of it.
//!
//! What a known end means is judged with everything else: its sends are confirmed or refused, and so are its settlements. Here is what the
//! disappearance of a message tells about an end that nobody knows.

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

/// The transaction of unknown end without which the message would still be there.
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

    /// Message 1 is completed and message 2 sent in transaction 7.
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
    fn a_committed_transaction_of_which_a_part_is_missing() {
        let mut forge = forged(Some(Answer::Done));
        assert_eq!(promises(nothing_confirmed_is_lost, &forge).len(), 1, "the message that was sent in it");
        forge.received(1, 2);
        assert_eq!(promises(nothing_completed_comes_back, &forge).len(), 1);
    }

    #[test]
    fn a_transaction_that_nobody_committed() {
        let mut forge = forged(None);
        assert_eq!(
            promises(nothing_confirmed_is_lost, &forge).len(),
            1,
            "the message that was completed in it"
        );
        forge.received(2, 2);
        assert_eq!(promises(all_or_nothing, &forge).len(), 1);
    }

    #[test]
    fn an_unknown_end_with_one_half_of_it() {
        let forge = forged(Some(Answer::Unknown));
        assert_eq!(
            promises(transactions_are_all_or_nothing, &forge).len(),
            1,
            "one is gone, the other never came"
        );
        let mut forge = forged(Some(Answer::Unknown));
        let token = forge.received(2, 2);
        forge.settled(token, Outcome::Complete, Answer::Done);
        assert!(promises(transactions_are_all_or_nothing, &forge).is_empty());
        assert!(promises(nothing_confirmed_is_lost, &forge).is_empty());
        forge.received(1, 3);
        assert_eq!(promises(nothing_completed_comes_back, &forge).len(), 1, "both came");
    }
}
