//! Request and response over a pair of links to one node, such as `$cbs` or `orders/$management`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use peeklock_amqp::connection::{self, Connection, LinkId, Outgoing};
use peeklock_amqp::{
    Attach, DeliveryState, DeliveryTag, Encode, Message, MessageId, Role, Source, Target, Text,
};
use peeklock_types::limits;

use super::command::Reply;
use super::sessions::Sessions;
use crate::error::Error;
use crate::outcome::{in_transaction, outcome_of};

/// The credit for responses.
const CREDIT: u32 = 100;
/// The size limit of a response. It contains the largest message, or several messages up to a limit, each with an envelope.
const RESPONSE_SIZE_BYTES_MAX: u64 =
    (limits::LARGE_MESSAGE_SIZE_BYTES_MAX + 2 * limits::ANSWER_SIZE_BYTES_MAX) as u64;

/// A node with its two links and its pending requests.
pub(super) struct Node {
    address: Arc<str>,
    pub(super) sender: LinkId,
    pub(super) receiver: LinkId,
    reply_to: Text,
    next_number: u64,
    waiting: VecDeque<Waiting>,
    pending: BTreeMap<u64, Reply<Message>>,
}

struct Waiting {
    number: u64,
    payload: Bytes,
    transaction: Option<Bytes>,
}

impl Node {
    /// Attaches both links on one session. Returns `None` if the connection has no room for them.
    pub(super) fn attach(
        address: Arc<str>,
        serial: u64,
        sessions: &mut Sessions,
        connection: &mut Connection,
    ) -> Option<Self> {
        let session = sessions.pick(connection)?;
        let reply_to = Text::from(format!("reply-{serial}"));
        let mut request = Attach::new(format!("request-{serial}"), 0, Role::Sender);
        request.source = Some(Source::with_address(reply_to.clone()));
        request.target = Some(Target::with_address(address.to_string()));
        request.initial_delivery_count = Some(0);
        let mut response = Attach::new(reply_to.clone(), 0, Role::Receiver);
        response.source = Some(Source::with_address(address.to_string()));
        response.target = Some(Target::with_address(reply_to.clone()));
        response.max_message_size = Some(RESPONSE_SIZE_BYTES_MAX);
        let receiver = sessions.attach(session, response, connection)?;
        let Some(sender) = sessions.attach(session, request, connection) else {
            connection.detach(receiver, None);
            sessions.leave(receiver, connection);
            return None;
        };
        Some(Self {
            address,
            sender,
            receiver,
            reply_to,
            next_number: 0,
            waiting: VecDeque::new(),
            pending: BTreeMap::new(),
        })
    }

    pub(super) fn handle_attached(&self, link: LinkId, connection: &mut Connection) {
        if link == self.receiver {
            connection.set_credit(link, CREDIT);
        }
    }

    pub(super) fn push(&mut self, mut message: Message, transaction: Option<Bytes>, reply: Reply<Message>) {
        let number = self.next_number;
        self.next_number += 1;
        message.properties.message_id = Some(MessageId::Ulong(number));
        message.properties.reply_to = Some(self.reply_to.clone());
        self.waiting.push_back(Waiting { number, payload: message.to_bytes(), transaction });
        self.pending.insert(number, reply);
    }

    pub(super) fn pump(&mut self, connection: &mut Connection) {
        while let Some(Waiting { number, payload, transaction }) = self.waiting.front() {
            let Ok(tag) = DeliveryTag::new(&number.to_be_bytes()) else { return };
            let state = in_transaction(transaction.as_ref());
            let delivery = Outgoing { tag, message_format: 0, settled: false, state };
            if connection.send(self.sender, &delivery, &[payload]).is_err() {
                return;
            }
            self.waiting.pop_front();
        }
    }

    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Handles the outcome of a request's delivery. The response is a separate message.
    pub(super) fn handle_outcome(&mut self, tag: DeliveryTag, state: Option<DeliveryState>) {
        let Some(DeliveryState::Rejected { error }) = outcome_of(state) else { return };
        let Ok(number) = tag.as_slice().try_into() else { return };
        if let Some(reply) = self.pending.remove(&u64::from_be_bytes(number)) {
            let _ = reply.send(Err(Error::rejected(&self.address, error.map(|error| *error))));
        }
    }

    pub(super) fn handle_response(&mut self, delivery: &connection::Delivery, connection: &mut Connection) {
        if !delivery.settled {
            connection.settle(self.receiver, delivery.id, DeliveryState::Accepted);
        }
        if connection.credit(self.receiver) < CREDIT / 2 {
            connection.set_credit(self.receiver, CREDIT);
        }
        // A response that cannot be decoded has no known request; the request fails at its time limit.
        let Ok(message) = Message::decode(&delivery.payload) else { return };
        let Some(MessageId::Ulong(number)) = message.properties.correlation_id else { return };
        if let Some(reply) = self.pending.remove(&number) {
            let _ = reply.send(Ok(message));
        }
    }

    /// Removes requests whose caller has stopped waiting, so that they do not accumulate.
    pub(super) fn forget_abandoned(&mut self) {
        self.pending.retain(|_, reply| !reply.is_closed());
    }

    pub(super) fn end(self, error: &Error) {
        for reply in self.pending.into_values() {
            let _ = reply.send(Err(error.clone()));
        }
    }

    pub(super) fn address(&self) -> &Arc<str> {
        &self.address
    }
}
