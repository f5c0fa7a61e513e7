//! The part of an order that snapshots contain: it follows from facts, but not from the messages alone. Lanes are
//! stored before the messages, the pace of the order after them.

use peeklock_types::wire::tags::{pace, stored_lane};
use peeklock_types::{limits, tagged_fields};

use super::lane::Lane;
use super::{LaneKey, LaneSlot, Order};
use crate::wire::{DecodeError, Decoder, Wire};

const WHAT: &str = "a lane";

struct StoredLane {
    place: u64,
    key: LaneKey,
    is_open: bool,
}

tagged_fields! { StoredLane in stored_lane {
    PLACE: place,
    KEY: key,
    IS_OPEN: is_open,
}}

/// The progress of the classes and lanes of an order.
struct Pace {
    virtual_time: u64,
    estimate_ms: u32,
    sweep_at: u64,
    /// Tag and virtual time of each class.
    classes: Vec<(u64, u64)>,
    /// Tag and estimate of each lane.
    lanes: Vec<(u64, u32)>,
}

tagged_fields! { Pace in pace {
    VIRTUAL_TIME: virtual_time,
    ESTIMATE_MS: estimate_ms,
    SWEEP_AT: sweep_at,
    CLASSES: classes,
    LANES: lanes,
}}

impl Order {
    pub(crate) fn put_lanes(&self, out: &mut Vec<u8>) {
        for (place, lane) in self.lanes.iter().enumerate() {
            let Some(lane) = lane else { continue };
            // If two lanes have the same key, only one of them gets new messages.
            let is_open = self.by_key.get(&lane.key).copied() == LaneSlot::of(place);
            StoredLane { place: place as u64, key: lane.key.clone(), is_open }.put(out);
        }
    }

    pub(crate) fn put_pace(&self, out: &mut Vec<u8>) {
        let pace = Pace {
            virtual_time: self.ranking.virtual_time,
            estimate_ms: self.estimate_ms,
            sweep_at: self.sweep_at as u64,
            classes: self
                .classes
                .iter()
                .zip(&self.ranking.sources)
                .map(|(class, source)| (source.tag, class.virtual_time))
                .collect(),
            lanes: self.lanes.iter().flatten().map(|lane| (lane.tag, lane.estimate_ms)).collect(),
        };
        pace.put_value(out);
    }

    /// Restores the pace of an order after all its messages are inserted, because each insertion moves the tags.
    pub(crate) fn restore_pace(&mut self, bytes: Decoder<'_>) -> Result<(), DecodeError> {
        let pace: Pace = bytes.whole("the pace of an order")?;
        self.ranking.virtual_time = pace.virtual_time;
        self.estimate_ms = pace.estimate_ms;
        let sweep_at = usize::try_from(pace.sweep_at).map_err(|_| DecodeError::Value(WHAT))?;
        self.sweep_at = sweep_at.min(limits::LANES_MAX);
        let lane_count = self.lanes.iter().flatten().count();
        if pace.classes.len() != self.classes.len() || pace.lanes.len() != lane_count {
            return Err(DecodeError::Value("the pace of an order"));
        }
        let sources = &mut self.ranking.sources;
        for ((class, source), (tag, virtual_time)) in self.classes.iter_mut().zip(sources).zip(pace.classes) {
            (source.tag, class.virtual_time) = (tag, virtual_time);
        }
        let mut paces = pace.lanes.into_iter();
        for index in 0..self.lanes.len() {
            let Some(lane) = &mut self.lanes[index] else { continue };
            let Some((tag, estimate_ms)) = paces.next() else { break };
            (lane.tag, lane.estimate_ms) = (tag, estimate_ms);
            if let Some(slot) = LaneSlot::of(index) {
                self.list(slot);
            }
        }
        Ok(())
    }

    /// Restores the lanes of a new order.
    pub(crate) fn restore_lanes(&mut self, mut bytes: Decoder<'_>) -> Result<(), DecodeError> {
        while !bytes.is_empty() {
            let StoredLane { place, key, is_open } = bytes.take(WHAT)?;
            let place = usize::try_from(place).map_err(|_| DecodeError::Value(WHAT))?;
            let lane = Lane::new(key.clone(), self.has_sessions, 0, 0);
            let fits = usize::from(key.class) < self.classes.len()
                && usize::from(key.tenant_class) < self.tenant_classes.len()
                && (self.lanes.len()..=usize::from(u16::MAX) - 1).contains(&place);
            let slot = LaneSlot::of(place).filter(|_| fits).ok_or(DecodeError::Value(WHAT))?;
            self.free.extend((self.lanes.len()..place).filter_map(|free| u16::try_from(free).ok()));
            self.lanes.resize_with(place, || None);
            self.lanes.push(Some(lane));
            self.empty_count += 1;
            if is_open && self.by_key.insert(key, slot).is_some() {
                return Err(DecodeError::Value(WHAT));
            }
        }
        Ok(())
    }

    /// Returns the lane that a message of a snapshot refers to.
    pub(crate) fn restored_lane(&self, place: u64) -> Option<LaneSlot> {
        let slot = usize::try_from(place).ok().and_then(LaneSlot::of)?;
        self.lane(slot).map(|_| slot)
    }
}
