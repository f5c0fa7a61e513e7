//! What one peer asks of one shard at one time, and how its answers find back.

use std::ops::Range;

use bytes::BytesMut;
use peeklock_engine::{Attributes, EntityId, ReceiverId};
use peeklock_journal::StoredBody;
use peeklock_types::limits;
use tokio::sync::mpsc;

use crate::large::KeptBody;
use crate::reply::Reply;
use crate::request::sending::{ScheduleMessages, SendMessages, SendOfRun, SendRun};
use crate::request::settling::{Settle, SettleOfRun, SettleRun};
use crate::request::{Ask, Asked, Request, Ticket};

/// One connection, unique while its broker lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PeerId(pub(crate) u64);

impl PeerId {
    const LOCAL_BITS: u32 = 24;
    /// How many receivers one peer can have.
    pub const RECEIVERS_MAX: u32 = 1 << Self::LOCAL_BITS;

    /// The receiver with the peer's own number `local`; the peer can be read off it again.
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

/// How shards reach a peer: one channel for everything. It needs no bound of its own: what a peer can have waiting is bounded by the
/// credit and the byte window that it gave, and by the requests it has open.
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

/// Everything that one peer asks of one shard at one time. The bytes of new messages lie in one arena, so a message costs no allocation.
#[derive(Debug, Default)]
pub struct Batch {
    pub(crate) requests: Vec<Request>,
    arena: BytesMut,
    messages: Vec<Written>,
}

/// A message whose bytes lie in a batch's arena, or in the journal already.
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

    /// Whether it has more messages than anything but a batch of very small ones.
    pub(crate) fn is_crowded(&self) -> bool {
        self.messages.len() > limits::BATCH_COUNT_MAX
    }

    /// Returns the number of answers that it will bring.
    pub fn answer_count(&self) -> usize {
        self.requests.iter().map(Request::answer_count).sum()
    }

    pub fn push(&mut self, request: impl Into<Request>) {
        self.requests.push(request.into());
    }

    pub fn ask<R: Ask>(&mut self, ticket: Ticket<R>, request: R) {
        self.push(Asked { ticket, request });
    }

    /// Adds a send. It joins the last request if that is a send to the same entity.
    fn send(&mut self, ticket: Ticket<SendMessages>, entity: EntityId, messages: Range<usize>) {
        match self.requests.last_mut() {
            Some(Request::Send(run)) if run.entity == entity => {
                run.sends.push(SendOfRun { ticket, messages });
            }
            _ => {
                let sends = vec![SendOfRun { ticket, messages }];
                self.requests.push(Request::Send(SendRun { entity, sends }));
            }
        }
    }

    /// Adds a settlement. It joins the last request if that settles in the same place.
    pub fn settle(&mut self, ticket: Ticket<Settle>, request: Settle) {
        let Settle { entity, sub_queue, token, settlement } = request;
        let settle = SettleOfRun { ticket, token, settlement };
        match self.requests.last_mut() {
            Some(Request::Settle(run)) if (run.entity, run.sub_queue) == (entity, sub_queue) => {
                run.settles.push(settle);
            }
            _ => self.requests.push(Request::Settle(SettleRun { entity, sub_queue, settles: vec![settle] })),
        }
    }

    /// Collects the messages of one send. Nothing is asked for until [`Messages::send`]; dropped before that, it leaves no trace.
    pub fn messages(&mut self) -> Messages<'_> {
        Messages { first_byte: self.arena.len(), first: self.messages.len(), batch: self, sent: false }
    }

    pub(crate) fn bodies(&self, messages: Range<usize>) -> impl ExactSizeIterator<Item = &[u8]> {
        let written = self.messages.get(messages).unwrap_or_default();
        written.iter().map(|message| self.arena.get(message.bytes.clone()).unwrap_or_default())
    }

    /// The message's body, if it is in the journal already.
    pub(crate) fn stored(&self, message: usize) -> Option<StoredBody> {
        self.messages.get(message).and_then(|message| message.stored)
    }

    /// The attributes of a message, which are taken out of the batch.
    pub(crate) fn take_attributes(&mut self, message: usize) -> Option<Box<Attributes>> {
        self.messages.get_mut(message).and_then(|message| message.attributes.take())
    }

    pub fn take(&mut self) -> Batch {
        std::mem::take(self)
    }
}

pub struct Messages<'a> {
    batch: &'a mut Batch,
    first_byte: usize,
    first: usize,
    sent: bool,
}

impl Messages<'_> {
    /// Adds one message, written by `write` behind what is there already; it returns what the queue must know of it.
    pub fn add<E>(
        &mut self,
        write: impl FnOnce(&mut BytesMut) -> Result<Option<Box<Attributes>>, E>,
    ) -> Result<(), E> {
        let start = self.batch.arena.len();
        let attributes = write(&mut self.batch.arena)?;
        let bytes = start..self.batch.arena.len();
        self.batch.messages.push(Written { bytes, stored: None, attributes });
        Ok(())
    }

    /// Adds a message whose body is in the shard's journal already. If it is not taken, the shard gives the body up.
    pub(crate) fn add_stored(&mut self, body: StoredBody, attributes: Option<Box<Attributes>>) {
        self.batch.messages.push(Written { bytes: 0..0, stored: Some(body), attributes });
    }

    /// Adds a message with a large body that was kept for it.
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

    /// Leaves the messages in the batch, for a request that names them by these numbers.
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
            self.batch.arena.truncate(self.first_byte);
            self.batch.messages.truncate(self.first);
        }
    }
}
