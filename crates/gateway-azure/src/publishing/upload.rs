//! Incoming large messages: they are passed to the journal as they arrive, so that none is ever completely in memory.
//!
//! If the disk is too slow, the connection does not read from the peer (see `flush_uploads`), and TCP slows the sender
//! down.

use bytes::Bytes;
use peeklock_amqp::connection::{Delivery, DeliveryId, LinkId, Part};
use peeklock_amqp::{DecodeError, DeliveryState, Problem, condition, is_batch};
use peeklock_broker::Upload;
use peeklock_broker::engine::{Attributes, EntityId};
use peeklock_message::{LargeMessage, Needs, describe_front, with_size};
use peeklock_types::{Timestamp, limits};
use rustc_hash::FxHashMap;

use crate::connection::context::Context;
use crate::connection::link::{LinkKind, LinkNumber};
use crate::connection::request::{SendWaiter, Waiter};
use crate::error::Refusal;
use crate::incoming::unreadable;
use crate::publishing::Publishing;
use crate::publishing::send::confirm;
use crate::transaction::coordinator::{in_transaction, transaction_of};
use crate::transaction::{HeldBody, HeldMessage, HeldSend, Transactions};

/// The limit on large messages in flight on one connection; each takes approximately a megabyte.
const UPLOADS_MAX: usize = 32;

/// The incoming large messages of one connection.
#[derive(Default)]
pub(crate) struct Uploads {
    /// Uploads by the number of their link, which has one at a time.
    open: FxHashMap<u32, Incoming>,
    finished: Vec<Finished>,
}

struct Incoming {
    /// The transaction of the message.
    txn_id: Option<Bytes>,
    message: Option<LargeMessage>,
    upload: Upload,
    /// The id for a message without one.
    new_id: String,
    /// The bytes received from the sender.
    size_bytes: usize,
    /// The parts of the stored form that were not yet passed to the disk.
    pieces: Vec<Bytes>,
    /// The attributes for the queue, once the front of the message has arrived.
    attributes: Option<Option<Box<Attributes>>>,
}

struct Finished {
    upload: Upload,
    pieces: Vec<Bytes>,
    attributes: Option<Box<Attributes>>,
    then: Then,
}

/// The next step for a message that was received completely.
enum Then {
    Send(EntityId),
    /// Hold the message until the commit of its transaction.
    Hold {
        txn_id: Bytes,
        link: LinkNumber,
        /// `None` if it was sent settled, because another delivery may have its id.
        delivery: Option<DeliveryId>,
    },
}

impl Incoming {
    fn push(&mut self, bytes: Bytes, now: Timestamp, needs: Needs) -> Result<(), Refusal> {
        self.size_bytes += bytes.len();
        let Some(message) = &mut self.message else { return Ok(()) };
        message.push(bytes, &mut self.pieces).map_err(refusal_of)?;
        if self.attributes.is_none()
            && let Some(front) = message.front()
        {
            self.attributes = Some(describe_front(front, &self.new_id, now, needs)?);
        }
        Ok(())
    }

    /// Completes the stored form after the last part.
    fn finish(&mut self) -> Result<(), Refusal> {
        if let Some(message) = self.message.take() {
            message.finish(&mut self.pieces).map_err(refusal_of)?;
        }
        let nothing = || Refusal::bad_request("the message has no body");
        let attributes = self.attributes.as_mut().ok_or_else(nothing)?;
        if let Some(view) = attributes.as_mut().and_then(|attributes| attributes.view.as_mut()) {
            *view = with_size(view, self.size_bytes);
        }
        Ok(())
    }
}

fn refusal_of(error: DecodeError) -> Refusal {
    match error.problem() {
        Problem::Oversized { .. } => {
            Refusal::new(400, condition::MESSAGE_SIZE_EXCEEDED, error.problem().to_string())
        }
        _ => unreadable(error),
    }
}

/// Rejects a batch: it cannot be decoded in parts.
fn check_kind(first: &Delivery) -> Result<(), Refusal> {
    let limit = limits::MESSAGE_SIZE_BYTES_MAX;
    if is_batch(first.message_format) {
        let text = format!("a batch may have {limit} bytes; send several, or the messages one by one");
        return Err(Refusal::new(400, condition::MESSAGE_SIZE_EXCEEDED, text));
    }
    Ok(())
}

