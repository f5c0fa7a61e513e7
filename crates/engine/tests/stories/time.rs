//! Timers: schedules, times to live, delays, idle queues.

use std::time::Duration;

use peeklock_engine::{
    Attributes, Error, FACTS_PER_CALL_MAX, MessageState, PatchPart, ReceiveMode, Settlement,
};
use peeklock_types::{BodyRange, CommitGroupNumber, QueueSettings, RetryPolicy, limits};

use crate::story::{ABANDON, DEAD, DEAD_LETTER, DEFER, MAIN, Story, name, numbers, secs, seq, settings};

fn ttl(span: Duration) -> Attributes {
    Attributes { time_to_live: Some(span), ..Attributes::default() }
}

fn at(story: &Story, ahead: Duration) -> Attributes {
    Attributes { scheduled_for: Some(story.now + ahead), ..Attributes::default() }
}

#[test]
fn a_scheduled_message_is_delivered_when_due_under_a_new_number() {
    let mut story = Story::new();
    let scheduled = at(&story, secs(10));
    assert_eq!(story.send_with(scheduled), Ok(seq(1)));
    story.send(1);
    let seen = &story.peek(MAIN)[0];
    let due = seen.details.as_ref().unwrap().due;
    assert_eq!((seen.state, due), (MessageState::Scheduled, Some(story.now + secs(10))));
    assert_eq!((story.counts().scheduled_count, story.counts().active_count), (1, 1));
    assert_eq!(story.receive(MAIN).unwrap().message.sequence_number, seq(2));
    assert!(story.receive(MAIN).is_none());
    assert_eq!(story.engine.next_deadline(), Some(story.now + secs(10)));
    story.restart();
    story.wait(secs(10));
    let message = story.receive(MAIN).unwrap().message;
    assert_eq!((message.sequence_number, message.enqueued_at), (seq(3), story.now));
    assert_eq!((message.details, message.state), (None, MessageState::Active));
    assert!(message.is_activated && !story.peek(MAIN)[0].is_activated);
    story.restart();
}

#[test]
fn messages_due_in_one_tick_are_delivered_in_the_order_of_their_times() {
    let mut story = Story::new();
    for ahead in [30, 10, 20] {
        let scheduled = at(&story, secs(ahead));
        story.send_with(scheduled).unwrap();
    }
    story.wait(secs(60));
    story.attach(MAIN, 1, ReceiveMode::PeekLock, 9);
    let bodies: Vec<_> = story.deliver().iter().map(|delivery| delivery.message.body).collect();
    assert!(bodies[0] > bodies[2] && bodies[1] > bodies[0], "the messages are in the order 2, 3, 1");
}

#[test]
fn a_past_time_means_at_once_and_one_too_far_ahead_is_rejected() {
    let mut story = Story::new();
    let scheduled = at(&story, secs(0));
    story.send_with(scheduled).unwrap();
    assert!(story.receive(MAIN).is_some());
    let scheduled = at(&story, limits::SCHEDULE_AHEAD_MAX + secs(1));
    assert_eq!(story.send_with(scheduled), Err(Error::TooFarAhead));
}

#[test]
fn scheduled_messages_are_cancelled_all_or_none() {
    let mut story = Story::new();
    for _ in 0..2 {
        let scheduled = at(&story, secs(10));
        story.send_with(scheduled).unwrap();
    }
    story.send(1);
    let (now, queue) = (story.now, story.queue);
    let mut cancel = |numbers: &[_]| story.engine.cancel_scheduled(now, queue, numbers, &mut story.out);
    assert!(matches!(cancel(&[seq(1), seq(3)]), Err(Error::NotScheduled { .. })));
    assert!(matches!(cancel(&[seq(1), seq(1)]), Err(Error::Repeated { .. })));
    assert_eq!(cancel(&[seq(2), seq(1)]), Ok(()));
    assert_eq!((story.numbers(MAIN), story.engine.next_deadline()), (vec![3], None));
}

// The sender has the number of the scheduled message, which must not refer to another message.
#[test]
fn a_message_that_was_due_cannot_be_cancelled() {
    let mut story = Story::new();
    let scheduled = at(&story, secs(10));
    let number = story.send_with(scheduled).unwrap();
    story.wait(secs(10));
    let late = story.engine.cancel_scheduled(story.now, story.queue, &[number], &mut story.out);
    assert!(matches!(late, Err(Error::NotScheduled { .. })));
}

