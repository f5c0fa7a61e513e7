//! Messages of senders, and the outcomes of their deliveries.

use peeklock_amqp::DeliveryState;
use peeklock_amqp::connection::Delivery;
use peeklock_broker::Error;

use crate::connection::attach::SENDER_CREDIT;
use crate::connection::context::Context;
use crate::connection::link::{LinkKind, LinkNumber};
use crate::connection::outcomes::OutcomeRun;
use crate::connection::request::{SendWaiter, Waiter};
use crate::error::{Refusal, refusal};
use crate::incoming;
use crate::transaction::Transactions;
use crate::transaction::coordinator::transaction_of;

/// Sends a message or a batch of messages from a peer to an entity.
pub(crate) fn on_message(
    context: &mut Context<'_>,
    transactions: &mut Transactions,
    number: LinkNumber,
    delivery: &Delivery,
) {
    let now = context.now;
    let Some(link) = context.links.get_mut(number) else { return };
    let id = link.id;
    let LinkKind::Sender(sender) = &mut link.kind else { return };
    let (entity, needs) = (sender.entity, sender.needs);
    sender.unconfirmed += 1;
    if let Some(txn_id) = transaction_of(delivery) {
        transactions.on_transactional_message(context, number, delivery, txn_id);
        return confirm(context, number, 1);
    }
    let ticket = SendWaiter::for_delivery(number, delivery).ticket();
    let Some(batch) = context.batch(entity.shard) else { return };
    let mut messages = batch.messages();
    let stored = incoming::each_message(delivery.message_format, &delivery.payload, |payload| {
        messages.add(|out| incoming::store(payload, now, needs, out))
    });
    match stored {
        Ok(()) => messages.send(ticket, entity.entity),
        Err(refusal) => {
            drop(messages);
            if !delivery.settled {
                context.connection.settle(id, delivery.id, DeliveryState::rejected(refusal.into()));
            }
            confirm(context, number, 1);
        }
    }
}

/// Answers deliveries whose messages are stored.
pub(crate) fn on_stored(context: &mut Context<'_>, run: OutcomeRun) {
    let Some(link) = context.links.get(run.link) else { return };
    if let LinkKind::Sender(_) = &link.kind {
        context.connection.settle_run(link.id, run.first, run.last, run.outcome.state());
        confirm(context, run.link, run.count());
    }
}

pub(crate) fn on_sent(context: &mut Context<'_>, waiter: SendWaiter, result: Result<(), Error>) {
    let (number, delivery) = waiter.delivery();
    let Some(link) = context.links.get_mut(number) else { return };
    let LinkKind::Sender(sender) = &link.kind else { return };
    let (state, is_gone) = match result {
        Ok(()) => (DeliveryState::Accepted, false),
        Err(error) => {
            let refusal = refusal(&error, Some(&sender.path)).at(&context.host);
            (DeliveryState::rejected(refusal.clone().into()), refusal.status == 404)
        }
    };
    let (id, path) = (link.id, is_gone.then(|| sender.path.clone()));
    if let Some(delivery) = delivery {
        context.connection.settle(id, delivery, state);
    }
    confirm(context, number, 1);
    if let Some(path) = path {
        // A queue of that name may be created again; only a new link finds it.
        context.connection.detach(id, Some(Refusal::no_such_entity(&path.name).at(&context.host).into()));
    }
}

/// Counts deliveries as answered; grants new credit when enough deliveries are answered.
pub(crate) fn confirm(context: &mut Context<'_>, number: LinkNumber, count: u32) {
    let Some(link) = context.links.get_mut(number) else { return };
    let (unconfirmed, confirmed) = match &mut link.kind {
        LinkKind::Sender(sender) => (&mut sender.unconfirmed, &mut sender.confirmed),
        LinkKind::Publisher(publisher) => (&mut publisher.unconfirmed, &mut publisher.confirmed),
        _ => return,
    };
    *unconfirmed = unconfirmed.saturating_sub(count);
    *confirmed = confirmed.saturating_add(count);
    if *confirmed >= SENDER_CREDIT / 4 {
        *confirmed = 0;
        context.connection.set_credit(link.id, SENDER_CREDIT.saturating_sub(*unconfirmed));
    }
}
