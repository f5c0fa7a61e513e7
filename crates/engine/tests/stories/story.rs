//! A queue "orders", its neighbours, and short functions to use them.

use std::time::Duration;

use bytes::Bytes;
use peeklock_engine::{
    Attached, Attributes, Delivery, Engine, EntityId, Error, Fact, Message, NewMessage, OutMessage, Output,
    ReceiveMode, ReceiverId, SessionWish, Settlement, record,
};
use peeklock_types::{
    BodyRange, BodyRef, CommitGroupNumber, EntityName, LockToken, Placement, QueueSettings, SequenceNumber,
    SessionId, ShardId, SubQueue, Timestamp,
};

pub(crate) const MAIN: SubQueue = SubQueue::Main;
pub(crate) const DEAD: SubQueue = SubQueue::DeadLetter;
pub(crate) const ABANDON: Settlement = Settlement::Abandon { patch: None, delay: None };
pub(crate) const DEFER: Settlement = Settlement::Defer { patch: None };
pub(crate) const DEAD_LETTER: Settlement =
    Settlement::DeadLetter { reason: None, description: None, patch: None };

/// A queue "orders" with a lock duration of 30 seconds and three deliveries, and receivers by number.
pub(crate) struct Story {
    pub(crate) engine: Engine,
    pub(crate) queue: EntityId,
    pub(crate) now: Timestamp,
    pub(crate) out: Output,
    pub(crate) group: CommitGroupNumber,
    pub(crate) nonce: u64,
    /// All facts decided so far.
    journal: Vec<Fact>,
}

pub(crate) fn name(text: &str) -> EntityName {
    EntityName::parse(text).unwrap()
}

pub(crate) fn session(text: &str) -> SessionId {
    SessionId::parse(text).unwrap()
}

pub(crate) fn secs(count: u64) -> Duration {
    Duration::from_secs(count)
}

pub(crate) fn standalone(segment: u64, n: u64) -> BodyRef {
    BodyRef::standalone((segment << 32) | n).unwrap()
}

/// Returns the bodies that [`standalone`] places in this segment.
pub(crate) fn segment(segment: u64) -> BodyRange {
    BodyRange::handles(segment << 32, (segment << 32) | 0xffff_ffff)
}

pub(crate) fn seq(number: u64) -> SequenceNumber {
    SequenceNumber(number)
}

pub(crate) fn in_session(id: &str) -> Attributes {
    Attributes { session: Some(session(id)), ..Attributes::default() }
}

/// Returns the settings of "orders" for most scenarios.
pub(crate) fn settings() -> QueueSettings {
    QueueSettings { lock_duration: secs(30), max_delivery_count: 3, ..QueueSettings::default() }
}

pub(crate) fn numbers(deliveries: &[Delivery]) -> Vec<u64> {
    deliveries.iter().map(|delivery| delivery.message.sequence_number.0).collect()
}

impl Story {
    pub(crate) fn new() -> Story {
        Story::with(settings())
    }

    pub(crate) fn with(settings: QueueSettings) -> Story {
        let (mut engine, mut out) = (Engine::default(), Output::default());
        let now = Timestamp::from_millis(1_000_000);
        let queue = engine.create_queue(now, name("orders"), settings, &mut out).unwrap();
        Story { engine, queue, now, out, group: CommitGroupNumber(0), nonce: 0, journal: Vec::new() }
    }

    pub(crate) fn with_sent(count: usize) -> Story {
        let mut story = Story::new();
        story.send(count);
        story
    }

    pub(crate) fn create(&mut self, name: &EntityName, settings: QueueSettings) -> EntityId {
        self.engine.create_queue(self.now, name.clone(), settings, &mut self.out).unwrap()
    }

    /// Changes the settings of "orders".
    pub(crate) fn update(&mut self, change: impl FnOnce(&mut QueueSettings)) -> Result<EntityId, Error> {
        let mut settings = self.engine.queue(self.queue).unwrap().settings.clone();
        change(&mut settings);
        self.engine.update_queue(self.now, &name("orders"), settings, &mut self.out)
    }

    pub(crate) fn batch(&mut self, count: usize) -> Vec<NewMessage> {
        self.group = self.group.next();
        let body = |n: u32| BodyRef::in_group(self.group, n * 8).unwrap();
        let message = |n: u32| NewMessage { body: body(n), size_bytes: 100, attributes: None };
        (0..).take(count).map(message).collect()
    }

