//! Checks that confirmed and observed events stay until retention permits their removal.

use std::collections::BTreeMap;

use super::Violation;
use super::chronicle::{Chronicle, Moment};
use crate::log::{Answer, EventNumber};
use crate::scenario::hub::PLAIN;

const TOLERANCE_MS: u64 = 2;
/// The largest size of an extent. Retention removes whole extents, and large ones at once.
const EXTENT_BYTES_MAX: u64 = 512 * 1024;
/// The largest overhead of each event and each send.
const ENVELOPE_BYTES: u64 = 256;

impl Chronicle<'_> {
    /// Returns whether retention may have removed an event by a world time. Without a place, the event was sent no
    /// earlier than its first attempt.
    pub(super) fn may_be_gone(&self, number: EventNumber, enqueued_ms: Option<u64>, at: Moment) -> bool {
        let settings = &self.hub.settings;
        let earliest = self.attempts_of(number).map(|sent| self.wall(sent.run, sent.asked.ms)).min();
        let is_old = settings.retention.is_some_and(|retention| {
            let retention_ms = u64::try_from(retention.as_millis()).unwrap_or(u64::MAX);
            let came_ms = enqueued_ms.or(earliest).unwrap_or(0);
            came_ms + retention_ms <= self.latest_wall(at.ms) + TOLERANCE_MS
        });
        is_old || settings.retention_bytes.is_some_and(|max| self.bytes_after(number, at) > max)
    }

    /// Returns a lower bound of the partition's size from the event on.
    fn bytes_after(&self, number: EventNumber, at: Moment) -> u64 {
        let Some(first) = self.attempts_of(number).map(|sent| (sent.asked, sent.partition)).min() else {
            return 0;
        };
        let (asked, partition) = first;
        let behind = self.publications.iter().filter(|other| {
            let is_over = other.answered.is_some_and(|answered| answered < asked);
            let is_refused = matches!(other.answer, Answer::Refused { .. });
            other.partition == partition && !is_over && !is_refused && other.asked < at
        });
        let bytes = |other: &super::chronicle::Publication| {
            other.size_bytes + ENVELOPE_BYTES * (1 + other.events.len() as u64)
        };
        behind.map(bytes).sum::<u64>() + EXTENT_BYTES_MAX
    }
}

/// Checks that only events are missing at the end that retention may remove. All partitions are read at the end.
pub(super) fn nothing_confirmed_is_lost(chronicle: &Chronicle<'_>) -> Vec<Violation> {
    let broken = |what| Violation::new("no confirmed event is lost", None, what);
    let mut violations = Vec::new();
    let is_last = |link: &&super::chronicle::Link| link.group == PLAIN && link.level == Some(i64::MAX);
    let ends: BTreeMap<_, _> = chronicle
        .links
        .iter()
        .filter(is_last)
        .filter_map(|link| Some((link.partition, link.opened?)))
        .collect();
    let mut there: BTreeMap<EventNumber, ()> = BTreeMap::new();
    for link in chronicle.links.iter().filter(is_last) {
        there.extend(link.events.iter().filter_map(|(_, event)| Some((event.number?, ()))));
        let looks: Vec<_> = chronicle.looks.iter().filter(|look| look.partition == link.partition).collect();
        let (before, after) = (looks.iter().rev().nth(1), looks.last());
        let next = link.events.last().map(|(_, event)| event.sequence + 1);
        if let (Some(after), Some(next)) = (after, next)
            && after.next != next
        {
            violations.push(broken(format!(
                "partition {} ends at {}, and was read up to {next}",
                link.partition, after.next
            )));
        }
        let first = link.events.first().map(|(_, event)| event.sequence);
        if let (Some(before), Some(after)) = (before, after)
            && first.map_or(before.begin != before.next && after.begin != after.next, |first| {
                !(before.begin..=after.begin).contains(&first)
            })
        {
            violations.push(broken(format!(
                "partition {} began at {} to {}, and was read from {first:?}",
                link.partition, before.begin, after.begin
            )));
        }
    }
    for number in chronicle.attempts.keys() {
        let Some(partition) = chronicle.attempts_of(*number).map(|sent| sent.partition).next() else {
            continue;
        };
        let Some(end) = ends.get(&partition) else { continue };
        let enqueued_ms = place_of(chronicle, *number);
        let is_missing = !there.contains_key(number);
        let is_promised = chronicle.confirmed(*number).is_some_and(|confirmed| confirmed < *end);
        if is_missing && is_promised && !chronicle.may_be_gone(*number, enqueued_ms, *end) {
            let places = chronicle.found.get(number);
            violations.push(broken(format!("event {number} of partition {partition}, seen at {places:?}")));
        }
    }
    violations
}

fn place_of(chronicle: &Chronicle<'_>, number: EventNumber) -> Option<u64> {
    let places = chronicle.found.get(&number).into_iter().flatten();
    places.filter_map(|place| chronicle.places.get(place)).map(|event| event.enqueued_ms).max()
}

/// Checks that the events before the reported beginning of a partition are ones that retention may remove.
pub(super) fn nothing_goes_early(chronicle: &Chronicle<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    for look in &chronicle.looks {
        // The newest removed event decides.
        let gone = chronicle.places.range((look.partition, 0)..(look.partition, look.begin)).next_back();
        if let Some((place, event)) = gone
            && let Some(number) = event.number
            && !chronicle.may_be_gone(number, Some(event.enqueued_ms), look.answered)
        {
            let what = format!("{place:?} is gone: {event:?}, {look:?}");
            violations.push(Violation::new("no event goes before its time", None, what));
        }
    }
    violations
}

/// Checks that a crash reverts nothing that a reader or an observer has seen.
pub(super) fn what_was_seen_stays(chronicle: &Chronicle<'_>) -> Vec<Violation> {
    let broken = |what| Violation::new("what was seen stays", None, what);
    let mut seen: Vec<(Moment, u32, u64, u64)> = Vec::new();
    for link in &chronicle.links {
        seen.extend(link.events.iter().map(|(at, event)| (*at, link.partition, 0, event.sequence + 1)));
    }
    seen.extend(chronicle.looks.iter().map(|look| (look.answered, look.partition, look.begin, look.next)));
    seen.sort_unstable();
    let mut looks: Vec<_> = chronicle.looks.iter().collect();
    looks.sort_unstable_by_key(|look| look.asked);
    let mut known: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    let (mut seen, mut violations) = (seen.into_iter().peekable(), Vec::new());
    for look in looks {
        while let Some((_, partition, begin, next)) = seen.next_if(|(at, ..)| *at < look.asked) {
            let (begin_max, next_max) = known.entry(partition).or_default();
            (*begin_max, *next_max) = ((*begin_max).max(begin), (*next_max).max(next));
        }
        let (begin, next) = known.get(&look.partition).copied().unwrap_or_default();
        if look.next < next || look.begin < begin {
            violations.push(broken(format!("{look:?}, and before it was from {begin} to {next}")));
        }
    }
    violations
}
