//! The durable output of a shard to its peers.
//!
//! Answers leave at once. Effects with bodies leave in order: bodies in memory are used directly, others are read in
//! the background while the shard continues, and later deliveries wait behind them.

use std::collections::VecDeque;

use bytes::Bytes;
use peeklock_engine::{Closed, Delivery, EntityId, HeadChange, LiveBody, OutMessage, ReceiverId};
use peeklock_hubs::{ReaderEnd, Run};
use peeklock_journal::{BodyReader, Poisoned, ReadError, StoredBody};
use peeklock_types::{LockToken, ShardId, SubQueue};
use rustc_hash::{FxHashMap, FxHashSet};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::batch::{Peer, PeerId};
use crate::large::{FRONT_BYTES, Holds, is_large};
use crate::reply::{BodyRest, DeliveredBody, DeliveryRun, Message, ReaderReply, ReceiverReply, Reply};
use crate::request::Answer;
use crate::router::{Route, Router};
use crate::shard::patience;

/// One effect for one peer.
#[derive(Debug)]
pub(crate) enum Effect {
    Answer {
        peer: PeerId,
        answer: Answer,
    },
    /// Consecutive deliveries to one receiver.
    Deliveries(Vec<Delivery>),
    /// Deliveries to one receiver whose messages were removed after their bodies were read.
    Removed(Vec<(Delivery, DeliveredBody)>),
    Drained(ReceiverId),
    ReaderDrained(ReceiverId),
    Head(HeadChange),
    Closed(Closed),
    ReaderEnded {
        receiver: ReceiverId,
        reason: ReaderEnd,
    },
    /// Events for a reader. The shard itself starts to read them when they are durable.
    Run(Run),
    /// Messages for transfer to another shard.
    Transfer {
        target: ShardId,
        messages: Vec<OutMessage>,
    },
    /// The answer to a request for messages that are not delivered on a link.
    Messages {
        peer: PeerId,
        ticket: u64,
        entity: EntityId,
        messages: Vec<FoundMessage>,
        /// Builds the answer of the ticket's type.
        answer: fn(ticket: u64, Vec<Message>) -> Answer,
    },
}

impl Effect {
    fn bodies(&self) -> Vec<StoredBody> {
        match self {
            Effect::Transfer { messages, .. } if large_one(messages) => Vec::new(),
            // The bodies of large messages are not read here.
            Effect::Deliveries(run) => {
                let messages = run.iter().map(|delivery| &delivery.message);
                messages.filter(|message| !is_large(message.size_bytes)).map(stored).collect()
            }
            Effect::Messages { messages, .. } => {
                messages.iter().map(|found| stored(&found.message)).collect()
            }
            Effect::Transfer { messages, .. } => {
                let body =
                    |message: &OutMessage| StoredBody { place: message.body, size_bytes: message.size_bytes };
                messages.iter().map(body).collect()
            }
            Effect::Answer { .. }
            | Effect::Removed(_)
            | Effect::Drained(_)
            | Effect::ReaderDrained(_)
            | Effect::Head(_)
            | Effect::Closed(_)
            | Effect::ReaderEnded { .. }
            | Effect::Run(_) => Vec::new(),
        }
    }
}

/// A message that is not delivered on a link.
#[derive(Debug)]
pub(crate) struct FoundMessage {
    /// The lock token; `None` for a message that is only shown.
    pub(crate) token: Option<LockToken>,
    pub(crate) sub_queue: SubQueue,
    pub(crate) message: peeklock_engine::Message,
    /// See [`Delivery::removes_later`].
    pub(crate) removes_later: bool,
}

/// The lock of a message whose body cannot be read now.
pub(crate) struct Unread {
    pub(crate) entity: EntityId,
    pub(crate) sub_queue: SubQueue,
    pub(crate) token: LockToken,
    pub(crate) message: peeklock_engine::Message,
    /// The receiver of the failed delivery.
    pub(crate) receiver: Option<ReceiverId>,
    pub(crate) removes_later: bool,
}

/// What waits for the removal of messages whose bodies were read.
pub(crate) enum Read {
    Delivery(Delivery, DeliveredBody),
    /// The answer with messages of one sub-queue.
    Answer {
        peer: PeerId,
        answer: Answer,
        removed: Vec<(EntityId, SubQueue, LockToken)>,
    },
}

