//! Receivers that are notified of the next message, and take runs.

use peeklock_engine::{Drained, Head, HeadChange, ReceiveMode, ReceiverId, Settlement};
use peeklock_types::{ClassName, ClassSettings, OrderPolicy, OrderSettings, QueueSettings, Rate, SubQueue};

use crate::story::{MAIN, Story, numbers, secs, seq, settings};

/// Attaches a receiver without credit that watches.
fn watching(story: &mut Story, receiver: u64) -> ReceiverId {
    let receiver = story.attach(MAIN, receiver, ReceiveMode::PeekLock, 0);
    story.engine.watch(receiver, Some(7));
    receiver
}

/// Returns the reported heads and their receivers.
fn told(story: &mut Story) -> Vec<(u64, Option<u64>)> {
    let _ = story.deliver();
    let heads = story.out.heads.drain(..);
    heads
        .map(|HeadChange { receiver, head, .. }| (receiver.0, head.map(|head| head.sequence_number.0)))
        .collect()
}

#[test]
fn a_watcher_gets_the_head_at_once_and_then_only_changes() {
    let mut story = Story::new();
    let watcher = watching(&mut story, 1);
    assert_eq!(told(&mut story), [(1, None)], "an empty queue is reported too");
    assert_eq!(told(&mut story), []);
    story.send(2);
    assert_eq!(told(&mut story), [(1, Some(1))]);
    story.send(1);
    assert_eq!(told(&mut story), [], "the head is the same");
    let taker = story.attach(MAIN, 2, ReceiveMode::PeekLock, 1);
    assert_eq!(told(&mut story), [(1, Some(2))], "another receiver has taken the first message");
    story.engine.watch(watcher, Some(8));
    assert_eq!(told(&mut story), [(1, Some(2))], "a new request repeats the report");
    story.engine.watch(watcher, None);
    story.engine.set_credit(taker, 2);
    assert_eq!(told(&mut story), [], "a receiver that does not watch gets no report");
}

#[test]
fn a_message_that_returns_is_the_head_again() {
    let mut story = Story::with_sent(2);
    watching(&mut story, 1);
    let taker = story.attach(MAIN, 2, ReceiveMode::PeekLock, 1);
    let taken = story.deliver();
    story.settle(&taken[0], Settlement::Release).unwrap();
    assert_eq!(told(&mut story), [(1, Some(1))]);
    story.engine.set_credit(taker, 1);
    assert_eq!(told(&mut story), [(1, Some(2))]);
    story.now = story.now + secs(31);
    assert_eq!(told(&mut story), [(1, Some(1))], "the lock on the message has expired");
}

#[test]
fn a_run_ends_where_messages_are_less_urgent() {
    let mut story = Story::new();
    let receiver = watching(&mut story, 1);
    story.send(2);
    let first = story.now;
    story.now = story.now + secs(1);
    story.send(2);
    story.engine.take_run(receiver, 10, Some(first));
    let taken = story.deliver();
    assert_eq!(numbers(&taken), [1, 2]);
    assert_eq!(story.out.drained, [Drained { receiver, unused_credit: 0 }]);
    let head = Head { sequence_number: seq(3), urgency: story.now };
    assert_eq!(story.out.heads, [HeadChange { receiver, serial: 7, head: Some(head) }]);
    assert_eq!(story.engine.credit(receiver), 0, "no credit is left");
    story.engine.take_run(receiver, 1, None);
    assert_eq!(numbers(&story.deliver()), [3]);
    story.engine.take_run(receiver, 5, Some(first));
    assert_eq!(numbers(&story.deliver()), [0; 0]);
    assert_eq!(story.out.drained.len(), 1, "a run without messages ends, too");
}