    /// Sends `count` plain messages to "orders".
    pub(crate) fn send(&mut self, count: usize) {
        let batch = self.batch(count);
        self.engine.send(self.now, self.queue, batch, &mut self.out).unwrap();
    }

    /// Sends one message to "orders", and returns its number.
    pub(crate) fn send_with(&mut self, attributes: Attributes) -> Result<SequenceNumber, Error> {
        self.send_to(self.queue, attributes)
    }

    pub(crate) fn send_to(
        &mut self,
        queue: EntityId,
        attributes: Attributes,
    ) -> Result<SequenceNumber, Error> {
        let mut batch = self.batch(1);
        batch[0].attributes = Some(Box::new(attributes));
        Ok(self.engine.schedule(self.now, queue, batch, &mut self.out)?[0])
    }

    pub(crate) fn send_in_session(&mut self, id: &str, count: usize) {
        for _ in 0..count {
            self.send_with(in_session(id)).unwrap();
        }
    }

    pub(crate) fn attach(
        &mut self,
        sub_queue: SubQueue,
        receiver: u64,
        mode: ReceiveMode,
        credit: u32,
    ) -> ReceiverId {
        self.attach_to(self.queue, sub_queue, receiver, mode, credit)
    }

    pub(crate) fn attach_to(
        &mut self,
        queue: EntityId,
        sub_queue: SubQueue,
        receiver: u64,
        mode: ReceiveMode,
        credit: u32,
    ) -> ReceiverId {
        let receiver = ReceiverId(receiver);
        let wish = SessionWish::None;
        let attached = self.engine.attach_receiver(self.now, queue, sub_queue, receiver, mode, wish);
        assert_eq!(attached, Ok(Attached::Queue));
        self.engine.add_window(receiver, i64::MAX);
        self.engine.set_credit(receiver, credit);
        receiver
    }

    /// Requests a session, with credit for five messages.
    pub(crate) fn accept(&mut self, receiver: u64, wish: SessionWish) -> Result<Attached, Error> {
        let receiver = ReceiverId(receiver);
        let (mode, queue) = (ReceiveMode::PeekLock, self.queue);
        let attached = self.engine.attach_receiver(self.now, queue, MAIN, receiver, mode, wish)?;
        self.engine.add_window(receiver, i64::MAX);
        self.engine.set_credit(receiver, 5);
        Ok(attached)
    }

    pub(crate) fn accept_named(&mut self, receiver: u64, id: &str) -> Result<Attached, Error> {
        self.accept(receiver, SessionWish::Named(session(id)))
    }

    /// Waits for any session, for a minute.
    pub(crate) fn accept_next(&mut self, receiver: u64) {
        let give_up_at = self.now + secs(60);
        assert_eq!(self.accept(receiver, SessionWish::Next { give_up_at }), Ok(Attached::Waiting));
    }

    pub(crate) fn detach(&mut self, receiver: u64) {
        self.engine.detach_receiver(self.now, ReceiverId(receiver), &mut self.out);
    }

    pub(crate) fn deliver(&mut self) -> Vec<Delivery> {
        self.forget_effects();
        let nonce = &mut self.nonce;
        let mut nonces = || {
            *nonce += 1;
            *nonce
        };
        let _more = self.engine.deliver(self.now, &mut nonces, &mut self.out);
        std::mem::take(&mut self.out.deliveries)
    }

    /// Receives one message with a receiver that has credit for one.
    pub(crate) fn receive(&mut self, sub_queue: SubQueue) -> Option<Delivery> {
        self.receive_from(self.queue, sub_queue)
    }

    pub(crate) fn receive_from(&mut self, queue: EntityId, sub_queue: SubQueue) -> Option<Delivery> {
        let receiver = self.attach_to(queue, sub_queue, u64::MAX, ReceiveMode::PeekLock, 1);
        let delivery = self.deliver().pop();
        self.detach(receiver.0);
        delivery
    }

    pub(crate) fn settle(&mut self, delivery: &Delivery, settlement: Settlement) -> Result<(), Error> {
        self.settle_token(delivery.sub_queue, delivery.token, settlement)
    }

    pub(crate) fn settle_token(
        &mut self,
        sub_queue: SubQueue,
        token: LockToken,
        settlement: Settlement,
    ) -> Result<(), Error> {
        self.forget_effects();
        self.engine.settle(self.now, self.queue, sub_queue, token, settlement, &mut self.out)
    }

