//! Large messages on their way out: read range by range, as fast as the peer takes them.

use bytes::Bytes;
use peeklock_amqp::connection::{Outgoing, SendError};
use peeklock_amqp::{DeliveryTag, condition};
use peeklock_broker::engine::{self, ReceiveMode, ReceiverId};
use peeklock_broker::{BodyHold, Delivered, DeliveredBody, FRONT_BYTES, PeerId, StoredBody, Wanted};
use peeklock_message::{LargeMessage, write_front};
use peeklock_types::{LockToken, ShardId};
use rustc_hash::FxHashMap;

use crate::connection::conversation::Conversation;
use crate::connection::link::{LinkKind, LinkNumber};
use crate::error::Refusal;

/// What is read at a time. The first range is larger: it must have all that stands in front of the body.
pub(crate) const RANGE_BYTES: u32 = 256 * 1024;
const _: () = assert!(FRONT_BYTES as usize >= LargeMessage::STORED_FRONT_BYTES_MAX);

/// Deliveries under way, by the number of their link: it has one at a time.
pub(crate) type Streams = FxHashMap<u32, Stream>;

pub(crate) struct Stream {
    pub(crate) shard: ShardId,
    pub(crate) delivery: engine::Delivery,
    outgoing: Outgoing,
    /// How much was read, or is being read.
    read_bytes: u32,
    has_begun: bool,
    /// The peer has no room; goes on with what is held, or with the next range, when it has.
    is_stalled: bool,
    held: Option<Bytes>,
    _hold: BodyHold,
}

impl Stream {
    fn size_bytes(&self) -> u32 {
        self.delivery.message.size_bytes
    }

    fn next_range(&mut self) -> Wanted {
        let start = self.read_bytes;
        let len = if start == 0 { FRONT_BYTES } else { RANGE_BYTES };
        self.read_bytes = start.saturating_add(len).min(self.size_bytes());
        let body = StoredBody { place: self.delivery.message.body, size_bytes: self.size_bytes() };
        let (receiver, token) = (self.delivery.receiver, self.delivery.token);
        Wanted { receiver, token, body, range: start..self.read_bytes }
    }
}

