//! Requests to a `$management` node: peek, locks, deferred and scheduled messages, sessions, purge.

use std::sync::Arc;

use bytes::Bytes;
use peeklock_amqp::{Array, Body, Encode, Message, Text, Value, condition};
use peeklock_types::{LockToken, SequenceNumber, Timestamp};

use crate::error::{Error, MalformedReason};
use crate::outcome::Outcome;
use crate::received::ReceivedMessage;
use crate::receiver::ReceiveMode;
use crate::shared::Shared;

/// A management node of one entity.
pub(crate) struct Management<'a> {
    shared: &'a Shared,
    /// The name that errors contain.
    entity: Arc<str>,
    node: Arc<str>,
    transaction: Option<Bytes>,
    session: Option<Text>,
}

/// The status of a successful response without a body.
const NO_CONTENT: i32 = 204;

/// A successful response.
struct Response {
    status: i32,
    body: Value,
}

impl<'a> Management<'a> {
    pub(crate) async fn open(shared: &'a Shared, entity: &str) -> Result<Self, Error> {
        let node = format!("{entity}/$management").into();
        let entity: Arc<str> = entity.into();
        shared.authorize(&entity).await?;
        Ok(Self { shared, entity, node, transaction: None, session: None })
    }

    /// Makes settlements part of a transaction.
    pub(crate) fn in_transaction(mut self, id: &Bytes) -> Self {
        self.transaction = Some(id.clone());
        self
    }

    /// Names the session of the messages that are settled.
    pub(crate) fn in_session(mut self, id: &str) -> Self {
        self.session = Some(id.to_owned().into());
        self
    }

    /// Sends a request and returns the map in its response.
    pub(crate) async fn call(&self, operation: &str, body: Vec<(Value, Value)>) -> Result<Value, Error> {
        self.ask(operation, body).await.map(|response| response.body)
    }

    /// Reads the properties of an entity of this type.
    pub(crate) async fn read(&self, of_type: &str) -> Result<Value, Error> {
        let request = Message::value(Value::Map(Vec::new())).with_property("type", of_type.to_owned());
        self.send("READ", request).await.map(|response| response.body)
    }

    async fn ask(&self, operation: &str, body: Vec<(Value, Value)>) -> Result<Response, Error> {
        self.send(operation, Message::value(Value::Map(body))).await
    }

