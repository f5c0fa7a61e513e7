//! What was sent, taken back, and said in transactions.

use std::collections::BTreeMap;

use super::{History, Message, Send, ms};
use crate::log::{Answer, Entry, Event, MessageNumber, QueueIndex, Terms};

impl History<'_> {
    pub(super) fn collect_sends(&mut self) {
        let mut by_request = BTreeMap::new();
        let mut cancelling = BTreeMap::new();
        for entry in self.entries {
            match &entry.event {
                Event::Sending { request, queue, messages, terms } => {
                    by_request.insert(*request, self.sends.len());
                    self.add_send(ms(entry.at_ms), *queue, messages, *terms);
                }
                Event::Sent { request, answer } => {
                    let send = by_request.get(request).and_then(|index| self.sends.get_mut(*index));
                    if let Some(send) = send {
                        send.answer = answer.clone();
                        send.answered_ms = Some(ms(entry.at_ms));
                    }
                }
                Event::Cancelling { request, messages } => {
                    cancelling.insert(*request, messages);
                    self.note_cancelled(messages, &Answer::Unknown);
                }
                Event::Cancelled { request, answer } => {
                    let messages = cancelling.get(request).map_or(&[][..], |messages| messages.as_slice());
                    self.note_cancelled(messages, answer);
                }
                _ => {}
            }
        }
    }

    fn add_send(&mut self, at_ms: i64, queue: QueueIndex, messages: &[MessageNumber], terms: Terms) {
        for number in messages {
            let message = self.messages.entry(*number).or_insert_with(|| Message {
                queue,
                terms,
                sends: Vec::new(),
                cancelled: None,
                deliveries: Vec::new(),
            });
            message.sends.push(self.sends.len());
        }
        let messages = messages.to_vec();
        let (answer, answered_ms) = (Answer::Unknown, None);
        self.sends.push(Send { queue, messages, terms, at_ms, answer, answered_ms });
    }

    fn note_cancelled(&mut self, messages: &[MessageNumber], answer: &Answer) {
        for number in messages {
            if let Some(message) = self.messages.get_mut(number) {
                message.cancelled = Some(answer.clone());
            }
        }
    }

    /// What was said in a transaction happened if it was committed, and did not if nobody committed it. Where no answer came, one message
    /// that is there tells that it all happened.
    pub(super) fn resolve_transactions(&mut self) {
        let mut known: BTreeMap<u32, Answer> = self.transactions.clone();
        for send in &self.sends {
            let Some(transaction) = send.terms.transaction else { continue };
            let answer = known.entry(transaction).or_insert_with(not_committed);
            if *answer == Answer::Unknown && send.messages.iter().any(|number| self.was_seen(*number)) {
                *answer = Answer::Done;
            }
        }
        for send in &mut self.sends {
            if let Some(transaction) = send.terms.transaction {
                send.answer = known.get(&transaction).cloned().unwrap_or_else(not_committed);
            }
        }
        let deliveries = self.messages.values_mut().flat_map(|message| &mut message.deliveries);
        for attempt in deliveries.flat_map(|delivery| &mut delivery.attempts) {
            if let Some(transaction) = attempt.transaction {
                attempt.answer = known.get(&transaction).cloned().unwrap_or_else(not_committed);
                attempt.answered_ms = i64::MAX;
            }
        }
        self.transactions = known;
    }
}

fn not_committed() -> Answer {
    Answer::Refused { lock_lost: false, why: "nobody committed the transaction".to_owned() }
}

pub(super) fn transactions_of(entries: &[Entry]) -> BTreeMap<u32, Answer> {
    let mut known = BTreeMap::new();
    for entry in entries {
        match &entry.event {
            Event::Committing { transaction } => drop(known.insert(*transaction, Answer::Unknown)),
            Event::Committed { transaction, answer } => drop(known.insert(*transaction, answer.clone())),
            _ => {}
        }
    }
    known
}
