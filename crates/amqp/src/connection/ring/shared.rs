//! Unsettled deliveries that share one delivery-id.
//!
//! AMQP 1.0 §2.8.3 requires unique ids, but an SDK that sends from several threads repeats them. A disposition contains
//! only the id, so a peer applies it to all deliveries with that id. The id is therefore answered once, when the
//! outcomes of all its deliveries are known, and with the worst of them: no delivery is confirmed by the outcome of
//! another one.

use std::collections::{BTreeMap, VecDeque, btree_map};

use super::{Ring, Slot, wire};
use crate::DeliveryState;
use crate::connection::{DeliveryId, LinkId};

/// Exists while one delivery of a repeated id is unsettled. That delivery is in the ring itself.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Further unsettled deliveries with the id.
    others: Vec<Slot>,
    /// The worst outcome of those that were settled.
    held: Option<DeliveryState>,
}

impl Ring {
    /// Adds a delivery with an id that was used before or skipped.
    #[cold]
    pub(super) fn push_again(&mut self, place: u64, entry: Slot) {
        self.unsettled += 1;
        match place.checked_sub(self.base()).and_then(|index| usize::try_from(index).ok()) {
            Some(index) => {
                if let Some(slot @ None) = self.recent.get_mut(index) {
                    *slot = Some(entry);
                    return;
                }
            }
            None => {
                if let btree_map::Entry::Vacant(slot) = self.old.entry(place) {
                    slot.insert(entry);
                    return;
                }
            }
        }
        self.shared.entry(place).or_default().others.push(entry);
    }

    /// Forgets one delivery of `link` with a repeated id, but never the last one with that id.
    #[cold]
    pub(super) fn take_shared(&mut self, place: u64, link: LinkId) -> Option<Slot> {
        let base = self.base();
        let others = &mut self.shared.get_mut(&place)?.others;
        let entry = if let Some(index) = others.iter().position(|entry| entry.link == link) {
            others.swap_remove(index)
        } else {
            let first =
                find(&mut self.recent, &mut self.old, base, place).filter(|entry| entry.link == link)?;
            std::mem::replace(first, others.pop()?)
        };
        self.unsettled -= 1;
        Some(entry)
    }

    /// Returns the outcome to send for an id of which one delivery was just taken. Returns `None` while others with that
    /// id are unsettled.
    pub(in crate::connection) fn conclude(
        &mut self,
        id: DeliveryId,
        state: Option<DeliveryState>,
    ) -> Option<DeliveryState> {
        if self.shared.is_empty() { state } else { self.conclude_shared(id, state) }
    }

    #[cold]
    fn conclude_shared(&mut self, id: DeliveryId, state: Option<DeliveryState>) -> Option<DeliveryState> {
        let place = self.place(id);
        let Some(shared) = self.shared.get_mut(&place) else { return state };
        shared.held = worse(shared.held.take(), state);
        if self.get_mut(id).is_some() {
            return None;
        }
        self.shared.remove(&place)?.held
    }

    /// Counts the unsettled deliveries of `link` with this id.
    pub(in crate::connection) fn count(&mut self, id: DeliveryId, link: LinkId) -> usize {
        let place = self.place(id);
        let first = self.get_mut(id).is_some_and(|entry| entry.link == link);
        let others = self.shared.get(&place).map_or(&[][..], |shared| &shared.others);
        usize::from(first) + others.iter().filter(|entry| entry.link == link).count()
    }

    /// Visits the further deliveries of repeated ids, after the first ones.
    #[cold]
    pub(super) fn visit_shared(
        &mut self,
        low: u64,
        high: u64,
        keep: &mut impl FnMut(DeliveryId, &mut Slot) -> bool,
    ) {
        let mut gone = 0;
        for (place, shared) in self.shared.range_mut(low..=high) {
            let count = shared.others.len();
            shared.others.retain_mut(|entry| keep(wire(*place), entry));
            gone += count - shared.others.len();
        }
        self.unsettled = self.unsettled.saturating_sub(u32::try_from(gone).unwrap_or(u32::MAX));
        // The peer has settled them, so it expects no outcome.
        drop(self.fill_gaps());
    }

    /// Forgets the deliveries of a detached link. Returns the outcomes that waited only for these.
    #[cold]
    pub(super) fn forget_shared(&mut self, link: LinkId) -> Vec<(DeliveryId, DeliveryState)> {
        let mut gone = 0;
        for shared in self.shared.values_mut() {
            let count = shared.others.len();
            shared.others.retain(|entry| entry.link != link);
            gone += count - shared.others.len();
        }
        self.unsettled = self.unsettled.saturating_sub(u32::try_from(gone).unwrap_or(u32::MAX));
        self.fill_gaps()
    }

    /// Moves another delivery of the same id into each empty place. Returns the outcomes of ids that have none left.
    fn fill_gaps(&mut self) -> Vec<(DeliveryId, DeliveryState)> {
        let mut concluded = Vec::new();
        let base = self.base();
        let Self { recent, old, shared, .. } = self;
        shared.retain(|place, shared| {
            if find(recent, old, base, *place).is_some() {
                return true;
            }
            let Some(entry) = shared.others.pop() else {
                concluded.extend(shared.held.take().map(|state| (wire(*place), state)));
                return false;
            };
            let index = place.checked_sub(base).and_then(|index| usize::try_from(index).ok());
            match index.and_then(|index| recent.get_mut(index)) {
                Some(slot) => *slot = Some(entry),
                None => drop(old.insert(*place, entry)),
            }
            true
        });
        concluded
    }
}

/// Finds the unsettled delivery at a place.
pub(super) fn find<'r>(
    recent: &'r mut VecDeque<Option<Slot>>,
    old: &'r mut BTreeMap<u64, Slot>,
    base: u64,
    place: u64,
) -> Option<&'r mut Slot> {
    match place.checked_sub(base) {
        Some(index) => recent.get_mut(usize::try_from(index).ok()?)?.as_mut(),
        None => old.get_mut(&place),
    }
}

fn worse(a: Option<DeliveryState>, b: Option<DeliveryState>) -> Option<DeliveryState> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if severity(&b) > severity(&a) { b } else { a }),
        (a, b) => a.or(b),
    }
}

fn severity(state: &DeliveryState) -> u8 {
    match state {
        DeliveryState::Accepted => 0,
        DeliveryState::Declared { .. } => 1,
        DeliveryState::Transactional { outcome, .. } => outcome.as_deref().map_or(1, severity).max(1),
        _ => 2,
    }
}