impl Conversation<'_> {
    /// Gives the delivery back if another large message is under way on its link.
    pub(crate) fn start_stream(
        &mut self,
        shard: ShardId,
        delivery: engine::Delivery,
        hold: BodyHold,
    ) -> Option<Delivered> {
        let number = LinkNumber(PeerId::local(delivery.receiver));
        if self.is_streaming(number) {
            return Some(Delivered { delivery, body: DeliveredBody::Large(hold) });
        }
        let Some(LinkKind::Receiver(receiver)) = self.links.get_mut(number).map(|link| &link.kind) else {
            self.give_back(shard, &delivery);
            return None;
        };
        let outgoing = Outgoing {
            tag: DeliveryTag::from(delivery.token.to_guid_bytes()),
            message_format: 0,
            settled: receiver.mode == ReceiveMode::ReceiveAndDelete,
            state: None,
        };
        let stream = Stream {
            shard,
            delivery,
            outgoing,
            read_bytes: 0,
            has_begun: false,
            is_stalled: false,
            held: None,
            _hold: hold,
        };
        self.streams.insert(number.0, stream);
        self.fetch_next(number);
        None
    }

    /// Whether a large message is under way on the link, from whichever member of a group.
    fn is_streaming(&self, number: LinkNumber) -> bool {
        let id_of = |number: u32| self.links.get(LinkNumber(number)).map(|link| link.id);
        let id = id_of(number.0);
        self.streams.keys().any(|other| *other == number.0 || (id.is_some() && id_of(*other) == id))
    }

    fn fetch_next(&mut self, number: LinkNumber) {
        if let Some(stream) = self.streams.get_mut(&number.0) {
            stream.is_stalled = false;
            let wanted = stream.next_range();
            self.namespace.broker.fetch(stream.shard.0.into(), &self.peer, wanted);
        }
    }

    pub(crate) fn on_range(&mut self, receiver: ReceiverId, token: LockToken, bytes: Result<Bytes, String>) {
        let number = LinkNumber(PeerId::local(receiver));
        if matches!(self.links.get(number).map(|link| &link.kind), Some(LinkKind::Responses(_))) {
            return self.on_response_range(number, token, bytes);
        }
        // One that was given up may still have been under way.
        if self.streams.get(&number.0).is_none_or(|stream| stream.delivery.token != token) {
            return;
        }
        match bytes {
            Ok(bytes) => self.send_range(number, bytes),
            Err(error) => self.fail_stream(number, &error),
        }
    }

    fn send_range(&mut self, number: LinkNumber, bytes: Bytes) {
        let Some(link) = self.links.get_mut(number) else { return };
        let Some(stream) = self.streams.get_mut(&number.0) else { return };
        let has_more = stream.read_bytes < stream.size_bytes();
        let sent = if stream.has_begun {
            self.connection.send_part(link.id, &stream.outgoing, &[&bytes], has_more)
        } else {
            let token = (!stream.outgoing.settled).then_some(stream.delivery.token);
            self.scratch.clear();
            match write_front(&stream.delivery.message, token, &bytes, &mut self.scratch) {
                Ok(rest) => {
                    self.connection.send_part(link.id, &stream.outgoing, &[&self.scratch, rest], has_more)
                }
                Err(error) => {
                    let (shard, delivery) = (stream.shard, stream.delivery.clone());
                    self.set_aside(shard, &delivery, &error.to_string());
                    return self.fail_stream(number, &error.to_string());
                }
            }
        };
        match sent {
            Ok(()) if !has_more => self.end_stream(number),
            Ok(()) => {
                stream.has_begun = true;
                stream.is_stalled = self.connection.part_room(link.id) == 0;
                if !stream.is_stalled {
                    self.fetch_next(number);
                }
            }
            Err(SendError::Blocked) => {
                stream.is_stalled = true;
                stream.held = Some(bytes);
            }
            Err(_) => self.give_up_stream(number),
        }
    }

    fn end_stream(&mut self, number: LinkNumber) {
        if let Some(stream) = self.streams.remove(&number.0) {
            self.hold_lock(&stream.delivery);
            self.pass(number, stream.shard, stream.size_bytes());
            self.retry_backlog();
        }
    }

    /// The message cannot reach its receiver: it returns to the queue.
    pub(crate) fn give_up_stream(&mut self, number: LinkNumber) {
        if let Some(stream) = self.streams.remove(&number.0) {
            self.give_back(stream.shard, &stream.delivery);
            self.pass(number, stream.shard, stream.size_bytes());
        }
    }

    /// The message stays locked until the lock runs out; another try may fare better.
    // SDK quirk: pyamqp takes an aborted delivery for a complete one, so the link has to go.
    fn fail_stream(&mut self, number: LinkNumber, error: &str) {
        let Some(stream) = self.streams.remove(&number.0) else { return };
        let sequence_number = stream.delivery.message.sequence_number;
        tracing::error!("the body of message {sequence_number} cannot be read: {error}");
        self.pass(number, stream.shard, stream.size_bytes());
        if stream.has_begun
            && let Some(link) = self.links.get_mut(number)
        {
            let text = format!("the body of message {sequence_number} cannot be read");
            let refusal = Refusal::new(500, condition::INTERNAL_ERROR, text);
            self.connection.detach(link.id, Some(refusal.into()));
        }
    }

    /// The peer has room again.
    pub(crate) fn resume_streams(&mut self) {
        let stalled: Vec<_> =
            self.streams.iter().filter(|(_, stream)| stream.is_stalled).map(|(number, _)| *number).collect();
        for number in stalled.into_iter().map(LinkNumber) {
            let held = self.streams.get_mut(&number.0).and_then(|stream| stream.held.take());
            match held {
                Some(bytes) => self.send_range(number, bytes),
                None => self.fetch_next(number),
            }
        }
    }
}
