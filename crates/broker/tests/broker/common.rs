//! A broker over a journal in memory, and a peer with short calls for tests.

use std::time::Duration;

use bytes::Bytes;
use peeklock_broker::engine::{Attributes, Delivery, EntityId, ReceiveMode, ReceiverId, Settlement};
use peeklock_broker::request::entities::{Find, Show};
use peeklock_broker::request::receiving::{Attach, Credit, Peek, Window};
use peeklock_broker::request::sending::SendMessages;
use peeklock_broker::request::settling::Settle;
use peeklock_broker::{
    Answer, Ask, Batch, Broker, Clock, Delivered, DeliveredBody, DeliveryRun, Drain, EntityInfo, Error,
    Named, Peer, ReceiverReply, Reply, Request, Running, SessionAsk, Ticket,
};
use peeklock_journal::MemoryJournal;
use peeklock_types::{EntityName, LockToken, QueueSettings, SequenceNumber, ShardId, SubQueue};
use tokio::sync::mpsc;

pub(crate) struct Rig {
    pub(crate) journal: MemoryJournal,
    pub(crate) broker: Broker,
    pub(crate) running: Running,
}

impl Rig {
    pub(crate) async fn start() -> Self {
        Self::start_with(MemoryJournal::new()).await
    }

    pub(crate) async fn start_with(journal: MemoryJournal) -> Self {
        Self::start_at(journal, Clock::start()).await
    }

    pub(crate) async fn start_at(journal: MemoryJournal, clock: Clock) -> Self {
        let (broker, running, _) = Broker::open_at(&journal, clock, |_, _| None).await.unwrap();
        Rig { journal, broker, running }
    }

    /// Restarts the broker: everything in memory is lost, and the durable state is recovered from the journal.
    pub(crate) async fn crash(self) -> Self {
        let Rig { journal, broker, running } = self;
        drop((broker, running));
        Self::start_with(journal).await
    }

    pub(crate) async fn queue(&self, name: &str) -> TestQueue<'_> {
        self.queue_with(name, QueueSettings::default()).await
    }

    pub(crate) async fn queue_with(&self, name: &str, settings: QueueSettings) -> TestQueue<'_> {
        let name = EntityName::parse(name).unwrap();
        let _ = self.broker.create_queue(name.clone(), settings).await;
        let shard = self.broker.place(&name);
        let mut queue = TestQueue { rig: self, shard, entity: EntityId(0), peer: TestPeer::of(&self.broker) };
        queue.entity = queue.find(name).await;
        queue
    }
}

pub(crate) struct TestPeer {
    pub(crate) peer: Peer,
    incoming: mpsc::UnboundedReceiver<Vec<Reply>>,
    ready: std::collections::VecDeque<Reply>,
}

impl TestPeer {
    pub(crate) fn of(broker: &Broker) -> Self {
        let (peer, incoming) = broker.peer();
        TestPeer { peer, incoming, ready: std::collections::VecDeque::new() }
    }

    pub(crate) async fn next(&mut self) -> Reply {
        while self.ready.is_empty() {
            let batch = tokio::time::timeout(Duration::from_secs(10), self.incoming.recv()).await;
            let replies = batch.expect("a reply arrives").expect("the channel is open");
            self.ready.extend(replies.into_iter().flat_map(one_by_one));
        }
        self.ready.pop_front().unwrap()
    }

    pub(crate) async fn answer<R: Ask>(&mut self) -> Result<R::Answer, Error> {
        match self.next().await {
            Reply::Answer(answer) => R::answered(answer).expect("the answer belongs to this request").result,
            other => panic!("expected an answer, got {other:?}"),
        }
    }

    /// Returns whether no reply arrives after all tasks had time to work.
    pub(crate) async fn stays_silent(&mut self) -> bool {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        self.ready.is_empty() && self.incoming.try_recv().is_err()
    }
}

/// Splits runs into single replies.
fn one_by_one(reply: Reply) -> Vec<Reply> {
    match reply {
        Reply::Answer(Answer::Sent(run)) => {
            run.into_iter().map(|sent| Reply::Answer(Answer::Sent(vec![sent]))).collect()
        }
        Reply::Answer(Answer::Settled(run)) => {
            run.into_iter().map(|settled| Reply::Answer(Answer::Settled(vec![settled]))).collect()
        }
        Reply::Receiver(ReceiverReply::Deliveries(mut run)) => {
            let (shard, receiver) = (run.shard, run.receiver);
            let of_one = |Delivered { delivery, body }| {
                assert_eq!(delivery.receiver, receiver);
                let run = DeliveryRun::new(shard, receiver, vec![delivery], vec![body]);
                Reply::Receiver(ReceiverReply::Deliveries(run))
            };
            std::iter::from_fn(|| run.pop_first()).map(of_one).collect()
        }
        other => vec![other],
    }
}

pub(crate) struct TestQueue<'r> {
    rig: &'r Rig,
    pub(crate) shard: usize,
    pub(crate) entity: EntityId,
    pub(crate) peer: TestPeer,
}

