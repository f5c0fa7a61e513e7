//! Checks the promises to readers: a start at the requested position, no gap, no repeat, and no reader beside an owner.

use std::collections::BTreeMap;

use peeklock_broker::hubs::StartAt;
use peeklock_types::{ExpiredPosition, limits};

use super::Violation;
use super::chronicle::{Chronicle, Link, Moment};
use crate::log::{ReadEnd, Refusal};
use crate::scenario::hub::PASSING;

impl Chronicle<'_> {
    /// Returns whether all of these places may be retired, by the events that were seen there.
    fn may_all_be_gone(&self, partition: u32, from: u64, upto: u64, at: Moment) -> bool {
        let mut places = self.places.range((partition, from)..(partition, upto.max(from)));
        places.all(|(_, event)| {
            event.number.is_none_or(|number| self.may_be_gone(number, Some(event.enqueued_ms), at))
        })
    }

    fn goes_on_at_what_is_there(&self) -> bool {
        self.hub.settings.expired_position == ExpiredPosition::Earliest
    }

    /// Returns the first event that the reader requested, where its start names one.
    fn wanted(link: &Link) -> Option<u64> {
        match link.start {
            StartAt::Sequence { sequence, inclusive } => Some(sequence + u64::from(!inclusive)),
            _ => None,
        }
    }
}

pub(super) fn links_have_no_gaps(chronicle: &Chronicle<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    for link in &chronicle.links {
        for pair in link.events.windows(2) {
            let [(_, one), (at, next)] = pair else { continue };
            let expected = one.sequence + 1;
            let is_overtaken = chronicle.goes_on_at_what_is_there()
                && next.sequence > expected
                && chronicle.may_all_be_gone(link.partition, expected, next.sequence, *at);
            if next.sequence != expected && !is_overtaken {
                let what = format!(
                    "link {} of {}: {} after {}",
                    link.number, link.party, next.sequence, one.sequence
                );
                violations.push(Violation::new("a reader sees no gap and no repeat", None, what));
            }
        }
    }
    violations
}

pub(super) fn readers_start_where_they_asked(chronicle: &Chronicle<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    for link in &chronicle.links {
        let Some((at, first)) = link.events.first() else { continue };
        let wrong = match link.start {
            StartAt::Earliest => wrong_earliest(chronicle, link, first.sequence, *at),
            StartAt::Latest => wrong_latest(chronicle, link, first.sequence),
            StartAt::Sequence { .. } => wrong_sequence(chronicle, link, first.sequence, *at),
            StartAt::Time { at, inclusive } => {
                let from = at.as_millis() + u64::from(!inclusive);
                let before =
                    chronicle.places.range((link.partition, 0)..(link.partition, first.sequence)).next_back();
                let is_late = before.is_some_and(|((_, sequence), before)| {
                    before.enqueued_ms >= from
                        && !chronicle.may_all_be_gone(
                            link.partition,
                            *sequence,
                            first.sequence,
                            link.events[0].0,
                        )
                });
                // A start time in the future is the end of the partition; later events are delivered.
                let was_there = first.number.and_then(|number| chronicle.confirmed(number));
                let is_early =
                    first.enqueued_ms < from && was_there.is_some_and(|confirmed| confirmed < link.asked);
                (is_early || is_late).then(|| format!("from {from} on, and before it {before:?}"))
            }
        };
        if let Some(why) = wrong {
            let what =
                format!("link {} ({}, {:?}) got {first:?} first: {why}", link.number, link.party, link.start);
            violations.push(Violation::new("readers start where they asked to", None, what));
        }
    }
    violations
}

/// Returns a violation if an event is skipped that existed at the start and cannot be retired.
fn wrong_earliest(chronicle: &Chronicle<'_>, link: &Link, first: u64, at: Moment) -> Option<String> {
    let left_out = chronicle.places.range((link.partition, 0)..(link.partition, first)).next_back();
    let (_, event) = left_out?;
    let may_go = event.number.is_none_or(|number| chronicle.may_be_gone(number, Some(event.enqueued_ms), at));
    (!may_go).then(|| format!("{event:?} is left out"))
}