    pub(crate) fn receive_deferred(
        &mut self,
        numbers: &[u64],
        mode: ReceiveMode,
    ) -> Result<Vec<LockToken>, Error> {
        let numbers: Vec<_> = numbers.iter().copied().map(SequenceNumber).collect();
        self.nonce += 1;
        let (now, queue, nonce) = (self.now, self.queue, self.nonce);
        let received =
            self.engine.receive_deferred(now, queue, MAIN, &numbers, mode, None, nonce, &mut self.out)?;
        Ok(received.into_iter().map(|received| received.token).collect())
    }

    pub(crate) fn wait(&mut self, span: Duration) {
        self.now = self.now + span;
        self.engine.tick(self.now, &mut self.out);
    }

    pub(crate) fn peek(&self, sub_queue: SubQueue) -> Vec<Message> {
        self.engine.peek(self.queue, sub_queue, seq(0), 1000).unwrap()
    }

    pub(crate) fn peek_in(&self, queue: EntityId, sub_queue: SubQueue) -> Vec<Message> {
        self.engine.peek(queue, sub_queue, seq(0), 1000).unwrap()
    }

    pub(crate) fn numbers(&self, sub_queue: SubQueue) -> Vec<u64> {
        self.peek(sub_queue).into_iter().map(|message| message.sequence_number.0).collect()
    }

    pub(crate) fn counts(&self) -> peeklock_engine::Counts {
        self.engine.queue(self.queue).unwrap().counts
    }

    /// Stores the facts, and drops the other results of a command.
    pub(crate) fn forget_effects(&mut self) {
        self.journal.append(&mut self.out.facts);
        self.engine.unshare(&mut self.out.freed);
        self.out.clear();
    }

    /// Restores everything from the facts so far, after encoding and decoding them, and checks that a snapshot gives
    /// the same state.
    pub(crate) fn restart(&mut self) {
        self.forget_effects();
        let before = self.engine.snapshot();
        let (group, mut bytes) = (self.group, Vec::new());
        self.journal.iter().for_each(|fact| record::encode(fact, group, &mut bytes));
        let mut rest = bytes.as_slice();
        self.engine = Engine::default();
        while !rest.is_empty() {
            self.engine.apply(&record::decode(&mut rest, group).unwrap()).unwrap();
        }
        assert_eq!(self.engine.snapshot(), before);
        assert_eq!(Engine::restore(&before, Placement::default()).unwrap().snapshot(), before);
        self.engine.wake(self.now, &mut self.out);
    }
}

impl Story {
    /// Transfers all messages for this shard to their targets, as the broker does between shards.
    pub(crate) fn forward(&mut self) {
        self.deliver();
        while let Some(first) = self.engine.outgoing(here(), 1, u64::MAX).pop() {
            self.bring(&first);
            self.deliver();
        }
    }

    /// Transfers one message to its queue in this shard, and reports the result to the outbox.
    fn bring(&mut self, message: &OutMessage) {
        match self.arrive(message) {
            Ok(_) => self.engine.transferred(here(), message.number, &mut self.out),
            Err(error) => {
                self.engine.transfer_refused(here(), message.number, error.to_string(), &mut self.out);
            }
        }
    }

    pub(crate) fn arrive(&mut self, message: &OutMessage) -> Result<bool, Error> {
        let mut new = self.batch(1).remove(0);
        new.attributes = Some(message.attributes.clone());
        new.size_bytes = message.size_bytes;
        self.engine.arrive(self.now, here(), message.number, &message.target, new, &mut self.out)
    }
}

/// Returns the shard of "orders".
pub(crate) fn here() -> ShardId {
    Placement::default().of(&name("orders"))
}

/// Returns names of other queues of the same shard.
pub(crate) fn neighbours() -> impl Iterator<Item = EntityName> {
    (0..).map(|n| name(&format!("next{n}"))).filter(|name| Placement::default().of(name) == here())
}

/// Returns the name of a queue of another shard.
pub(crate) fn far_away() -> EntityName {
    (0..).map(|n| name(&format!("far{n}"))).find(|name| Placement::default().of(name) != here()).unwrap()
}

pub(crate) fn id(text: &'static str) -> Attributes {
    Attributes { message_id: Some(Bytes::from_static(text.as_bytes())), ..Attributes::default() }
}
