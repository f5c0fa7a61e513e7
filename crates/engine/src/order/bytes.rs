//! What of an order is kept in snapshots: what follows from facts, and cannot be seen from the messages.
//!
//! ```text
//! before the messages: number of lanes, then for each: place, class, tenant class, tenant (optional), whether it gets new messages
//! behind them:         virtual time, estimate, sweep mark; for each class: tag, virtual time; for each lane: tag, estimate
//! ```

use std::sync::Arc;

use peeklock_types::limits;

use super::lane::Lane;
use super::{LaneKey, LaneSlot, Order};
use crate::wire::{DecodeError, Decoder, put_number, put_optional};

const WHAT: &str = "a lane";

pub(crate) fn put_key(key: &LaneKey, out: &mut Vec<u8>) {
    out.extend_from_slice(&[key.class, key.tenant_class]);
    put_optional(key.tenant.as_deref().map(str::as_bytes), out);
}

impl Decoder<'_> {
    pub(crate) fn lane_key(&mut self) -> Result<LaneKey, DecodeError> {
        let (class, tenant_class) = (self.byte(WHAT)?, self.byte(WHAT)?);
        let tenant = |decoder: &mut Self| decoder.text(limits::TENANT_BYTES_MAX, WHAT).map(Arc::from);
        Ok(LaneKey { class, tenant_class, tenant: self.flag(WHAT)?.then(|| tenant(self)).transpose()? })
    }
}

impl Order {
    pub(crate) fn put_lanes(&self, out: &mut Vec<u8>) {
        put_number(self.lanes.iter().flatten().count() as u64, out);
        for (place, lane) in self.lanes.iter().enumerate() {
            let Some(lane) = lane else { continue };
            put_number(place as u64, out);
            put_key(&lane.key, out);
            // Of two lanes that have become one and the same, only one gets new messages.
            out.push((self.by_key.get(&lane.key).copied() == LaneSlot::of(place)).into());
        }
    }

    pub(crate) fn put_tags(&self, out: &mut Vec<u8>) {
        put_number(self.ranking.virtual_time, out);
        put_number(self.estimate_ms.into(), out);
        put_number(self.sweep_at as u64, out);
        for (class, source) in self.classes.iter().zip(&self.ranking.sources) {
            put_number(source.tag, out);
            put_number(class.virtual_time, out);
        }
        for lane in self.lanes.iter().flatten() {
            put_number(lane.tag, out);
            put_number(lane.estimate_ms.into(), out);
        }
    }

    /// Into an order whose messages are all there: bringing them in has moved the tags.
    pub(crate) fn restore_tags(&mut self, decoder: &mut Decoder<'_>) -> Result<(), DecodeError> {
        self.ranking.virtual_time = decoder.number(WHAT)?;
        self.estimate_ms = decoder.number32(WHAT)?;
        let sweep_at = usize::try_from(decoder.number(WHAT)?).map_err(|_| DecodeError::Value(WHAT))?;
        self.sweep_at = sweep_at.min(limits::LANES_MAX);
        for (class, source) in self.classes.iter_mut().zip(&mut self.ranking.sources) {
            source.tag = decoder.number(WHAT)?;
            class.virtual_time = decoder.number(WHAT)?;
        }
        for index in 0..self.lanes.len() {
            let Some(lane) = &mut self.lanes[index] else { continue };
            lane.tag = decoder.number(WHAT)?;
            lane.estimate_ms = decoder.number32(WHAT)?;
            if let Some(slot) = LaneSlot::of(index) {
                self.list(slot);
            }
        }
        Ok(())
    }

    /// Into an order that is new.
    pub(crate) fn restore_lanes(&mut self, decoder: &mut Decoder<'_>) -> Result<(), DecodeError> {
        for _ in 0..decoder.number(WHAT)? {
            let place = usize::try_from(decoder.number(WHAT)?).map_err(|_| DecodeError::Value(WHAT))?;
            let key = decoder.lane_key()?;
            let lane = Lane::new(key.clone(), self.has_sessions, 0, 0);
            let fits = usize::from(key.class) < self.classes.len()
                && usize::from(key.tenant_class) < self.tenant_classes.len()
                && (self.lanes.len()..=usize::from(u16::MAX) - 1).contains(&place);
            let slot = LaneSlot::of(place).filter(|_| fits).ok_or(DecodeError::Value(WHAT))?;
            self.free.extend((self.lanes.len()..place).filter_map(|free| u16::try_from(free).ok()));
            self.lanes.resize_with(place, || None);
            self.lanes.push(Some(lane));
            self.empty_count += 1;
            if decoder.flag(WHAT)? && self.by_key.insert(key, slot).is_some() {
                return Err(DecodeError::Value(WHAT));
            }
        }
        Ok(())
    }

    /// A message's lane in a snapshot.
    pub(crate) fn restored_lane(&self, place: u64) -> Option<LaneSlot> {
        let slot = usize::try_from(place).ok().and_then(LaneSlot::of)?;
        self.lane(slot).map(|_| slot)
    }
}
