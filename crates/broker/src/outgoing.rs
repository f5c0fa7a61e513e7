//! What leaves a shard for its peers once it is durable.
//!
//! Answers leave at once. Whatever carries bodies leaves in order: bodies that are in memory are taken from there, the others are read in the
//! background while the shard goes on, and later deliveries wait behind them.

use std::collections::VecDeque;

use bytes::Bytes;
use peeklock_engine::{Closed, Delivery, EntityId, HeadChange, LiveBody, OutMessage, ReceiverId};
use peeklock_hubs::{ReaderEnd, Run};
use peeklock_journal::{BodyReader, Poisoned, ReadError, StoredBody};
use peeklock_types::{LockToken, ShardId};
use rustc_hash::FxHashMap;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::batch::{Peer, PeerId};
use crate::large::{FRONT_BYTES, Holds, is_large};
use crate::patience;
use crate::reply::{
    BodyRest, Delivered, DeliveredBody, DeliveryRun, Message, ReaderReply, ReceiverReply, Reply,
};
use crate::request::Answer;
use crate::router::Router;

/// One thing for one peer.
#[derive(Debug)]
pub(crate) enum Effect {
    Answer {
        peer: PeerId,
        answer: Answer,
    },
    /// Consecutive deliveries to one receiver.
    Deliveries(Vec<Delivery>),
    Drained(ReceiverId),
    ReaderDrained(ReceiverId),
    Head(HeadChange),
    Closed(Closed),
    ReaderEnded {
        receiver: ReceiverId,
        reason: ReaderEnd,
    },
    /// Events for a reader: the shard itself starts to read them when they are durable.
    Run(Run),
    /// Messages that are to be brought to another shard.
    Transfer {
        target: ShardId,
        messages: Vec<OutMessage>,
    },
    /// The answer to a request for messages that are not delivered on a link.
    Messages {
        peer: PeerId,
        ticket: u64,
        entity: EntityId,
        messages: Vec<(Option<LockToken>, peeklock_engine::Message)>,
        /// Makes the answer of the ticket's type.
        answer: fn(ticket: u64, Vec<Message>) -> Answer,
    },
}

impl Effect {
    fn bodies(&self) -> Vec<StoredBody> {
        match self {
            Effect::Transfer { messages, .. } if large_one(messages) => Vec::new(),
            // A large body is not read here.
            Effect::Deliveries(run) => {
                let messages = run.iter().map(|delivery| &delivery.message);
                messages.filter(|message| !is_large(message.size_bytes)).map(stored).collect()
            }
            Effect::Messages { messages, .. } => {
                messages.iter().map(|(_, message)| stored(message)).collect()
            }
            Effect::Transfer { messages, .. } => {
                let body =
                    |message: &OutMessage| StoredBody { place: message.body, size_bytes: message.size_bytes };
                messages.iter().map(body).collect()
            }
            Effect::Answer { .. }
            | Effect::Drained(_)
            | Effect::ReaderDrained(_)
            | Effect::Head(_)
            | Effect::Closed(_)
            | Effect::ReaderEnded { .. }
            | Effect::Run(_) => Vec::new(),
        }
    }
}

/// A large message travels alone.
fn large_one(messages: &[OutMessage]) -> bool {
    matches!(messages, [message] if is_large(message.size_bytes))
}

fn stored(message: &peeklock_engine::Message) -> StoredBody {
    StoredBody { place: message.body, size_bytes: message.size_bytes }
}

pub(crate) struct Outgoing<R> {
    shard: ShardId,
    reader: R,
    router: Router,
    peers: FxHashMap<PeerId, Mailbox>,
    dirty: Vec<PeerId>,
    waiting: VecDeque<Waiting>,
    /// How many reads were started, and so which number the next one gets.
    started: u64,
    undeliverable: Vec<Delivery>,
    damaged: Vec<Damaged>,
    holds: Holds,
}

struct Mailbox {
    replies: mpsc::UnboundedSender<Vec<Reply>>,
    batch: Vec<Reply>,
}

/// Effects whose bodies are being read.
struct Waiting {
    effects: Vec<Effect>,
    bodies: JoinHandle<Result<Vec<Body>, Poisoned>>,
}

/// A message that cannot be handed out, because its body is damaged.
pub(crate) struct Damaged {
    pub(crate) body: LiveBody,
    /// Who would have got it.
    pub(crate) receiver: Option<ReceiverId>,
    pub(crate) why: String,
}

