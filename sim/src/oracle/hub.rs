//! Judges the observations of the hub's clients.

mod chronicle;
mod events;
#[cfg(test)]
mod forge;
mod links;
mod owners;
mod processors;
mod retention;

use super::Violation;
use crate::log::LogLine;
use crate::scenario::Scenario;
use chronicle::Chronicle;

type Checker = fn(&Chronicle<'_>) -> Vec<Violation>;

const CHECKERS: [Checker; 22] = [
    events::nothing_is_invented,
    events::one_place_one_event,
    events::nothing_is_stored_twice,
    events::batches_stay_together,
    events::events_follow_the_sends,
    events::times_never_fall,
    events::numbers_are_taken,
    retention::nothing_confirmed_is_lost,
    retention::nothing_goes_early,
    retention::what_was_seen_stays,
    links::links_have_no_gaps,
    links::readers_start_where_they_asked,
    links::refusals_are_right,
    links::nobody_reads_beside_an_owner,
    links::readers_are_few,
    owners::one_claim_wins,
    owners::epochs_grow,
    owners::checkpoints_never_fall,
    owners::former_owners_note_nothing,
    processors::nothing_is_left_out,
    processors::partitions_are_shared,
    processors::nobody_moves_without_need,
];

pub(super) fn judge(scenario: &Scenario, entries: &[LogLine]) -> Vec<Violation> {
    let Some(chronicle) = Chronicle::new(scenario, entries) else { return Vec::new() };
    CHECKERS.iter().flat_map(|check| check(&chronicle)).collect()
}

/// Summarises the events around the hub in one line.
pub(super) fn summary(scenario: &Scenario, entries: &[LogLine]) -> Option<String> {
    Some(Chronicle::new(scenario, entries)?.figures())
}
