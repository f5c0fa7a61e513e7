//! Outgoing large messages: read range by range, as fast as the peer accepts them.

use bytes::Bytes;
use peeklock_amqp::connection::{Outgoing, SendError};
use peeklock_amqp::{DeliveryTag, condition};
use peeklock_broker::engine::{self, ReceiveMode, Settlement};
use peeklock_broker::request::settling::Settle;
use peeklock_broker::{Delivered, DeliveredBody, Error, FRONT_BYTES, PeerId, StoredBody, Unreadable, Wanted};
use peeklock_message::{LargeMessage, write_front};
use peeklock_types::{LockToken, ShardId};
use rustc_hash::FxHashMap;

use crate::connection::context::Context;
use crate::connection::link::{LinkKind, LinkNumber};
use crate::connection::request::SettleWaiter;
use crate::error::Refusal;
use crate::queue_group::QueueGroups;
use crate::queue_group::runs::hold_lock;
use crate::receiving::Receiving;
use crate::receiving::deliver::{give_back, set_aside};

/// The size of one read. The first range is larger: it must contain everything in front of the body.
pub(crate) const RANGE_BYTES: u32 = 256 * 1024;
const _: () = assert!(FRONT_BYTES as usize >= LargeMessage::STORED_FRONT_BYTES_MAX);

/// Deliveries in flight, by the number of their link, which has one at a time.
pub(super) type Streams = FxHashMap<u32, Stream>;

pub(super) struct Stream {
    shard: ShardId,
    delivery: engine::Delivery,
    outgoing: Outgoing,
    /// The bytes that were read or are being read.
    read_bytes: u32,
    has_begun: bool,
    /// The peer has no room. The stream resumes with the held range, or with the next one.
    is_stalled: bool,
    held: Option<Bytes>,
    /// The message is being removed, and then the held range is sent as the last one.
    is_removing: bool,
    /// The hold of the body, which stays until the message has left.
    _body: DeliveredBody,
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

impl Receiving {
    /// Starts to send a large message. Returns the delivery if another one is in flight on its link.
    pub(crate) fn start_stream(
        &mut self,
        context: &mut Context<'_>,
        shard: ShardId,
        large: Delivered,
    ) -> Option<Delivered> {
        let number = LinkNumber(PeerId::local(large.delivery.receiver));
        if self.is_streaming(context, number) {
            return Some(large);
        }
        let Delivered { delivery, body } = large;
        let Some(LinkKind::Receiver(receiver)) = context.links.get_mut(number).map(|link| &link.kind) else {
            give_back(context, shard, &delivery);
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
            is_removing: false,
            _body: body,
        };
        self.streams.insert(number.0, stream);
        self.fetch_next(context, number);
        None
    }

    /// Returns whether a large message is in flight on the link, from any member of a queue group.
    fn is_streaming(&self, context: &Context<'_>, number: LinkNumber) -> bool {
        let id_of = |number: u32| context.links.get(LinkNumber(number)).map(|link| link.id);
        let id = id_of(number.0);
        self.streams.keys().any(|other| *other == number.0 || (id.is_some() && id_of(*other) == id))
    }

    fn fetch_next(&mut self, context: &mut Context<'_>, number: LinkNumber) {
        if let Some(stream) = self.streams.get_mut(&number.0) {
            stream.is_stalled = false;
            let wanted = stream.next_range();
            context.namespace.broker.fetch(stream.shard.0.into(), &context.peer, wanted);
        }
    }

    /// Sends a range that was read. Returns whether the message is complete: replies may have waited for it.
    pub(crate) fn on_range(
        &mut self,
        context: &mut Context<'_>,
        queue_groups: &mut QueueGroups,
        number: LinkNumber,
        token: LockToken,
        bytes: Result<Bytes, Unreadable>,
    ) -> bool {
        // A read for a dropped stream may have been in flight.
        if self.streams.get(&number.0).is_none_or(|stream| stream.delivery.token != token) {
            return false;
        }
        match bytes {
            Ok(bytes) => self.send_range(context, queue_groups, number, bytes),
            Err(Unreadable { why, is_passing }) => {
                self.fail_stream(context, queue_groups, number, &why, is_passing);
                false
            }
        }
    }

