//! Checks the programs with the Rust SDK: their messages are worked on, their processors make progress after the storm, and a stopped one
//! holds no lock. The other checkers judge their sends, deliveries and settlements like those of all clients.

use std::collections::{BTreeMap, BTreeSet};

use super::Violation;
use super::history::History;
use crate::log::{Event, MessageNumber, Part, ProgramEvent, QueueIndex, SessionNumber};

/// Checks that a handler has done its work for each stored message, unless the message is still there at the end.
pub(super) fn every_message_is_worked_on(history: &History<'_>) -> Vec<Violation> {
    let worked: BTreeSet<_> = worked(history).collect();
    let mut violations = Vec::new();
    for (number, message) in &history.messages {
        let mut sends = message.sends.iter().filter_map(|send| history.sends.get(*send));
        let is_stored = sends.any(|send| history.is_stored(send));
        let is_left = message.deliveries.iter().any(|delivery| delivery.is_at_rest);
        let is_own = history.scenario.is_of_programs(message.queue);
        if is_own && is_stored && !is_left && !worked.contains(number) {
            let what = "it is gone, and no handler has done its work";
            violations.push(Violation::new("every message is worked on", *number, what));
        }
    }
    violations
}

/// Checks that the processors work off their queues when all faults have ended, and that each of them does it alone.
pub(super) fn processors_make_progress(history: &History<'_>) -> Vec<Violation> {
    const PROMISE: &str = "processors make progress";
    let mut violations = Vec::new();
    let mut probes: BTreeMap<u32, (&str, &[MessageNumber])> = BTreeMap::new();
    let mut done: BTreeSet<(&str, MessageNumber)> = BTreeSet::new();
    for entry in history.entries {
        let Event::Program(event) = &entry.event else { continue };
        match event {
            ProgramEvent::Worked { message } => drop(done.insert((&*entry.party, *message))),
            ProgramEvent::WorkedOff { queue, left } if *left > 0 => {
                let what = format!("{left} messages are left in queue {queue}");
                violations.push(Violation::new(PROMISE, None, what));
            }
            ProgramEvent::Probing { probe, processor, messages } => {
                probes.insert(*probe, (&**processor, messages));
            }
            ProgramEvent::Probed { probe } => {
                let Some((processor, messages)) = probes.remove(probe) else { continue };
                let missing = messages.iter().find(|message| !done.contains(&(processor, **message)));
                violations.extend(missing.map(|message| {
                    let what = format!("{processor} was alone, and did not work on it");
                    Violation::new(PROMISE, *message, what)
                }));
            }
            ProgramEvent::WorkedOff { .. } | ProgramEvent::Stopped { .. } => {}
        }
    }
    violations
}

pub(super) fn stopped_processors_hold_no_lock(history: &History<'_>) -> Vec<Violation> {
    let stopped = history.entries.iter().filter_map(|entry| match &entry.event {
        Event::Program(ProgramEvent::Stopped { queue, locked }) if *locked > 0 => {
            let what = format!("{locked} messages of queue {queue} are locked");
            Some(Violation::new("stopped processors hold no lock", None, what))
        }
        _ => None,
    });
    stopped.collect()
}

/// Checks that handlers get the messages of a session in order: a message that was never delivered precedes every later one. Each processor
/// works on one message of a session at a time.
pub(super) fn sessions_are_worked_on_in_order(history: &History<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut by_session: BTreeMap<(QueueIndex, SessionNumber), Vec<_>> = BTreeMap::new();
    for (number, message) in &history.messages {
        let Some(first) = message.deliveries.first() else { continue };
        let is_fresh = first.seen.delivery_count == 0 && first.seen.part == Part::Main;
        let is_own = history.scenario.is_of_programs(first.seen.queue);
        if let (Some(session), true) = (first.seen.session, is_fresh && is_own) {
            let line = by_session.entry((first.seen.queue, session)).or_default();
            line.push((first.log_index, first.seen.sequence_number, *number));
        }
    }
    for (session, mut line) in by_session {
        line.sort_unstable();
        for ((_, before, other), (_, place, number)) in line.iter().zip(line.iter().skip(1)) {
            if before > place {
                let what = format!("{session:?}: {place} came after {before}, message {other}");
                violations.push(Violation::new("sessions are worked on in order", *number, what));
            }
        }
    }
    violations
}