/// Returns whether the transfer is one large message. A large message is always transferred alone.
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
    routes: FxHashMap<ShardId, Route>,
    peers: FxHashMap<PeerId, Mailbox>,
    dirty: Vec<PeerId>,
    waiting: VecDeque<Waiting>,
    /// The number of reads started so far, which is the number of the next read.
    started: u64,
    undeliverable: Vec<Delivery>,
    damaged: Vec<Damaged>,
    unread: Vec<Unread>,
    read: Vec<Read>,
    /// Receivers with an unread message of their session, until they are closed: no later message of the session may
    /// overtake it.
    cut_off: FxHashSet<ReceiverId>,
    holds: Holds,
}

struct Mailbox {
    replies: mpsc::UnboundedSender<Vec<Reply>>,
    batch: Vec<Reply>,
}

/// Effects that wait for reads of their bodies.
struct Waiting {
    effects: Vec<Effect>,
    bodies: JoinHandle<Result<Vec<Body>, Poisoned>>,
}

/// A message that cannot be delivered because its body is damaged.
pub(crate) struct Damaged {
    pub(crate) body: LiveBody,
    /// The receiver of the failed delivery.
    pub(crate) receiver: Option<ReceiverId>,
    /// See [`Delivery::removes_later`].
    pub(crate) removes_later: bool,
    pub(crate) why: String,
}

fn live(entity: EntityId, message: &peeklock_engine::Message) -> LiveBody {
    let (sequence_number, place, size_bytes) = (message.sequence_number, message.body, message.size_bytes);
    LiveBody { entity, sequence_number, place, size_bytes }
}

/// A message body for another shard.
#[derive(Clone, Debug)]
pub(crate) enum Load {
    Body(Bytes),
    /// The body can never be read.
    Lost,
    /// The disk has failed; a retry may succeed.
    Failed,
}

impl From<Body> for Load {
    /// An empty body marks a message that has lost its body; stored messages are never empty.
    fn from(body: Body) -> Self {
        match body {
            Body::Found(bytes) if !bytes.is_empty() => Load::Body(bytes),
            Body::Found(_) | Body::Damaged(_) => Load::Lost,
            Body::Failed => Load::Failed,
        }
    }
}

/// The result of a read.
enum Body {
    Found(Bytes),
    /// The body can never be read, for this reason.
    Damaged(String),
    /// A retry may succeed.
    Failed,
}

/// The body of a delivery.
enum Fetched {
    Read(Body),
    /// The body stays in the journal, and the peer reads it range by range.
    Large,
}

