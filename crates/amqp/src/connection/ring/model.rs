//! Compares the ring with a plain list of unsettled deliveries, for any repetition of ids by a peer.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::id::Arena;
use super::{Ring, Slot};
use crate::connection::{DeliveryId, LinkId};
use crate::{DeliveryState, DeliveryTag};

/// One delivery of the plain list.
type Listed = (u32, LinkId);

#[derive(Debug, Default)]
struct Model {
    unsettled: Vec<Listed>,
    /// Ids that were repeated, with whether one of their deliveries was refused.
    outcomes: BTreeMap<u32, bool>,
}

impl Model {
    fn conclude(&mut self, id: u32, is_refused: bool) -> Option<DeliveryState> {
        *self.outcomes.entry(id).or_default() |= is_refused;
        self.finished(id)
    }

    fn finished(&mut self, id: u32) -> Option<DeliveryState> {
        if self.unsettled.iter().any(|(other, _)| *other == id) {
            return None;
        }
        let is_refused = self.outcomes.remove(&id)?;
        Some(if is_refused { DeliveryState::Released } else { DeliveryState::Accepted })
    }

    fn remove(&mut self, is_gone: impl Fn(&Listed) -> bool) -> Vec<u32> {
        let mut gone: Vec<_> =
            self.unsettled.extract_if(.., |listed| is_gone(listed)).map(|(id, _)| id).collect();
        gone.sort_unstable();
        gone
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn repeated_ids_are_tracked_as_a_list_would(
        steps in prop::collection::vec((0_u8..10, 0_u32..12, 0_usize..2, 0_u32..4), 1..120),
    ) {
        let mut arena = Arena::new();
        let links: [LinkId; 2] = [arena.insert(()), arena.insert(())];
        let (mut ring, mut model) = (Ring::incoming(), Model::default());
        for (kind, id, link, more) in steps {
            // Some ids are so far apart that the older ones move to the map.
            let (id, link) = (id * 30, links[link]);
            match kind {
                0..5 => {
                    ring.push_at(DeliveryId(id), Some(Slot::new(link, DeliveryTag::from(7))));
                    model.unsettled.push((id, link));
                }
                5..8 => {
                    let place = model.unsettled.iter().position(|listed| *listed == (id, link));
                    assert_eq!(ring.take(DeliveryId(id), link).is_some(), place.is_some());
                    if let Some(place) = place {
                        model.unsettled.swap_remove(place);
                        let state = if more == 0 { DeliveryState::Released } else { DeliveryState::Accepted };
                        let expected = model.conclude(id, more == 0);
                        assert_eq!(ring.conclude(DeliveryId(id), Some(state)), expected);
                    }
                }
                8 => {
                    let last = id + more * 30;
                    let mut seen = Vec::new();
                    ring.visit(DeliveryId(id), DeliveryId(last), |id, _| {
                        seen.push(id.0);
                        false
                    });
                    seen.sort_unstable();
                    assert_eq!(seen, model.remove(|(other, _)| (id..=last).contains(other)));
                    model.outcomes.retain(|other, _| !(id..=last).contains(other));
                }
                _ => {
                    let mut concluded = ring.forget_link(link);
                    concluded.sort_by_key(|(id, _)| id.0);
                    model.remove(|(_, of)| *of == link);
                    let ids: Vec<_> = model.outcomes.keys().copied().collect();
                    let expected = ids.into_iter().filter_map(|id| Some((DeliveryId(id), model.finished(id)?)));
                    assert_eq!(concluded, expected.collect::<Vec<_>>());
                }
            }
            assert_eq!(ring.unsettled() as usize, model.unsettled.len());
            for link in &links {
                let count = model.unsettled.iter().filter(|listed| **listed == (id, *link)).count();
                assert_eq!(ring.count(DeliveryId(id), *link), count);
            }
        }
    }
}