#[test]
fn watching_ends_with_the_receiver_and_with_the_queue() {
    let mut story = Story::with_sent(1);
    let watcher = watching(&mut story, 1);
    story.engine.detach_receiver(story.now, watcher, &mut story.out);
    assert_eq!(told(&mut story), []);
    let again = story.attach(MAIN, 1, ReceiveMode::PeekLock, 0);
    assert_eq!(told(&mut story), [], "a later receiver with the same number has not requested reports");
    story.engine.watch(again, Some(1));
    let other = story.attach(SubQueue::DeadLetter, 2, ReceiveMode::PeekLock, 0);
    story.engine.watch(other, Some(1));
    assert_eq!(told(&mut story), [(1, Some(1)), (2, None)]);
    story.engine.delete_queue(story.now, &crate::story::name("orders"), &mut story.out).unwrap();
    assert_eq!(told(&mut story), []);
}

/// Settings of a queue with an order.
fn ordered(order: OrderSettings) -> QueueSettings {
    QueueSettings { order: Some(Box::new(order)), ..settings() }
}

#[test]
fn a_queue_over_its_rate_has_no_head_until_the_rate_permits_one() {
    let rate = Some(Rate { per_second_milli: 1000, burst: 1 });
    let mut story = Story::with(ordered(OrderSettings { rate, ..OrderSettings::default() }));
    let receiver = watching(&mut story, 1);
    story.send(2);
    assert_eq!(told(&mut story), [(1, Some(1))]);
    story.engine.take_run(receiver, 5, None);
    assert_eq!(told(&mut story), [(1, None)], "the next message may start in a second");
    let next = story.engine.next_deadline().expect("the engine has a deadline for the next message");
    assert!(next <= story.now + secs(1));
    story.now = next;
    assert_eq!(told(&mut story), [(1, Some(2))]);
}

#[test]
fn the_offset_of_a_class_applies_between_queues() {
    let class = |name, priorities, offset| ClassSettings {
        offset: Some(secs(offset)),
        ..ClassSettings::new(ClassName::parse(name).unwrap(), priorities)
    };
    let classes = vec![class("high", (5, 9), 0), class("low", (0, 4), 60)];
    let order = OrderSettings { policy: OrderPolicy::Aged, classes, ..OrderSettings::default() };
    let mut story = Story::with(ordered(order));
    watching(&mut story, 1);
    story.send(1);
    let _ = story.deliver();
    let head = story.out.heads[0].head.unwrap();
    assert_eq!(head.urgency, story.now + secs(60), "plain messages are in the class of the usual priority");
}

#[test]
fn a_receiver_at_its_limit_gets_the_head_again_when_it_has_room() {
    let order = OrderSettings { max_outstanding: 2, ..OrderSettings::default() };
    let mut story = Story::with(QueueSettings { max_delivery_count: 1, ..ordered(order.clone()) });
    let receiver = watching(&mut story, 1);
    watching(&mut story, 2);
    story.send(6);
    story.engine.take_run(receiver, 5, None);
    assert_eq!(
        told(&mut story),
        [(1, Some(3)), (2, Some(3))],
        "the receiver holds two messages, which is its limit"
    );
    story.engine.take_run(receiver, 5, None);
    assert_eq!((told(&mut story), story.out.drained.len()), (vec![], 1));
    // Both messages are dead-lettered, and the head stays.
    story.now = story.now + secs(31);
    assert_eq!(told(&mut story), [(1, Some(3))], "only the receiver that had no room gets the head again");
    story.engine.take_run(receiver, 1, None);
    let taken = story.deliver();
    assert_eq!(numbers(&taken), [3]);
    assert_eq!(told(&mut story), [], "the delivery has reported the new head");
    story.settle(&taken[0], Settlement::Complete).unwrap();
    assert_eq!(told(&mut story), [], "the receiver had room");
    // The settlements of the receiver are long ago: its limit is two again.
    story.now = story.now + secs(1);
    story.engine.take_run(receiver, 2, None);
    assert_eq!(told(&mut story), [(1, Some(6)), (2, Some(6))]);
    let more = ordered(OrderSettings { max_outstanding: 3, ..order });
    story.engine.update_queue(story.now, &crate::story::name("orders"), more, &mut story.out).unwrap();
    assert_eq!(told(&mut story), [(1, Some(6))], "the receiver may hold more");
}
