//! A broker over a journal in memory, and a peer that talks to it in short sentences.

use std::time::Duration;

use bytes::Bytes;
use peeklock_broker::engine::{Attributes, Delivery, EntityId, ReceiveMode, ReceiverId, Settlement};
use peeklock_broker::{
    Answer, Batch, Broker, Drain, EntityInfo, Error, Peer, Reply, Request, Running, SessionAsk, Ticket,
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
        let (broker, running, _) = Broker::open(&journal, |_, _| None).await.unwrap();
        Rig { journal, broker, running }
    }

    /// Everything in memory is gone; what the journal calls durable comes back.
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
            self.ready.extend(batch.expect("a reply comes").expect("the channel is open"));
        }
        self.ready.pop_front().unwrap()
    }

    /// Nothing comes although everybody who could work has worked.
    pub(crate) async fn stays_silent(&mut self) -> bool {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        self.ready.is_empty() && self.incoming.try_recv().is_err()
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

    pub(crate) async fn ask(&mut self, request: Request) {
        self.hand_over(Batch::from(request)).await;
    }

    pub(crate) async fn hand_over(&mut self, batch: Batch) {
        self.rig.broker.shard(self.shard).unwrap().send(self.peer.peer.clone(), batch).await.unwrap();
    }

    pub(crate) async fn answer(&mut self) -> Result<Answer, Error> {
        match self.peer.next().await {
            Reply::Answer { result, .. } => result,
            other => panic!("an answer was expected, not {other:?}"),
        }
    }

    async fn find(&mut self, name: EntityName) -> EntityId {
        self.ask(Request::Find { ticket: Ticket(0), name }).await;
        match self.answer().await.unwrap() {
            Answer::Found(found) => found.entity,
            other => panic!("{other:?}"),
        }
    }

    /// Asks for the message to be stored; does not wait.
    pub(crate) async fn start_send(&mut self, body: &[u8]) {
        self.start_send_with(body, None).await;
    }

    pub(crate) async fn start_send_with(&mut self, body: &[u8], attributes: Option<Attributes>) {
        let mut batch = Batch::default();
        let mut messages = batch.messages();
        messages.add(write(body, attributes)).unwrap();
        messages.send(Ticket(1), self.entity);
        self.hand_over(batch).await;
    }

    pub(crate) async fn send_with(&mut self, body: &[u8], attributes: Attributes) -> Result<Answer, Error> {
        self.start_send_with(body, Some(attributes)).await;
        self.answer().await
    }

    /// Asks for a receiver on a session; does not wait.
    pub(crate) async fn start_accept(&mut self, local: u32, session: SessionAsk) -> ReceiverId {
        let receiver = self.peer.peer.id.receiver(local);
        let (ticket, entity, sub_queue) = (Ticket(2), self.entity, SubQueue::Main);
        let mode = ReceiveMode::PeekLock;
        self.ask(Request::Attach { ticket, entity, sub_queue, receiver, mode, session }).await;
        self.ask(Request::Window { receiver, size_bytes: 1 << 30 }).await;
        receiver
    }

    pub(crate) async fn info(&mut self, name: &str) -> EntityInfo {
        self.ask(Request::Show { ticket: Ticket(5), name: EntityName::parse(name).unwrap() }).await;
        match self.answer().await.unwrap() {
            Answer::Entities(mut queues) => queues.pop().unwrap(),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn send(&mut self, body: &[u8]) {
        self.start_send(body).await;
        self.answer().await.unwrap();
    }

    pub(crate) async fn attach(&mut self, local: u32, mode: ReceiveMode) -> ReceiverId {
        let receiver = self.peer.peer.id.receiver(local);
        let (ticket, entity, sub_queue) = (Ticket(2), self.entity, SubQueue::Main);
        self.ask(Request::Attach { ticket, entity, sub_queue, receiver, mode, session: SessionAsk::None })
            .await;
        self.answer().await.unwrap();
        self.ask(Request::Window { receiver, size_bytes: 1 << 30 }).await;
        receiver
    }

    pub(crate) async fn credit(&mut self, receiver: ReceiverId, limit: u64, drain: bool) {
        let drain = if drain { Drain::Start } else { Drain::Cancel };
        self.ask(Request::Credit { receiver, limit, drain }).await;
    }

    pub(crate) async fn delivery(&mut self) -> (Delivery, Bytes) {
        match self.peer.next().await {
            Reply::Delivery { delivery, body, .. } => (delivery, body),
            other => panic!("a delivery was expected, not {other:?}"),
        }
    }

    pub(crate) async fn settle(&mut self, token: LockToken, settlement: Settlement) -> Result<Answer, Error> {
        let (entity, sub_queue) = (self.entity, SubQueue::Main);
        self.ask(Request::Settle { ticket: Ticket(3), entity, sub_queue, token, settlement }).await;
        self.answer().await
    }

    /// The bodies of all messages, in order.
    pub(crate) async fn peek(&mut self) -> Vec<Bytes> {
        self.peek_at(SubQueue::Main).await
    }

    pub(crate) async fn peek_at(&mut self, sub_queue: SubQueue) -> Vec<Bytes> {
        let (entity, from, ticket) = (self.entity, SequenceNumber(0), Ticket(4));
        let request = Request::Peek { ticket, entity, sub_queue, from, count_max: 1000, session: None };
        self.ask(request).await;
        match self.answer().await.unwrap() {
            Answer::Messages(messages) => messages.into_iter().map(|message| message.body).collect(),
            other => panic!("{other:?}"),
        }
    }
}

/// Writes a body, and says what the queue must know of it.
pub(crate) fn write(
    body: &[u8],
    attributes: Option<Attributes>,
) -> impl FnOnce(&mut bytes::BytesMut) -> Result<Option<Box<Attributes>>, std::convert::Infallible> {
    move |out| {
        out.extend_from_slice(body);
        Ok(attributes.map(Box::new))
    }
}
