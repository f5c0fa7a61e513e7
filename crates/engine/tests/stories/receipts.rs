//! Messages without receivers: received for a time that the caller specifies, changed and deleted under receipts.

use peeklock_engine::{Error, MessageState, Metadata, NewBody, Received};
use peeklock_types::{
    BodyRef, ClassName, ClassSettings, CommitGroupNumber, EntityPath, LockToken, OrderPolicy, OrderSettings,
    QueueSettings, limits,
};

use crate::story::{ABANDON, DEAD, DEFER, MAIN, Story, in_session, name, secs, seq, settings};

impl Story {
    fn take_messages(&mut self, count: usize, seconds: u64) -> Vec<Received> {
        self.forget_effects();
        let nonce = &mut self.nonce;
        let mut nonces = || {
            *nonce += 1;
            *nonce
        };
        let (now, queue, out) = (self.now, self.queue, &mut self.out);
        self.engine.take_messages(now, queue, count, secs(seconds), &mut nonces, out).unwrap()
    }

    fn put(&mut self, seconds: u64) -> Received {
        let message = self.batch(1).remove(0);
        self.nonce += 1;
        let (now, queue, nonce) = (self.now, self.queue, self.nonce);
        self.engine.put_message(now, queue, message, secs(seconds), nonce, &mut self.out).unwrap()
    }

    fn change(
        &mut self,
        token: LockToken,
        seconds: u64,
        body: Option<NewBody>,
    ) -> Result<Option<Received>, Error> {
        self.nonce += 1;
        let (now, queue, nonce) = (self.now, self.queue, self.nonce);
        self.engine.change_message(now, queue, token, secs(seconds), body, nonce, &mut self.out)
    }

    fn delete(&mut self, token: LockToken) -> Result<(), Error> {
        self.engine.delete_message(self.now, self.queue, token, &mut self.out)
    }

    fn new_body(&mut self) -> NewBody {
        NewBody { body: self.batch(1)[0].body, size_bytes: 70 }
    }
}

fn taken_numbers(taken: &[Received]) -> Vec<u64> {
    taken.iter().map(|taken| taken.message.sequence_number.0).collect()
}

#[test]
fn a_hidden_time_of_a_week_survives_a_restart() {
    let mut story = Story::with_sent(2);
    let [taken] = story.take_messages(1, limits::HIDDEN_MAX.as_secs()).try_into().unwrap();
    story.restart();
    assert_eq!(story.peek(MAIN)[0].locked_until, taken.message.locked_until);
    story.wait(limits::HIDDEN_MAX - secs(1));
    assert_eq!(taken_numbers(&story.take_messages(5, 1)), [2]);
    story.wait(secs(1));
    let again = story.take_messages(5, 1);
    assert_eq!((taken_numbers(&again), again[0].message.delivery_count), (vec![1, 2], 1));
}

#[test]
fn a_receive_invalidates_the_receipt_of_the_message() {
    let mut story = Story::new();
    let put = story.put(0);
    let delivery = story.receive(MAIN).unwrap();
    let lost = Error::ReceiptLost {
        path: EntityPath { name: name("orders"), sub_queue: MAIN },
        sequence_number: seq(1),
    };
    assert_eq!(story.delete(put.token), Err(lost.clone()));
    story.settle(&delivery, ABANDON).unwrap();
    assert_eq!(story.delete(put.token), Err(lost), "the receipt stays invalid when the message returns");
    story.restart();
}

#[test]
fn a_deferral_invalidates_the_receipt() {
    let mut story = Story::with_sent(1);
    let [taken] = story.take_messages(1, 30).try_into().unwrap();
    story.settle_token(MAIN, taken.token, DEFER).unwrap();
    assert!(matches!(story.change(taken.token, 0, None), Err(Error::ReceiptLost { .. })));
    assert!(matches!(story.delete(taken.token), Err(Error::ReceiptLost { .. })));
    story.restart();
}

#[test]
fn a_message_taken_too_often_is_dead_lettered() {
    let mut story = Story::with_sent(1);
    for _ in 0..2 {
        let [taken] = story.take_messages(1, 30).try_into().unwrap();
        assert!(story.change(taken.token, 0, None).unwrap().is_some());
    }
    let [taken] = story.take_messages(1, 30).try_into().unwrap();
    assert_eq!(story.change(taken.token, 0, None), Ok(None));
    assert_eq!((story.numbers(MAIN), story.numbers(DEAD)), (vec![], vec![1]));
    assert!(matches!(story.delete(taken.token), Err(Error::NoSuchMessage { .. })));
    story.restart();
}

