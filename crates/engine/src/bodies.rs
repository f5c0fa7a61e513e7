//! Which bodies are still needed, so that the journal's space can be used again.

use std::collections::BTreeSet;
use std::ops::Bound;

use peeklock_types::{
    BodyPlace, BodyRef, CommitGroupNumber, EntityKind, EntityName, SequenceNumber, SubQueue,
};

use crate::engine::Engine;
use crate::fact::Fact;
use crate::message::EntityId;
use crate::output::{ColdBody, Output};
use crate::queue::{Entry, Queue, cold};

/// Which bodies should move so that space can be used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evacuate {
    /// Bodies in groups at or before this one.
    Groups { upto: CommitGroupNumber },
    /// Bodies in this cold segment.
    Cold { segment: u32 },
}

/// A body that a message still needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveBody {
    pub entity: EntityId,
    pub sequence_number: SequenceNumber,
    pub place: BodyRef,
    pub size_bytes: u32,
}

/// How far a search for the bodies of a cold segment has come. Without it each call would walk over all that earlier calls found.
#[derive(Clone, Debug)]
pub(crate) struct ColdScan {
    segment: u32,
    /// `None`: at the very beginning.
    at: Option<(EntityName, SubQueue, SequenceNumber)>,
}

impl Engine {
    /// The oldest group with a body that a message still needs; `None` if every body is gone or in a cold segment. Looks at every queue, but
    /// not at its messages.
    pub fn oldest_log_body(&mut self) -> Option<CommitGroupNumber> {
        let parts = self.queues.values_mut().flat_map(|queue| queue.parts_mut());
        parts.filter_map(|part| part.messages.oldest_in_log()).min()
    }

    /// Up to `max` bodies that should move, in the order of each queue. An empty answer means that there are none.
    ///
    /// Bodies that were returned and not moved are returned again: for groups by the next call, for a cold segment after the search came to
    /// its end.
    pub fn bodies_in(&mut self, what: Evacuate, max: usize) -> Vec<LiveBody> {
        let found = match what {
            Evacuate::Groups { upto } => self.bodies_in_groups(upto, max),
            Evacuate::Cold { segment } => self.bodies_in_cold(segment, max),
        };
        if found.is_empty() {
            self.shared.forget_copies();
        }
        found
    }

    /// Journals that a body was copied to the cold segment at `to`. `false`, and nothing happens, if the message is gone, its body does
    /// not lie at `from` any more, or `to` is not in a cold segment; the copy is then garbage.
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
        let fits = body == Some(from) && to.is_cold() && from != to;
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

    /// Where this body was copied to for another copy of the same message: it need not be copied once more, only
    /// [moved](Engine::move_body).
    pub fn copy_of(&self, from: BodyRef) -> Option<BodyRef> {
        self.shared.copy_of(from)
    }

    /// Every body in a cold segment, once; asked after recovery.
    pub fn cold_bodies(&self) -> impl Iterator<Item = ColdBody> {
        let mut seen = BTreeSet::new();
        let bodies = self.all_cold_bodies();
        bodies.filter(move |body| !self.shared.is_shared(body.place) || seen.insert(body.place))
    }

    fn all_cold_bodies(&self) -> impl Iterator<Item = ColdBody> {
        let parts = self.names.values().filter_map(|entity| self.queues.get(entity));
        let parts = parts.flat_map(|queue| queue.parts());
        let parts = parts.filter(|part| part.messages.cold_count() > 0);
        parts.flat_map(|part| part.messages.iter_from(SequenceNumber(0)).filter_map(|(_, entry)| cold(entry)))
    }

    fn bodies_in_groups(&mut self, upto: CommitGroupNumber, max: usize) -> Vec<LiveBody> {
        let mut found = Vec::new();
        for entity in self.names.values() {
            let Some(queue) = self.queues.get_mut(entity) else { continue };
            for part in queue.parts_mut() {
                let room = max - found.len();
                let bodies = part.messages.in_log_upto(upto).take(room);
                found.extend(bodies.map(|(number, entry)| live(*entity, number, entry)));
            }
            if found.len() >= max {
                break;
            }
        }
        found
    }

    fn bodies_in_cold(&mut self, segment: u32, max: usize) -> Vec<LiveBody> {
        let resumed = self.cold_scan.take().filter(|scan| scan.segment == segment);
        let mut scan = resumed.unwrap_or(ColdScan { segment, at: None });
        let started_inside = scan.at.is_some();
        let mut found = self.search_cold(&mut scan, max);
        if found.is_empty() && started_inside {
            // The rest has none, and the search is back at the beginning: look at what came before, as moves may have failed.
            found = self.search_cold(&mut scan, max);
        }
        self.cold_scan = scan.at.is_some().then_some(scan);
        found
    }

    /// Searches on from `scan`, and leaves there where to go on; at the end, the beginning.
    fn search_cold(&self, scan: &mut ColdScan, max: usize) -> Vec<LiveBody> {
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
                let stopped = collect_cold_bodies(queue, sub_queue, from, scan.segment, max, &mut found);
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
    fn entry(&self, number: SequenceNumber) -> Option<&Entry> {
        self.sub_queue_of(number).and_then(|sub_queue| self.part(sub_queue).messages.get(number))
    }
}

/// Returns the message to go on with when there are enough.
fn collect_cold_bodies(
    queue: &Queue,
    sub_queue: SubQueue,
    from: SequenceNumber,
    wanted: u32,
    max: usize,
    found: &mut Vec<LiveBody>,
) -> Option<SequenceNumber> {
    let messages = &queue.part(sub_queue).messages;
    if messages.cold_count() == 0 {
        return None;
    }
    for (number, entry) in messages.iter_from(from) {
        if found.len() >= max {
            return Some(number);
        }
        if matches!(entry.body.place(), BodyPlace::Cold { segment, .. } if segment == wanted) {
            found.push(live(queue.entity, number, entry));
        }
    }
    None
}

fn live(entity: EntityId, sequence_number: SequenceNumber, entry: &Entry) -> LiveBody {
    LiveBody { entity, sequence_number, place: entry.body, size_bytes: entry.size_bytes }
}