/// Returns the transaction that the state of a delivery names.
fn transaction_in(state: Option<DeliveryState>) -> Result<Option<Bytes>, Refusal> {
    match state {
        None => Ok(None),
        Some(DeliveryState::Transactional { txn_id, .. }) => Ok(Some(txn_id)),
        Some(_) => {
            Err(Refusal::bad_request("of the states of a message that is sent only a transaction counts"))
        }
    }
}

impl Publishing {
    pub(crate) fn on_part(
        &mut self,
        context: &mut Context<'_>,
        transactions: &mut Transactions,
        id: LinkId,
        delivery: DeliveryId,
        part: Part,
    ) {
        let Some(number) = context.links.number(id) else { return };
        let txn_id = match &part {
            Part::First(first) => transaction_of(first).cloned(),
            _ => None,
        };
        let result = match part {
            Part::First(first) => self.start_upload(context, transactions, number, &first),
            Part::More(bytes) => self.feed_upload(context, number, bytes),
            Part::Last { settled, state } => {
                let unsettled = (!settled).then_some(delivery);
                self.end_upload(context, transactions, number, unsettled, state.map(|state| *state))
            }
            Part::Dropped => return self.drop_upload(context, transactions, number),
        };
        if let Err(refusal) = result {
            if let Some(txn_id) = txn_id {
                transactions.doom(&txn_id, &refusal.description);
            }
            self.give_up_upload(context, transactions, number, &refusal.description);
            context.connection.settle(id, delivery, DeliveryState::rejected(refusal.into()));
            confirm(context, number, 1);
        }
    }

    fn start_upload(
        &mut self,
        context: &mut Context<'_>,
        transactions: &mut Transactions,
        number: LinkNumber,
        first: &Delivery,
    ) -> Result<(), Refusal> {
        let Some(link) = context.links.get_mut(number) else { return Ok(()) };
        let LinkKind::Sender(sender) = &mut link.kind else { return Ok(()) };
        sender.unconfirmed += 1;
        let (shard, size_max) = (sender.entity.shard, sender.max_message_size_bytes);
        check_kind(first)?;
        if self.uploads.open.len() + transactions.upload_count() >= UPLOADS_MAX {
            let text =
                format!("{UPLOADS_MAX} large messages are under way on this connection; send fewer at once");
            return Err(Refusal::new(403, condition::RESOURCE_LIMIT_EXCEEDED, text));
        }
        let ticket = SendWaiter::for_delivery(number, first).ticket();
        let new_id = format!("{:032x}", fastrand::u128(..));
        let txn_id = transaction_of(first).cloned();
        if let Some(txn_id) = &txn_id {
            transactions.start_request(txn_id)?;
        }
        let incoming = Incoming {
            txn_id,
            message: Some(LargeMessage::new(size_max.into(), Some(new_id.clone()))),
            new_id,
            size_bytes: 0,
            upload: context.namespace.broker.upload(shard, &context.peer, ticket),
            pieces: Vec::new(),
            attributes: None,
        };
        self.uploads.open.insert(number.0, incoming);
        self.feed_upload(context, number, first.payload.clone())
    }

    fn feed_upload(
        &mut self,
        context: &mut Context<'_>,
        number: LinkNumber,
        bytes: Bytes,
    ) -> Result<(), Refusal> {
        let Some(link) = context.links.get_mut(number) else { return Ok(()) };
        let LinkKind::Sender(sender) = &link.kind else { return Ok(()) };
        let Some(incoming) = self.uploads.open.get_mut(&number.0) else { return Ok(()) };
        incoming.push(bytes, context.now, sender.needs)
    }