#[test]
fn a_new_body_is_the_youngest_and_keeps_only_its_own_group() {
    let mut story = Story::new();
    story.send(1);
    story.send(1);
    let first = story.engine.oldest_log_body();
    let [taken] = story.take_messages(1, 30).try_into().unwrap();
    let body = story.new_body();
    let changed = story.change(taken.token, 30, Some(body)).unwrap().unwrap();
    assert_eq!((changed.message.body, changed.message.size_bytes), (body.body, 70));
    assert!(story.engine.oldest_log_body() > first, "the old body is not needed any more");
    assert_eq!(story.counts().size_bytes, 170);
    story.restart();
    let old = NewBody { body: BodyRef::in_group(CommitGroupNumber(1), 0).unwrap(), size_bytes: 1 };
    assert!(matches!(story.change(changed.token, 30, Some(old)), Err(Error::BodyOrder { .. })));
    story.delete(changed.token).unwrap();
    story.restart();
}

#[test]
fn takes_and_changes_follow_the_order_and_keep_the_place() {
    let class = |name: &str, priorities| ClassSettings {
        name: ClassName::parse(name).unwrap(),
        priorities,
        offset: None,
        weight: None,
        target: None,
        rate: None,
        send_rate: None,
    };
    let order = OrderSettings {
        policy: OrderPolicy::Strict,
        classes: vec![class("high", (0, 3)), class("low", (4, 9))],
        ..OrderSettings::default()
    };
    let mut story = Story::with(QueueSettings { order: Some(Box::new(order)), ..settings() });
    story.send(3);
    let put = story.put(5);
    assert_eq!(put.message.state, MessageState::Delayed);
    let taken = story.take_messages(2, 10);
    assert_eq!(taken_numbers(&taken), [1, 2]);
    let body = story.new_body();
    story.change(taken[0].token, 0, Some(body)).unwrap();
    story.change(put.token, 0, None).unwrap();
    story.restart();
    assert_eq!(taken_numbers(&story.take_messages(5, 10)), [1, 3, 4]);
    story.wait(secs(10));
    assert_eq!(taken_numbers(&story.take_messages(5, 10)), [1, 2, 3, 4]);
    assert_eq!(story.engine.clear(story.now, story.queue, &mut story.out), Ok(4));
    assert_eq!(story.counts().message_count(), 0);
    story.restart();
}

#[test]
fn queues_with_sessions_and_topics_have_no_receipts() {
    let mut story = Story::with(QueueSettings { requires_session: true, ..settings() });
    story.send_with(in_session("a")).unwrap();
    let (now, queue) = (story.now, story.queue);
    let taken = story.engine.take_messages(now, queue, 1, secs(1), &mut || 7, &mut story.out);
    assert!(matches!(taken, Err(Error::SessionRequired { .. })));
    assert!(matches!(story.engine.peek_waiting(now, queue, 1), Err(Error::SessionRequired { .. })));
    assert!(matches!(story.engine.clear(now, queue, &mut story.out), Err(Error::SessionRequired { .. })));
}

#[test]
fn messages_too_large_for_a_response_are_left_for_receivers() {
    let large = QueueSettings { max_message_size_bytes: 100 * 1024 * 1024, ..settings() };
    let mut story = Story::with(large);
    let mut batch = story.batch(4);
    batch[0].size_bytes = limits::WHOLE_BODY_BYTES_MAX + 1;
    batch[2].size_bytes = limits::WHOLE_BODY_BYTES_MAX + 1;
    story.engine.send(story.now, story.queue, batch, &mut story.out).unwrap();
    let seen = story.engine.peek_waiting(story.now, story.queue, 5).unwrap();
    assert_eq!(seen.iter().map(|message| message.sequence_number.0).collect::<Vec<_>>(), [2, 4]);
    assert_eq!(taken_numbers(&story.take_messages(1, 10)), [2]);
    assert_eq!(taken_numbers(&story.take_messages(5, 10)), [4]);
    story.forget_effects();
    assert!(story.take_messages(5, 10).is_empty(), "no message is left that fits");
    story.wait(secs(10));
    assert_eq!(
        taken_numbers(&story.take_messages(5, 10)),
        [2, 4],
        "the messages return, and not behind the large ones"
    );
    assert_eq!(story.counts().message_count(), 4);
    story.restart();
}

#[test]
fn a_queue_stores_the_metadata_of_its_owner() {
    let mut story = Story::new();
    let metadata = Metadata(vec![("colour".to_owned(), "red".to_owned())]);
    story.engine.set_metadata(story.now, &name("orders"), metadata.clone(), &mut story.out).unwrap();
    story.restart();
    assert_eq!(story.engine.queue(story.queue).unwrap().metadata, &metadata);
    let much = Metadata(vec![("a".to_owned(), "x".repeat(limits::METADATA_SIZE_BYTES_MAX))]);
    let refused = story.engine.set_metadata(story.now, &name("orders"), much, &mut story.out);
    assert!(matches!(refused, Err(Error::MetadataTooLarge { .. })));
}
