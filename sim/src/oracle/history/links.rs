//! Receivers, and the times at which their deliveries may have been lost.

use std::collections::BTreeSet;

use super::{History, ms};
use crate::log::{Event, Part, QueueIndex};

/// The longest time from the end of a connection to its effect. The broker notices the end at once, but may process
/// other events first.
const NOTICE_MS: i64 = 100;

/// A receiver of one queue, from the time when it was opened.
#[derive(Clone, Debug)]
pub(in crate::oracle) struct Link {
    pub(in crate::oracle) queue: QueueIndex,
    pub(in crate::oracle) part: Part,
    pub(in crate::oracle) opened_ms: i64,
    /// The time at which the broker made the last lock that the receiver saw. The receiver saw all earlier ones,
    /// because deliveries are in order.
    last_lock_ms: i64,
    /// The time at which its connection was cut, or the broker was gone.
    ended_ms: i64,
    /// Whether it deletes the messages that it receives: the time at which a message left the queue is then unknown.
    deletes: bool,
    /// Whether it stopped the credit and received everything in flight.
    saw_all: bool,
}

impl History<'_> {
    pub(super) fn collect_links(&mut self) {
        let mut connections = Vec::new();
        let mut deleting = BTreeSet::new();
        for entry in self.entries {
            let at_ms = ms(entry.at_ms);
            match &entry.event {
                Event::Attaching { link, queue, part, run, connection } => {
                    let ended_ms = self.run(*run).map_or(i64::MAX, |run| run.end_ms);
                    let (queue, part, opened_ms) = (*queue, *part, at_ms);
                    let (last_lock_ms, deletes, saw_all) = (at_ms, deleting.contains(link), false);
                    let made = Link { queue, part, opened_ms, last_lock_ms, ended_ms, deletes, saw_all };
                    self.links.insert(*link, made);
                    connections.push((*link, *connection, ended_ms));
                }
                // A connection may be silent for a while before its end: the last entry counts.
                Event::Broken { connection } => {
                    for (link, _, run_end_ms) in connections.iter().filter(|(_, of, _)| of == connection) {
                        if let Some(link) = self.links.get_mut(link) {
                            link.ended_ms = at_ms.min(*run_end_ms);
                        }
                    }
                }
                Event::Deleting { request, .. } => drop(deleting.insert(*request)),
                Event::DeletingEnded { request } => {
                    self.links.entry(*request).and_modify(|link| link.saw_all = true);
                }
                _ => {}
            }
        }
        let deliveries = self.messages.values().flat_map(|message| &message.deliveries);
        let seen = deliveries.filter(|delivery| !delivery.is_deleted());
        for (link, at_ms) in seen.filter_map(|delivery| Some((delivery.seen.link?, delivery.locked_at_ms))) {
            self.links.entry(link).and_modify(|link| link.last_lock_ms = link.last_lock_ms.max(at_ms));
        }
    }

    /// Returns the times between which a receiver was certainly attached.
    pub(in crate::oracle) fn attached(link: &Link) -> (i64, i64) {
        (link.opened_ms, link.ended_ms)
    }

    fn slack_ms(&self) -> i64 {
        NOTICE_MS + ms(self.scenario.machine.disk_stall_ms_max + 2 * self.scenario.machine.commit_ms_max)
    }

    fn links_of(&self, queue: QueueIndex) -> impl Iterator<Item = &Link> {
        self.links.values().filter(move |link| link.queue == queue && link.part == Part::Main)
    }

    /// Returns the times at which messages of a queue may have been locked, or deleted, for a receiver that never saw
    /// them.
    pub(in crate::oracle) fn dim_times(&self, queue: QueueIndex) -> BTreeSet<(i64, i64)> {
        let dim = self.links_of(queue).filter(|link| !link.saw_all);
        dim.map(|link| (link.last_lock_ms, link.ended_ms.saturating_add(self.slack_ms()))).collect()
    }

    /// Returns the times at which messages left a queue at unknown moments.
    pub(in crate::oracle) fn blurred_times(&self, queue: QueueIndex) -> BTreeSet<(i64, i64)> {
        let blurred = self.links_of(queue).filter(|link| link.deletes);
        blurred.map(|link| (link.opened_ms, link.ended_ms.saturating_add(self.slack_ms()))).collect()
    }
}
