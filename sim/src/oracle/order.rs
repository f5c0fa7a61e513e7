//! Checks that sequence numbers follow the order of sends, and that peeks show the stored messages.

use std::collections::BTreeMap;

use super::Violation;
use super::history::{History, Message, Send, is_complete};
use crate::log::{Answer, MessageNumber, QueueIndex};

/// Checks that a send that began after the confirmation of another one has higher numbers, and that numbers rise in a
/// batch.
pub(super) fn sequence_numbers_follow_the_sends(history: &History<'_>) -> Vec<Violation> {
    const PROMISE: &str = "sequence numbers follow the sends";
    let mut violations = Vec::new();
    let mut by_queue: BTreeMap<QueueIndex, Vec<Numbers>> = BTreeMap::new();
    // Scheduled messages get their numbers when they are due, and messages of a transaction when they arrive.
    let is_plain = |send: &&Send| send.terms.due_ms.is_none() && send.terms.transaction.is_none();
    for send in history.sends.iter().filter(is_plain) {
        let known: Vec<_> =
            send.messages.iter().filter_map(|n| Some((*n, number_of(history, *n)?))).collect();
        if !known.is_sorted_by_key(|(_, place)| *place) {
            violations.push(Violation::new(PROMISE, None, format!("a batch came out as {known:?}")));
        }
        let (Some(first), Some(last)) = (known.first(), known.last()) else { continue };
        // Without a confirmation it may be stored later, such as a large message whose body is being written.
        let confirmed_ms = send.answered_ms.filter(|_| send.answer == Answer::Done);
        let (began_ms, ended_ms) = (send.at_ms, confirmed_ms.unwrap_or(i64::MAX));
        by_queue.entry(send.queue).or_default().push(Numbers {
            began_ms,
            ended_ms,
            first: *first,
            last: *last,
        });
    }
    for sends in by_queue.into_values() {
        violations.extend(
            check_queue(sends).into_iter().map(|(number, what)| Violation::new(PROMISE, number, what)),
        );
    }
    violations
}

/// One send with the sequence numbers of its messages.
struct Numbers {
    began_ms: i64,
    ended_ms: i64,
    first: (MessageNumber, u64),
    last: (MessageNumber, u64),
}

fn check_queue(sends: Vec<Numbers>) -> Vec<(MessageNumber, String)> {
    let mut by_end: Vec<_> = sends.iter().map(|send| (send.ended_ms, send.last)).collect();
    by_end.sort_unstable();
    let mut ended = by_end.into_iter().peekable();
    let mut highest = (0, 0);
    let mut found = Vec::new();
    let mut by_begin = sends;
    by_begin.sort_by_key(|send| send.began_ms);
    for send in by_begin {
        while let Some((_, last)) = ended.next_if(|(end, _)| *end < send.began_ms) {
            highest = if last.1 > highest.1 { last } else { highest };
        }
        if send.first.1 < highest.1 {
            let what = format!(
                "it has number {}, although {} of message {} was confirmed before",
                send.first.1, highest.1, highest.0
            );
            found.push((send.first.0, what));
        }
    }
    found
}

fn number_of(history: &History<'_>, number: MessageNumber) -> Option<u64> {
    let message = history.messages.get(&number).filter(|message| message.sends.len() == 1)?;
    let at_home = message.deliveries.iter().find(|delivery| delivery.seen.queue == message.queue)?;
    Some(at_home.seen.sequence_number)
}

