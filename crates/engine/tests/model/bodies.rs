//! The places of bodies, and their moves.

use std::collections::BTreeSet;

use peeklock_engine::EntityId;
use peeklock_types::{BodyRange, BodyRef, CommitGroupNumber, SequenceNumber};

use crate::model::ModelMessage;
use crate::world::{SUB_QUEUES, World};

impl World {
    pub(crate) fn evacuate_groups(&mut self, back: u64, max: usize, lose_every: usize) {
        let upto = CommitGroupNumber(self.next_group().0.saturating_sub(back));
        let found = self.engine.bodies_in(BodyRange::groups_upto(upto), max);
        let mut by_name: Vec<_> = self.model.queues.iter().collect();
        by_name.sort_by(|a, b| a.name.cmp(&b.name));
        let places = by_name.into_iter().flat_map(|queue| {
            let parts = SUB_QUEUES.into_iter().flat_map(|sub_queue| in_order(queue.of(sub_queue), upto));
            parts.map(|m| (queue.entity, m.message.sequence_number, m.message.body))
        });
        let expected: Vec<_> = places.take(max).collect();
        let told: Vec<_> = found.iter().map(|body| (body.entity, body.sequence_number, body.place)).collect();
        assert_eq!(told, expected);
        for (n, (entity, number, from)) in expected.into_iter().enumerate() {
            if n % lose_every != lose_every - 1 {
                self.move_body(entity, number, from);
            }
        }
        assert_eq!(self.take_freed(), []);
    }

    pub(crate) fn evacuate_cold(&mut self, segment: u64, max: usize) {
        let range = BodyRange::handles(segment << 32, (segment << 32) | 0xffff_ffff);
        let is_there = |body: BodyRef| range.contains(body);
        let found = self.engine.bodies_in(range, max);
        let expected: BTreeSet<_> = self
            .model
            .messages()
            .filter(|(_, m)| is_there(m.message.body))
            .map(|(entity, m)| (entity, m.message.sequence_number, m.message.body))
            .collect();
        assert!(found.len() <= max && found.is_empty() == expected.is_empty());
        let mut freed = Vec::new();
        for body in found {
            let told = (body.entity, body.sequence_number, body.place);
            assert!(expected.contains(&told));
            self.move_body(body.entity, body.sequence_number, body.place);
            freed.push(body.place);
        }
        assert_eq!(self.take_freed(), freed);
    }

    fn move_body(&mut self, entity: EntityId, number: SequenceNumber, from: BodyRef) {
        self.cold_offset += 8;
        let segment = self.cold_offset / 8 % 3;
        let to = BodyRef::standalone((segment << 32) | self.cold_offset).unwrap();
        let wrong = BodyRef::standalone(7 << 32).unwrap();
        assert!(
            !self.engine.move_body(entity, number, wrong, to, &mut self.out),
            "the body is at another place"
        );
        assert!(
            !self.engine.move_body(entity, SequenceNumber(9999), from, to, &mut self.out),
            "there is no such message"
        );
        assert!(self.engine.move_body(entity, number, from, to, &mut self.out));
        let queue = self.model.queue(entity).unwrap();
        let moved = queue.messages.iter_mut().find(|m| m.message.sequence_number == number).unwrap();
        moved.message.body = to;
    }
}

/// Returns old bodies in the order of the engine: first those out of order, then the others.
fn in_order<'m>(
    messages: impl Iterator<Item = &'m ModelMessage>,
    upto: CommitGroupNumber,
) -> impl Iterator<Item = &'m ModelMessage> {
    let old = messages.filter(|m| m.group().is_some_and(|group| group <= upto));
    let (mut strays, others): (Vec<_>, Vec<_>) = old.partition(|m| m.is_stray);
    strays.sort_by_key(|m| (m.group(), m.message.sequence_number));
    strays.into_iter().chain(others)
}