    fn end_upload(
        &mut self,
        context: &mut Context<'_>,
        transactions: &mut Transactions,
        number: LinkNumber,
        delivery: Option<DeliveryId>,
        state: Option<DeliveryState>,
    ) -> Result<(), Refusal> {
        let named = transaction_in(state)?;
        let Some(incoming) = self.uploads.open.get_mut(&number.0) else { return Ok(()) };
        // The last frame may name the transaction, too.
        if let (None, Some(txn_id)) = (&incoming.txn_id, &named) {
            transactions.start_request(txn_id)?;
            incoming.txn_id = Some(txn_id.clone());
        }
        if named.is_some() && incoming.txn_id != named {
            return Err(Refusal::bad_request("a message belongs to one transaction"));
        }
        incoming.finish()?;
        let Some(LinkKind::Sender(sender)) = context.links.get(number).map(|link| &link.kind) else {
            return Ok(());
        };
        let entity = sender.entity.entity;
        let Some(incoming) = self.uploads.open.remove(&number.0) else { return Ok(()) };
        let Incoming { txn_id, upload, pieces, attributes, .. } = incoming;
        let then = match txn_id {
            Some(txn_id) => Then::Hold { txn_id, link: number, delivery },
            None => Then::Send(entity),
        };
        if matches!(then, Then::Send(_)) {
            context.expect_answer();
        }
        self.uploads.finished.push(Finished { upload, pieces, attributes: attributes.flatten(), then });
        Ok(())
    }

    /// Drops an upload that its sender has aborted or that exceeds the limit of the link; the AMQP engine has answered
    /// it.
    fn drop_upload(
        &mut self,
        context: &mut Context<'_>,
        transactions: &mut Transactions,
        number: LinkNumber,
    ) {
        if self.give_up_upload(context, transactions, number, "its sender gave up a message of it")
            && let Some(link) = context.links.get_mut(number)
            && let LinkKind::Sender(sender) = &mut link.kind
        {
            sender.unconfirmed = sender.unconfirmed.saturating_sub(1);
        }
    }

    pub(crate) fn forget_upload(
        &mut self,
        context: &mut Context<'_>,
        transactions: &mut Transactions,
        number: LinkNumber,
    ) {
        self.give_up_upload(context, transactions, number, "the link of a message of it was detached");
    }

    /// Drops a message that is being received, and dooms its transaction. Returns whether there was one.
    fn give_up_upload(
        &mut self,
        context: &mut Context<'_>,
        transactions: &mut Transactions,
        number: LinkNumber,
        reason: &str,
    ) -> bool {
        let Some(incoming) = self.uploads.open.remove(&number.0) else { return false };
        if let Some(txn_id) = incoming.txn_id {
            transactions.doom(&txn_id, reason);
            transactions.end_request(context.millis, &txn_id);
        }
        true
    }

    /// Passes the received parts to the disk. Waits for the disk, which also stops reading from the connection.
    pub(crate) async fn flush_uploads(&mut self, context: &mut Context<'_>, transactions: &mut Transactions) {
        for incoming in self.uploads.open.values_mut() {
            if !incoming.pieces.is_empty() {
                incoming.upload.write(std::mem::take(&mut incoming.pieces)).await;
            }
        }
        for Finished { upload, pieces, attributes, then } in std::mem::take(&mut self.uploads.finished) {
            upload.write(pieces).await;
            match then {
                Then::Send(entity) => upload.finish(entity, attributes).await,
                Then::Hold { txn_id, link, delivery } => {
                    let message = HeldMessage { body: HeldBody::Upload(Some(upload)), attributes };
                    self.hold_upload(context, transactions, link, delivery, txn_id, message);
                }
            }
        }
    }

    /// Adds a large message to its transaction. The commit makes it durable, so a full disk rejects the commit.
    fn hold_upload(
        &mut self,
        context: &mut Context<'_>,
        transactions: &mut Transactions,
        number: LinkNumber,
        delivery: Option<DeliveryId>,
        txn_id: Bytes,
        message: HeldMessage,
    ) {
        transactions.end_request(context.millis, &txn_id);
        transactions.count_arrival(&txn_id);
        let Some(link) = context.links.get(number) else {
            return transactions.doom(&txn_id, "the link of a message of it was detached");
        };
        let LinkKind::Sender(sender) = &link.kind else { return };
        let (id, target, entity) = (link.id, sender.path.name.clone(), sender.entity);
        let send = HeldSend { target, entity, messages: vec![message] };
        let outcome = match transactions.add_send(context.millis, &txn_id, send) {
            Ok(()) => DeliveryState::Accepted,
            Err(refusal) => DeliveryState::rejected(refusal.into()),
        };
        if let Some(delivery) = delivery {
            context.connection.settle(id, delivery, in_transaction(txn_id, outcome));
        }
        confirm(context, number, 1);
    }
}