fn live(entity: EntityId, message: &peeklock_engine::Message) -> LiveBody {
    let (sequence_number, place, size_bytes) = (message.sequence_number, message.body, message.size_bytes);
    LiveBody { entity, sequence_number, place, size_bytes }
}

/// What a read has brought.
enum Body {
    Found(Bytes),
    /// It will never be read; why not.
    Damaged(String),
    /// Another try may fare better.
    Failed,
}

/// The body of a delivery.
enum Fetched {
    Read(Body),
    /// It stays where it is; the peer reads it range by range.
    Large,
}

impl Body {
    /// An empty one is that of a message which has lost its own: nothing that was sent is empty.
    fn whole(self) -> Option<Bytes> {
        match self {
            Body::Found(bytes) if !bytes.is_empty() => Some(bytes),
            Body::Found(_) | Body::Damaged(_) | Body::Failed => None,
        }
    }
}

/// Reads the bodies. One that cannot be read must not keep the others from their receivers.
async fn read<R: BodyReader>(reader: R, wanted: Vec<StoredBody>) -> Result<Vec<Body>, Poisoned> {
    if !wanted.iter().any(|body| is_large(body.size_bytes)) {
        match patience::read(&reader, &wanted).await {
            Ok(bodies) => return Ok(bodies.into_iter().map(Body::Found).collect()),
            Err(ReadError::Poisoned(poisoned)) => return Err(poisoned),
            Err(error) => tracing::warn!("reading {} bodies one by one, because: {error}", wanted.len()),
        }
    }
    let mut bodies = Vec::with_capacity(wanted.len());
    // A disk that has failed for so long will hardly answer for the next body, and others wait behind these.
    let mut is_patient = true;
    for body in wanted {
        // Of a large one that is only looked at, the front is enough.
        let range = if is_large(body.size_bytes) { 0..FRONT_BYTES } else { 0..body.size_bytes };
        let read = if is_patient {
            patience::read_range(&reader, body, range).await
        } else {
            reader.read_range(body, range).await
        };
        is_patient &= !matches!(read, Err(ReadError::Io { .. }));
        bodies.push(match read {
            Ok(found) => Body::Found(found),
            Err(ReadError::Poisoned(poisoned)) => return Err(poisoned),
            Err(error @ ReadError::Corrupt { .. }) => Body::Damaged(error.to_string()),
            Err(error) => {
                tracing::error!("the body at {:?} cannot be read: {error}", body.place);
                Body::Failed
            }
        });
    }
    Ok(bodies)
}

impl<R: BodyReader> Outgoing<R> {
    pub(crate) fn new(shard: ShardId, reader: R, router: Router) -> Self {
        Outgoing {
            shard,
            reader,
            router,
            peers: FxHashMap::default(),
            dirty: Vec::new(),
            waiting: VecDeque::new(),
            started: 0,
            undeliverable: Vec::new(),
            damaged: Vec::new(),
            holds: Holds::default(),
        }
    }

    pub(crate) fn join(&mut self, peer: &Peer) {
        self.peers
            .entry(peer.id)
            .or_insert_with(|| Mailbox { replies: peer.replies.clone(), batch: Vec::new() });
    }

    pub(crate) fn leave(&mut self, peer: PeerId) {
        self.peers.remove(&peer);
    }

    /// Deliveries that found their peer gone: to be given back to the queue.
    pub(crate) fn take_undeliverable(&mut self) -> Vec<Delivery> {
        std::mem::take(&mut self.undeliverable)
    }

    /// Messages whose body is damaged: to be set aside.
    pub(crate) fn take_damaged(&mut self) -> Vec<Damaged> {
        std::mem::take(&mut self.damaged)
    }

    /// Passes on durable effects; call [`Outgoing::flush`] after the last of a round.
    pub(crate) fn release(&mut self, effects: Vec<Effect>) {
        let mut in_order = Vec::new();
        for effect in effects {
            match effect {
                Effect::Answer { peer, answer } => self.push(peer, Reply::Answer(answer)),
                // It does not wait for messages that are read for others.
                Effect::ReaderEnded { .. } => self.emit(effect, &mut std::iter::empty()),
                other if self.waiting.is_empty() && in_order.is_empty() => {
                    if let Some(missed) = self.emit_from_memory(other) {
                        in_order.push(missed);
                    }
                }
                other => in_order.push(other),
            }
        }
        if !in_order.is_empty() {
            self.read_later(in_order);
        }
    }

