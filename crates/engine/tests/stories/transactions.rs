//! Several settlements and sends as one command.

use bytes::Bytes;
use peeklock_engine::Settlement::{Complete, Defer};
use peeklock_engine::{Attributes, EntityId, Error, NewMessage, NewState, ReceiverId, Reserved, Transaction};
use peeklock_types::{
    BodyRef, CommitGroupNumber, EntityName, Placement, QueueSettings, QueueStatus, SequenceNumber, ShardId,
    limits,
};

use crate::story::{MAIN, Story, far_away, here, in_session, name, neighbours, secs, seq, session, settings};

fn commit(story: &mut Story, transaction: Transaction) -> Result<(), Error> {
    story.engine.commit(story.now, here(), story.queue, transaction, &mut story.out)
}

/// Returns sends to these queues, with all bodies in one commit group.
fn sends(story: &mut Story, targets: &[&EntityName]) -> Vec<(EntityName, NewMessage)> {
    let batch = story.batch(targets.len());
    targets.iter().map(|&target| target.clone()).zip(batch).collect()
}

#[test]
fn a_commit_settles_and_sends_here_and_elsewhere() {
    let mut story = Story::with_sent(2);
    let (near, far) = (neighbours().next().unwrap(), far_away());
    let near_queue = story.create(&near, settings());
    let first = story.receive(MAIN).unwrap();
    let second = story.receive(MAIN).unwrap();
    let sends = sends(&mut story, &[&near, &far, &name("orders"), &far]);
    let settles = vec![(MAIN, first.token, Complete), (MAIN, second.token, Defer { patch: None })];
    commit(&mut story, Transaction { settles, sends, ..Transaction::default() }).unwrap();
    assert_eq!(story.numbers(MAIN), [2, 3]);
    assert_eq!(story.peek_in(near_queue, MAIN).len(), 1);
    assert_eq!(story.counts().transfer_count, 2);
    let before = story.engine.outgoing(Placement::default().of(&far), 9, u64::MAX);
    story.restart();
    let on_the_way = story.engine.outgoing(Placement::default().of(&far), 9, u64::MAX);
    assert_eq!((on_the_way.len(), &on_the_way[0].target), (2, &far));
    assert_eq!(on_the_way, before);
    assert_eq!(on_the_way[0].attributes.origin, None, "the message was sent there, not forwarded");
    story.engine.transferred(Placement::default().of(&far), 2, &mut story.out);
    assert_eq!(story.counts().transfer_count, 0);
}

#[test]
fn the_attributes_of_a_message_to_another_shard_travel_with_it() {
    let mut story = Story::new();
    let said = Attributes {
        scheduled_for: Some(story.now + secs(9)),
        time_to_live: Some(secs(5)),
        message_id: Some(Bytes::from_static(b"id")),
        ..Attributes::default()
    };
    let mut sends = sends(&mut story, &[&far_away()]);
    sends[0].1.attributes = Some(Box::new(said.clone()));
    commit(&mut story, Transaction { settles: vec![], sends, ..Transaction::default() }).unwrap();
    story.wait(secs(60));
    assert_eq!(
        story.counts().transfer_count,
        1,
        "the message becomes due and expires at its target, not in transit"
    );
    story.restart();
    assert_eq!(*story.engine.outgoing(Placement::default().of(&far_away()), 1, 1)[0].attributes, said);
}

#[test]
fn a_rejected_commit_changes_nothing() {
    let mut story = Story::with_sent(3);
    let closed = neighbours().next().unwrap();
    story.create(&closed, QueueSettings { status: QueueStatus::SendDisabled, ..settings() });
    let deliveries: Vec<_> = (0..2).map(|_| story.receive(MAIN).unwrap()).collect();
    let settle = |n: usize| (MAIN, deliveries[n].token, Complete);
    story.forget_effects();
    let before = story.engine.snapshot();

    let orders = name("orders");
    let missing = neighbours().nth(1).unwrap();
    for (bad, good) in [(&closed, &orders), (&missing, &far_away())] {
        let sends = sends(&mut story, &[good, bad]);
        assert!(
            commit(&mut story, Transaction { settles: vec![settle(0)], sends, ..Transaction::default() })
                .is_err()
        );
    }
    let twice = Transaction {
        settles: vec![settle(0), settle(1), settle(0)],
        sends: vec![],
        ..Transaction::default()
    };
    assert!(matches!(commit(&mut story, twice), Err(Error::Repeated { .. })));
    story.now = story.now + secs(30);
    let sends = sends(&mut story, &[&orders]);
    let late = Transaction { settles: vec![settle(1)], sends, ..Transaction::default() };
    assert!(matches!(commit(&mut story, late), Err(Error::LockLost { .. })));
    assert!(story.out.is_empty());
    assert_eq!(story.engine.snapshot(), before);
}