fn wrong_latest(chronicle: &Chronicle<'_>, link: &Link, first: u64) -> Option<String> {
    let opened = link.opened?;
    for ((_, sequence), event) in chronicle.places.range((link.partition, 0)..(link.partition, u64::MAX)) {
        let Some(number) = event.number else { continue };
        let is_old = chronicle.confirmed(number).is_some_and(|confirmed| confirmed < link.asked);
        let attempts = || chronicle.attempts_of(number);
        let is_single = attempts().count() == 1 || attempts().all(|sent| sent.numbered.is_some());
        if *sequence >= first && is_old && is_single {
            return Some(format!("{event:?} was there before"));
        }
        let is_new = attempts().all(|sent| sent.asked > opened);
        if *sequence < first && is_new {
            return Some(format!("{event:?} came after, and is left out"));
        }
    }
    None
}

fn wrong_sequence(chronicle: &Chronicle<'_>, link: &Link, first: u64, at: Moment) -> Option<String> {
    let wanted = Chronicle::wanted(link)?;
    let is_moved = chronicle.goes_on_at_what_is_there()
        && first > wanted
        && chronicle.may_all_be_gone(link.partition, wanted, first, at);
    (first != wanted && !is_moved).then(|| format!("wanted {wanted}"))
}

pub(super) fn refusals_are_right(chronicle: &Chronicle<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    for link in &chronicle.links {
        let refused =
            link.refused.as_ref().and_then(|(at, refusal)| wrong_refusal(chronicle, link, *at, refusal));
        let ended = link.ended.as_ref().and_then(|(at, how)| wrong_end(chronicle, link, *at, how));
        for why in refused.into_iter().chain(ended) {
            let what = format!("link {} ({}, {:?}): {why}", link.number, link.party, link.start);
            violations.push(Violation::new("readers are refused and ended for good reasons", None, what));
        }
    }
    violations
}

fn wrong_refusal(chronicle: &Chronicle<'_>, link: &Link, at: Moment, refusal: &Refusal) -> Option<String> {
    let is_right = match refusal {
        Refusal::OwnerLevel { current } => link.level.is_none_or(|level| level < *current),
        Refusal::TooMany => link.level.is_none(),
        Refusal::BeyondEnd { last } => {
            let seen = |other: &Link| {
                let events = other.events.iter().filter(|(at, _)| *at < link.asked);
                events.map(|(_, event)| event.sequence).max()
            };
            let others = chronicle.links.iter().filter(|other| other.partition == link.partition);
            let newest = others.filter_map(seen).max().map_or(-1, u64::cast_signed);
            Chronicle::wanted(link).is_some_and(|wanted| wanted.cast_signed() > last + 1) && *last >= newest
        }
        Refusal::Expired { first } => Chronicle::wanted(link).is_some_and(|wanted| {
            !chronicle.goes_on_at_what_is_there()
                && wanted < *first
                && chronicle.may_all_be_gone(link.partition, wanted, *first, at)
        }),
        Refusal::Missing => link.group == PASSING,
        Refusal::Other(_) => false,
    };
    (!is_right).then(|| format!("{refusal:?}"))
}

fn wrong_end(chronicle: &Chronicle<'_>, link: &Link, at: Moment, how: &ReadEnd) -> Option<String> {
    let is_right = match how {
        ReadEnd::Stolen => chronicle.links.iter().any(|other| {
            let is_here = (other.group, other.partition, other.run) == (link.group, link.partition, link.run);
            is_here
                && other.number != link.number
                && other.level >= link.level
                && other.level.is_some()
                && other.asked < at
        }),
        ReadEnd::Expired { next, first } => {
            let goes_on = link.events.last().map(|(_, event)| event.sequence + 1);
            !chronicle.goes_on_at_what_is_there()
                && next < first
                // A reader that is ended does not see the events in flight.
                && goes_on.is_none_or(|goes_on| goes_on <= *next)
                && chronicle.may_all_be_gone(link.partition, *next, *first, at)
        }
        ReadEnd::Deleted => link.group == PASSING,
        ReadEnd::Other(why) => {
            let is_unreadable = why.contains("Unreadable") || why.contains("cannot be read from the disk");
            chronicle.does_disk_fail && is_unreadable
        }
        ReadEnd::Lost | ReadEnd::Left => true,
    };
    (!is_right).then(|| format!("{how:?}"))
}

