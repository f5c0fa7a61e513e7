//! Requests to a `$management` node: peek, locks, deferred messages.

use std::sync::Arc;

use peeklock_amqp::{Array, Body, Message, Value};
use peeklock_types::{LockToken, SequenceNumber, Timestamp};

use crate::error::{Error, MalformedReason};
use crate::outcome::Outcome;
use crate::received::ReceivedMessage;
use crate::receiver::ReceiveMode;
use crate::shared::Shared;

/// One management node.
pub(crate) struct Management<'a> {
    shared: &'a Shared,
    /// For messages to people.
    entity: Arc<str>,
    node: Arc<str>,
}

/// A response that is not a refusal.
struct Response {
    status: i32,
    body: Value,
}

impl<'a> Management<'a> {
    /// Of an entity, or with `""` of the namespace.
    pub(crate) async fn open(shared: &'a Shared, entity: &str) -> Result<Self, Error> {
        let node =
            if entity.is_empty() { "$management".into() } else { format!("{entity}/$management").into() };
        let entity: Arc<str> = entity.into();
        shared.authorize(&entity).await?;
        Ok(Self { shared, entity, node })
    }

    /// Sends a request; the map of its response.
    pub(crate) async fn call(&self, operation: &str, body: Vec<(Value, Value)>) -> Result<Value, Error> {
        self.ask(operation, body).await.map(|response| response.body)
    }

    async fn ask(&self, operation: &str, body: Vec<(Value, Value)>) -> Result<Response, Error> {
        let request = Message::value(Value::Map(body)).with_property("operation", operation.to_owned());
        let response = self.shared.request(&self.node, operation, request).await?;
        let status = response.property("statusCode").and_then(Value::as_i32);
        let status = status.ok_or_else(|| self.missing("statusCode"))?;
        if !(200..300).contains(&status) {
            return Err(self.refusal(operation, status, &response));
        }
        let body = if let Body::Value(value) = response.body { value } else { Value::Null };
        Ok(Response { status, body })
    }

    fn refusal(&self, operation: &str, status: i32, response: &Message) -> Error {
        let text = |key: &str| response.property(key).and_then(Value::as_str).unwrap_or_default();
        let (condition, reason): (Arc<str>, Arc<str>) =
            (text("errorCondition").into(), text("statusDescription").into());
        let entity = Arc::clone(&self.entity);
        match &*condition {
            peeklock_amqp::condition::MESSAGE_LOCK_LOST => Error::LockLost { entity, reason },
            peeklock_amqp::condition::UNAUTHORIZED_ACCESS => Error::Unauthorized { entity, reason },
            _ => Error::Refused { operation: operation.into(), entity, status, condition, reason },
        }
    }

    pub(crate) fn missing(&self, what: &'static str) -> Error {
        Error::malformed(&self.entity, MalformedReason::Missing(what))
    }

    pub(crate) async fn peek(&self, from: SequenceNumber, count: u32) -> Result<Vec<ReceivedMessage>, Error> {
        let from = i64::try_from(from.0).unwrap_or(i64::MAX);
        let count = i32::try_from(count).unwrap_or(i32::MAX);
        let body = vec![("from-sequence-number".into(), from.into()), ("message-count".into(), count.into())];
        let response = self.ask("com.microsoft:peek-message", body).await?;
        self.messages(&response)
    }

    pub(crate) async fn receive_deferred(
        &self,
        numbers: &[SequenceNumber],
        mode: ReceiveMode,
    ) -> Result<Vec<ReceivedMessage>, Error> {
        let numbers = Array::longs(numbers.iter().map(|number| i64::try_from(number.0).unwrap_or(i64::MAX)));
        let settle_mode: u32 = if mode == ReceiveMode::PeekLock { 1 } else { 0 };
        let body = vec![
            ("sequence-numbers".into(), numbers.into()),
            ("receiver-settle-mode".into(), settle_mode.into()),
        ];
        let response = self.ask("com.microsoft:receive-by-sequence-number", body).await?;
        self.messages(&response)
    }

    fn messages(&self, response: &Response) -> Result<Vec<ReceivedMessage>, Error> {
        const NO_CONTENT: i32 = 204;
        if response.status == NO_CONTENT {
            return Ok(Vec::new());
        }
        let messages = response.body.lookup("messages").and_then(Value::as_elements);
        messages.ok_or_else(|| self.missing("messages"))?.iter().map(|entry| self.message(entry)).collect()
    }

    fn message(&self, entry: &Value) -> Result<ReceivedMessage, Error> {
        let payload =
            entry.lookup("message").and_then(Value::as_bytes).ok_or_else(|| self.missing("message"))?;
        let lock_token = entry.lookup("lock-token").and_then(Value::as_uuid).map(LockToken::from_bytes);
        ReceivedMessage::decode(&self.entity, payload, lock_token)
    }

    pub(crate) async fn renew(&self, tokens: &[LockToken]) -> Result<Vec<Timestamp>, Error> {
        let body = vec![("lock-tokens".into(), token_array(tokens))];
        let response = self.call("com.microsoft:renew-lock", body).await?;
        let expirations = response.lookup("expirations").and_then(Value::as_elements);
        let millis = expirations.ok_or_else(|| self.missing("expirations"))?.iter().map(|value| {
            value.as_timestamp().and_then(|millis| u64::try_from(millis).ok()).map(Timestamp::from_millis)
        });
        millis.collect::<Option<_>>().ok_or_else(|| self.missing("expirations"))
    }

    pub(crate) async fn settle(&self, tokens: &[LockToken], outcome: Outcome) -> Result<(), Error> {
        let mut body = vec![
            ("disposition-status".into(), outcome.status().into()),
            ("lock-tokens".into(), token_array(tokens)),
        ];
        if let Outcome::DeadLetter { reason, description } = outcome {
            body.push(("deadletter-reason".into(), reason.into()));
            body.push(("deadletter-description".into(), description.into()));
        }
        self.call("com.microsoft:update-disposition", body).await.map(|_| ())
    }
}

fn token_array(tokens: &[LockToken]) -> Value {
    Array::uuids(tokens.iter().map(|token| token.to_bytes())).into()
}
