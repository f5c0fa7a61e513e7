//! Responses on the links that wait for them.

use peeklock_amqp::connection::{Outgoing, SessionId};
use peeklock_amqp::{AmqpError, DeliveryTag, Symbol, Value, condition};
use peeklock_broker::Answer;

use super::ReplyTo;
use super::answer::{AnswerKind, describe};
use crate::conversation::Conversation;
use crate::error::{RETRY_AFTER_MS, Refusal, in_millis};
use crate::link::{LinkKind, LinkNumber, Place, Service};
use crate::message::encode_response;

/// Bytes of responses that may wait for credit, or for an earlier response, on one link.
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

    /// The place of a response whose request has just come. `None` if the link is gone.
    pub(crate) fn take_place(&mut self, number: LinkNumber) -> Option<Place> {
        match self.links.get_mut(number).map(|link| &mut link.kind) {
            Some(LinkKind::Responses(responses)) => Some(responses.line.take_place()),
            _ => None,
        }
    }

    pub(super) fn respond_found(&mut self, reply_to: ReplyTo, kind: AnswerKind, answers: Vec<Answer>) {
        let (status, text, body) = describe(kind, answers);
        let properties = vec![("statusCode", Value::Int(status)), ("statusDescription", Value::from(text))];
        self.respond(reply_to, properties, body);
    }

    pub(super) fn respond_refused(&mut self, reply_to: ReplyTo, refusal: &Refusal) {
        let mut properties = vec![
            ("statusCode", Value::Int(refusal.status)),
            ("statusDescription", Value::from(refusal.description.clone())),
            ("errorCondition", Value::Symbol(Symbol::from_static(refusal.condition))),
        ];
        properties.extend(refusal.retry_after.map(|span| (RETRY_AFTER_MS, Value::Ulong(in_millis(span)))));
        self.respond(reply_to, properties, Value::Map(Vec::new()));
    }

    pub(crate) fn respond(&mut self, reply_to: ReplyTo, properties: Vec<(&'static str, Value)>, body: Value) {
        let ReplyTo { link: number, place, correlation } = reply_to;
        if let Some(LinkKind::Responses(responses)) = self.links.get_mut(number).map(|link| &mut link.kind) {
            responses.line.fill(place, encode_response(correlation, properties, body));
            self.send_responses(number);
        }
    }

    /// Sends what waits, as far as the peer has given credit.
    pub(crate) fn send_responses(&mut self, number: LinkNumber) {
        let Some(link) = self.links.get_mut(number) else { return };
        let LinkKind::Responses(responses) = &mut link.kind else { return };
        while let Some(response) = responses.line.front() {
            let outgoing = Outgoing {
                tag: DeliveryTag::from(responses.next_tag),
                message_format: 0,
                settled: responses.settled,
                state: None,
            };
            if self.connection.send(link.id, &outgoing, &[response]).is_err() {
                break;
            }
            responses.next_tag = responses.next_tag.wrapping_add(1);
            responses.line.pop();
        }
        if responses.line.ready_bytes() > WAITING_BYTES_MAX {
            let text = "too many responses wait for credit on this link; give it credit, or ask for less";
            self.connection.detach(link.id, Some(AmqpError::new(condition::RESOURCE_LIMIT_EXCEEDED, text)));
            // At once, because a peer that never answers the detach could go on asking.
            self.links.remove(number);
        }
    }
}