pub(super) fn peeks_tell_the_truth(history: &History<'_>) -> Vec<Violation> {
    const PROMISE: &str = "peeks tell the truth";
    let mut violations = Vec::new();
    for peek in &history.peeks {
        let place = |at: usize| peek.messages.get(at).map(|peeked| peeked.sequence_number);
        if (1..peek.messages.len()).any(|at| place(at - 1) >= place(at)) {
            violations.push(Violation::new(
                PROMISE,
                None,
                format!("numbers out of order: {:?}", peek.messages),
            ));
        }
        for peeked in &peek.messages {
            let known = peeked.message.and_then(|number| Some((number, history.messages.get(&number)?)));
            match known {
                None => violations.push(Violation::new(PROMISE, None, format!("nobody sent {peeked:?}"))),
                Some((number, message)) if !history.scenario.places(message.queue).contains(&peek.queue) => {
                    violations.push(Violation::new(PROMISE, number, "it was seen in another queue"));
                }
                Some((number, message)) if was_gone(message, peek.at_ms) => {
                    let what = format!(
                        "it was seen in {:?} at {} and after, but was completed before",
                        peek.part, peek.at_ms
                    );
                    violations.push(Violation::new(PROMISE, number, what));
                }
                Some(_) => {}
            }
        }
    }
    violations
}

/// Returns whether it was known before `at_ms` that the message was gone for good.
fn was_gone(message: &Message, at_ms: i64) -> bool {
    message.deliveries.iter().any(|delivery| {
        let completed = delivery
            .attempts
            .iter()
            .any(|attempt| attempt.is_done() && is_complete(&attempt.outcome) && attempt.answered_ms < at_ms);
        completed || (delivery.is_deleted() && delivery.at_ms < at_ms)
    })
}

#[cfg(test)]
mod tests {
    use peeklock_client::Outcome;

    use super::super::forge::{Forge, promises};
    use super::*;
    use crate::log::{Peeked, Seen};

    #[test]
    fn a_later_send_with_a_lower_number_is_found() {
        let mut forge = Forge::new();
        forge.sent(1);
        forge.pass(10);
        forge.sent(2);
        forge.received_as(Seen { sequence_number: 5, ..forge.seen(1, 1) });
        forge.received_as(Seen { sequence_number: 6, ..forge.seen(2, 2) });
        assert!(promises(sequence_numbers_follow_the_sends, &forge).is_empty());
        forge.pass(10);
        forge.sent(3);
        forge.received_as(Seen { sequence_number: 4, ..forge.seen(3, 3) });
        assert_eq!(promises(sequence_numbers_follow_the_sends, &forge).len(), 1);
    }

    #[test]
    fn a_send_without_a_confirmation_may_be_stored_later() {
        let mut forge = Forge::new();
        forge.unknown(1);
        forge.pass(10);
        forge.sent(2);
        forge.received_as(Seen { sequence_number: 5, ..forge.seen(2, 2) });
        forge.received_as(Seen { sequence_number: 6, ..forge.seen(1, 1) });
        assert!(promises(sequence_numbers_follow_the_sends, &forge).is_empty());
    }

    #[test]
    fn a_batch_out_of_order_is_found() {
        let mut forge = Forge::new();
        forge.unknown_batch(&[1, 2]);
        forge.received_as(Seen { sequence_number: 9, ..forge.seen(1, 1) });
        forge.received_as(Seen { sequence_number: 8, ..forge.seen(2, 2) });
        assert_eq!(promises(sequence_numbers_follow_the_sends, &forge).len(), 1);
    }

    #[test]
    fn a_completed_message_that_is_still_peeked_is_found() {
        let mut forge = Forge::new();
        forge.sent(1);
        let peeked =
            |message, sequence_number| Peeked { message, session: None, sequence_number, is_deferred: false };
        forge.peeked(vec![peeked(Some(1), 1)]);
        let token = forge.received(1, 1);
        forge.settled(token, Outcome::Complete, Answer::Done);
        assert!(promises(peeks_tell_the_truth, &forge).is_empty());
        forge.pass(10);
        forge.peeked(vec![peeked(Some(1), 1)]);
        assert_eq!(promises(peeks_tell_the_truth, &forge).len(), 1);
        forge.peeked(vec![peeked(Some(7), 3), peeked(None, 2)]);
        assert_eq!(promises(peeks_tell_the_truth, &forge).len(), 4);
    }
}
