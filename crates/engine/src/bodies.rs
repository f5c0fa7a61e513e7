//! Finds the bodies that are still needed, so that the journal can reuse the space of the others.

use std::collections::BTreeSet;
use std::ops::Bound;

use peeklock_types::{
    BodyRange, BodyRef, CommitGroupNumber, EntityKind, EntityName, SequenceNumber, StoredBody, SubQueue,
};

use crate::engine::Engine;
use crate::fact::Fact;
use crate::message::EntityId;
use crate::output::Output;
use crate::queue::{MessageRow, Queue, Row, standalone};

/// A body that a message still needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveBody {
    pub entity: EntityId,
    pub sequence_number: SequenceNumber,
    pub place: BodyRef,
    pub size_bytes: u32,
}

/// The position of a search for standalone bodies in a range. Without it, each call would repeat the search of the
/// earlier calls.
#[derive(Clone, Debug)]
pub(crate) struct StandaloneScan {
    range: BodyRange,
    /// The message at which the search continues. `None` at the beginning.
    at: Option<(EntityName, SubQueue, SequenceNumber)>,
}

impl Engine {
    /// Returns the oldest commit group with a body that a message still needs; `None` if there is none. Visits every
    /// queue, but not its messages.
    pub fn oldest_log_body(&mut self) -> Option<CommitGroupNumber> {
        let parts = self.queues.values_mut().flat_map(|queue| queue.used_parts_mut());
        parts.filter_map(|part| part.messages.oldest_in_log()).min()
    }

    /// Returns up to `max` live bodies of the range, in the order of each queue. An empty result means that no live
    /// body is in the range.
    ///
    /// A body that was returned and not moved is returned again: for commit groups by the next call, for standalone
    /// bodies after the search has reached its end.
    pub fn bodies_in(&mut self, range: BodyRange, max: usize) -> Vec<LiveBody> {
        let found = match range.last_group() {
            Some(upto) => self.bodies_in_groups(upto, max),
            None => self.standalone_bodies_in(range, max),
        };
        if found.is_empty() {
            self.shared.forget_copies();
        }
        found
    }

    /// Journals that a body was copied to `to`. Returns `false` and changes nothing if the message is gone, its body is
    /// no longer at `from`, or `to` is not a standalone body; the copy is then garbage.
    pub fn move_body(
        &mut self,
        entity: EntityId,
        sequence_number: SequenceNumber,
        from: BodyRef,
        to: BodyRef,
        out: &mut Output,
    ) -> bool {
        let Some(queue) = self.queues.get(&entity) else { return false };
        let body = queue.entry(sequence_number).map(|entry| entry.body);
        let fits = body == Some(from) && to.is_standalone() && from != to;
        if fits {
            let is_copy = queue.kind == EntityKind::Subscription;
            let again = self.shared.copy_of(from) == Some(to);
            self.record(Fact::Moved { entity, sequence_number, from, to, again }, out);
            if is_copy && !again {
                self.shared.note_copy(from, to);
            }
        }
        fits
    }

    /// Returns the place to which this body was copied for another copy of the same message. The caller then only needs
    /// to [move](Engine::move_body) it, without a second copy.
    pub fn copy_of(&self, from: BodyRef) -> Option<BodyRef> {
        self.shared.copy_of(from)
    }

    /// Returns every standalone body once. The broker reports them to the journal after recovery.
    pub fn standalone_bodies(&self) -> impl Iterator<Item = StoredBody> {
        let mut seen = BTreeSet::new();
        let bodies = self.all_standalone_bodies();
        bodies.filter(move |body| !self.shared.is_shared(body.place) || seen.insert(body.place))
    }

    fn all_standalone_bodies(&self) -> impl Iterator<Item = StoredBody> {
        let parts = self.names.values().filter_map(|entity| self.queues.get(entity));
        let parts = parts.flat_map(|queue| queue.parts());
        let parts = parts.filter(|part| part.messages.standalone_count() > 0);
        parts.flat_map(|part| {
            part.messages.iter_from(SequenceNumber(0)).filter_map(|(_, entry)| standalone(&entry))
        })
    }

    fn bodies_in_groups(&mut self, upto: CommitGroupNumber, max: usize) -> Vec<LiveBody> {
        let mut found = Vec::new();
        for entity in self.names.values() {
            let Some(queue) = self.queues.get_mut(entity) else { continue };
            for part in queue.used_parts_mut() {
                let room = max - found.len();
                let bodies = part.messages.in_log_upto(upto).take(room);
                found.extend(bodies.map(|(number, entry)| live(*entity, number, &entry)));
            }
            if found.len() >= max {
                break;
            }
        }
        found
    }

    fn standalone_bodies_in(&mut self, range: BodyRange, max: usize) -> Vec<LiveBody> {
        let resumed = self.standalone_scan.take().filter(|scan| scan.range == range);
        let mut scan = resumed.unwrap_or(StandaloneScan { range, at: None });
        let started_inside = scan.at.is_some();
        let mut found = self.search_standalone(&mut scan, max);
        if found.is_empty() && started_inside {
            // No body is left after the position of the search. Moves of earlier bodies may have failed, so the search
            // starts again from the beginning.
            found = self.search_standalone(&mut scan, max);
        }
        self.standalone_scan = scan.at.is_some().then_some(scan);
        found
    }

    /// Continues the search at `scan`, and stores there the position for the next call. At the end, the next call
    /// starts from the beginning.
    fn search_standalone(&self, scan: &mut StandaloneScan, max: usize) -> Vec<LiveBody> {
        let mut found = Vec::new();
        let start = scan.at.take();
        let first = start.as_ref().map_or(Bound::Unbounded, |(name, ..)| Bound::Included(name));
        for entity in self.names.range((first, Bound::Unbounded)).map(|(_, entity)| entity) {
            let Some(queue) = self.queues.get(entity) else { continue };
            for sub_queue in SubQueue::ALL {
                let from = match &start {
                    Some((name, passed, _)) if queue.name == *name && sub_queue < *passed => continue,
                    Some((name, here, number)) if queue.name == *name && sub_queue == *here => *number,
                    _ => SequenceNumber(0),
                };
                let stopped = collect_standalone_bodies(queue, sub_queue, from, scan.range, max, &mut found);
                if let Some(number) = stopped {
                    scan.at = Some((queue.name.clone(), sub_queue, number));
                    return found;
                }
            }
        }
        found
    }
}

impl Queue {
    fn entry(&self, number: SequenceNumber) -> Option<Row<'_>> {
        self.sub_queue_of(number).and_then(|sub_queue| self.part(sub_queue).messages.get(number))
    }
}

/// Collects bodies until there are `max` of them, and then returns the message at which to continue.
fn collect_standalone_bodies(
    queue: &Queue,
    sub_queue: SubQueue,
    from: SequenceNumber,
    range: BodyRange,
    max: usize,
    found: &mut Vec<LiveBody>,
) -> Option<SequenceNumber> {
    let messages = &queue.part(sub_queue).messages;
    if messages.standalone_count() == 0 {
        return None;
    }
    for (number, entry) in messages.iter_from(from) {
        if found.len() >= max {
            return Some(number);
        }
        if range.contains(entry.body) {
            found.push(live(queue.entity, number, &entry));
        }
    }
    None
}

fn live(entity: EntityId, sequence_number: SequenceNumber, entry: &MessageRow) -> LiveBody {
    LiveBody { entity, sequence_number, place: entry.body, size_bytes: entry.size_bytes }
}