/// Returns the messages that handlers have worked on, each as often as that happened.
fn worked(history: &History<'_>) -> impl Iterator<Item = MessageNumber> {
    history.entries.iter().filter_map(|entry| match &entry.event {
        Event::Program(ProgramEvent::Worked { message }) => Some(*message),
        _ => None,
    })
}

/// Summarises the programs in one line.
pub(super) fn summary(history: &History<'_>) -> String {
    let count = worked(history).count();
    let own = history.messages.values().filter(|message| history.scenario.is_of_programs(message.queue));
    let (mut sent, mut again) = (0, 0);
    for message in own {
        sent += 1;
        again += usize::from(message.deliveries.len() > 1);
    }
    format!("{sent} messages, {count} times worked on, {again} messages delivered again")
}

#[cfg(test)]
mod tests {
    use peeklock_client::Outcome;

    use super::super::forge::{Forge, promises};
    use super::*;
    use crate::log::{Answer, Counted, Seen, Terms};

    fn worked(forge: &mut Forge, message: MessageNumber) {
        forge.add(Event::Program(ProgramEvent::Worked { message }));
    }

    #[test]
    fn a_message_that_is_gone_without_work_is_found() {
        let mut forge = Forge::with_programs();
        for number in [1, 2, 3] {
            forge.sent(number);
            let token = forge.received(number, number.into());
            forge.settled(token, Outcome::Complete, Answer::Done);
        }
        worked(&mut forge, 1);
        worked(&mut forge, 2);
        assert_eq!(promises(every_message_is_worked_on, &forge).len(), 1);
        worked(&mut forge, 3);
        forge.sent(4);
        forge.unknown(5);
        assert_eq!(promises(every_message_is_worked_on, &forge).len(), 1, "only 4 is certainly stored");
        forge.resting(Counted { active: 1, ..Counted::default() });
        forge.received(4, 4);
        assert!(promises(every_message_is_worked_on, &forge).is_empty(), "it is still there");
    }

    #[test]
    fn other_queues_have_no_programs() {
        let mut forge = Forge::new();
        forge.sent(1);
        assert!(promises(every_message_is_worked_on, &forge).is_empty());
    }

    #[test]
    fn a_processor_that_stands_still_is_found() {
        let mut forge = Forge::with_programs();
        forge.add(Event::Program(ProgramEvent::WorkedOff { queue: 0, left: 0 }));
        let mut probe = |processor: &str, number, works: bool| {
            let (processor, messages) = (processor.into(), vec![number]);
            forge.add(Event::Program(ProgramEvent::Probing { probe: number, processor, messages }));
            if works {
                worked(&mut forge, number);
            }
            forge.add(Event::Program(ProgramEvent::Probed { probe: number }));
            promises(processors_make_progress, &forge).len()
        };
        assert_eq!(probe("forger", 1, true), 0);
        assert_eq!(probe("forger", 2, false), 1);
        assert_eq!(probe("another", 3, true), 2, "another processor has done it");
        forge.add(Event::Program(ProgramEvent::WorkedOff { queue: 0, left: 1 }));
        assert_eq!(promises(processors_make_progress, &forge).len(), 3);
    }

    #[test]
    fn a_session_out_of_order_is_found() {
        let mut forge = Forge::with_programs();
        let session = Some(1);
        for (number, delivery_count) in [(1, 0), (3, 0), (2, 1)] {
            forge.sent_on(number, Terms { session, ..Terms::default() });
            forge.pass(10);
            let seen = forge.seen(number, number.into());
            forge.received_as(Seen { session, delivery_count, ..seen });
        }
        assert!(
            promises(sessions_are_worked_on_in_order, &forge).is_empty(),
            "2 was delivered to a program that did not show it"
        );
        forge.sent_on(0, Terms { session, ..Terms::default() });
        forge.pass(10);
        forge.received_as(Seen { session, ..forge.seen(0, 9) });
        assert_eq!(promises(sessions_are_worked_on_in_order, &forge).len(), 1);
    }

    #[test]
    fn a_lock_of_a_stopped_processor_is_found() {
        let mut forge = Forge::with_programs();
        forge.add(Event::Program(ProgramEvent::Stopped { queue: 0, locked: 0 }));
        assert!(promises(stopped_processors_hold_no_lock, &forge).is_empty());
        forge.add(Event::Program(ProgramEvent::Stopped { queue: 0, locked: 2 }));
        assert_eq!(promises(stopped_processors_hold_no_lock, &forge).len(), 1);
    }
}