    /// Sends a range. Returns whether it was the last one.
    fn send_range(
        &mut self,
        context: &mut Context<'_>,
        queue_groups: &mut QueueGroups,
        number: LinkNumber,
        bytes: Bytes,
    ) -> bool {
        let Some(link) = context.links.get_mut(number) else { return false };
        let Some(stream) = self.streams.get_mut(&number.0) else { return false };
        let has_more = stream.read_bytes < stream.size_bytes();
        if !has_more && stream.delivery.removes_later {
            // Everything was read. The peer has a complete message only when the broker has removed it for good.
            (stream.delivery.removes_later, stream.is_removing, stream.held) = (false, true, Some(bytes));
            let engine::Delivery { entity, sub_queue, token, .. } = stream.delivery;
            let settle = Settle { entity, sub_queue, token, settlement: Settlement::Complete };
            context.settle(stream.shard.0.into(), SettleWaiter::Removal(number), settle);
            return false;
        }
        let sent = if stream.has_begun {
            context.connection.send_part(link.id, &stream.outgoing, &[&bytes], has_more)
        } else {
            let token = (!stream.outgoing.settled).then_some(stream.delivery.token);
            context.scratch.clear();
            match write_front(&stream.delivery.message, token, &bytes, &mut context.scratch) {
                Ok(rest) => context.connection.send_part(
                    link.id,
                    &stream.outgoing,
                    &[&context.scratch, rest],
                    has_more,
                ),
                Err(error) => {
                    let (shard, delivery) = (stream.shard, stream.delivery.clone());
                    set_aside(context, shard, &delivery, &error.to_string());
                    self.fail_stream(context, queue_groups, number, &error.to_string(), false);
                    return false;
                }
            }
        };
        match sent {
            Ok(()) if !has_more => {
                self.end_stream(context, queue_groups, number);
                return true;
            }
            Ok(()) => {
                stream.has_begun = true;
                stream.is_stalled = context.connection.part_room(link.id) == 0;
                if !stream.is_stalled {
                    self.fetch_next(context, number);
                }
            }
            Err(SendError::Blocked) => {
                stream.is_stalled = true;
                stream.held = Some(bytes);
            }
            Err(_) => self.give_up_stream(context, queue_groups, number),
        }
        false
    }

    /// Sends the last range of a message that was removed. Returns whether the message is complete.
    pub(crate) fn on_removed(
        &mut self,
        context: &mut Context<'_>,
        queue_groups: &mut QueueGroups,
        number: LinkNumber,
        result: Result<(), Error>,
    ) -> bool {
        let Some(stream) = self.streams.get_mut(&number.0).filter(|stream| stream.is_removing) else {
            return false;
        };
        stream.is_removing = false;
        match (result, stream.held.take()) {
            (Ok(()), Some(bytes)) => self.send_range(context, queue_groups, number, bytes),
            (Err(error), _) => {
                self.fail_stream(context, queue_groups, number, &error.to_string(), true);
                false
            }
            (Ok(()), None) => false,
        }
    }

    fn end_stream(&mut self, context: &mut Context<'_>, queue_groups: &mut QueueGroups, number: LinkNumber) {
        if let Some(stream) = self.streams.remove(&number.0) {
            hold_lock(context, &stream.delivery);
            self.pass(context, queue_groups, number, stream.shard, stream.size_bytes());
        }
    }

    /// Returns a message that cannot reach its receiver to the queue.
    pub(crate) fn give_up_stream(
        &mut self,
        context: &mut Context<'_>,
        queue_groups: &mut QueueGroups,
        number: LinkNumber,
    ) {
        if let Some(stream) = self.streams.remove(&number.0) {
            give_back(context, stream.shard, &stream.delivery);
            self.pass(context, queue_groups, number, stream.shard, stream.size_bytes());
        }
    }

    /// Drops a message that cannot be read, and detaches the link if a part of it was sent, or if messages of its session
    /// must not overtake it. If the failure may pass, the message returns to its queue and the delivery does not count;
    /// else it stays locked until the lock expires.
    // SDK quirk: pyamqp treats an aborted delivery as a complete one, so the link must be detached.
    fn fail_stream(
        &mut self,
        context: &mut Context<'_>,
        queue_groups: &mut QueueGroups,
        number: LinkNumber,
        error: &str,
        is_passing: bool,
    ) {
        let Some(stream) = self.streams.remove(&number.0) else { return };
        let sequence_number = stream.delivery.message.sequence_number;
        tracing::error!("the body of message {sequence_number} cannot be read: {error}");
        if is_passing {
            give_back(context, stream.shard, &stream.delivery);
        } else if stream.delivery.removes_later {
            // The receiver has no lock that could expire.
            set_aside(context, stream.shard, &stream.delivery, error);
        }
        self.pass(context, queue_groups, number, stream.shard, stream.size_bytes());
        if (stream.has_begun || stream.delivery.in_session)
            && let Some(link) = context.links.get_mut(number)
        {
            let text = format!("the body of message {sequence_number} cannot be read");
            let refusal = Refusal::new(500, condition::INTERNAL_ERROR, text);
            context.connection.detach(link.id, Some(refusal.into()));
        }
    }

    /// Resumes streams when the peer has room again.
    pub(crate) fn resume_streams(&mut self, context: &mut Context<'_>, queue_groups: &mut QueueGroups) {
        let stalled: Vec<_> =
            self.streams.iter().filter(|(_, stream)| stream.is_stalled).map(|(number, _)| *number).collect();
        for number in stalled.into_iter().map(LinkNumber) {
            let held = self.streams.get_mut(&number.0).and_then(|stream| stream.held.take());
            match held {
                Some(bytes) => _ = self.send_range(context, queue_groups, number, bytes),
                None => self.fetch_next(context, number),
            }
        }
    }

    /// Returns all messages that were not sent completely to their queues.
    pub(crate) fn give_up_all(&mut self, context: &mut Context<'_>) {
        for stream in std::mem::take(&mut self.streams).into_values() {
            give_back(context, stream.shard, &stream.delivery);
        }
    }
}
