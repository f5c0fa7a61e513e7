//! Sends, cancellations and transactions.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{History, Message, Send, ms};
use crate::log::{Answer, Event, LogLine, MessageNumber, QueueIndex, Terms};
use crate::scenario::topic::{Copy, Traits, copy_number};
use crate::scenario::{Target, Topic};

impl History<'_> {
    pub(super) fn collect_sends(&mut self) {
        let mut by_request = BTreeMap::new();
        let mut cancelling = BTreeMap::new();
        for entry in self.entries {
            match &entry.event {
                Event::Sending { request, target, messages, terms } => {
                    let first = self.sends.len();
                    self.add_request(ms(entry.at_ms), *target, messages, *terms);
                    by_request.insert(*request, first..self.sends.len());
                }
                Event::Sent { request, answer } => {
                    let sends = by_request.get(request).and_then(|range| self.sends.get_mut(range.clone()));
                    for send in sends.unwrap_or_default() {
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

    /// Adds the sends of one request. A request to a topic sends all copies that its rules produce, or none.
    fn add_request(&mut self, at_ms: i64, target: Target, messages: &[MessageNumber], terms: Terms) {
        let parts: Vec<(QueueIndex, Vec<MessageNumber>)> = match target {
            Target::Queue(queue) => vec![(queue, messages.to_vec())],
            Target::Topic(topic) => {
                let copies = self.scenario.topics.get(topic).map(Topic::copies).unwrap_or_default();
                let of = |(place, copy): (usize, &Copy<'_>)| {
                    let mine = messages.iter().filter(|number| copy.is_for(Traits::of(**number)));
                    (copy.queue, mine.map(|number| copy_number(*number, place)).collect())
                };
                copies.iter().enumerate().map(of).collect()
            }
        };
        self.note_copies(target, messages, &parts);
        let whole: Arc<[_]> = parts.iter().flat_map(|(_, numbers)| numbers).copied().collect();
        let topic = match target {
            Target::Topic(topic) => Some(topic),
            Target::Queue(_) => None,
        };
        for (queue, numbers) in parts.into_iter().filter(|(_, numbers)| !numbers.is_empty()) {
            let (answer, answered_ms, whole) = (Answer::Unknown, None, Arc::clone(&whole));
            let send = Send { queue, messages: numbers, whole, terms, at_ms, answer, answered_ms };
            self.add_send(topic, send);
        }
    }

    fn note_copies(
        &mut self,
        target: Target,
        messages: &[MessageNumber],
        parts: &[(QueueIndex, Vec<MessageNumber>)],
    ) {
        let width = self.scenario.numbers(target);
        for number in messages {
            let own = *number..number.saturating_add(width);
            let copies = parts.iter().flat_map(|(_, numbers)| numbers).filter(|copy| own.contains(copy));
            let copies: Vec<_> = copies.copied().collect();
            self.origins.extend(copies.iter().map(|copy| (*copy, *number)));
            self.copies.insert(*number, copies);
        }
    }

    fn add_send(&mut self, topic: Option<usize>, send: Send) {
        for number in &send.messages {
            let message = self.messages.entry(*number).or_insert_with(|| Message {
                queue: send.queue,
                topic,
                terms: send.terms,
                sends: Vec::new(),
                cancelled: None,
                deliveries: Vec::new(),
            });
            message.sends.push(self.sends.len());
        }
        self.sends.push(send);
    }

    fn note_cancelled(&mut self, messages: &[MessageNumber], answer: &Answer) {
        let copies: Vec<_> = messages.iter().flat_map(|number| self.copies_of(*number)).copied().collect();
        for number in copies {
            if let Some(message) = self.messages.get_mut(&number) {
                message.cancelled = Some(answer.clone());
            }
        }
    }

    /// Resolves the outcomes of transactions. The steps of a transaction happened if it was committed, and did not if
    /// no commit was sent. Without an answer, one message that exists shows that all steps happened.
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

pub(super) fn transactions_of(entries: &[LogLine]) -> BTreeMap<u32, Answer> {
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
