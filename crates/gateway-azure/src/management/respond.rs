//! Responses on the links that wait for them.

use bytes::Bytes;
use peeklock_amqp::connection::{Outgoing, SessionId};
use peeklock_amqp::{AmqpError, Array, DeliveryTag, Kind, MessageId, Symbol, Value, condition};
use peeklock_broker::{Message, QueueInfo};

use super::{Findings, ResponseKind};
use crate::conversation::Conversation;
use crate::error::Refusal;
use crate::link::{LinkKind, LinkNumber, Service};
use crate::message::{self, encode_response};

/// Bytes of responses that may wait for credit on one link.
const WAITING_BYTES_MAX: usize = 8 * 1024 * 1024;

impl Conversation<'_> {
    /// The link for responses of `service` in the same session. Several: the one that the request names.
    pub(crate) fn response_link(
        &self,
        session: SessionId,
        service: &Service,
        reply_to: Option<&str>,
    ) -> Option<LinkNumber> {
        let mut found = None;
        for (number, link) in self.links.iter().filter(|(_, link)| link.session == session) {
            let LinkKind::Responses(responses) = &link.kind else { continue };
            if responses.service != *service {
                continue;
            }
            let is_named =
                reply_to.is_some_and(|to| responses.address.as_deref() == Some(to) || responses.name == to);
            if is_named {
                return Some(number);
            }
            found = Some(number);
        }
        found
    }

    pub(super) fn respond_found(
        &mut self,
        link: LinkNumber,
        correlation: Option<MessageId>,
        findings: Findings,
    ) {
        let (status, text, body) = describe(findings);
        let properties = vec![("statusCode", Value::Int(status)), ("statusDescription", Value::from(text))];
        self.respond(link, encode_response(correlation, properties, body));
    }

    pub(super) fn respond_refused(
        &mut self,
        link: LinkNumber,
        correlation: Option<MessageId>,
        refusal: &Refusal,
    ) {
        let properties = vec![
            ("statusCode", Value::Int(refusal.status)),
            ("statusDescription", Value::from(refusal.description.clone())),
            ("errorCondition", Value::Symbol(Symbol::from_static(refusal.condition))),
        ];
        self.respond(link, encode_response(correlation, properties, Value::Map(Vec::new())));
    }

    pub(crate) fn respond(&mut self, number: LinkNumber, response: Bytes) {
        if let Some(LinkKind::Responses(responses)) = self.links.get_mut(number).map(|link| &mut link.kind) {
            responses.waiting_bytes += response.len();
            responses.waiting.push_back(response);
            self.send_responses(number);
        }
    }

    /// Sends what waits, as far as the peer has given credit.
    pub(crate) fn send_responses(&mut self, number: LinkNumber) {
        let Some(link) = self.links.get_mut(number) else { return };
        let LinkKind::Responses(responses) = &mut link.kind else { return };
        while let Some(response) = responses.waiting.front() {
            let outgoing = Outgoing {
                tag: DeliveryTag::from(responses.next_tag),
                message_format: 0,
                settled: responses.settled,
                state: None,
            };
            if self.connection.send(link.id, &outgoing, &[response]).is_err() {
                break;
            }
            responses.waiting_bytes -= response.len();
            responses.next_tag = responses.next_tag.wrapping_add(1);
            responses.waiting.pop_front();
        }
        if responses.waiting_bytes > WAITING_BYTES_MAX {
            let text = "too many responses wait for credit on this link; give it credit, or ask for less";
            self.connection.detach(link.id, Some(AmqpError::new(condition::RESOURCE_LIMIT_EXCEEDED, text)));
        }
    }
}

fn map(entries: Vec<(&'static str, Value)>) -> Value {
    Value::Map(entries.into_iter().map(|(key, value)| (Value::from(key), value)).collect())
}

fn describe(findings: Findings) -> (i32, &'static str, Value) {
    match findings.kind {
        ResponseKind::Done => (200, "OK", map(Vec::new())),
        ResponseKind::Created => (201, "Created", map(Vec::new())),
        ResponseKind::Expirations => {
            let stamp = |at: &peeklock_types::Timestamp| Value::Timestamp(message::timestamp(*at));
            let array = Array::new(Kind::Timestamp, findings.expirations.iter().map(stamp).collect());
            let expirations = array.map_or(Value::Null, Value::Array);
            (200, "OK", map(vec![("expirations", expirations)]))
        }
        ResponseKind::Peeked | ResponseKind::Received if findings.messages.is_empty() => {
            (204, "No messages", map(Vec::new()))
        }
        ResponseKind::Peeked | ResponseKind::Received => {
            let messages = findings.messages.iter().filter_map(describe_message).collect();
            (200, "OK", map(vec![("messages", Value::List(messages))]))
        }
        ResponseKind::Queues => {
            let queues = findings.queues.iter().map(describe_queue).collect();
            (200, "OK", map(vec![("queues", Value::List(queues))]))
        }
    }
}

fn describe_message(found: &Message) -> Option<Value> {
    let encoded = match message::encode_whole(found) {
        Ok(encoded) => encoded,
        Err(error) => {
            tracing::error!("message {} cannot be read back: {error}", found.message.sequence_number);
            return None;
        }
    };
    let mut entries = vec![("message", Value::Binary(encoded))];
    if let Some(token) = found.token {
        entries.push(("lock-token", Value::Uuid(token.to_bytes())));
    }
    Some(map(entries))
}

fn describe_queue(queue: &QueueInfo) -> Value {
    let lock_duration_ms = u64::try_from(queue.settings.lock_duration.as_millis()).unwrap_or(u64::MAX);
    map(vec![
        ("name", Value::from(queue.name.to_string())),
        ("lock-duration-ms", Value::Ulong(lock_duration_ms)),
        ("max-delivery-count", Value::Uint(queue.settings.max_delivery_count)),
        ("active-count", Value::Ulong(queue.counts.active_count)),
        ("locked-count", Value::Ulong(queue.counts.locked_count)),
        ("deferred-count", Value::Ulong(queue.counts.deferred_count)),
        ("dead-letter-count", Value::Ulong(queue.counts.dead_letter_count)),
        ("size-bytes", Value::Ulong(queue.counts.size_bytes)),
    ])
}
