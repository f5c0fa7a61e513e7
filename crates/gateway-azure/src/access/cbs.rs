//! The token service: `$cbs`.

use bytes::Bytes;
use peeklock_access::without_management;
use peeklock_amqp::Value;
use peeklock_amqp::connection::SessionId;
use peeklock_broker::request::entities::Find;
use peeklock_broker::{Error, Named};
use peeklock_types::{EntityName, EntityPath, SubQueue};
use rustc_hash::FxHashMap;

use crate::access::Access;
use crate::connection::address::Node;
use crate::connection::context::Context;
use crate::connection::link::Service;
use crate::connection::request::FindWaiter;
use crate::error::{Refusal, refusal};
use crate::hub::consumer_group_of;
use crate::management::ReplyTo;
use crate::management::respond::{respond, response_link, take_place};
use crate::message::RequestMessage;
use crate::queue_group::join::queue_group_of;
use crate::transaction::Transactions;

/// The limit on tokens of one connection whose entities are being looked up.
const PENDING_MAX: usize = 10_000;

/// Responses to put-token that wait for a shard.
#[derive(Default)]
pub(crate) struct PendingTokens {
    waiting: FxHashMap<u32, (ReplyTo, EntityName)>,
    next: u32,
}

impl Access {
    pub(crate) fn on_token(
        &mut self,
        context: &mut Context<'_>,
        transactions: &mut Transactions,
        session: SessionId,
        payload: &Bytes,
    ) -> Result<(), Refusal> {
        let request = RequestMessage::decode(payload).map_err(|error| Refusal::unreadable(&error))?;
        let link = response_link(context, session, &Service::Cbs, request.reply_to.as_deref());
        let Some((link, place)) = link.and_then(|link| Some((link, take_place(context, link)?))) else {
            return Err(Refusal::no_way_back(request.reply_to.as_deref()));
        };
        let reply_to = ReplyTo { link, place, correlation: request.message_id.clone() };
        match self.put_token(context, transactions, &request) {
            Ok(Some(name)) if self.tokens.waiting.len() < PENDING_MAX => {
                self.look_for(context, reply_to, name)
            }
            Ok(_) => self.respond_to_token(context, reply_to, Ok(())),
            Err(reason) => self.respond_to_token(context, reply_to, Err((401, reason))),
        }
        Ok(())
    }

    /// Accepts the token and returns its entity. Returns `None` if no lookup is required.
    fn put_token(
        &mut self,
        context: &mut Context<'_>,
        transactions: &mut Transactions,
        request: &RequestMessage,
    ) -> Result<Option<EntityName>, String> {
        match request.property("operation").and_then(Value::as_str) {
            Some("put-token") => {}
            other => return Err(format!("$cbs knows the operation put-token, not {other:?}")),
        }
        let audience = request.property("name").and_then(Value::as_str).ok_or("the request has no 'name'")?;
        let token = request.body.as_str().ok_or("the request's body is not a token")?;
        // The 'type' is ignored. SDK quirk: Python labels its shared access signatures 'jwt'.
        self.take_token(context, transactions, token, audience)?;
        Ok(entity_of(audience).filter(|path| queue_group_of(context, path).is_none()).map(|path| path.name))
    }

    /// Looks up the entity of a token that was accepted. Only peers with a valid token may find out whether an entity
    /// exists.
    fn look_for(&mut self, context: &mut Context<'_>, reply_to: ReplyTo, name: EntityName) {
        let number = self.tokens.next;
        // Far fewer than 2^32 lookups are in flight at a time, so a number is free again when the counter wraps around.
        self.tokens.next = number.wrapping_add(1);
        self.tokens.waiting.insert(number, (reply_to, name.clone()));
        let shard = context.namespace.broker.place(&name);
        context.ask(shard, FindWaiter::Token(number), Find { name });
    }

    /// Handles the shard's answer on whether the entity of a token exists. Everything else is checked when
    /// a link attaches to the entity.
    pub(crate) fn on_token_answer(
        &mut self,
        context: &mut Context<'_>,
        number: u32,
        result: Result<Named, Error>,
    ) {
        let Some((reply_to, name)) = self.tokens.waiting.remove(&number) else { return };
        let path = EntityPath { name, sub_queue: SubQueue::Main };
        let refused =
            result.err().map(|error| refusal(&error, Some(&path))).filter(|found| found.status == 404);
        let result = refused.map_or(Ok(()), |refusal| Err((404, refusal.at(&context.host).description)));
        self.respond_to_token(context, reply_to, result);
    }

    /// Sends the response to put-token.
    /// SDK quirk: the response contains no error condition, because SDKs show the description only without one: Python
    /// drops it and prints `amqp:client-error`, and JavaScript retries after the service's `com.microsoft:auth-failed`
    /// and ends with an error without text. Python, JavaScript, Go, Java and .NET all understand the status.
    fn respond_to_token(
        &mut self,
        context: &mut Context<'_>,
        reply_to: ReplyTo,
        result: Result<(), (i32, String)>,
    ) {
        let (status, description) = match result {
            // SDK quirk: azservicebus for Rust accepts only 202 as success.
            Ok(()) => (202, "Accepted".to_owned()),
            Err(refused) => refused,
        };
        let properties =
            vec![("status-code", Value::Int(status)), ("status-description", Value::from(description))];
        respond(context, reply_to, properties, Value::Null);
    }
}

/// Returns the entity that an audience names. Returns `None` for the namespace, and for names that no entity can have:
/// links to those are rejected.
fn entity_of(audience: &str) -> Option<EntityPath> {
    let path = peeklock_access::normalize(audience);
    // SDK quirk: Python puts its tokens for a consumer group, which cannot be the address of a link.
    let group = consumer_group_of(without_management(&path).unwrap_or(&path));
    match Node::parse(group.map_or(&path, |(hub, _)| hub)) {
        Ok(Node::Entity(path)) => Some(path),
        Ok(Node::Management(path)) => path,
        Ok(Node::Hub(address)) => Some(EntityPath { name: address.hub, sub_queue: SubQueue::Main }),
        Ok(Node::Cbs) | Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn audiences_map_to_their_entities() {
        let cases = [
            ("amqp://host/orders", Some("orders")),
            ("sb://host:5672/orders/", Some("orders")),
            ("http://host/orders", Some("orders")),
            ("https://host/my%2Forders/$management", Some("my/orders")),
            ("amqps://host/orders/$DeadLetterQueue", Some("orders")),
            ("sb://host/news/Subscriptions/a/$deadletterqueue/$management", Some("news/Subscriptions/a")),
            ("http://host/clicks/ConsumerGroups/%24Default/Partitions/0/", Some("clicks")),
            ("amqps://host/clicks/ConsumerGroups/$Default", Some("clicks")),
            ("sb://host/shop/clicks/consumergroups/one", Some("shop/clicks")),
            ("amqps://host/clicks/ConsumerGroups/$Default/$management", Some("clicks")),
            ("sb://host/clicks/Publishers/till", Some("clicks")),
            ("sb://host/", None),
            ("amqps://host:5671", None),
            ("sb://host/$management", None),
            ("sb://host/$cbs", None),
            ("sb://host/no name", None),
        ];
        for (audience, name) in cases {
            let found = entity_of(audience).map(|path| path.name.to_string());
            assert_eq!(found.as_deref(), name, "{audience}");
        }
    }
}