// Facts and bodies of a transaction share one commit group.
#[test]
fn the_size_of_a_transaction_is_limited() {
    let mut story = Story::with_sent(2);
    let delivery = story.receive(MAIN).unwrap();
    let mut sends = sends(&mut story, &[&name("orders"), &far_away()]);
    let half = u32::try_from(limits::TRANSACTION_SIZE_BYTES_MAX / 2).unwrap();
    sends.iter_mut().for_each(|(_, message)| message.size_bytes = half);
    let settle = |size| vec![(MAIN, delivery.token, Defer { patch: Some(Bytes::from(vec![1; size])) })];
    let too_much = Transaction { settles: settle(1), sends: sends.clone(), ..Transaction::default() };
    assert!(matches!(commit(&mut story, too_much), Err(Error::TooMuch { .. })));
    story.update(|settings| settings.max_message_size_bytes = 8 << 20).unwrap();
    commit(&mut story, Transaction { settles: settle(0), sends, ..Transaction::default() }).unwrap();
}

#[test]
fn bodies_of_a_transaction_are_after_earlier_ones() {
    let mut story = Story::with_sent(1);
    let body = |group| BodyRef::in_group(CommitGroupNumber(group), 0).unwrap();
    let new = |group| NewMessage { body: body(group), size_bytes: 1, attributes: None };
    let sends = vec![(far_away(), new(8)), (name("orders"), new(9))];
    let refused = commit(&mut story, Transaction { settles: vec![], sends, ..Transaction::default() });
    assert!(matches!(refused, Err(Error::BodyOrder { .. })));
    let sends = vec![(far_away(), new(9)), (name("orders"), new(9))];
    assert_eq!(commit(&mut story, Transaction { settles: vec![], sends, ..Transaction::default() }), Ok(()));
}

/// Reserves a number for a message that a transaction schedules, and returns it with the message's attributes.
fn reserve(story: &mut Story, entity: EntityId) -> (SequenceNumber, Box<Attributes>) {
    let numbers = story.engine.reserve_numbers(story.now, entity, 1, &mut story.out).unwrap();
    let reserved = Some(Reserved { entity, sequence_number: numbers[0] });
    let scheduled_for = Some(story.now + secs(60));
    (numbers[0], Box::new(Attributes { scheduled_for, reserved, ..Attributes::default() }))
}

fn schedule(story: &mut Story, target: EntityName, attributes: Box<Attributes>) -> Transaction {
    let message = NewMessage { attributes: Some(attributes), ..story.batch(1).remove(0) };
    Transaction { sends: vec![(target, message)], ..Transaction::default() }
}

fn numbers_in(story: &Story, queue: EntityId) -> Vec<u64> {
    story.peek_in(queue, MAIN).iter().map(|message| message.sequence_number.0).collect()
}

#[test]
fn a_message_scheduled_in_a_transaction_has_the_number_reserved_before_the_commit() {
    let mut story = Story::with_sent(1);
    let orders = story.queue;
    let (number, attributes) = reserve(&mut story, orders);
    let (unused, _) = reserve(&mut story, orders);
    story.send(1);
    assert_eq!((number.0, unused.0), (2, 3));
    assert_eq!(
        story.numbers(MAIN),
        [1, 4],
        "no message exists before the commit, and no number is used twice"
    );
    story.restart();
    let transaction = schedule(&mut story, name("orders"), attributes);
    commit(&mut story, transaction).unwrap();
    assert_eq!(story.numbers(MAIN), [1, 2, 4]);
    assert_eq!(story.counts().scheduled_count, 1);
    story.restart();
    let first = story.receive(MAIN).unwrap();
    story.settle(&first, Complete).unwrap();
    assert_eq!(
        story.engine.oldest_log_body(),
        Some(CommitGroupNumber(2)),
        "the body of the message is after that of number 4"
    );
    story.wait(secs(61));
    story.deliver();
    assert_eq!(story.numbers(MAIN), [4, 5], "the message moves to the end when it is due");
    story.restart();
}