#[test]
fn the_body_of_a_message_that_was_due_still_keeps_its_old_group() {
    let mut story = Story::new();
    let scheduled = at(&story, secs(10));
    story.send_with(scheduled).unwrap();
    story.send(1);
    story.wait(secs(10));
    let second = story.receive(MAIN).unwrap();
    story.settle(&second, Settlement::Complete).unwrap();
    assert_eq!(story.engine.oldest_log_body(), Some(CommitGroupNumber(1)));
    story.send(1);
    assert_eq!(story.engine.oldest_log_body(), Some(CommitGroupNumber(1)));
    story.restart();
    let what = BodyRange::groups_upto(CommitGroupNumber(1));
    let found = story.engine.bodies_in(what, 10);
    assert_eq!((found.len(), found[0].sequence_number), (1, seq(3)));
}

#[test]
fn an_expired_message_is_deleted_or_dead_lettered_by_the_settings() {
    for dead_letter_on_expiration in [false, true] {
        let mut story = Story::with(QueueSettings { dead_letter_on_expiration, ..settings() });
        story.send_with(ttl(secs(5))).unwrap();
        story.send(1);
        assert_eq!(story.engine.next_deadline(), Some(story.now + secs(5)));
        story.wait(secs(5));
        assert_eq!(story.numbers(MAIN), [2]);
        let dead = story.receive(DEAD);
        assert_eq!(dead.is_some(), dead_letter_on_expiration);
        if let Some(dead) = dead {
            let reason = Some("TTLExpiredException".to_owned());
            let description = Some("The message expired and was dead lettered.".to_owned());
            assert_eq!(dead.message.patch.parts, [PatchPart::DeadLetter { reason, description }]);
            story.settle(&dead, ABANDON).unwrap();
            story.wait(secs(60));
            assert_eq!(story.numbers(DEAD), [1], "dead letters do not expire");
        }
        story.restart();
    }
}

#[test]
fn the_shorter_time_to_live_of_sender_and_queue_applies() {
    let mut story = Story::with(QueueSettings { default_time_to_live: Some(secs(10)), ..settings() });
    story.send_with(ttl(secs(5))).unwrap();
    story.send_with(ttl(secs(50))).unwrap();
    story.send(1);
    let told = |story: &Story| {
        let spans =
            story.peek(MAIN).into_iter().map(|message| message.details.unwrap().time_to_live.unwrap());
        spans.collect::<Vec<_>>()
    };
    assert_eq!(told(&story), [secs(5), secs(10), secs(10)]);
    // A message keeps the time to live that it had when it was enqueued.
    story.update(|settings| settings.default_time_to_live = Some(secs(1))).unwrap();
    assert_eq!(told(&story), [secs(5), secs(10), secs(10)]);
}

#[test]
fn a_time_to_live_below_a_millisecond_is_rejected_and_fractions_are_truncated() {
    let mut story = Story::new();
    assert_eq!(story.send_with(ttl(Duration::from_micros(999))), Err(Error::NoTimeToLive));
    story.send_with(ttl(Duration::from_micros(5999))).unwrap();
    assert_eq!(story.peek(MAIN)[0].details.as_ref().unwrap().time_to_live, Some(Duration::from_millis(5)));
    story.update(|settings| settings.lock_duration = Duration::from_nanos(5_000_999_999)).unwrap();
    assert_eq!(story.engine.queue(story.queue).unwrap().settings.lock_duration, Duration::from_secs(5));
    story.restart();
}

#[test]
fn a_locked_message_expires_only_when_it_returns() {
    let mut story = Story::new();
    story.send_with(ttl(secs(5))).unwrap();
    let delivery = story.receive(MAIN).unwrap();
    story.wait(secs(10));
    assert_eq!(story.numbers(MAIN), [1]);
    story.settle(&delivery, ABANDON).unwrap();
    assert!(story.receive(MAIN).is_none());
    assert_eq!(story.numbers(MAIN), [0; 0]);
}

#[test]
fn deferred_messages_expire_and_scheduled_ones_from_their_due_time() {
    let mut story = Story::new();
    story.send_with(ttl(secs(5))).unwrap();
    let delivery = story.receive(MAIN).unwrap();
    story.settle(&delivery, DEFER).unwrap();
    let later = Attributes { time_to_live: Some(secs(5)), ..at(&story, secs(8)) };
    story.send_with(later).unwrap();
    story.now = story.now + secs(5);
    let late = story.receive_deferred(&[1], ReceiveMode::PeekLock);
    assert!(matches!(late, Err(Error::NotFound { .. })), "the message has expired even before the tick");
    story.wait(secs(0));
    assert_eq!(story.numbers(MAIN), [2]);
    story.wait(secs(3));
    assert_eq!(story.engine.next_deadline(), Some(story.now + secs(5)));
}

