//! The settlements of each lock token.

use std::collections::BTreeMap;

use peeklock_client::LockToken;

use super::{Attempt, Renewal, ms};
use crate::log::{Answer, Event, LogLine};

/// Attempts and renewals by lock token.
pub(super) struct Settlements(BTreeMap<[u8; 16], (Vec<Attempt>, Vec<Renewal>)>);

impl Settlements {
    pub(super) fn of(entries: &[LogLine]) -> Self {
        let answers = answers_of(entries);
        let mut found: BTreeMap<[u8; 16], (Vec<Attempt>, Vec<Renewal>)> = BTreeMap::new();
        for entry in entries {
            match &entry.event {
                Event::Settling { request, token, outcome, transaction } => {
                    let (answer, answered_ms, _) = answer_to(&answers, *request);
                    let outcome = outcome.clone();
                    let (at_ms, transaction) = (ms(entry.at_ms), *transaction);
                    let attempt = Attempt { outcome, transaction, at_ms, answer, answered_ms };
                    found.entry(token.to_bytes()).or_default().0.push(attempt);
                }
                Event::Renewing { request, token } => {
                    let (answer, answered_ms, until_ms) = answer_to(&answers, *request);
                    let renewal = Renewal { answer, answered_ms, until_ms };
                    found.entry(token.to_bytes()).or_default().1.push(renewal);
                }
                _ => {}
            }
        }
        Settlements(found)
    }

    pub(super) fn take(&mut self, token: LockToken) -> (Vec<Attempt>, Vec<Renewal>) {
        self.0.remove(&token.to_bytes()).unwrap_or_default()
    }
}

type Answers = BTreeMap<u32, (Answer, i64, i64)>;

fn answers_of(entries: &[LogLine]) -> Answers {
    let mut answers = BTreeMap::new();
    for entry in entries {
        match &entry.event {
            Event::Settled { request, answer } => {
                answers.insert(*request, (answer.clone(), ms(entry.at_ms), 0));
            }
            Event::Renewed { request, answer, until_ms } => {
                answers.insert(*request, (answer.clone(), ms(entry.at_ms), ms(*until_ms)));
            }
            _ => {}
        }
    }
    answers
}

/// Returns the answer to a request; it is unknown if the client left before.
fn answer_to(answers: &Answers, request: u32) -> (Answer, i64, i64) {
    answers.get(&request).cloned().unwrap_or((Answer::Unknown, i64::MAX, 0))
}