    async fn send(&self, operation: &str, request: Message) -> Result<Response, Error> {
        let request = request.with_property("operation", operation.to_owned());
        let transaction = self.transaction.clone();
        let response = self.shared.request(&self.node, operation, request, transaction).await?;
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
            condition::MESSAGE_LOCK_LOST => Error::LockLost { entity, reason },
            condition::SESSION_LOCK_LOST => Error::SessionLockLost { entity, reason },
            condition::NOT_FOUND => Error::not_found(&entity),
            condition::UNAUTHORIZED_ACCESS => Error::Unauthorized { entity, reason },
            _ => Error::Refused { operation: operation.into(), entity, status, condition, reason },
        }
    }

    pub(crate) fn missing(&self, what: &'static str) -> Error {
        Error::malformed(&self.entity, MalformedReason::Missing(what))
    }

    pub(crate) async fn peek(
        &self,
        from: SequenceNumber,
        count: u32,
        session: Option<&str>,
    ) -> Result<Vec<ReceivedMessage>, Error> {
        let from = i64::try_from(from.0).unwrap_or(i64::MAX);
        let count = i32::try_from(count).unwrap_or(i32::MAX);
        let mut body =
            vec![("from-sequence-number".into(), from.into()), ("message-count".into(), count.into())];
        body.extend(session.map(session_entry));
        let response = self.ask("com.microsoft:peek-message", body).await?;
        self.messages(&response)
    }

    pub(crate) async fn receive_deferred(
        &self,
        numbers: &[SequenceNumber],
        mode: ReceiveMode,
        session: Option<&str>,
    ) -> Result<Vec<ReceivedMessage>, Error> {
        let settle_mode: u32 = if mode == ReceiveMode::PeekLock { 1 } else { 0 };
        let mut body = vec![number_array(numbers), ("receiver-settle-mode".into(), settle_mode.into())];
        body.extend(session.map(session_entry));
        let response = self.ask("com.microsoft:receive-by-sequence-number", body).await?;
        self.messages(&response)
    }

    fn messages(&self, response: &Response) -> Result<Vec<ReceivedMessage>, Error> {
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
        let millis = expirations.ok_or_else(|| self.missing("expirations"))?.iter().map(time);
        millis.collect::<Option<_>>().ok_or_else(|| self.missing("expirations"))
    }

    pub(crate) async fn schedule(&self, messages: &[Message]) -> Result<Vec<SequenceNumber>, Error> {
        let body = vec![("messages".into(), Value::List(messages.iter().map(scheduled).collect()))];
        let response = self.call("com.microsoft:schedule-message", body).await?;
        let numbers = response.lookup("sequence-numbers").and_then(Value::as_elements);
        let numbers = numbers.unwrap_or_default().iter().map(|number| number.as_u64().map(SequenceNumber));
        let numbers: Option<Vec<_>> = numbers.collect();
        let is_whole = |numbers: &Vec<_>| numbers.len() == messages.len();
        numbers.filter(is_whole).ok_or_else(|| self.missing("sequence-numbers"))
    }

    pub(crate) async fn cancel_scheduled(&self, numbers: &[SequenceNumber]) -> Result<(), Error> {
        self.call("com.microsoft:cancel-scheduled-message", vec![number_array(numbers)]).await.map(|_| ())
    }

    pub(crate) async fn renew_session(&self, session: &str) -> Result<Timestamp, Error> {
        let body = vec![session_entry(session)];
        let response = self.call("com.microsoft:renew-session-lock", body).await?;
        response.lookup("expiration").and_then(time).ok_or_else(|| self.missing("expiration"))
    }

    pub(crate) async fn session_state(&self, session: &str) -> Result<Option<Bytes>, Error> {
        let response = self.call("com.microsoft:get-session-state", vec![session_entry(session)]).await?;
        match response.lookup("session-state") {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Binary(state)) => Ok(Some(state.clone())),
            Some(_) => Err(self.missing("session-state")),
        }
    }

    pub(crate) async fn set_session_state(&self, session: &str, state: Option<Bytes>) -> Result<(), Error> {
        let state = ("session-state".into(), state.map_or(Value::Null, Value::Binary));
        let body = vec![session_entry(session), state];
        self.call("com.microsoft:set-session-state", body).await.map(|_| ())
    }

    /// Returns one page of session ids. The last page is empty.
    pub(crate) async fn sessions(
        &self,
        updated_since: Option<Timestamp>,
        skip: usize,
        top: i32,
    ) -> Result<Vec<String>, Error> {
        /// The first moment of the year 10000. Service Bus returns all sessions that have messages for it.
        const WITH_MESSAGES: Timestamp = Timestamp::from_millis(253_402_300_800_000);
        let body = vec![
            ("last-updated-time".into(), time_value(updated_since.unwrap_or(WITH_MESSAGES))),
            ("skip".into(), i32::try_from(skip).unwrap_or(i32::MAX).into()),
            ("top".into(), top.into()),
        ];
        let response = self.ask("com.microsoft:get-message-sessions", body).await?;
        if response.status == NO_CONTENT {
            return Ok(Vec::new());
        }
        let ids = response.body.lookup("sessions-ids").and_then(Value::as_elements);
        let ids = ids.ok_or_else(|| self.missing("sessions-ids"))?.iter();
        let ids: Option<_> = ids.map(|id| id.as_str().map(str::to_owned)).collect();
        ids.ok_or_else(|| self.missing("sessions-ids"))
    }

    pub(crate) async fn purge(&self, before: Option<Timestamp>) -> Result<u64, Error> {
        let body = before.map(|before| ("before".into(), time_value(before)));
        let response = self.call("peeklock:purge", body.into_iter().collect()).await?;
        response.lookup("message-count").and_then(Value::as_u64).ok_or_else(|| self.missing("message-count"))
    }

    pub(crate) async fn settle(&self, tokens: &[LockToken], outcome: Outcome) -> Result<(), Error> {
        let mut body = vec![
            ("disposition-status".into(), outcome.status().into()),
            ("lock-tokens".into(), token_array(tokens)),
        ];
        body.extend(outcome.into_entries());
        body.extend(self.session.as_ref().map(|id| session_entry(id.as_str())));
        self.call("com.microsoft:update-disposition", body).await.map(|_| ())
    }
}

fn session_entry(id: &str) -> (Value, Value) {
    ("session-id".into(), id.to_owned().into())
}

fn number_array(numbers: &[SequenceNumber]) -> (Value, Value) {
    let numbers = Array::longs(numbers.iter().map(|number| i64::try_from(number.0).unwrap_or(i64::MAX)));
    ("sequence-numbers".into(), numbers.into())
}

fn time(value: &Value) -> Option<Timestamp> {
    value.as_timestamp().and_then(|millis| u64::try_from(millis).ok()).map(Timestamp::from_millis)
}

fn time_value(at: Timestamp) -> Value {
    Value::Timestamp(i64::try_from(at.as_millis()).unwrap_or(i64::MAX))
}

/// Encodes a message for a request to schedule it.
fn scheduled(message: &Message) -> Value {
    let properties = &message.properties;
    let id = properties.message_id.clone().map(|id| ("message-id".into(), id.into()));
    let session = properties.group_id.as_ref().map(|id| session_entry(id.as_str()));
    let mut entries = vec![("message".into(), message.to_bytes().into())];
    entries.extend(id.into_iter().chain(session));
    Value::Map(entries)
}

fn token_array(tokens: &[LockToken]) -> Value {
    Array::uuids(tokens.iter().map(|token| token.to_bytes())).into()
}