    /// Sends the effect if its bodies are in memory, else gives it back.
    fn emit_from_memory(&mut self, effect: Effect) -> Option<Effect> {
        if let Effect::Deliveries(run) = effect {
            return self.deliver_from_memory(run);
        }
        let bodies: Option<Vec<Bytes>> =
            effect.bodies().into_iter().map(|body| self.try_read(body)).collect();
        let Some(bodies) = bodies else { return Some(effect) };
        self.emit(effect, &mut bodies.into_iter().map(Body::Found));
        None
    }

    /// Sends the deliveries up to the first whose body is not in memory, and gives the others back.
    fn deliver_from_memory(&mut self, mut run: Vec<Delivery>) -> Option<Effect> {
        let mut bodies = Vec::with_capacity(run.len());
        for delivery in &run {
            let message = &delivery.message;
            if is_large(message.size_bytes) {
                bodies.push(Fetched::Large);
            } else if let Some(body) = self.reader.try_read(stored(message)) {
                bodies.push(Fetched::Read(Body::Found(body)));
            } else {
                break;
            }
        }
        let rest = run.split_off(bodies.len());
        self.deliver(run, bodies.into_iter());
        (!rest.is_empty()).then_some(Effect::Deliveries(rest))
    }

    fn try_read(&self, body: StoredBody) -> Option<Bytes> {
        if is_large(body.size_bytes) { None } else { self.reader.try_read(body) }
    }

    /// Whether somebody still reads this body.
    pub(crate) fn is_held(&self, body: &StoredBody) -> bool {
        is_large(body.size_bytes) && self.holds.is_held(body.place)
    }

    fn read_later(&mut self, effects: Vec<Effect>) {
        let wanted = effects.iter().flat_map(Effect::bodies).collect();
        let bodies = tokio::spawn(read(self.reader.clone(), wanted));
        self.waiting.push_back(Waiting { effects, bodies });
        self.started += 1;
    }

    /// How many reads were started so far. Bodies that they need must stay until as many are [`Outgoing::finished`].
    pub(crate) fn started(&self) -> u64 {
        self.started
    }

    pub(crate) fn finished(&self) -> u64 {
        self.started - self.waiting.len() as u64
    }

