//! A batch of requests from one peer to one shard, with the tickets that match answers to requests.

use std::ops::Range;

use bytes::BytesMut;
use peeklock_engine::{Attributes, EntityId, ReceiverId};
use peeklock_journal::StoredBody;
use peeklock_types::limits;
use tokio::sync::mpsc;

use crate::body_buffer::BodyBuffer;
use crate::large::KeptBody;
use crate::reply::Reply;
use crate::request::sending::{ScheduleMessages, SendMessages, SendOfRun, SendRun};
use crate::request::settling::{Settle, SettleOfRun, SettleRun};
use crate::request::{Ask, Asked, Request, Ticket};

/// The id of one connection, unique for the lifetime of its broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PeerId(pub(crate) u64);

impl PeerId {
    const LOCAL_BITS: u32 = 24;
    /// The maximum number of receivers of one peer.
    pub const RECEIVERS_MAX: u32 = 1 << Self::LOCAL_BITS;

    /// Returns the receiver with the peer's own number `local`. The receiver id contains the id of the peer.
    pub fn receiver(self, local: u32) -> ReceiverId {
        debug_assert!(local < Self::RECEIVERS_MAX);
        ReceiverId((self.0 << Self::LOCAL_BITS) | u64::from(local))
    }

    pub fn of(receiver: ReceiverId) -> PeerId {
        PeerId(receiver.0 >> Self::LOCAL_BITS)
    }

    #[expect(clippy::cast_possible_truncation, reason = "masked to the width of the field")]
    pub fn local(receiver: ReceiverId) -> u32 {
        (receiver.0 & u64::from(Self::RECEIVERS_MAX - 1)) as u32
    }
}

/// The channel through which all shards reply to a peer. It needs no limit of its own, because the credit, the byte
/// window and the open requests of the peer limit the replies that can wait in it.
#[derive(Clone, Debug)]
pub struct Peer {
    pub id: PeerId,
    pub replies: mpsc::UnboundedSender<Vec<Reply>>,
}

impl Peer {
    pub(crate) fn new(id: PeerId) -> (Self, mpsc::UnboundedReceiver<Vec<Reply>>) {
        let (replies, incoming) = mpsc::unbounded_channel();
        (Peer { id, replies }, incoming)
    }
}

/// All requests of one peer to one shard at one time. The bodies of new messages are in one buffer, so a message needs
/// no allocation.
#[derive(Debug, Default)]
pub struct Batch {
    pub(crate) requests: Vec<Request>,
    bodies: BodyBuffer,
    messages: Vec<Written>,
    expected: Expected,
}

/// The size of the peer's previous batch to the shard, which is the best guess for this one. Lists that have room for
/// it from the start are not moved as they grow.
#[derive(Clone, Copy, Debug, Default)]
struct Expected {
    message_count: usize,
    body_bytes: usize,
    /// The length of the longest run of sends, and of the longest run of settlements.
    sends_len: usize,
    settles_len: usize,
}

impl Expected {
    /// The room that is reserved at most.
    const BODY_BYTES_MAX: usize = 256 * 1024;
    const COUNT_MAX: usize = 4096;

    fn after(batch: &Batch) -> Self {
        let runs = |len: fn(&Request) -> usize| batch.requests.iter().map(len).max().unwrap_or_default();
        let sends_len = runs(|request| if let Request::Send(run) = request { run.sends.len() } else { 0 });
        let settles_len =
            runs(|request| if let Request::Settle(run) = request { run.settles.len() } else { 0 });
        Expected {
            message_count: batch.messages.len().min(Self::COUNT_MAX),
            body_bytes: batch.bodies.len().min(Self::BODY_BYTES_MAX),
            sends_len: sends_len.min(Self::COUNT_MAX),
            settles_len: settles_len.min(Self::COUNT_MAX),
        }
    }
}

/// A message whose body is in the batch's buffer, or already in the journal.
#[derive(Debug)]
struct Written {
    bytes: Range<usize>,
    stored: Option<StoredBody>,
    attributes: Option<Box<Attributes>>,
}

impl<R: Into<Request>> From<R> for Batch {
    fn from(request: R) -> Self {
        Batch { requests: vec![request.into()], ..Batch::default() }
    }
}

impl Batch {
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Returns whether the batch has more messages than any batch except one of very small messages.
    pub(crate) fn is_crowded(&self) -> bool {
        self.messages.len() > limits::BATCH_COUNT_MAX
    }

    /// Returns the number of answers to this batch.
    pub fn answer_count(&self) -> usize {
        self.requests.iter().map(Request::answer_count).sum()
    }

    pub fn push(&mut self, request: impl Into<Request>) {
        self.requests.push(request.into());
    }

    pub fn ask<R: Ask>(&mut self, ticket: Ticket<R>, request: R) {
        self.push(Asked { ticket, request });
    }

    /// Adds a send. It is merged into the last request if that is a send to the same entity.
    fn send(&mut self, ticket: Ticket<SendMessages>, entity: EntityId, messages: Range<usize>) {
        match self.requests.last_mut() {
            Some(Request::Send(run)) if run.entity == entity => {
                run.sends.push(SendOfRun { ticket, messages });
            }
            _ => {
                let sends = new_run(&mut self.expected.sends_len, SendOfRun { ticket, messages });
                self.requests.push(Request::Send(SendRun { entity, sends }));
            }
        }
    }

