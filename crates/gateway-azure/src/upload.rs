//! Large messages on their way in: passed on to the journal as they come, so that none is ever in memory whole.
//!
//! A connection that the disk is too slow for is not read from: see `flush_uploads`. TCP then slows the sender down.

use bytes::Bytes;
use peeklock_amqp::connection::{Delivery, DeliveryId, LinkId, Part};
use peeklock_amqp::{DecodeError, DeliveryState, LargeMessage, Problem, condition, is_batch};
use peeklock_broker::Upload;
use peeklock_broker::engine::{Attributes, EntityId};
use peeklock_types::{Timestamp, limits};
use rustc_hash::FxHashMap;

use crate::conversation::Conversation;
use crate::coordinator::transaction_of;
use crate::error::Refusal;
use crate::incoming::{self, Needs};
use crate::link::{LinkKind, LinkNumber};
use crate::request::Waiter;
use crate::view;

/// Large messages that one connection may have under way at a time; each takes about a megabyte.
const UPLOADS_MAX: usize = 32;

/// What the connection engine is told: larger messages than fit the usual path come in parts.
/// The large messages of one connection.
#[derive(Default)]
pub(crate) struct Uploads {
    /// By the number of their link, which has one at a time.
    open: FxHashMap<u32, Incoming>,
    finished: Vec<Finished>,
}

struct Incoming {
    message: LargeMessage,
    upload: Upload,
    /// For a message that has none.
    new_id: String,
    /// What the sender has sent of it.
    size_bytes: usize,
    /// What of the stored form the disk has not been given yet.
    pieces: Vec<Bytes>,
    /// What the queue must know, once the front of the message has come.
    attributes: Option<Option<Box<Attributes>>>,
}

struct Finished {
    upload: Upload,
    pieces: Vec<Bytes>,
    entity: EntityId,
    attributes: Option<Box<Attributes>>,
}

impl Incoming {
    fn push(&mut self, bytes: Bytes, now: Timestamp, needs: Needs) -> Result<(), Refusal> {
        self.size_bytes += bytes.len();
        self.message.push(bytes, &mut self.pieces).map_err(refusal_of)?;
        if self.attributes.is_none()
            && let Some(front) = self.message.front()
        {
            self.attributes = Some(incoming::describe_front(front, &self.new_id, now, needs)?);
        }
        Ok(())
    }
}

fn refusal_of(error: DecodeError) -> Refusal {
    match error.problem() {
        Problem::Oversized { .. } => {
            Refusal::new(400, condition::MESSAGE_SIZE_EXCEEDED, error.problem().to_string())
        }
        _ => incoming::unreadable(error),
    }
}

/// What cannot be told apart from a message piece by piece.
fn check_kind(first: &Delivery) -> Result<(), Refusal> {
    let limit = limits::MESSAGE_SIZE_BYTES_MAX;
    if is_batch(first.message_format) {
        let text = format!("a batch may have {limit} bytes; send several, or the messages one by one");
        return Err(Refusal::new(400, condition::MESSAGE_SIZE_EXCEEDED, text));
    }
    if first.state.is_some() {
        let text = format!("a message of more than {limit} bytes cannot be part of a transaction");
        return Err(Refusal::not_allowed(text));
    }
    Ok(())
}

