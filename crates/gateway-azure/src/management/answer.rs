//! Answers of shards, as the body of a management response.
//!
//! SDKs require exact types: a list in place of an array is an error, and the reverse.

use bytes::Bytes;
use peeklock_amqp::{Array, Kind, Text, Value};
use peeklock_broker::{Message, RuleInfo};
use peeklock_message::{encode_whole, timestamp};
use peeklock_types::{SequenceNumber, SessionId, Timestamp};

use super::rules;

/// The properties of a request that determine the form of its response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Form {
    pub(super) omit_body: bool,
    /// The number of sessions that the response skips.
    pub(super) skip: usize,
    /// The request is `peeklock:purge`, which SDKs do not send.
    pub(super) is_purge: bool,
}

/// The content of a response.
pub(crate) enum Content {
    Described(Described),
    Messages { found: Vec<Message>, omit_body: bool },
}

/// The status, its description, and the body.
pub(super) type Described = (i32, &'static str, Value);

impl Content {
    pub(crate) fn done() -> Self {
        Content::Described(ok(Vec::new()))
    }

    pub(crate) fn expirations(times: &[Timestamp]) -> Self {
        let times = times.iter().map(|at| Value::Timestamp(timestamp(*at))).collect();
        let array = Array::new(Kind::Timestamp, times).map_or(Value::Null, Value::Array);
        Content::Described(ok(vec![("expirations", array)]))
    }

    pub(crate) fn session_expiration(until: Timestamp) -> Self {
        Content::Described(ok(vec![("expiration", Value::Timestamp(timestamp(until)))]))
    }

    pub(crate) fn peeked(form: Form, found: Vec<Message>) -> Self {
        Content::Messages { found, omit_body: form.omit_body }
    }

    pub(crate) fn received(found: Vec<Message>) -> Self {
        Content::Messages { found, omit_body: false }
    }

    pub(crate) fn scheduled(numbers: &[SequenceNumber]) -> Self {
        let numbers = numbers.iter().map(|number| i64::try_from(number.0).unwrap_or(i64::MAX));
        Content::Described(ok(vec![("sequence-numbers", Value::Array(Array::longs(numbers)))]))
    }

    pub(crate) fn sessions(form: Form, sessions: &[SessionId]) -> Self {
        if sessions.is_empty() {
            return Content::Described((204, "No sessions", map(Vec::new())));
        }
        let ids = sessions.iter().map(|id| Text::from(id.as_str().to_owned()));
        let skip = Value::Int(i32::try_from(form.skip).unwrap_or(i32::MAX));
        Content::Described(ok(vec![("skip", skip), ("sessions-ids", Value::Array(Array::strings(ids)))]))
    }

    pub(crate) fn state(state: Option<Bytes>) -> Self {
        Content::Described(ok(vec![("session-state", state.map_or(Value::Null, Value::Binary))]))
    }

    /// Returns the content with the number of deleted messages.
    pub(crate) fn deleted(form: Form, count: u64) -> Self {
        Content::Described(match count {
            count if form.is_purge => ok(vec![("message-count", Value::Ulong(count))]),
            0 => (204, "No messages", map(Vec::new())),
            count => ok(vec![("message-count", Value::Int(i32::try_from(count).unwrap_or(i32::MAX)))]),
        })
    }

    pub(crate) fn rules(rules: &[RuleInfo]) -> Self {
        Content::Described(rules::describe(rules))
    }
}

pub(super) const OK: (i32, &str) = (200, "OK");

pub(super) fn ok(entries: Vec<(&'static str, Value)>) -> Described {
    (OK.0, OK.1, map(entries))
}

pub(super) fn map(entries: Vec<(&'static str, Value)>) -> Value {
    Value::Map(entries.into_iter().map(|(key, value)| (Value::from(key), value)).collect())
}

pub(super) fn describe_messages(found: &[Message], omit_body: bool) -> Described {
    if found.is_empty() {
        return (204, "No messages", map(Vec::new()));
    }
    let messages = found.iter().filter_map(|message| describe_message(message, omit_body)).collect();
    ok(vec![("messages", Value::List(messages))])
}

fn describe_message(found: &Message, omit_body: bool) -> Option<Value> {
    let encoded = match encode_whole(&found.message, found.token, &found.body, omit_body) {
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
