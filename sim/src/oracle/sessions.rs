//! Checks sessions: one holder, messages in order, their own messages and their own state.

use std::collections::{BTreeMap, BTreeSet};

use super::Violation;
use super::history::{History, TOLERANCE_MS};
use crate::log::{Answer, Event, Part, QueueIndex, SessionNumber};

pub(super) fn one_holder_per_session(history: &History<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut by_session: BTreeMap<(QueueIndex, SessionNumber), Vec<_>> = BTreeMap::new();
    for hold in history.holds.values() {
        by_session.entry((hold.queue, hold.session)).or_default().push(hold);
    }
    for (session, mut holds) in by_session {
        holds.sort_by_key(|hold| hold.accepted_ms);
        for (earlier, later) in holds.iter().zip(holds.iter().skip(1)) {
            if later.accepted_ms < earlier.certain_end_ms - TOLERANCE_MS {
                let what = format!(
                    "{session:?}: {} got it at {}, and {} held it until {}",
                    later.party, later.accepted_ms, earlier.party, earlier.certain_end_ms
                );
                violations.push(Violation::new("one holder per session", None, what));
            }
        }
    }
    violations
}

/// Checks that a message that was never delivered precedes every later one of its session.
pub(super) fn sessions_keep_their_order(history: &History<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut by_session: BTreeMap<(QueueIndex, SessionNumber), Vec<_>> = BTreeMap::new();
    for (number, message) in &history.messages {
        let Some(first) = message.deliveries.first() else { continue };
        let is_fresh =
            first.seen.delivery_count == 0 && !first.seen.by_number && first.seen.part == Part::Main;
        if let (Some(session), Some(_), true) = (first.seen.session, first.seen.hold, is_fresh) {
            let at = (first.locked_at_ms, first.log_index);
            let line = by_session.entry((first.seen.queue, session)).or_default();
            line.push((at, first.seen.sequence_number, *number));
        }
    }
    for (session, mut line) in by_session {
        line.sort_unstable();
        let pairs = line.iter().zip(line.iter().skip(1));
        for ((_, before, other), (_, place, number)) in pairs.filter(|(a, b)| a.1 > b.1) {
            let what = format!("{session:?}: {place} came after {before}, message {other}");
            violations.push(Violation::new("sessions keep their order", *number, what));
        }
    }
    violations
}

pub(super) fn messages_stay_in_their_session(history: &History<'_>) -> Vec<Violation> {
    const PROMISE: &str = "messages stay in their session";
    let mut violations = Vec::new();
    for (number, message) in &history.messages {
        for delivery in &message.deliveries {
            let held = delivery.seen.hold.and_then(|hold| history.holds.get(&hold)).map(|hold| hold.session);
            let is_own = delivery.seen.session == message.terms.session;
            if !is_own || held.is_some_and(|held| Some(held) != delivery.seen.session) {
                let what = format!(
                    "sent to {:?}, came as {:?} to the holder of {held:?}",
                    message.terms.session, delivery.seen.session
                );
                violations.push(Violation::new(PROMISE, *number, what));
            }
        }
    }
    violations
}

/// Checks that a read returns the last value written before the request, or one whose write had no answer yet, or a
/// later one.
pub(super) fn session_state_is_what_was_kept(history: &History<'_>) -> Vec<Violation> {
    let mut states = States::default();
    let mut violations = Vec::new();
    let session_of = |hold: &u32| history.holds.get(hold).map(|hold| (hold.queue, hold.session));
    for entry in history.entries {
        match &entry.event {
            Event::StateSetting { request, hold, value } => {
                session_of(hold).into_iter().for_each(|session| states.setting(*request, session, *value));
            }
            Event::StateSet { request, answer } => states.set(*request, answer),
            Event::StateReading { request, hold } => {
                session_of(hold).into_iter().for_each(|session| states.reading(*request, session));
            }
            Event::StateRead { request, value } => {
                let Some((session, values)) = states.reads.remove(request) else { continue };
                if !values.contains(value) {
                    let what =
                        format!("{session:?}: {value:?} was read at {}, and {values:?} kept", entry.at_ms);
                    violations.push(Violation::new("session state is what was kept", None, what));
                }
            }
            _ => {}
        }
    }
    violations
}