/// Checks that after a reader with an owner level attaches, earlier readers get nothing more, and readers without a
/// level are rejected.
pub(super) fn nobody_reads_beside_an_owner(chronicle: &Chronicle<'_>) -> Vec<Violation> {
    let mut by_place: BTreeMap<_, Vec<&Link>> = BTreeMap::new();
    for link in chronicle.links.iter().filter(|link| link.opened.is_some()) {
        by_place.entry((link.group, link.partition, link.run)).or_default().push(link);
    }
    let mut violations = Vec::new();
    for links in by_place.values() {
        for newer in links {
            let Some(opened) = newer.opened else { continue };
            let older = links.iter().filter(|older| older.opened.is_some_and(|older| older < newer.asked));
            let older = older.filter(|older| newer.level.is_some() || older.level.is_some());
            for older in older {
                let late_ms = if older.is_wired { chronicle.under_way_ms_max } else { 0 };
                if older.events.last().is_some_and(|(at, _)| *at > opened && at.ms >= opened.ms + late_ms) {
                    let what = format!(
                        "link {} ({}, level {:?}) gets events after link {} ({}, level {:?}) was let in",
                        older.number, older.party, older.level, newer.number, newer.party, newer.level
                    );
                    violations.push(Violation::new("nobody reads beside an owner", None, what));
                }
            }
        }
    }
    violations
}

/// Checks the number of readers by the broker's list and by the readers' events: a reader with an event was attached
/// from its acceptance at least until that event was sent.
pub(super) fn readers_are_few(chronicle: &Chronicle<'_>) -> Vec<Violation> {
    let mut violations = too_many_at_once(chronicle);
    for look in &chronicle.looks {
        let mut groups: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (group, level) in &look.readers {
            groups.entry(group).or_default().push(level);
        }
        let too_many = |levels: &Vec<&Option<i64>>| {
            let has_owner = levels.iter().any(|level| level.is_some());
            levels.len() > if has_owner { 1 } else { limits::PLAIN_READERS_MAX }
        };
        for (group, levels) in groups.iter().filter(|(_, levels)| too_many(levels)) {
            let what = format!("{group} reads partition {} with {levels:?}", look.partition);
            violations.push(Violation::new("one reader with a level, or five without", None, what));
        }
    }
    violations
}

fn too_many_at_once(chronicle: &Chronicle<'_>) -> Vec<Violation> {
    let mut by_place: BTreeMap<_, Vec<(Moment, Moment, &Link)>> = BTreeMap::new();
    for link in chronicle.links.iter().filter(|link| link.level.is_none()) {
        let last = link.events.last().and_then(|(_, event)| event.number);
        let sent = last.and_then(|last| chronicle.attempts_of(last).map(|sent| sent.asked).min());
        if let (Some(opened), Some(sent)) = (link.opened, sent)
            && opened < sent
        {
            by_place.entry((link.group, link.partition, link.run)).or_default().push((opened, sent, link));
        }
    }
    let mut violations = Vec::new();
    for spans in by_place.values() {
        for (at, _, newest) in spans {
            let is_there = |(from, upto, _): &&(Moment, Moment, &Link)| (from..upto).contains(&at);
            let count = spans.iter().filter(is_there).count();
            if count > limits::PLAIN_READERS_MAX {
                let what = format!(
                    "link {} ({}) was let into partition {}: {count} read now",
                    newest.number, newest.party, newest.partition
                );
                violations.push(Violation::new("one reader with a level, or five without", None, what));
            }
        }
    }
    violations
}