    /// Adds a settlement. It is merged into the last request if that settles in the same entity and sub-queue.
    pub fn settle(&mut self, ticket: Ticket<Settle>, request: Settle) {
        let Settle { entity, sub_queue, token, settlement } = request;
        let settle = SettleOfRun { ticket, token, settlement };
        match self.requests.last_mut() {
            Some(Request::Settle(run)) if (run.entity, run.sub_queue) == (entity, sub_queue) => {
                run.settles.push(settle);
            }
            _ => {
                let settles = new_run(&mut self.expected.settles_len, settle);
                self.requests.push(Request::Settle(SettleRun { entity, sub_queue, settles }));
            }
        }
    }

    /// Starts a collection of the messages of one send. [`Messages::send`] adds the request; a collection that is
    /// dropped before that leaves the batch unchanged.
    pub fn messages(&mut self) -> Messages<'_> {
        Messages { first_byte: self.bodies.len(), first: self.messages.len(), batch: self, sent: false }
    }

    /// Takes the bodies out of the batch, for the commit group that will contain them.
    pub(crate) fn take_bodies(&mut self) -> BodyBuffer {
        std::mem::take(&mut self.bodies)
    }

    /// Returns the range of a message in the buffer of bodies.
    pub(crate) fn range(&self, message: usize) -> Option<Range<usize>> {
        self.messages.get(message).map(|message| message.bytes.clone())
    }

    /// Returns the size of the bodies in the buffer.
    pub(crate) fn size_bytes(&self, messages: Range<usize>) -> usize {
        self.messages.get(messages).unwrap_or_default().iter().map(|message| message.bytes.len()).sum()
    }

    /// Returns the message's body, if it is already in the journal.
    pub(crate) fn stored(&self, message: usize) -> Option<StoredBody> {
        self.messages.get(message).and_then(|message| message.stored)
    }

    /// Takes the attributes of a message out of the batch.
    pub(crate) fn take_attributes(&mut self, message: usize) -> Option<Box<Attributes>> {
        self.messages.get_mut(message).and_then(|message| message.attributes.take())
    }

    /// Takes the batch, and leaves an empty one that expects as much again.
    pub fn take(&mut self) -> Batch {
        let next = Batch { expected: Expected::after(self), ..Batch::default() };
        std::mem::replace(self, next)
    }
}

/// Starts a run. Only the first run of its kind gets room for the expected length: a batch can have thousands of short
/// runs.
fn new_run<T>(expected_len: &mut usize, first: T) -> Vec<T> {
    let mut run = Vec::with_capacity(std::mem::take(expected_len).max(1));
    run.push(first);
    run
}

pub struct Messages<'a> {
    batch: &'a mut Batch,
    first_byte: usize,
    first: usize,
    sent: bool,
}

impl Messages<'_> {
    /// Adds one message. `write` appends its bytes to the buffer and returns the attributes that the queue needs.
    pub fn add<E>(
        &mut self,
        write: impl FnOnce(&mut BytesMut) -> Result<Option<Box<Attributes>>, E>,
    ) -> Result<(), E> {
        if self.batch.messages.is_empty() {
            self.batch.messages.reserve(self.batch.expected.message_count);
            self.batch.bodies.reserve(self.batch.expected.body_bytes);
        }
        let (bytes, attributes) = self.batch.bodies.add(write)?;
        self.batch.messages.push(Written { bytes, stored: None, attributes });
        Ok(())
    }

    /// Adds a message whose body is already in the shard's journal. If the message is rejected, the shard releases the
    /// body.
    pub(crate) fn add_stored(&mut self, body: StoredBody, attributes: Option<Box<Attributes>>) {
        self.batch.messages.push(Written { bytes: 0..0, stored: Some(body), attributes });
    }

    /// Adds a message with a large body that was stored for it.
    pub fn add_kept(&mut self, body: KeptBody, attributes: Option<Box<Attributes>>) {
        self.add_stored(body.take(), attributes);
    }

    pub fn count(&self) -> usize {
        self.batch.messages.len() - self.first
    }

    pub fn send(mut self, ticket: Ticket<SendMessages>, entity: EntityId) {
        let messages = self.written();
        self.batch.send(ticket, entity, messages);
    }

    pub fn schedule(mut self, ticket: Ticket<ScheduleMessages>, entity: EntityId) {
        let messages = self.written();
        self.batch.ask(ticket, ScheduleMessages { entity, messages });
    }

    /// Keeps the messages in the batch, for a request that refers to them by the returned numbers.
    pub fn keep(mut self) -> Range<usize> {
        self.written()
    }

    fn written(&mut self) -> Range<usize> {
        self.sent = true;
        self.first..self.batch.messages.len()
    }
}

impl Drop for Messages<'_> {
    fn drop(&mut self) {
        if !self.sent {
            self.batch.bodies.truncate(self.first_byte);
            self.batch.messages.truncate(self.first);
        }
    }
}
