//! Checks that a partition returns the published events, once and in order.

use std::collections::BTreeMap;

use super::Violation;
use super::chronicle::{Chronicle, Moment};
use crate::log::Answer;

/// The tolerance between two clocks, because both sides read them in whole milliseconds.
const TOLERANCE_MS: u64 = 2;

pub(super) fn nothing_is_invented(chronicle: &Chronicle<'_>) -> Vec<Violation> {
    let broken = |what| Violation::new("no event is invented or changed", None, what);
    let mut violations = Vec::new();
    for link in &chronicle.links {
        for (_, event) in &link.events {
            let Some(number) = event.number.filter(|_| event.is_intact) else {
                violations.push(broken(format!("link {} got {event:?}", link.number)));
                continue;
            };
            let is_refused = |answer: &Answer| matches!(answer, Answer::Refused { .. });
            let mut sent = chronicle.attempts_of(number);
            if !sent.any(|sent| sent.partition == link.partition && !is_refused(&sent.answer)) {
                let partition = link.partition;
                violations.push(broken(format!("nobody sent event {number} to partition {partition}")));
            }
        }
    }
    violations
}

/// Checks that a place holds the same event for ever, through every crash.
pub(super) fn one_place_one_event(chronicle: &Chronicle<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    for link in &chronicle.links {
        for (_, event) in &link.events {
            let first = chronicle.places.get(&(link.partition, event.sequence));
            if first.is_some_and(|first| first != event) {
                let what = format!(
                    "link {} of partition {}: {event:?}, before: {first:?}",
                    link.number, link.partition
                );
                violations.push(Violation::new("a sequence number is one event for ever", None, what));
            }
        }
    }
    violations
}

pub(super) fn nothing_is_stored_twice(chronicle: &Chronicle<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (number, places) in &chronicle.found {
        let is_refused = |answer: &Answer| matches!(answer, Answer::Refused { .. });
        let attempts: Vec<_> = chronicle.attempts_of(*number).collect();
        let is_numbered = attempts.iter().all(|attempt| attempt.numbered.is_some());
        let tries = attempts.iter().filter(|attempt| !is_refused(&attempt.answer)).count();
        let places_max = if is_numbered { 1 } else { tries };
        if places.len() > places_max && places_max > 0 {
            let what = format!(
                "event {number} was sent {tries} times (numbered: {is_numbered}), and is at {places:?}"
            );
            violations.push(Violation::new("no event is stored twice", None, what));
        }
    }
    violations
}

pub(super) fn batches_stay_together(chronicle: &Chronicle<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    for publication in &chronicle.publications {
        for pair in publication.events.windows(2) {
            let [one, next] = pair else { continue };
            for (partition, sequence) in chronicle.found.get(one).into_iter().flatten() {
                let behind = chronicle.places.get(&(*partition, sequence + 1));
                if behind.is_some_and(|behind| behind.number != Some(*next)) {
                    let what = format!(
                        "event {one} is at {sequence} of {partition}, and not {next} behind it, but {behind:?}"
                    );
                    violations.push(Violation::new("the events of a batch stay together", None, what));
                }
            }
        }
    }
    violations
}

/// Checks that an event that is sent after the confirmation of another one follows it.
pub(super) fn events_follow_the_sends(chronicle: &Chronicle<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut latest: BTreeMap<u32, (Moment, u64)> = BTreeMap::new();
    for ((partition, sequence), event) in &chronicle.places {
        let Some(number) = event.number else { continue };
        let attempts: Vec<_> = chronicle.attempts_of(number).collect();
        let is_clear = attempts.len() == 1 || attempts.iter().all(|attempt| attempt.numbered.is_some());
        if let Some((asked, before)) = latest.get(partition)
            && is_clear
            && chronicle.confirmed(number).is_some_and(|confirmed| confirmed < *asked)
        {
            let what = format!(
                "event {number} at {sequence} of {partition} was confirmed before that at {before} was sent"
            );
            violations.push(Violation::new("events follow the sends", None, what));
        }
        let asked = attempts.iter().map(|attempt| attempt.asked).min();
        if let Some(asked) =
            asked.filter(|asked| latest.get(partition).is_none_or(|(latest, _)| latest < asked))
        {
            latest.insert(*partition, (asked, *sequence));
        }
    }
    violations
}

pub(super) fn times_never_fall(chronicle: &Chronicle<'_>) -> Vec<Violation> {
    let broken = |what| Violation::new("times of events are true, and never fall", None, what);
    let mut violations = Vec::new();
    let mut last: Option<(u32, u64)> = None;
    for ((partition, sequence), event) in &chronicle.places {
        let now = event.enqueued_ms;
        if last.is_some_and(|(of, before)| of == *partition && before > now) {
            violations
                .push(broken(format!("{event:?} of {partition} came before the one before it, at {last:?}")));
        }
        last = Some((*partition, now));
        let sent = event.number.into_iter().flat_map(|number| chronicle.attempts_of(number));
        let earliest = sent.map(|sent| chronicle.wall(sent.run, sent.asked.ms)).min();
        if earliest.is_some_and(|earliest| now + TOLERANCE_MS < earliest) {
            violations.push(broken(format!(
                "{sequence} of {partition} came at {now}, and was sent at {earliest:?}"
            )));
        }
    }
    for link in &chronicle.links {
        let early = link
            .events
            .iter()
            .find(|(at, event)| event.enqueued_ms > chronicle.latest_wall(at.ms) + TOLERANCE_MS);
        violations.extend(
            early.map(|early| broken(format!("link {} got {early:?} ahead of its time", link.number))),
        );
    }
    violations
}

/// Checks that a producer that numbers its events, and repeats sends with an unknown outcome, is never rejected for a
/// wrong number.
pub(super) fn numbers_are_taken(chronicle: &Chronicle<'_>) -> Vec<Violation> {
    let numbered = chronicle.publications.iter().filter(|publication| publication.numbered.is_some());
    let refused = numbered.filter_map(|publication| match &publication.answer {
        Answer::Refused { why, .. } if !why.contains("disk is nearly full") => Some((publication, why)),
        _ => None,
    });
    let broken = |(publication, why)| {
        Violation::new("numbers in order are taken", None, format!("{publication:?}: {why}"))
    };
    refused.map(broken).collect()
}
