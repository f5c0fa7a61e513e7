//! Judges a run by the observations of its clients. The oracle knows the broker's promises and nothing else of it.
//!
//! Without an answer, either outcome may have happened. Lock times are the broker's own; each run's clock at its start
//! converts them to world time.

mod alive;
mod blobs;
mod counting;
#[cfg(test)]
mod forge;
mod history;
mod hub;
mod identity;
mod limits;
mod locks;
mod loss;
mod order;
mod programs;
mod rest;
mod sessions;
mod stage;
mod time;
mod transactions;
mod urgency;
mod weights;

use std::fmt;

use crate::log::{Answer, Event, LogLine, MessageNumber};
use crate::scenario::Scenario;
use history::History;

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub promise: &'static str,
    pub message: Option<MessageNumber>,
    pub what: String,
    /// All log entries about the message.
    pub history: Vec<String>,
}

impl Violation {
    fn new(
        promise: &'static str,
        message: impl Into<Option<MessageNumber>>,
        what: impl Into<String>,
    ) -> Self {
        Violation { promise, message: message.into(), what: what.into(), history: Vec::new() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Violation { promise, message, what, history } = self;
        match message {
            Some(number) => write!(f, "{promise}: message {number}: {what}")?,
            None => write!(f, "{promise}: {what}")?,
        }
        history.iter().try_for_each(|line| write!(f, "\n    {line}"))
    }
}

/// Finds violations of one promise.
type Checker = fn(&History<'_>) -> Vec<Violation>;

const CHECKERS: [Checker; 32] = [
    trouble,
    identity::nothing_is_invented,
    identity::nothing_is_stored_twice,
    identity::all_or_nothing,
    loss::nothing_confirmed_is_lost,
    loss::nothing_completed_comes_back,
    locks::one_holder_at_a_time,
    locks::a_lock_lasts_as_promised,
    locks::a_lock_is_settled_once,
    locks::lock_times_are_true,
    counting::delivery_counts_never_fall,
    counting::dead_lettered_exactly_at_the_limit,
    order::sequence_numbers_follow_the_sends,
    order::peeks_tell_the_truth,
    rest::counts_equal_reality,
    sessions::one_holder_per_session,
    sessions::sessions_keep_their_order,
    sessions::messages_stay_in_their_session,
    sessions::session_state_is_what_was_kept,
    time::nothing_is_delivered_before_it_is_due,
    time::nothing_is_delivered_after_its_time,
    time::delays_are_kept,
    transactions::transactions_are_all_or_nothing,
    urgency::classes_are_what_was_asked_for,
    limits::receivers_hold_no_more_than_they_may,
    limits::rates_are_kept,
    limits::send_rates_are_kept,
    alive::every_link_gets_its_turn,
    programs::every_message_is_worked_on,
    programs::processors_make_progress,
    programs::sessions_are_worked_on_in_order,
    programs::stopped_processors_hold_no_lock,
];

/// The checkers of the order in which waiting messages are delivered. They run only where bodies are read in no time:
/// otherwise a message may be locked while its body is read for a receiver that has left, and the end of that lock is
/// unknown. For the same reason they do not run where the clock steps
/// during a run, or where reads fail.
const ORDER_CHECKERS: [Checker; 4] = [
    urgency::lanes_keep_their_order,
    urgency::strict_is_strict,
    urgency::aged_goes_by_age,
    weights::weights_are_kept,
];

/// Returns every promise that the log shows broken.
pub fn judge(scenario: &Scenario, entries: &[LogLine]) -> Vec<Violation> {
    let history = History::new(scenario, entries);
    let mut violations: Vec<_> = CHECKERS.iter().flat_map(|check| check(&history)).collect();
    let machine = &scenario.machine;
    if machine.disk_work_ms_max == 0 && !machine.steps_in_runs && machine.failing_reads_max == 0 {
        violations.extend(ORDER_CHECKERS.iter().flat_map(|check| check(&history)));
    }
    for violation in &mut violations {
        violation.history = violation.message.map(|number| history.lines_of(number)).unwrap_or_default();
    }
    violations.extend(hub::judge(scenario, entries));
    violations.extend(blobs::judge(entries));
    violations
}

/// Returns the events that must never happen.
fn trouble(history: &History<'_>) -> Vec<Violation> {
    let troubles = history.entries.iter().filter_map(|entry| match &entry.event {
        Event::Trouble { what } => Some(Violation::new("no trouble", None, format!("{entry}: {what}"))),
        _ => None,
    });
    troubles.collect()
}

/// Returns how many deliveries could have been found out of order, in one line.
pub fn judged(scenario: &Scenario, entries: &[LogLine]) -> String {
    let history = History::new(scenario, entries);
    let counts =
        urgency::judged_counts(&history).into_iter().chain([("weighted", weights::judged_count(&history))]);
    counts.map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
}

/// Summarises the events around the hub, if there is one.
pub fn hub_summary(scenario: &Scenario, entries: &[LogLine]) -> Option<String> {
    hub::summary(scenario, entries)
}

/// Summarises the programs with the SDK, if there are any.
pub fn program_summary(scenario: &Scenario, entries: &[LogLine]) -> Option<String> {
    scenario.programs.as_ref().map(|_| programs::summary(&History::new(scenario, entries)))
}

/// Summarises the log in one line.
pub fn summary(entries: &[LogLine]) -> String {
    let count = |matches: fn(&Event) -> bool| entries.iter().filter(|entry| matches(&entry.event)).count();
    let figures = [
        ("runs", count(|event| matches!(event, Event::Started { .. }))),
        ("sends", count(|event| matches!(event, Event::Sending { .. }))),
        ("confirmed", count(|event| matches!(event, Event::Sent { answer: Answer::Done, .. }))),
        ("received", count(|event| matches!(event, Event::Received(_)))),
        ("again", count(|event| matches!(event, Event::Received(seen) if seen.delivery_count > 0))),
        ("settled", count(|event| matches!(event, Event::Settled { answer: Answer::Done, .. }))),
        ("refused", count(|event| matches!(event, Event::Settled { answer: Answer::Refused { .. }, .. }))),
        ("unknown", count(|event| matches!(event, Event::Settled { answer: Answer::Unknown, .. }))),
        ("renewed", count(|event| matches!(event, Event::Renewed { answer: Answer::Done, .. }))),
        ("holds", count(|event| matches!(event, Event::Holding { .. }))),
        ("cancelled", count(|event| matches!(event, Event::Cancelled { answer: Answer::Done, .. }))),
        ("committed", count(|event| matches!(event, Event::Committed { answer: Answer::Done, .. }))),
        ("peeks", count(|event| matches!(event, Event::Peeked { .. }))),
    ];
    figures.map(|(name, count)| format!("{name} {count}")).join(", ")
}