type Place = (QueueIndex, SessionNumber);
type Values = BTreeSet<Option<u64>>;

/// The possible states of each session, as the log proceeds.
#[derive(Default)]
struct States {
    kept: BTreeMap<Place, Values>,
    sets: BTreeMap<u32, (Place, u64)>,
    /// The possible results of a read without an answer.
    reads: BTreeMap<u32, (Place, Values)>,
}

impl States {
    fn kept(&mut self, session: Place) -> &mut Values {
        self.kept.entry(session).or_insert_with(|| BTreeSet::from([None]))
    }

    fn setting(&mut self, request: u32, session: Place, value: u64) {
        self.sets.insert(request, (session, value));
        self.kept(session).insert(Some(value));
        for (_, values) in self.reads.values_mut().filter(|(of, _)| *of == session) {
            values.insert(Some(value));
        }
    }

    fn set(&mut self, request: u32, answer: &Answer) {
        let Some((session, value)) = self.sets.remove(&request) else { return };
        match answer {
            Answer::Done => *self.kept(session) = BTreeSet::from([Some(value)]),
            Answer::Refused { .. } => drop(self.kept(session).remove(&Some(value))),
            Answer::Unknown => {}
        }
    }

    fn reading(&mut self, request: u32, session: Place) {
        let values = self.kept(session).clone();
        self.reads.insert(request, (session, values));
    }
}

#[cfg(test)]
mod tests {
    use super::super::forge::{Forge, LOCK_MS, promises};
    use super::*;
    use crate::log::{Seen, Terms};

    fn in_session() -> Terms {
        Terms { session: Some(1), ..Terms::default() }
    }

    #[test]
    fn two_holders_of_a_session_are_found() {
        let mut forge = Forge::with_sessions();
        let hold = forge.held(1);
        forge.pass(100);
        forge.add(Event::HoldEnding { hold });
        forge.pass(10);
        forge.held(1);
        forge.pass(10);
        forge.held(2);
        assert!(promises(one_holder_per_session, &forge).is_empty());
        forge.pass(LOCK_MS / 2);
        forge.held(1);
        assert_eq!(promises(one_holder_per_session, &forge).len(), 1);
    }

    #[test]
    fn a_session_out_of_order_is_found() {
        let mut forge = Forge::with_sessions();
        let hold = Some(forge.held(1));
        for (number, place) in [(1, 1), (2, 3), (3, 2)] {
            forge.sent_on(number, in_session());
            let seen = forge.seen(number, u64::from(number));
            forge.received_as(Seen { session: Some(1), hold, sequence_number: place, ..seen });
        }
        assert_eq!(promises(sessions_keep_their_order, &forge).len(), 1);
    }

    #[test]
    fn a_message_of_another_session_is_found() {
        let mut forge = Forge::with_sessions();
        let hold = Some(forge.held(2));
        forge.sent_on(1, in_session());
        forge.received_as(Seen { session: Some(1), hold, ..forge.seen(1, 1) });
        assert_eq!(promises(messages_stay_in_their_session, &forge).len(), 1);
    }

    #[test]
    fn an_invented_state_is_found() {
        let mut forge = Forge::with_sessions();
        let hold = forge.held(1);
        let read = |forge: &mut Forge, request| {
            forge.add(Event::StateReading { request, hold });
            forge.add(Event::StateRead { request, value: None });
        };
        read(&mut forge, 901);
        forge.add(Event::StateSetting { request: 900, hold, value: 5 });
        read(&mut forge, 902);
        forge.add(Event::StateReading { request: 903, hold });
        forge.add(Event::StateSet { request: 900, answer: Answer::Done });
        forge.add(Event::StateRead { request: 903, value: None });
        assert!(promises(session_state_is_what_was_kept, &forge).is_empty());
        read(&mut forge, 904);
        assert_eq!(promises(session_state_is_what_was_kept, &forge).len(), 1);
    }
}
