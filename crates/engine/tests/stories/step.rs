//! Steps of the clock: locks, holds and waits keep their span, and times that a sender named do not move.

use peeklock_engine::{
    Attached, Attributes, CloseReason, Error, FACTS_PER_CALL_MAX, ReceiveMode, SessionWish, Settlement,
};
use peeklock_types::{QueueSettings, SequenceNumber};

use crate::story::{DEAD, DEAD_LETTER, MAIN, Story, name, secs, session, settings};

/// The step of these stories: far longer than every lock.
const STEP: u64 = 600;

impl Story {
    /// Lets the clock step forward, as the driver of the engine does.
    fn step(&mut self) {
        self.forget_effects();
        self.now = self.now + secs(STEP);
        let locks = self.engine.follow_step(self.now, secs(STEP));
        for some in locks.chunks(FACTS_PER_CALL_MAX) {
            self.engine.extend_locks(some, secs(STEP), &mut self.out);
        }
        self.wait(secs(0));
    }
}

#[test]
fn a_lock_that_was_just_given_keeps_its_span() {
    let mut story = Story::with_sent(2);
    let (first, second) = (story.receive(MAIN).unwrap(), story.receive(MAIN).unwrap());
    story.wait(secs(10));
    story.step();
    story.restart();
    story.wait(secs(19));
    story.settle(&first, Settlement::Complete).unwrap();
    story.wait(secs(1));
    let late = story.settle(&second, Settlement::Complete);
    assert!(matches!(late, Err(Error::LockLost { .. })), "{late:?}");
    assert_eq!(story.receive(MAIN).unwrap().message.delivery_count, 1);
}

#[test]
fn a_lock_that_had_expired_stays_expired() {
    let mut story = Story::with_sent(1);
    let held = story.receive(MAIN).unwrap();
    // The timer has not fired yet.
    story.now = story.now + secs(30);
    story.step();
    let late = story.settle(&held, Settlement::Complete);
    assert!(matches!(late, Err(Error::LockLost { .. })), "{late:?}");
    assert!(story.receive(MAIN).is_some());
}

#[test]
fn a_lock_after_a_step_ends_by_the_new_time() {
    let mut story = Story::with_sent(1);
    story.step();
    let held = story.receive(MAIN).unwrap();
    assert_eq!(held.message.locked_until, Some(story.now + secs(30)));
    story.wait(secs(20));
    let renewed = story.engine.renew(story.now, story.queue, MAIN, &[held.token], &mut story.out);
    assert_eq!(renewed, Ok(vec![story.now + secs(30)]));
}

#[test]
fn locks_of_dead_letters_and_many_locks_are_extended() {
    let count = FACTS_PER_CALL_MAX + 10;
    let mut story = Story::with_sent(count);
    let dead = story.receive(MAIN).unwrap();
    story.settle(&dead, DEAD_LETTER).unwrap();
    let dead = story.receive(DEAD).unwrap();
    story.attach(MAIN, 1, ReceiveMode::PeekLock, u32::MAX);
    let mut held = story.deliver();
    held.extend(story.deliver());
    assert_eq!(held.len(), count - 1);
    story.step();
    story.restart();
    story.wait(secs(29));
    story.settle(&dead, Settlement::Complete).unwrap();
    for delivery in &held {
        story.settle(delivery, Settlement::Complete).unwrap();
    }
    assert_eq!(story.counts().active_count, 0);
}

#[test]
fn a_session_is_held_and_awaited_for_the_same_span() {
    let mut story = Story::with(QueueSettings { requires_session: true, ..settings() });
    story.send_in_session("a", 1);
    let Ok(Attached::Session(_)) = story.accept_named(1, "a") else { panic!("the session is free") };
    let held = story.deliver().pop().unwrap();
    let give_up_at = story.now + secs(60);
    let waiting = story.accept(2, SessionWish::Next { give_up_at });
    assert_eq!(waiting, Ok(Attached::Waiting));
    story.step();
    story.wait(secs(29));
    story.settle(&held, Settlement::Complete).unwrap();
    let renewed = story.engine.renew_session(story.now, story.queue, &session("a"), held.receiver);
    assert_eq!(renewed, Ok(story.now + secs(30)));
    assert!(story.out.closed.is_empty(), "the receiver still waits for a session");
    story.forget_effects();
    story.wait(secs(31));
    let closed: Vec<_> = story.out.closed.iter().map(|closed| closed.reason).collect();
    assert!(closed.contains(&CloseReason::NoSession), "{closed:?}");
}

#[test]
fn times_that_a_sender_named_do_not_move() {
    let mut story = Story::new();
    let scheduled_for = Some(story.now + secs(STEP - 1));
    story.send_with(Attributes { scheduled_for, ..Attributes::default() }).unwrap();
    let time_to_live = Some(secs(STEP - 1));
    story.send_with(Attributes { time_to_live, ..Attributes::default() }).unwrap();
    story.step();
    assert_eq!(story.numbers(MAIN), [3], "one message is due, under a new number, and the other has expired");
    assert_eq!(story.receive(MAIN).unwrap().message.sequence_number, SequenceNumber(3));
}

#[test]
fn a_queue_is_not_idle_during_a_step() {
    let mut story = Story::with(QueueSettings { auto_delete_on_idle: Some(secs(300)), ..settings() });
    story.wait(secs(100));
    story.step();
    story.wait(secs(199));
    assert!(story.engine.find(&name("orders")).is_some());
    story.wait(secs(1));
    assert!(story.engine.find(&name("orders")).is_none());
}
