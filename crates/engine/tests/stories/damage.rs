//! Lost bodies: their messages are dead-lettered with a reason, in any state, and use no space any more.

use peeklock_engine::{Attributes, Error, LiveBody, PatchPart, Settlement};
use peeklock_types::{BodyRange, BodyRef, EntityKind, QueueSettings, SubQueue};

use crate::story::{DEAD, DEAD_LETTER, DEFER, MAIN, Story, far_away, name, secs, seq, settings};

impl Story {
    /// Loses every body of this shard that is in the log.
    fn lose_all(&mut self) -> usize {
        let upto = self.group;
        self.group = upto.next();
        let found = self.engine.bodies_in(BodyRange::groups_upto(upto), 1000);
        for (LiveBody { entity, sequence_number, place, .. }, n) in found.iter().zip(0..) {
            let instead = BodyRef::in_group(self.group, n * 8).unwrap();
            let lost = (*entity, *sequence_number, *place);
            assert!(self.engine.lose_body(self.now, lost, instead, "a bit", &mut self.out));
            assert!(
                !self.engine.lose_body(self.now, lost, instead, "a bit", &mut self.out),
                "a body is lost only once"
            );
        }
        assert_eq!(self.engine.bodies_in(BodyRange::groups_upto(upto), 1000), []);
        assert_eq!(self.engine.oldest_log_body(), (!found.is_empty()).then_some(self.group));
        self.restart();
        found.len()
    }

    fn reasons(&self, sub_queue: SubQueue) -> Vec<(u64, u32, String)> {
        let told = |message: peeklock_engine::Message| {
            let why = message.patch.parts.iter().find_map(|part| match part {
                PatchPart::DeadLetter { reason, description } => {
                    Some((reason.clone()?, description.clone()?))
                }
                _ => None,
            });
            let (reason, text) = why.unwrap();
            assert!(text.contains("a bit"));
            (message.sequence_number.0, message.size_bytes, reason)
        };
        self.peek(sub_queue).into_iter().map(told).collect()
    }
}

fn damaged(number: u64) -> (u64, u32, String) {
    (number, 0, "BodyDamaged".to_owned())
}

#[test]
fn a_message_without_its_body_is_dead_lettered_in_any_state() {
    let mut story = Story::with_sent(4);
    let (held, deferred) = (story.receive(MAIN).unwrap(), story.receive(MAIN).unwrap());
    story.settle(&deferred, DEFER).unwrap();
    let dead = story.receive(MAIN).unwrap();
    story.settle(&dead, DEAD_LETTER).unwrap();
    let due = story.now + secs(60);
    story.send_with(Attributes { scheduled_for: Some(due), ..Attributes::default() }).unwrap();
    assert_eq!(story.lose_all(), 5);
    assert_eq!(story.numbers(MAIN), [] as [u64; 0]);
    assert_eq!(story.reasons(DEAD), [damaged(1), damaged(2), damaged(3), damaged(4), damaged(5)]);
    let late = story.settle(&held, Settlement::Complete);
    assert!(matches!(late, Err(Error::LockLost { .. })), "{late:?}");
    assert_eq!(story.counts().size_bytes, 0);
    for _ in 0..5 {
        let delivery = story.receive(DEAD).unwrap();
        story.settle(&delivery, Settlement::Complete).unwrap();
    }
    assert_eq!(story.engine.oldest_log_body(), None);
}

#[test]
fn a_locked_dead_letter_that_loses_its_body_is_unlocked() {
    let mut story = Story::with_sent(1);
    let first = story.receive(MAIN).unwrap();
    story.settle(&first, DEAD_LETTER).unwrap();
    let held = story.receive(DEAD).unwrap();
    story.lose_all();
    assert_eq!(story.reasons(DEAD), [damaged(1)]);
    assert!(story.settle(&held, Settlement::Complete).is_err());
    assert!(story.receive(DEAD).is_some());
}

#[test]
fn a_session_continues_without_the_message() {
    let mut story = Story::with(QueueSettings { requires_session: true, ..settings() });
    story.send_in_session("a", 2);
    story.accept_named(1, "a").unwrap();
    assert_eq!(story.deliver().len(), 2);
    story.lose_all();
    assert_eq!(story.reasons(DEAD), [damaged(1), damaged(2)]);
    story.send_in_session("a", 1);
    story.accept_named(2, "a").unwrap();
    assert_eq!(story.deliver()[0].message.sequence_number, seq(3));
}

#[test]
fn a_message_in_a_topic_moves_to_the_transfer_dead_letter_queue() {
    let mut story = Story::new();
    let settings = QueueSettings::default();
    let topic =
        story.engine.create(story.now, name("t"), EntityKind::Topic, settings, &mut story.out).unwrap();
    let due = story.now + secs(60);
    story.send_to(topic, Attributes { scheduled_for: Some(due), ..Attributes::default() }).unwrap();
    story.lose_all();
    assert_eq!(story.peek_in(topic, SubQueue::TransferDeadLetter).len(), 1);
    story.wait(secs(100));
    assert_eq!(story.peek_in(topic, SubQueue::TransferDeadLetter).len(), 1);
}

#[test]
fn a_message_in_transit_stays_in_transit_without_a_body() {
    let mut story = Story::with(QueueSettings { forward_to: Some(far_away()), ..settings() });
    story.send(1);
    story.deliver();
    let target = peeklock_types::Placement::default().of(&far_away());
    assert_eq!(story.lose_all(), 1);
    let out = story.engine.outgoing(target, 1, u64::MAX);
    assert_eq!(out[0].size_bytes, 0, "the empty body marks it as lost");
    story.engine.transfer_refused(target, out[0].number, "a bit is wrong".to_owned(), &mut story.out);
    assert_eq!(story.numbers(SubQueue::TransferDeadLetter), [1]);
}