#[test]
fn expired_messages_are_not_delivered_however_many_there_are() {
    let mut story = Story::with(QueueSettings { default_time_to_live: Some(secs(5)), ..settings() });
    let count = FACTS_PER_CALL_MAX + 100;
    for _ in 0..2 {
        story.send(count / 2);
    }
    story.now = story.now + secs(5);
    story.attach(MAIN, 1, ReceiveMode::PeekLock, 10);
    story.send(1);
    let deliveries = story.deliver();
    assert_eq!(numbers(&deliveries), [count as u64 + 1]);
    assert_eq!(story.counts().message_count(), 1);
}

#[test]
fn an_abandoned_message_is_delayed_for_the_requested_time() {
    let mut story = Story::with_sent(2);
    let delivery = story.receive(MAIN).unwrap();
    let later = Settlement::Abandon { patch: None, delay: Some(secs(7)) };
    story.settle(&delivery, later).unwrap();
    assert_eq!(story.peek(MAIN)[0].state, MessageState::Delayed);
    assert_eq!(story.counts().active_count, 2, "a delayed message counts as active");
    assert_eq!(story.receive(MAIN).unwrap().message.sequence_number, seq(2));
    story.restart();
    story.wait(secs(7));
    let again = story.receive(MAIN).unwrap().message;
    assert_eq!((again.sequence_number, again.delivery_count, again.details), (seq(1), 1, None));
}

#[test]
fn the_retry_policy_delays_failed_messages_more_and_more() {
    let retry = RetryPolicy::Exponential { base: secs(1), cap: secs(3), jitter: false };
    let mut story = Story::with(QueueSettings { retry, max_delivery_count: 9, ..settings() });
    story.send(1);
    for seconds in [1, 2, 3, 3] {
        let delivery = story.receive(MAIN).unwrap();
        story.settle(&delivery, ABANDON).unwrap();
        assert_eq!(story.engine.next_deadline(), Some(story.now + secs(seconds)));
        story.wait(secs(seconds));
    }
    // An expired lock is a failure like others; the delay that a receiver requests has precedence over the policy.
    story.receive(MAIN).unwrap();
    story.wait(secs(30));
    assert_eq!(story.peek(MAIN)[0].state, MessageState::Delayed);
    story.wait(secs(3));
    let delivery = story.receive(MAIN).unwrap();
    let at_once = Settlement::Abandon { patch: None, delay: Some(Duration::ZERO) };
    story.settle(&delivery, at_once).unwrap();
    let delivery = story.receive(MAIN).unwrap();
    story.settle(&delivery, Settlement::Release).unwrap();
    assert!(story.receive(MAIN).is_some(), "a release is no failure");
}

#[test]
fn dead_letters_are_delayed_only_on_request() {
    let retry = RetryPolicy::Fixed { delay: secs(5) };
    let mut story = Story::with(QueueSettings { retry, ..settings() });
    story.send(1);
    let delivery = story.receive(MAIN).unwrap();
    story.settle(&delivery, DEAD_LETTER).unwrap();
    let dead = story.receive(DEAD).unwrap();
    story.settle(&dead, ABANDON).unwrap();
    let dead = story.receive(DEAD).unwrap();
    story.settle(&dead, Settlement::Abandon { patch: None, delay: Some(secs(2)) }).unwrap();
    assert!(story.receive(DEAD).is_none());
    story.restart();
    story.wait(secs(2));
    assert!(story.receive(DEAD).is_some());
}

#[test]
fn an_idle_queue_is_deleted() {
    let mut story = Story::with(QueueSettings { auto_delete_on_idle: Some(secs(60)), ..settings() });
    story.wait(secs(50));
    story.send(1);
    let receiver = story.attach(MAIN, 1, ReceiveMode::PeekLock, 0);
    story.wait(secs(100));
    story.detach(receiver.0);
    assert_eq!(story.engine.next_deadline(), Some(story.now + secs(60)));
    story.wait(secs(50));
    story.engine.touch(story.now, story.queue);
    story.wait(secs(50));
    // After a restart the last use is unknown, so the idle time starts anew.
    story.restart();
    story.wait(secs(59));
    assert!(story.engine.find(&name("orders")).is_some());
    story.wait(secs(1));
    assert_eq!((story.engine.find(&name("orders")), story.engine.next_deadline()), (None, None));
    story.restart();
}

#[test]
fn a_clock_set_back_while_the_broker_was_off_does_not_extend_locks_by_hours() {
    let mut story = Story::with_sent(1);
    let held = story.receive(MAIN).unwrap();
    story.now = story.now - secs(900);
    story.restart();
    assert_eq!(story.engine.next_deadline(), Some(story.now + secs(30)));
    story.wait(secs(29));
    story.settle(&held, Settlement::Complete).unwrap();
    story.restart();
}
