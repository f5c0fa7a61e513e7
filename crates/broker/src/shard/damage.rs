//! Bodies that are damaged on disk: each is logged once, counted, and set aside so that it does not block others.
//!
//! A message with a damaged body is moved to the dead-letter queue; events of a damaged extent are marked as lost. Both
//! are facts. Nothing waits for a body that can never be read, and the log can reuse its space.

use std::sync::atomic::{AtomicU64, Ordering};

use peeklock_engine::LiveBody;
use peeklock_hubs::{Run, StreamId};
use peeklock_journal::Log;
use peeklock_types::BodyRef;

use crate::broker::Broker;
use crate::shard::outgoing::Damaged;
use crate::shard::{Failure, Shard};

/// Counts of the damage found in all shards since the start.
#[derive(Debug, Default)]
pub(crate) struct DamageCounts {
    messages: AtomicU64,
    events: AtomicU64,
}

/// The losses since the broker was started because the disk returned other bytes than were written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    pub message_count: u64,
    pub event_count: u64,
}

impl Broker {
    pub fn damage(&self) -> Damage {
        Damage {
            message_count: self.damage.messages.load(Ordering::Relaxed),
            event_count: self.damage.events.load(Ordering::Relaxed),
        }
    }
}

impl<L: Log> Shard<L> {
    /// Dead-letters messages whose body can no longer be read.
    pub(crate) fn lose_bodies(&mut self, bodies: &[LiveBody], why: &str) -> Result<(), Failure> {
        for body in bodies {
            self.lose_body(body, why);
            self.end_large_group();
        }
        self.collect();
        self.append_group()
    }

    /// Dead-letters one message. Returns whether the message still existed.
    fn lose_body(&mut self, body: &LiveBody, why: &str) -> bool {
        let now = self.read_clock();
        // An empty body still gets its own place, because code that moves bodies identifies them by their places.
        let Ok(instead) = self.group.put_body(&[0; BodyRef::ALIGNMENT]) else { return false };
        let lost = (body.entity, body.sequence_number, body.place);
        let is_lost = self.state.engine.lose_body(now, lost, instead, why, &mut self.output);
        self.collect();
        if is_lost {
            let name = self.state.engine.queue(body.entity).map(|queue| queue.name.to_string());
            tracing::error!(
                shard = self.id.0,
                "message {} of '{}' has lost its body and is set aside with the dead letters: {why}",
                body.sequence_number.0,
                name.unwrap_or_default()
            );
            self.note_place(body.place);
            self.damage.messages.fetch_add(1, Ordering::Relaxed);
        }
        is_lost
    }

    /// Dead-letters messages that were due for delivery with a damaged body. The messages are not delivered, and the
    /// receiver gets its credit back for other messages.
    pub(crate) fn set_damaged_aside(&mut self) -> Result<(), Failure> {
        let damaged = self.outgoing.take_damaged();
        if damaged.is_empty() {
            return Ok(());
        }
        for Damaged { body, receiver, removes_later, why } in damaged {
            let LiveBody { entity, sequence_number, size_bytes, .. } = body;
            if !self.lose_body(&body, &why) && self.state.engine.message_is_gone(entity, sequence_number) {
                // Under receive-and-delete, the message was removed before its body was read.
                let number = sequence_number.0;
                tracing::error!(
                    shard = self.id.0,
                    "message {number} was deleted as received, but is lost: {why}"
                );
                self.damage.messages.fetch_add(1, Ordering::Relaxed);
            }
            if let Some(receiver) = receiver {
                self.end_failed(receiver, size_bytes, removes_later);
            }
        }
        let now = self.read_clock();
        self.deliver_and_append(now)
    }

    /// Marks the events of an extent as lost.
    pub(crate) fn lose_extent(&mut self, stream: StreamId, sequence: u64, place: BodyRef, why: &str) {
        let lost = self.state.hubs.lose_extent(stream, sequence, place, &mut self.hub_output);
        let Some(events) = lost else { return };
        let partition = self.state.hubs.stream_name(stream);
        let (hub, number) = partition.map(|(name, number)| (name.to_string(), number)).unwrap_or_default();
        tracing::error!(
            shard = self.id.0,
            "events {} to {} of partition {number} of '{hub}' are lost: {why}",
            events.start,
            events.end.saturating_sub(1)
        );
        self.note_place(place);
        self.damage.events.fetch_add(events.end - events.start, Ordering::Relaxed);
    }

    fn note_place(&mut self, place: BodyRef) {
        if !place.is_standalone() {
            self.housekeeping.hurt_log();
        }
    }

    /// Handles a damaged read for a reader. The extents are read once more, one at a time, before any is marked as
    /// lost.
    pub(crate) fn on_damaged_run(&mut self, run: &Run, why: &str) {
        let is_current = self.state.hubs.is_current(run);
        if !is_current {
            return self.state.hubs.run_failed(run);
        }
        let is_clear = self.state.hubs.run_damaged(run);
        if let Some((place, _)) = run.bodies.first().filter(|_| is_clear) {
            self.lose_extent(run.stream, run.from, *place, why);
        }
    }
}
