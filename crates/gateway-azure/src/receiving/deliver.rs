//! Deliveries from shards to receivers.

use peeklock_amqp::DeliveryTag;
use peeklock_amqp::connection::{Outgoing, SendError};
use peeklock_broker::engine::{self, ReceiveMode, Settlement};
use peeklock_broker::request::receiving::{Credit, Window};
use peeklock_broker::request::settling::{Release, Settle};
use peeklock_broker::{DeliveredBody, DeliveryRun, Drain, PeerId};
use peeklock_message::write_front;
use peeklock_types::ShardId;

use crate::connection::attach::RECEIVER_WINDOW_BYTES;
use crate::connection::context::Context;
use crate::connection::link::{LinkKind, LinkNumber, ReceiverLink};
use crate::connection::request::SettleWaiter;
use crate::queue_group::QueueGroups;
use crate::queue_group::runs::hold_lock;
use crate::receiving::Receiving;

impl Receiving {
    /// Sends deliveries in order. Returns those for which there is no room now.
    pub(crate) fn deliver_run(
        &mut self,
        context: &mut Context<'_>,
        queue_groups: &mut QueueGroups,
        mut run: DeliveryRun,
    ) -> Option<DeliveryRun> {
        let shard = run.shard;
        while let Some((delivery, body)) = run.first() {
            if let DeliveredBody::Whole(body) = body {
                match self.deliver(context, queue_groups, shard, delivery, body) {
                    Ok(()) => {}
                    // A delivery that waits for a large message on its own link waits here, too.
                    Err(SendError::Blocked | SendError::Incomplete) => return Some(run),
                    Err(_) => give_back(context, shard, delivery),
                }
                run.pass_first();
            } else if let Some(large) = run.pop_first()
                && let Some(blocked) = self.start_stream(context, shard, large)
            {
                run.push_first(blocked);
                return Some(run);
            }
        }
        None
    }

    fn deliver(
        &mut self,
        context: &mut Context<'_>,
        queue_groups: &mut QueueGroups,
        shard: ShardId,
        delivery: &engine::Delivery,
        body: &[u8],
    ) -> Result<(), SendError> {
        let number = LinkNumber(PeerId::local(delivery.receiver));
        let link = context.links.get_mut(number).ok_or(SendError::NotAttached)?;
        let LinkKind::Receiver(receiver) = &mut link.kind else { return Err(SendError::NotAttached) };
        let token = (receiver.mode == ReceiveMode::PeekLock).then_some(delivery.token);
        context.scratch.clear();
        let rest = match write_front(&delivery.message, token, body, &mut context.scratch) {
            Ok(rest) => rest,
            Err(error) => {
                let sequence_number = delivery.message.sequence_number;
                tracing::error!(
                    "message {sequence_number} of '{}' cannot be read back: {error}",
                    receiver.path
                );
                self.pass(context, queue_groups, number, shard, delivery.message.size_bytes);
                set_aside(context, shard, delivery, &error.to_string());
                return Ok(());
            }
        };
        let outgoing = Outgoing {
            tag: DeliveryTag::from(delivery.token.to_guid_bytes()),
            message_format: 0,
            settled: token.is_none(),
            state: None,
        };
        let sent = context.connection.send(link.id, &outgoing, &[&context.scratch, rest]);
        if matches!(sent, Err(SendError::Blocked | SendError::Incomplete)) {
            return sent;
        }
        if sent.is_ok() {
            hold_lock(context, delivery);
        }
        self.pass(context, queue_groups, number, shard, delivery.message.size_bytes);
        sent
    }

    /// Counts a delivery as passed to the link, and reports the freed window to the shard once it is large enough.
    pub(crate) fn pass(
        &mut self,
        context: &mut Context<'_>,
        queue_groups: &mut QueueGroups,
        number: LinkNumber,
        shard: ShardId,
        size_bytes: u32,
    ) {
        let Some(link) = context.links.get_mut(number) else { return };
        let LinkKind::Receiver(receiver) = &mut link.kind else { return };
        receiver.passed_count += 1;
        receiver.passed_bytes += i64::from(size_bytes);
        let is_spent = receiver.passed_count >= receiver.limit;
        let returned = (receiver.passed_bytes >= RECEIVER_WINDOW_BYTES / 4)
            .then(|| std::mem::take(&mut receiver.passed_bytes));
        let (id, receiver) = (link.id, receiver.receiver);
        if let Some(size_bytes) = returned {
            context.push(usize::from(shard.0), Window { receiver, size_bytes });
        }
        // The session window set the limit. If the window has moved since, no other event causes a grant.
        if is_spent && context.connection.sendable(id) > 0 {
            self.grant(context, queue_groups, number, Drain::Keep);
        }
    }

    /// Reports to the shard how many deliveries the link accepts: the peer's credit, up to the session window. Messages
    /// beyond the window stay in the queue, where another receiver can get them.
    pub(crate) fn grant(
        &mut self,
        context: &mut Context<'_>,
        queue_groups: &mut QueueGroups,
        number: LinkNumber,
        drain: Drain,
    ) {
        let Some(link) = context.links.get_mut(number) else { return };
        let receiver = match &mut link.kind {
            LinkKind::Receiver(ReceiverLink { member_of: Some(of), .. }) => {
                let group = of.group;
                return queue_groups.arbitrate(context, group);
            }
            LinkKind::QueueGroup(_) => return queue_groups.arbitrate(context, number),
            LinkKind::Receiver(receiver) => receiver,
            _ => return,
        };
        let limit = receiver.passed_count + u64::from(context.connection.sendable(link.id));
        receiver.limit = limit;
        let (shard, receiver) = (receiver.entity.shard, receiver.receiver);
        context.push(shard, Credit { receiver, limit, drain });
    }
}

/// Dead-letters a message whose stored form is damaged. It would be delivered again for ever; in the dead-letter queue
/// an operator can inspect it.
pub(crate) fn set_aside(
    context: &mut Context<'_>,
    shard: ShardId,
    delivery: &engine::Delivery,
    description: &str,
) {
    let (entity, sub_queue, token) = (delivery.entity, delivery.sub_queue, delivery.token);
    let reason = Some("Unreadable".to_owned());
    let settlement =
        Settlement::DeadLetter { reason, description: Some(description.to_owned()), patch: None };
    let settle = Settle { entity, sub_queue, token, settlement };
    context.settle(usize::from(shard.0), SettleWaiter::Nobody, settle);
}

/// Returns a delivery that cannot reach its receiver to the queue, without counting it.
pub(crate) fn give_back(context: &mut Context<'_>, shard: ShardId, delivery: &engine::Delivery) {
    let (entity, sub_queue, token) = (delivery.entity, delivery.sub_queue, delivery.token);
    context.push(usize::from(shard.0), Release { entity, sub_queue, token });
}
