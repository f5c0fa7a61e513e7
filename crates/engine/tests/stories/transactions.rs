//! Several settlements and sends as one.

use bytes::Bytes;
use peeklock_engine::Settlement::{Complete, Defer};
use peeklock_engine::{Attributes, Error, NewMessage, Transaction};
use peeklock_types::{BodyRef, EntityName, GroupNumber, QueueSettings, QueueStatus, ShardId, limits};

use crate::story::{MAIN, Story, far_away, here, name, neighbours, secs, settings};

fn commit(story: &mut Story, transaction: Transaction) -> Result<(), Error> {
    story.engine.commit(story.now, here(), story.queue, transaction, &mut story.out)
}

/// Sends to these queues, all bodies in one group.
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
    commit(&mut story, Transaction { settles, sends }).unwrap();
    assert_eq!(story.numbers(MAIN), [2, 3]);
    assert_eq!(story.peek_in(near_queue, MAIN).len(), 1);
    assert_eq!(story.counts().transfer_count, 2);
    let before = story.engine.outgoing(ShardId::of(&far), 9, u64::MAX);
    story.restart();
    let on_the_way = story.engine.outgoing(ShardId::of(&far), 9, u64::MAX);
    assert_eq!((on_the_way.len(), &on_the_way[0].target), (2, &far));
    assert_eq!(on_the_way, before);
    assert_eq!(on_the_way[0].attributes.origin, None, "it was sent there, not forwarded");
    story.engine.transferred(ShardId::of(&far), 2, &mut story.out);
    assert_eq!(story.counts().transfer_count, 0);
}

#[test]
fn what_a_far_message_says_travels_with_it() {
    let mut story = Story::new();
    let said = Attributes {
        scheduled_for: Some(story.now + secs(9)),
        time_to_live: Some(secs(5)),
        message_id: Some(Bytes::from_static(b"id")),
        ..Attributes::default()
    };
    let mut sends = sends(&mut story, &[&far_away()]);
    sends[0].1.attributes = Some(Box::new(said.clone()));
    commit(&mut story, Transaction { settles: vec![], sends }).unwrap();
    story.wait(secs(60));
    assert_eq!(story.counts().transfer_count, 1, "it is due and expires at its target, not on its way");
    story.restart();
    assert_eq!(*story.engine.outgoing(ShardId::of(&far_away()), 1, 1)[0].attributes, said);
}

#[test]
fn a_commit_that_cannot_be_changes_nothing() {
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
        assert!(commit(&mut story, Transaction { settles: vec![settle(0)], sends }).is_err());
    }
    let twice = Transaction { settles: vec![settle(0), settle(1), settle(0)], sends: vec![] };
    assert!(matches!(commit(&mut story, twice), Err(Error::Repeated { .. })));
    story.now = story.now + secs(30);
    let sends = sends(&mut story, &[&orders]);
    let late = Transaction { settles: vec![settle(1)], sends };
    assert!(matches!(commit(&mut story, late), Err(Error::LockLost { .. })));
    assert!(story.out.is_empty());
    assert_eq!(story.engine.snapshot(), before);
}

// Facts and bodies of a transaction share one group of the journal.
#[test]
fn a_transaction_is_bounded_with_all_that_it_carries() {
    let mut story = Story::with_sent(2);
    let delivery = story.receive(MAIN).unwrap();
    let mut sends = sends(&mut story, &[&name("orders"), &far_away()]);
    let half = u32::try_from(limits::TRANSACTION_SIZE_BYTES_MAX / 2).unwrap();
    sends.iter_mut().for_each(|(_, message)| message.size_bytes = half);
    let settle = |size| vec![(MAIN, delivery.token, Defer { patch: Some(Bytes::from(vec![1; size])) })];
    let too_much = Transaction { settles: settle(1), sends: sends.clone() };
    assert!(matches!(commit(&mut story, too_much), Err(Error::TooMuch { .. })));
    story.update(|settings| settings.max_message_size_bytes = 4 << 20).unwrap();
    commit(&mut story, Transaction { settles: settle(0), sends }).unwrap();
}

#[test]
fn bodies_of_a_transaction_follow_those_before_them() {
    let mut story = Story::with_sent(1);
    let body = |group| BodyRef::in_log(GroupNumber(group), 0).unwrap();
    let new = |group| NewMessage { body: body(group), size_bytes: 1, attributes: None };
    let sends = vec![(far_away(), new(8)), (name("orders"), new(9))];
    let refused = commit(&mut story, Transaction { settles: vec![], sends });
    assert!(matches!(refused, Err(Error::BodyOrder { .. })));
    let sends = vec![(far_away(), new(9)), (name("orders"), new(9))];
    assert_eq!(commit(&mut story, Transaction { settles: vec![], sends }), Ok(()));
}