impl TestQueue<'_> {
    pub(crate) fn shard_id(&self) -> ShardId {
        ShardId(u16::try_from(self.shard).unwrap())
    }

    pub(crate) async fn tell(&mut self, request: impl Into<Request>) {
        self.hand_over(Batch::from(request)).await;
    }

    /// Sends a request without waiting for its answer.
    pub(crate) async fn start<R: Ask>(&mut self, request: R) {
        let mut batch = Batch::default();
        batch.ask(Ticket::new(0), request);
        self.hand_over(batch).await;
    }

    pub(crate) async fn ask<R: Ask>(&mut self, request: R) -> Result<R::Answer, Error> {
        self.start(request).await;
        self.answer::<R>().await
    }

    pub(crate) async fn hand_over(&mut self, batch: Batch) {
        self.rig.broker.shard(self.shard).unwrap().send(self.peer.peer.clone(), batch).await.unwrap();
    }

    pub(crate) async fn answer<R: Ask>(&mut self) -> Result<R::Answer, Error> {
        self.peer.answer::<R>().await
    }

    async fn find(&mut self, name: EntityName) -> EntityId {
        match self.ask(Find { name }).await.unwrap() {
            Named::Entity(found) => found.entity,
            other => panic!("{other:?}"),
        }
    }

    /// Starts to send a message without waiting for the answer.
    pub(crate) async fn start_send(&mut self, body: &[u8]) {
        self.start_send_with(body, None).await;
    }

    pub(crate) async fn start_send_with(&mut self, body: &[u8], attributes: Option<Attributes>) {
        let mut batch = Batch::default();
        let mut messages = batch.messages();
        messages.add(write(body, attributes)).unwrap();
        messages.send(Ticket::new(1), self.entity);
        self.hand_over(batch).await;
    }

    pub(crate) async fn send_with(&mut self, body: &[u8], attributes: Attributes) -> Result<(), Error> {
        self.start_send_with(body, Some(attributes)).await;
        self.answer::<SendMessages>().await
    }

    /// Starts to attach a receiver to a session without waiting for the answer.
    pub(crate) async fn start_accept(&mut self, local: u32, session: SessionAsk) -> ReceiverId {
        let receiver = self.peer.peer.id.receiver(local);
        let (entity, sub_queue, mode) = (self.entity, SubQueue::Main, ReceiveMode::PeekLock);
        self.start(Attach { entity, sub_queue, receiver, mode, session }).await;
        self.tell(Window { receiver, size_bytes: 1 << 30 }).await;
        receiver
    }

    pub(crate) async fn info(&mut self, name: &str) -> EntityInfo {
        self.ask(Show { name: EntityName::parse(name).unwrap() }).await.unwrap()
    }

    pub(crate) async fn send(&mut self, body: &[u8]) {
        self.start_send(body).await;
        self.answer::<SendMessages>().await.unwrap();
    }

    pub(crate) async fn attach(&mut self, local: u32, mode: ReceiveMode) -> ReceiverId {
        let receiver = self.peer.peer.id.receiver(local);
        let (entity, sub_queue) = (self.entity, SubQueue::Main);
        self.ask(Attach { entity, sub_queue, receiver, mode, session: SessionAsk::None }).await.unwrap();
        self.tell(Window { receiver, size_bytes: 1 << 30 }).await;
        receiver
    }

    pub(crate) async fn credit(&mut self, receiver: ReceiverId, limit: u64, drain: bool) {
        let drain = if drain { Drain::Start } else { Drain::Cancel };
        self.tell(Credit { receiver, limit, drain }).await;
    }

    pub(crate) async fn delivery(&mut self) -> (Delivery, Bytes) {
        match delivered(self.peer.next().await) {
            Ok(Delivered { delivery, body: DeliveredBody::Whole(body) }) => (delivery, body),
            other => panic!("expected a delivery, got {other:?}"),
        }
    }

    pub(crate) async fn settle(&mut self, token: LockToken, settlement: Settlement) -> Result<(), Error> {
        let (entity, sub_queue) = (self.entity, SubQueue::Main);
        self.ask(Settle { entity, sub_queue, token, settlement }).await
    }

    /// Returns the bodies of all messages, in order.
    pub(crate) async fn peek(&mut self) -> Vec<Bytes> {
        self.peek_at(SubQueue::Main).await
    }

    pub(crate) async fn peek_at(&mut self, sub_queue: SubQueue) -> Vec<Bytes> {
        let (entity, from) = (self.entity, SequenceNumber(0));
        let peek = Peek { entity, sub_queue, from, count_max: 1000, session: None };
        self.ask(peek).await.unwrap().into_iter().map(|message| message.body).collect()
    }
}

/// Returns the delivery of a reply, if it contains one.
pub(crate) fn delivered(reply: Reply) -> Result<Delivered, Reply> {
    match reply {
        Reply::Receiver(ReceiverReply::Deliveries(mut run)) if run.len() == 1 => Ok(run.pop_first().unwrap()),
        other => Err(other),
    }
}

/// Writes a body, and returns the attributes that the queue needs.
pub(crate) fn write(
    body: &[u8],
    attributes: Option<Attributes>,
) -> impl FnOnce(&mut bytes::BytesMut) -> Result<Option<Box<Attributes>>, std::convert::Infallible> {
    move |out| {
        out.extend_from_slice(body);
        Ok(attributes.map(Box::new))
    }
}