#[test]
fn a_reserved_number_travels_to_another_shard() {
    let mut story = Story::new();
    let target = neighbours().next().unwrap();
    let far = story.create(&target, settings());
    let (number, attributes) = reserve(&mut story, far);
    let transaction = schedule(&mut story, target, attributes);
    // The commit runs as if the queue of the transaction were in another shard than the target.
    let (now, queue, elsewhere) = (story.now, story.queue, ShardId(here().0.wrapping_add(1)));
    story.engine.commit(now, elsewhere, queue, transaction, &mut story.out).unwrap();
    assert_eq!(story.counts().transfer_count, 1);
    story.restart();
    story.send_to(far, Attributes::default()).unwrap();
    story.forward();
    assert_eq!(numbers_in(&story, far), [number.0, number.0 + 1]);
    story.engine.cancel_scheduled(story.now, far, &[number], &mut story.out).unwrap();
    story.restart();
    assert_eq!(numbers_in(&story, far), [number.0 + 1]);
}

#[test]
fn a_reserved_number_of_a_deleted_queue_is_ignored_by_its_successor() {
    let mut story = Story::new();
    let target = neighbours().next().unwrap();
    let gone = story.create(&target, settings());
    let (number, attributes) = reserve(&mut story, gone);
    story.engine.delete_queue(story.now, &target, &mut story.out).unwrap();
    let successor = story.create(&target, settings());
    for _ in 0..2 {
        story.send_to(successor, Attributes::default()).unwrap();
    }
    let transaction = schedule(&mut story, target, attributes);
    commit(&mut story, transaction).unwrap();
    assert_eq!((number.0, numbers_in(&story, successor)), (1, vec![1, 2, 3]));
    story.restart();
}

#[test]
fn a_commit_cancels_and_sets_states_or_does_neither() {
    let mut story = Story::with(QueueSettings { requires_session: true, ..settings() });
    story.send_in_session("alpha", 1);
    story.accept_named(7, "alpha").unwrap();
    let delivery = story.deliver().remove(0);
    let later = Attributes { scheduled_for: Some(story.now + secs(60)), ..in_session("alpha") };
    let (first, second) = (story.send_with(later.clone()).unwrap(), story.send_with(later).unwrap());
    let (queue, receiver) = (story.queue, ReceiverId(7));
    let transaction = |cancels: &[SequenceNumber], holder: u64| Transaction {
        settles: vec![(MAIN, delivery.token, Complete)],
        cancels: cancels.iter().map(|number| (queue, *number)).collect(),
        states: ["old", "new"]
            .map(|state| NewState {
                entity: queue,
                session: session("alpha"),
                receiver: ReceiverId(holder),
                state: Some(Bytes::from_static(state.as_bytes())),
            })
            .into(),
        sends: vec![],
    };
    story.forget_effects();
    let before = story.engine.snapshot();
    let missing = commit(&mut story, transaction(&[first, seq(99)], 7));
    assert!(matches!(missing, Err(Error::NotScheduled { .. })), "{missing:?}");
    assert!(
        commit(&mut story, transaction(&[first, first], 7)).is_err(),
        "a message cannot be cancelled twice"
    );
    assert!(commit(&mut story, transaction(&[first], 8)).is_err(), "another receiver holds the session");
    assert_eq!(story.engine.snapshot(), before);

    commit(&mut story, transaction(&[first], 7)).unwrap();
    assert_eq!(story.numbers(MAIN), [second.0]);
    let state = story.engine.session_state(story.now, queue, &session("alpha"), receiver);
    assert_eq!(state, Ok(Some(Bytes::from_static(b"new"))));
    story.restart();
    assert_eq!(story.numbers(MAIN), [second.0]);
}
