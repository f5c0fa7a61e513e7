//! Sends responses on the peer's response links.

use bytes::Bytes;
use peeklock_amqp::connection::{Outgoing, SessionId};
use peeklock_amqp::{AmqpError, DeliveryTag, Symbol, Value, condition};
use peeklock_broker::Wanted;
use peeklock_types::LockToken;

use super::answer::{Content, OK, describe_messages};
use super::{ReplyTo, streamed};
use crate::connection::context::Context;
use crate::connection::link::{LinkKind, LinkNumber, Service};
use crate::error::{RETRY_AFTER_MS, Refusal, in_millis};
use crate::management::response::{Place, Response, Step};
use crate::message::encode_response;

/// The limit on bytes of responses that wait for credit, or for an earlier response, on one link.
const WAITING_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Returns the link for responses of `service` in the same session. If there are several, prefers the one that the
/// request names.
pub(crate) fn response_link(
    context: &Context<'_>,
    session: SessionId,
    service: &Service,
    reply_to: Option<&str>,
) -> Option<LinkNumber> {
    let mut found = None;
    for (number, link) in context.links.iter().filter(|(_, link)| link.session == session) {
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

/// Reserves the place of the response to a new request. Returns `None` if the link no longer exists.
pub(crate) fn take_place(context: &mut Context<'_>, number: LinkNumber) -> Option<Place> {
    match context.links.get_mut(number).map(|link| &mut link.kind) {
        Some(LinkKind::Responses(responses)) => Some(responses.line.take_place()),
        _ => None,
    }
}

pub(super) fn respond_found(context: &mut Context<'_>, reply_to: ReplyTo, content: Content) {
    let properties =
        |status, text| vec![("statusCode", Value::Int(status)), ("statusDescription", Value::from(text))];
    let (status, text, body) = match content {
        Content::Described(described) => described,
        // A response that is too large for memory is sent piece by piece.
        Content::Messages { found, omit_body: false } if found.iter().any(|one| one.rest.is_some()) => {
            let ((status, text), found) = (OK, found.iter().collect::<Vec<_>>());
            let response = streamed::encode(reply_to.correlation.clone(), properties(status, text), &found);
            return fill(context, &reply_to, Response::Streamed(response));
        }
        Content::Messages { found, omit_body } => describe_messages(&found, omit_body),
    };
    respond(context, reply_to, properties(status, text), body);
}

pub(super) fn respond_refused(context: &mut Context<'_>, reply_to: ReplyTo, refusal: Refusal) {
    let refusal = refusal.at(&context.host);
    let mut properties = vec![
        ("statusCode", Value::Int(refusal.status)),
        ("statusDescription", Value::from(refusal.description.clone())),
        ("errorCondition", Value::Symbol(Symbol::from_static(refusal.condition))),
    ];
    properties.extend(refusal.retry_after.map(|span| (RETRY_AFTER_MS, Value::Ulong(in_millis(span)))));
    respond(context, reply_to, properties, Value::Map(Vec::new()));
}

pub(crate) fn respond(
    context: &mut Context<'_>,
    reply_to: ReplyTo,
    properties: Vec<(&'static str, Value)>,
    body: Value,
) {
    let response = encode_response(reply_to.correlation.clone(), properties, body);
    fill(context, &reply_to, response.into());
}

fn fill(context: &mut Context<'_>, reply_to: &ReplyTo, response: Response) {
    let number = reply_to.link;
    if let Some(LinkKind::Responses(responses)) = context.links.get_mut(number).map(|link| &mut link.kind) {
        responses.line.fill(reply_to.place, response);
        send_responses(context, number);
    }
}

/// Sends waiting responses, as far as the peer has granted credit and the ranges have been read.
pub(crate) fn send_responses(context: &mut Context<'_>, number: LinkNumber) {
    while send_next(context, number) {}
    let Some(link) = context.links.get_mut(number) else { return };
    let LinkKind::Responses(responses) = &mut link.kind else { return };
    if responses.line.ready_bytes() > WAITING_BYTES_MAX {
        let text = "too many responses wait for credit on this link; give it credit, or ask for less";
        context.connection.detach(link.id, Some(AmqpError::new(condition::RESOURCE_LIMIT_EXCEEDED, text)));
        // Removed at once, because a peer that never answers the detach could continue to send requests.
        context.links.remove(number);
    }
}

/// Sends the first response, or a part of it. Returns whether there may be more to send now.
fn send_next(context: &mut Context<'_>, number: LinkNumber) -> bool {
    let Some(link) = context.links.get_mut(number) else { return false };
    let LinkKind::Responses(responses) = &mut link.kind else { return false };
    let outgoing = Outgoing {
        tag: DeliveryTag::from(responses.next_tag),
        message_format: 0,
        settled: responses.settled,
        state: None,
    };
    let token = responses.line.read_token();
    let has_more = match responses.line.front() {
        None => return false,
        Some(Response::Whole(response)) => {
            if context.connection.send(link.id, &outgoing, &[&response[..]]).is_err() {
                return false;
            }
            false
        }
        Some(Response::Streamed(streamed)) => match streamed.step() {
            Step::Send { bytes, has_more } => {
                if context.connection.send_part(link.id, &outgoing, &[&bytes], has_more).is_err() {
                    return false;
                }
                streamed.note_sent();
                has_more
            }
            Step::Read { shard, body, range } => {
                if context.connection.part_room(link.id) > 0 {
                    streamed.start_read();
                    let receiver = context.peer.id.receiver(number.0);
                    let wanted = Wanted { receiver, token, body, range };
                    context.namespace.broker.fetch(shard, &context.peer, wanted);
                }
                return false;
            }
            Step::Wait => return false,
        },
    };
    if !has_more {
        responses.next_tag = responses.next_tag.wrapping_add(1);
        responses.line.pop();
    }
    true
}

/// Handles a range that was read for a response with a large message.
pub(crate) fn on_response_range(
    context: &mut Context<'_>,
    number: LinkNumber,
    token: LockToken,
    bytes: Result<Bytes, String>,
) {
    let Some(link) = context.links.get_mut(number) else { return };
    let LinkKind::Responses(responses) = &mut link.kind else { return };
    if responses.line.read_token() != token {
        return;
    }
    match (responses.line.front(), bytes) {
        (Some(Response::Streamed(streamed)), Ok(bytes)) => {
            streamed.take_read(bytes);
            send_responses(context, number);
        }
        (_, Ok(_)) => {}
        // SDK quirk: pyamqp treats an aborted delivery as a complete one, so the link must be detached.
        (_, Err(error)) => {
            tracing::error!("a message for a response cannot be read: {error}");
            let text = "a message of the response cannot be read";
            context.connection.detach(link.id, Some(AmqpError::new(condition::INTERNAL_ERROR, text)));
            context.links.remove(number);
        }
    }
}