/// Reads the bodies. An unreadable body must not delay the delivery of the others.
async fn read<R: BodyReader>(reader: R, wanted: Vec<StoredBody>) -> Result<Vec<Body>, Poisoned> {
    if !wanted.iter().any(|body| is_large(body.size_bytes)) {
        match patience::read(&reader, &wanted).await {
            Ok(bodies) => return Ok(bodies.into_iter().map(Body::Found).collect()),
            Err(ReadError::Poisoned(poisoned)) => return Err(poisoned),
            Err(error) => tracing::warn!("reading {} bodies one by one, because: {error}", wanted.len()),
        }
    }
    let mut bodies = Vec::with_capacity(wanted.len());
    // A disk that has failed for all retries is unlikely to return the next body, and other effects wait behind these.
    // Later bodies are therefore read without retries.
    let mut is_patient = true;
    for body in wanted {
        // For a large message that is only peeked, the front is enough.
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
            routes: FxHashMap::default(),
            peers: FxHashMap::default(),
            dirty: Vec::new(),
            waiting: VecDeque::new(),
            started: 0,
            undeliverable: Vec::new(),
            damaged: Vec::new(),
            unread: Vec::new(),
            read: Vec::new(),
            cut_off: FxHashSet::default(),
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

    /// Takes the deliveries whose peer is gone. The caller returns them to the queue.
    pub(crate) fn take_undeliverable(&mut self) -> Vec<Delivery> {
        std::mem::take(&mut self.undeliverable)
    }

    /// Takes the messages whose body is damaged. The caller dead-letters them.
    pub(crate) fn take_damaged(&mut self) -> Vec<Damaged> {
        std::mem::take(&mut self.damaged)
    }

    /// Takes the deliveries and answers whose bodies were read. The caller removes their messages.
    pub(crate) fn take_read(&mut self) -> Vec<Read> {
        std::mem::take(&mut self.read)
    }

    /// Takes the locks of messages whose bodies cannot be read now. The caller returns the messages to their queues.
    pub(crate) fn take_unread(&mut self) -> Vec<Unread> {
        std::mem::take(&mut self.unread)
    }

    /// Resumes the deliveries to a receiver that is not closed.
    pub(crate) fn resume(&mut self, receiver: ReceiverId) {
        self.cut_off.remove(&receiver);
    }

    /// Passes on durable effects. Call [`Outgoing::flush`] after the last one of a round.
    pub(crate) fn release(&mut self, effects: Vec<Effect>) {
        let mut in_order = Vec::new();
        for effect in effects {
            match effect {
                Effect::Answer { peer, answer } => self.push(peer, Reply::Answer(answer)),
                // The end of a reader does not wait for message bodies of others, and removed messages have their bodies.
                Effect::ReaderEnded { .. } | Effect::Removed(_) => self.emit(effect, &mut std::iter::empty()),
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

    /// Sends the effect if its bodies are in memory; otherwise returns it.
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

    /// Sends the deliveries before the first one whose body is not in memory, and returns the rest.
    fn deliver_from_memory(&mut self, mut run: Vec<Delivery>) -> Option<Effect> {
        let mut bodies = Vec::with_capacity(run.len());
        for delivery in &run {
            let message = &delivery.message;
            if is_large(message.size_bytes) {
                bodies.push(DeliveredBody::Large(self.holds.take(message.body)));
            } else if let Some(body) = self.reader.try_read(stored(message)) {
                bodies.push(DeliveredBody::Whole(body));
            } else {
                break;
            }
        }
        let rest = if bodies.len() < run.len() { run.split_off(bodies.len()) } else { Vec::new() };
        self.pass_on_read(run, bodies);
        (!rest.is_empty()).then_some(Effect::Deliveries(rest))
    }

    fn try_read(&self, body: StoredBody) -> Option<Bytes> {
        if is_large(body.size_bytes) { None } else { self.reader.try_read(body) }
    }

    /// Returns whether the body is large and a peer still reads it.
    pub(crate) fn is_held(&self, body: &StoredBody) -> bool {
        is_large(body.size_bytes) && self.holds.is_held(body.place)
    }

    fn read_later(&mut self, effects: Vec<Effect>) {
        let wanted = effects.iter().flat_map(Effect::bodies).collect();
        let bodies = tokio::spawn(read(self.reader.clone(), wanted));
        self.waiting.push_back(Waiting { effects, bodies });
        self.started += 1;
    }

    /// Returns the number of reads started so far. The bodies that they need must stay until as many are
    /// [`Outgoing::finished`].
    pub(crate) fn started(&self) -> u64 {
        self.started
    }

    pub(crate) fn finished(&self) -> u64 {
        self.started - self.waiting.len() as u64
    }

    pub(crate) fn is_reading(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Waits for the bodies at the head of the line and passes the effects on. Waits for ever if nothing is being read.
    /// The call is safe to cancel.
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
                self.cut_off.remove(&receiver);
                self.push_to_receiver(receiver, ReceiverReply::Closed { receiver, reason })
            }
            Effect::Transfer { target, mut messages } if large_one(&messages) => {
                if let Some(message) = messages.pop() {
                    // The message may be moved during the copy, which would release its present place.
                    let hold = self.holds.take(message.body);
                    self.router.bring_large(self.shard, target, message, hold);
                }
            }
            Effect::Transfer { target, messages } => {
                let messages = messages.into_iter().zip(bodies.map(Load::from)).collect();
                let (router, shard) = (&self.router, self.shard);
                self.routes.entry(target).or_insert_with(|| router.route(shard, target)).bring(messages);
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
            Effect::Removed(run) => {
                let (deliveries, bodies) = run.into_iter().unzip();
                self.pass_on(deliveries, bodies);
            }
            Effect::Messages { peer, ticket, entity, messages, answer } => {
                let (mut found, mut removed) = (Vec::with_capacity(messages.len()), Vec::new());
                for (wanted, body) in messages.into_iter().zip(bodies) {
                    let FoundMessage { token, sub_queue, message, removes_later } = wanted;
                    match (body, token) {
                        (Body::Found(body), _) => {
                            let rest = is_large(message.size_bytes).then(|| self.rest_of(&message));
                            removed.extend(
                                token.filter(|_| removes_later).map(|token| (entity, sub_queue, token)),
                            );
                            found.push(Message { token, message, body, rest });
                        }
                        (Body::Damaged(why), _) => {
                            let body = live(entity, &message);
                            self.damaged.push(Damaged { body, receiver: None, removes_later: false, why });
                        }
                        (Body::Failed, Some(token)) => {
                            let receiver = None;
                            self.unread.push(Unread {
                                entity,
                                sub_queue,
                                token,
                                message,
                                receiver,
                                removes_later,
                            });
                        }
                        (Body::Failed, None) => {}
                    }
                }
                let answer = answer(ticket, found);
                if removed.is_empty() {
                    self.push(peer, Reply::Answer(answer));
                } else {
                    self.read.push(Read::Answer { peer, answer, removed });
                }
            }
        }
    }

    /// Passes on the deliveries whose bodies could be read.
    fn deliver(&mut self, run: Vec<Delivery>, fetched: impl Iterator<Item = Fetched>) {
        let (mut deliveries, mut bodies) = (Vec::with_capacity(run.len()), Vec::with_capacity(run.len()));
        for (delivery, body) in run.into_iter().zip(fetched) {
            if !self.cut_off.is_empty() && self.cut_off.contains(&delivery.receiver) {
                // It returns with its session.
                continue;
            }
            let body = match body {
                Fetched::Large => DeliveredBody::Large(self.holds.take(delivery.message.body)),
                Fetched::Read(Body::Found(body)) => DeliveredBody::Whole(body),
                Fetched::Read(Body::Damaged(why)) => {
                    let body = live(delivery.entity, &delivery.message);
                    let (receiver, removes_later) = (Some(delivery.receiver), delivery.removes_later);
                    self.damaged.push(Damaged { body, receiver, removes_later, why });
                    continue;
                }
                Fetched::Read(Body::Failed) => {
                    if delivery.in_session {
                        self.cut_off.insert(delivery.receiver);
                    }
                    let Delivery { entity, sub_queue, receiver, token, message, removes_later, .. } =
                        delivery;
                    let receiver = Some(receiver);
                    self.unread.push(Unread { entity, sub_queue, token, message, receiver, removes_later });
                    continue;
                }
            };
            deliveries.push(delivery);
            bodies.push(body);
        }
        self.pass_on_read(deliveries, bodies);
    }

    /// Passes on deliveries whose bodies were read, except those whose message must be removed first.
    fn pass_on_read(&mut self, mut deliveries: Vec<Delivery>, mut bodies: Vec<DeliveredBody>) {
        if deliveries.iter().any(|delivery| delivery.removes_later) {
            let waits = |body: &DeliveredBody| matches!(body, DeliveredBody::Whole(_));
            let all = deliveries.into_iter().zip(bodies);
            let (later, now): (Vec<_>, Vec<_>) =
                all.partition(|(delivery, body)| delivery.removes_later && waits(body));
            self.read.extend(later.into_iter().map(|(delivery, body)| Read::Delivery(delivery, body)));
            (deliveries, bodies) = now.into_iter().unzip();
        }
        self.pass_on(deliveries, bodies);
    }

    /// Passes a run of deliveries to the peer of their receiver.
    fn pass_on(&mut self, deliveries: Vec<Delivery>, bodies: Vec<DeliveredBody>) {
        let Some(receiver) = deliveries.first().map(|delivery| delivery.receiver) else { return };
        if self.cut_off.contains(&receiver) {
            // The messages have returned to their session.
            return;
        }
        if self.peers.contains_key(&PeerId::of(receiver)) {
            let run = DeliveryRun::new(self.shard, receiver, deliveries, bodies);
            self.push_to_receiver(receiver, ReceiverReply::Deliveries(run));
        } else {
            self.undeliverable.extend(deliveries);
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

    /// Sends each peer its pending replies in one batch.
    pub(crate) fn flush(&mut self) {
        for peer in self.dirty.drain(..) {
            if let Some(mailbox) = self.peers.get_mut(&peer) {
                let batch = std::mem::take(&mut mailbox.batch);
                if let Err(mpsc::error::SendError(batch)) = mailbox.replies.send(batch) {
                    // The peer no longer receives. Its detach request follows.
                    self.undeliverable.extend(batch.into_iter().flat_map(deliveries_of));
                }
            }
        }
    }

    /// Sends the final reply to every peer.
    pub(crate) fn stop(&mut self, reason: &str) {
        for mailbox in self.peers.values() {
            let _ = mailbox.replies.send(vec![Reply::Stopped { reason: reason.to_owned() }]);
        }
    }
}

/// Returns the deliveries of a reply.
fn deliveries_of(reply: Reply) -> impl Iterator<Item = Delivery> {
    let run = match reply {
        Reply::Receiver(ReceiverReply::Deliveries(run)) => Some(run),
        Reply::Answer(_)
        | Reply::Receiver(_)
        | Reply::Reader(_)
        | Reply::Kept { .. }
        | Reply::Stopped { .. } => None,
    };
    run.into_iter().flat_map(DeliveryRun::into_deliveries)
}