    pub(crate) fn is_reading(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Waits for the bodies at the head of the line and passes the effects on. Safe to cancel. Waits for ever if nothing is being read.
    pub(crate) async fn read_done(&mut self) -> Result<(), Poisoned> {
        let Some(head) = self.waiting.front_mut() else { return std::future::pending().await };
        let bodies = match (&mut head.bodies).await {
            Ok(bodies) => bodies?,
            Err(stopped) => return Err(Poisoned { reason: format!("a reader has stopped: {stopped}") }),
        };
        let Some(head) = self.waiting.pop_front() else { return Ok(()) };
        let mut bodies = bodies.into_iter();
        for effect in head.effects {
            self.emit(effect, &mut bodies);
        }
        Ok(())
    }

    fn emit(&mut self, effect: Effect, bodies: &mut dyn Iterator<Item = Body>) {
        match effect {
            Effect::Answer { peer, answer } => self.push(peer, Reply::Answer(answer)),
            Effect::Closed(Closed { receiver, reason }) => {
                self.push_to_receiver(receiver, ReceiverReply::Closed { receiver, reason })
            }
            Effect::Transfer { target, mut messages } if large_one(&messages) => {
                if let Some(message) = messages.pop() {
                    // While it is copied, its message may move to another place, and leave this one free.
                    let hold = self.holds.take(message.body);
                    self.router.bring_large(self.shard, target, message, hold);
                }
            }
            Effect::Transfer { target, messages } => {
                let messages = messages.into_iter().zip(bodies.map(Body::whole)).collect();
                self.router.bring(self.shard, target, messages);
            }
            Effect::ReaderEnded { receiver, reason } => {
                let ended = ReaderReply::Ended { receiver, reason: Box::new(reason) };
                self.push(PeerId::of(receiver), Reply::Reader(ended));
            }
            Effect::Run(_) => {}
            Effect::Drained(receiver) => self.push_to_receiver(receiver, ReceiverReply::Drained { receiver }),
            Effect::ReaderDrained(receiver) => {
                self.push(PeerId::of(receiver), Reply::Reader(ReaderReply::Drained { receiver }));
            }
            Effect::Head(HeadChange { receiver, serial, head }) => {
                self.push_to_receiver(receiver, ReceiverReply::Head { receiver, serial, head })
            }
            Effect::Deliveries(run) => {
                let is_large: Vec<_> =
                    run.iter().map(|delivery| is_large(delivery.message.size_bytes)).collect();
                let fetched = is_large.into_iter().map(|is_large| match is_large {
                    true => Fetched::Large,
                    false => Fetched::Read(bodies.next().unwrap_or(Body::Failed)),
                });
                self.deliver(run, fetched);
            }
            Effect::Messages { peer, ticket, entity, messages, answer } => {
                let mut found = Vec::with_capacity(messages.len());
                for ((token, message), body) in messages.into_iter().zip(bodies) {
                    match body {
                        Body::Found(body) => {
                            let rest = is_large(message.size_bytes).then(|| self.rest_of(&message));
                            found.push(Message { token, message, body, rest });
                        }
                        Body::Damaged(why) => {
                            self.damaged.push(Damaged { body: live(entity, &message), receiver: None, why });
                        }
                        Body::Failed => {}
                    }
                }
                self.push(peer, Reply::Answer(answer(ticket, found)));
            }
        }
    }

    fn deliver(&mut self, run: Vec<Delivery>, bodies: impl Iterator<Item = Fetched>) {
        let Some(receiver) = run.first().map(|delivery| delivery.receiver) else { return };
        let has_peer = self.peers.contains_key(&PeerId::of(receiver));
        let mut deliveries = VecDeque::with_capacity(run.len());
        for (delivery, body) in run.into_iter().zip(bodies) {
            let body = match body {
                Fetched::Large => DeliveredBody::Large(self.holds.take(delivery.message.body)),
                Fetched::Read(Body::Found(body)) => DeliveredBody::Whole(body),
                Fetched::Read(Body::Damaged(why)) => {
                    let body = live(delivery.entity, &delivery.message);
                    self.damaged.push(Damaged { body, receiver: Some(receiver), why });
                    continue;
                }
                // The message stays locked until the lock runs out.
                Fetched::Read(Body::Failed) => continue,
            };
            if has_peer {
                deliveries.push_back(Delivered { delivery, body });
            } else {
                self.undeliverable.push(delivery);
            }
        }
        if !deliveries.is_empty() {
            let run = DeliveryRun { shard: self.shard, receiver, deliveries };
            self.push_to_receiver(receiver, ReceiverReply::Deliveries(run));
        }
    }

    fn rest_of(&mut self, message: &peeklock_engine::Message) -> BodyRest {
        BodyRest { shard: self.shard, hold: self.holds.take(message.body) }
    }

    fn push_to_receiver(&mut self, receiver: ReceiverId, reply: ReceiverReply) {
        self.push(PeerId::of(receiver), Reply::Receiver(reply));
    }

    pub(crate) fn push(&mut self, peer: PeerId, reply: Reply) {
        let Some(mailbox) = self.peers.get_mut(&peer) else { return };
        if mailbox.batch.is_empty() {
            self.dirty.push(peer);
        }
        mailbox.batch.push(reply);
    }

    /// One message to each peer that has something to hear.
    pub(crate) fn flush(&mut self) {
        for peer in self.dirty.drain(..) {
            if let Some(mailbox) = self.peers.get_mut(&peer) {
                let batch = std::mem::take(&mut mailbox.batch);
                if let Err(mpsc::error::SendError(batch)) = mailbox.replies.send(batch) {
                    // The peer no longer listens, and will say so itself.
                    self.undeliverable.extend(batch.into_iter().flat_map(deliveries_of));
                }
            }
        }
    }

    /// The last word to everybody.
    pub(crate) fn stop(&mut self, reason: &str) {
        for mailbox in self.peers.values() {
            let _ = mailbox.replies.send(vec![Reply::Stopped { reason: reason.to_owned() }]);
        }
    }
}

/// Returns the deliveries of a reply.
fn deliveries_of(reply: Reply) -> impl Iterator<Item = Delivery> {
    let run = match reply {
        Reply::Receiver(ReceiverReply::Deliveries(run)) => run.deliveries,
        Reply::Answer(_)
        | Reply::Receiver(_)
        | Reply::Reader(_)
        | Reply::Kept { .. }
        | Reply::Stopped { .. } => VecDeque::new(),
    };
    run.into_iter().map(|delivered| delivered.delivery)
}
