//! What shards have answered, as the body of a management response.

use peeklock_amqp::{Array, Kind, Text, Value};
use peeklock_broker::{Answer, Message};
use peeklock_message::{encode_whole, timestamp};
use peeklock_types::{SequenceNumber, SessionId, Timestamp};

use super::rules;

/// The form of the response to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnswerKind {
    Done,
    Expirations,
    SessionExpiration,
    Peeked { omit_body: bool },
    Received,
    Scheduled,
    Sessions { skip: usize },
    SessionState,
    Deleted,
    Purged,
    Rules,
}

/// Status, its description, and the body.
pub(super) type Described = (i32, &'static str, Value);

/// SDKs are particular about types: a list where they expect an array is an error, and the other way round.
pub(super) fn describe(kind: AnswerKind, answers: Vec<Answer>) -> Described {
    match kind {
        AnswerKind::Done => ok(Vec::new()),
        AnswerKind::Expirations => {
            let times = expirations(&answers).map(|at| Value::Timestamp(timestamp(at))).collect();
            let array = Array::new(Kind::Timestamp, times).map_or(Value::Null, Value::Array);
            ok(vec![("expirations", array)])
        }
        AnswerKind::SessionExpiration => {
            let until = expirations(&answers).next().unwrap_or_default();
            ok(vec![("expiration", Value::Timestamp(timestamp(until)))])
        }
        AnswerKind::Peeked { omit_body } => describe_messages(&answers, omit_body),
        AnswerKind::Received => describe_messages(&answers, false),
        AnswerKind::Scheduled => {
            let numbers =
                answers.iter().flat_map(scheduled).map(|number| i64::try_from(number.0).unwrap_or(i64::MAX));
            ok(vec![("sequence-numbers", Value::Array(Array::longs(numbers)))])
        }
        AnswerKind::Sessions { skip } => describe_sessions(skip, &answers),
        AnswerKind::SessionState => {
            let state = answers.into_iter().find_map(|answer| match answer {
                Answer::State(state) => state,
                _ => None,
            });
            ok(vec![("session-state", state.map_or(Value::Null, Value::Binary))])
        }
        AnswerKind::Deleted if count(&answers) == 0 => (204, "No messages", map(Vec::new())),
        AnswerKind::Deleted => {
            let count = i32::try_from(count(&answers)).unwrap_or(i32::MAX);
            ok(vec![("message-count", Value::Int(count))])
        }
        AnswerKind::Purged => ok(vec![("message-count", Value::Ulong(count(&answers)))]),
        AnswerKind::Rules => rules::describe(&answers),
    }
}

pub(super) const OK: (i32, &str) = (200, "OK");

pub(super) fn ok(entries: Vec<(&'static str, Value)>) -> Described {
    (OK.0, OK.1, map(entries))
}

/// The messages of an answer that cannot be held whole, because one of them is large.
pub(super) fn large_messages(kind: AnswerKind, answers: &[Answer]) -> Option<Vec<&Message>> {
    if !matches!(kind, AnswerKind::Received | AnswerKind::Peeked { omit_body: false }) {
        return None;
    }
    let is_large = answers.iter().flat_map(messages).any(|message| message.rest.is_some());
    is_large.then(|| answers.iter().flat_map(messages).collect())
}

pub(super) fn map(entries: Vec<(&'static str, Value)>) -> Value {
    Value::Map(entries.into_iter().map(|(key, value)| (Value::from(key), value)).collect())
}

fn expirations(answers: &[Answer]) -> impl Iterator<Item = Timestamp> {
    answers
        .iter()
        .flat_map(|answer| match answer {
            Answer::Renewed(times) => &times[..],
            _ => &[],
        })
        .copied()
}

fn scheduled(answer: &Answer) -> &[SequenceNumber] {
    if let Answer::Scheduled(numbers) = answer { numbers } else { &[] }
}

fn sessions(answer: &Answer) -> &[SessionId] {
    if let Answer::Sessions(sessions) = answer { sessions } else { &[] }
}

fn messages(answer: &Answer) -> &[Message] {
    if let Answer::Messages(messages) = answer { messages } else { &[] }
}

fn count(answers: &[Answer]) -> u64 {
    answers.iter().map(|answer| if let Answer::Count(count) = answer { *count } else { 0 }).sum()
}

fn describe_messages(answers: &[Answer], omit_body: bool) -> Described {
    let mut found = answers.iter().flat_map(messages).peekable();
    if found.peek().is_none() {
        return (204, "No messages", map(Vec::new()));
    }
    let messages = found.filter_map(|message| describe_message(message, omit_body)).collect();
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

fn describe_sessions(skip: usize, answers: &[Answer]) -> Described {
    let ids: Vec<_> =
        answers.iter().flat_map(sessions).map(|id| Text::from(id.as_str().to_owned())).collect();
    if ids.is_empty() {
        return (204, "No sessions", map(Vec::new()));
    }
    let skip = Value::Int(i32::try_from(skip).unwrap_or(i32::MAX));
    ok(vec![("skip", skip), ("sessions-ids", Value::Array(Array::strings(ids)))])
}