impl Conversation<'_> {
    pub(crate) fn on_part(&mut self, id: LinkId, delivery: DeliveryId, part: Part) {
        let Some(number) = self.links.number(id) else { return };
        let txn_id = match &part {
            Part::First(first) => transaction_of(first).cloned(),
            _ => None,
        };
        let result = match part {
            Part::First(first) => self.start_upload(number, &first),
            Part::More(bytes) => self.feed_upload(number, bytes),
            Part::Last { state, .. } => self.end_upload(number, state.is_some()),
            Part::Dropped => return self.drop_upload(number),
        };
        if let Err(refusal) = result {
            if let Some(txn_id) = txn_id {
                self.transactions.doom(&txn_id, &refusal.description);
            }
            self.uploads.open.remove(&number.0);
            self.connection.settle(id, delivery, DeliveryState::rejected(refusal.into()));
            self.confirm(number);
        }
    }

    fn start_upload(&mut self, number: LinkNumber, first: &Delivery) -> Result<(), Refusal> {
        let Some(link) = self.links.get_mut(number) else { return Ok(()) };
        let LinkKind::Sender(sender) = &mut link.kind else { return Ok(()) };
        sender.unconfirmed += 1;
        let (shard, size_max) = (sender.entity.shard, sender.max_message_size_bytes);
        check_kind(first)?;
        if self.uploads.open.len() >= UPLOADS_MAX {
            let text =
                format!("{UPLOADS_MAX} large messages are under way on this connection; send fewer at once");
            return Err(Refusal::new(403, condition::RESOURCE_LIMIT_EXCEEDED, text));
        }
        let ticket = Waiter::for_send(number, first).ticket();
        let new_id = format!("{:032x}", fastrand::u128(..));
        let incoming = Incoming {
            message: LargeMessage::new(size_max.into(), Some(new_id.clone())),
            new_id,
            size_bytes: 0,
            upload: self.namespace.broker.upload(shard, &self.peer, ticket),
            pieces: Vec::new(),
            attributes: None,
        };
        self.uploads.open.insert(number.0, incoming);
        self.feed_upload(number, first.payload.clone())
    }

    fn feed_upload(&mut self, number: LinkNumber, bytes: Bytes) -> Result<(), Refusal> {
        let Some(link) = self.links.get_mut(number) else { return Ok(()) };
        let LinkKind::Sender(sender) = &link.kind else { return Ok(()) };
        let Some(incoming) = self.uploads.open.get_mut(&number.0) else { return Ok(()) };
        incoming.push(bytes, self.now, sender.needs)
    }

    fn end_upload(&mut self, number: LinkNumber, has_state: bool) -> Result<(), Refusal> {
        let Some(Incoming { message, upload, mut pieces, attributes, size_bytes, .. }) =
            self.uploads.open.remove(&number.0)
        else {
            return Ok(());
        };
        let Some(link) = self.links.get_mut(number) else { return Ok(()) };
        let LinkKind::Sender(sender) = &link.kind else { return Ok(()) };
        if has_state {
            return Err(Refusal::not_allowed("a large message cannot be part of a transaction"));
        }
        message.finish(&mut pieces).map_err(refusal_of)?;
        let mut attributes = attributes.ok_or_else(|| Refusal::bad_request("the message has no body"))?;
        if let Some(view) = attributes.as_mut().and_then(|attributes| attributes.view.as_mut()) {
            *view = view::with_size(view, size_bytes);
        }
        self.uploads.finished.push(Finished { upload, pieces, entity: sender.entity.entity, attributes });
        self.expect_answer();
        Ok(())
    }

    /// Its sender gave it up, or it was larger than the link takes; the engine has answered it.
    fn drop_upload(&mut self, number: LinkNumber) {
        if self.uploads.open.remove(&number.0).is_some()
            && let Some(link) = self.links.get_mut(number)
            && let LinkKind::Sender(sender) = &mut link.kind
        {
            sender.unconfirmed = sender.unconfirmed.saturating_sub(1);
        }
    }

    pub(crate) fn forget_upload(&mut self, number: LinkNumber) {
        self.uploads.open.remove(&number.0);
    }

    /// Gives the disk what has come. Waits while it is behind, and so does the connection.
    pub(crate) async fn flush_uploads(&mut self) {
        for incoming in self.uploads.open.values_mut() {
            if !incoming.pieces.is_empty() {
                incoming.upload.write(std::mem::take(&mut incoming.pieces)).await;
            }
        }
        for Finished { upload, pieces, entity, attributes } in std::mem::take(&mut self.uploads.finished) {
            upload.write(pieces).await;
            upload.finish(entity, attributes).await;
        }
    }
}
