//! Settlements by receivers, and their answers.

use peeklock_amqp::connection::{DeliveryId, LinkId};
use peeklock_amqp::{AmqpError, DeliveryState, DeliveryTag};
use peeklock_broker::Error;
use peeklock_broker::request::settling::Settle;
use peeklock_types::{LockToken, SubQueue};

use crate::connection::context::Context;
use crate::connection::link::{EntityRef, LinkKind, LinkNumber};
use crate::connection::outcomes::OutcomeRun;
use crate::connection::request::SettleWaiter;
use crate::error::refusal;
use crate::queue_group::runs::entity_of;
use crate::queue_group::{LockEnd, QueueGroups, lock_lost};
use crate::receiving::Receiving;
use crate::receiving::outcome::settlement_of;
use crate::transaction::Transactions;
use crate::transaction::coordinator::Step;

/// The state that a peer sends for a delivery.
pub(crate) struct Disposition {
    pub(crate) delivery: DeliveryId,
    pub(crate) tag: DeliveryTag,
    pub(crate) state: Option<DeliveryState>,
    pub(crate) settled: bool,
}

impl Receiving {
    pub(crate) fn on_disposition(
        &mut self,
        context: &mut Context<'_>,
        queue_groups: &mut QueueGroups,
        transactions: &mut Transactions,
        id: LinkId,
        Disposition { delivery, tag, state, settled }: Disposition,
    ) {
        let Some(number) = context.links.number(id) else { return };
        let (sub_queue, path) = match context.links.get(number).map(|link| &link.kind) {
            Some(LinkKind::Receiver(link)) => (link.sub_queue, &link.path),
            Some(LinkKind::QueueGroup(link)) => (SubQueue::Main, &link.path),
            // The disposition is for a delivery that the peer has sent itself. The gateway answers it when it is done.
            Some(
                LinkKind::Sender(_) | LinkKind::Publisher(_) | LinkKind::Requests(_) | LinkKind::Coordinator,
            ) => return,
            // The delivery is a response: its disposition has no effect.
            _ => return context.connection.settle(id, delivery, DeliveryState::Accepted),
        };
        let Ok(token) = <[u8; 16]>::try_from(tag.as_slice()) else { return };
        let token = LockToken::from_guid_bytes(token);
        let Some(entity) = entity_of(context, number, token) else {
            // The delivery belongs to a queue group; its lock was released or has expired long ago.
            let refusal = lock_lost(path, token);
            if let Some(DeliveryState::Transactional { txn_id, .. }) = state {
                transactions.doom(&txn_id, &refusal.description);
            }
            return context.connection.settle(id, delivery, DeliveryState::rejected(refusal.into()));
        };
        if let Some(DeliveryState::Transactional { txn_id, outcome }) = state {
            let step = Step { delivery, txn_id, outcome: outcome.map(|outcome| *outcome), settled };
            return transactions.on_transactional_disposition(context, number, token, step);
        }
        match settlement_of(state, settled) {
            Ok(Some((settlement, mirror))) => {
                let waiter = match settled {
                    true => SettleWaiter::Nobody,
                    false => SettleWaiter::Delivery(number, delivery, mirror),
                };
                let (EntityRef { shard, entity }, end) = (entity, LockEnd::of(&settlement));
                context.settle(shard, waiter, Settle { entity, sub_queue, token, settlement });
                queue_groups.release_lock(context, number, token, end);
            }
            Ok(None) => {}
            Err(refusal) => context.connection.settle(id, delivery, DeliveryState::rejected(refusal.into())),
        }
    }

    /// Answers settlements that succeeded.
    pub(crate) fn on_done(&mut self, context: &mut Context<'_>, run: OutcomeRun) {
        let Some(link) = context.links.get(run.link) else { return };
        if let LinkKind::Receiver(_) | LinkKind::QueueGroup(_) = &link.kind {
            context.connection.settle_run(link.id, run.first, run.last, run.outcome.state());
        }
    }

    /// Rejects a delivery that could not be settled.
    pub(crate) fn on_not_settled(
        &mut self,
        context: &mut Context<'_>,
        number: LinkNumber,
        id: DeliveryId,
        error: Error,
    ) {
        let Some(link) = context.links.get_mut(number) else { return };
        let path = match &link.kind {
            LinkKind::Receiver(receiver) => Some(&receiver.path),
            // The error names the member.
            LinkKind::QueueGroup(_) => None,
            _ => return,
        };
        let state = DeliveryState::rejected(AmqpError::from(refusal(&error, path)));
        context.connection.settle(link.id, id, state);
    }
}
