//! Decodes the body of a management request. The error for a missing or mistyped value names its key.

use bytes::Bytes;
use peeklock_amqp::Value;
use peeklock_types::{LockToken, SequenceNumber, SessionId, Timestamp, limits};

use crate::error::Refusal;

#[derive(Clone, Copy)]
pub(super) struct Body<'a>(pub(super) &'a Value);

impl<'a> Body<'a> {
    /// Returns a value that is present and not null.
    pub(super) fn value(self, key: &str) -> Option<&'a Value> {
        self.0.lookup(key).filter(|value| !value.is_null())
    }

    fn optional<T>(
        self,
        key: &str,
        what: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, Refusal> {
        self.value(key).map(|value| read(value).ok_or_else(|| missing(key, what))).transpose()
    }

    fn required<T>(
        self,
        key: &str,
        what: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<T, Refusal> {
        self.value(key).and_then(read).ok_or_else(|| missing(key, what))
    }

    pub(super) fn number(self, key: &str) -> Result<i64, Refusal> {
        self.required(key, "a number", Value::as_i64)
    }

    /// Returns a number of zero or more, if present.
    pub(super) fn count(self, key: &str) -> Result<Option<u64>, Refusal> {
        self.optional(key, "a number, zero or more", Value::as_u64)
    }

    /// Returns the requested number of messages: at least one, and at most the limit of one request.
    pub(super) fn message_count(self) -> Result<usize, Refusal> {
        let count = usize::try_from(self.number("message-count")?).ok().filter(|count| *count > 0);
        let count = count.ok_or_else(|| Refusal::bad_request("'message-count' must be above zero"))?;
        Ok(count.min(limits::BATCH_COUNT_MAX))
    }

    pub(super) fn text(self, key: &str) -> Result<Option<String>, Refusal> {
        let text = self.optional(key, "a text", Value::as_str)?;
        Ok(text.map(str::to_owned))
    }

    pub(super) fn boolean(self, key: &str) -> Result<Option<bool>, Refusal> {
        self.optional(key, "a boolean", Value::as_bool)
    }

    /// Returns a time. A time before 1970 is treated as 1970.
    pub(super) fn time(self, key: &str) -> Result<Option<Timestamp>, Refusal> {
        let millis = self.optional(key, "a timestamp", Value::as_timestamp)?;
        Ok(millis.map(|millis| Timestamp::from_millis(u64::try_from(millis).unwrap_or_default())))
    }

    pub(super) fn bytes(self, key: &str) -> Result<Option<Bytes>, Refusal> {
        Ok(self.optional(key, "a binary", Value::as_bytes)?.cloned())
    }

    pub(super) fn session(self) -> Result<Option<SessionId>, Refusal> {
        let id = self.optional("session-id", "a text", Value::as_str)?;
        Ok(id.map(SessionId::parse).transpose()?)
    }

    pub(super) fn required_session(self) -> Result<SessionId, Refusal> {
        self.session()?.ok_or_else(|| missing("session-id", "a text"))
    }

    pub(super) fn lock_tokens(self) -> Result<Vec<LockToken>, Refusal> {
        let token = |token: &Value| token.as_uuid().map(LockToken::from_bytes);
        self.elements("lock-tokens", "a list of uuids", token)
    }

    pub(super) fn sequence_numbers(self) -> Result<Vec<SequenceNumber>, Refusal> {
        self.elements("sequence-numbers", "a list of numbers", |value| value.as_u64().map(SequenceNumber))
    }

    /// Returns the elements of an array or list. Rejects an empty one and one above the limit.
    pub(super) fn elements<T>(
        self,
        key: &str,
        what: &str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Result<Vec<T>, Refusal> {
        let elements = self.all_elements(key, what, read)?;
        if elements.len() > limits::BATCH_COUNT_MAX {
            let (count, max) = (elements.len(), limits::BATCH_COUNT_MAX);
            return Err(Refusal::bad_request(format!(
                "'{key}' has {count} elements; at most {max} are allowed"
            )));
        }
        Ok(elements)
    }

    /// Returns the elements of an array or list without a limit on their number.
    pub(super) fn all_elements<T>(
        self,
        key: &str,
        what: &str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Result<Vec<T>, Refusal> {
        let elements = self.required(key, "a list with at least one element", |value| {
            value.as_elements().filter(|elements| !elements.is_empty())
        })?;
        let elements = elements.iter().map(read).collect::<Option<Vec<_>>>();
        elements.ok_or_else(|| missing(key, what))
    }

    /// Returns the properties that a settlement sets.
    pub(super) fn properties(self) -> Result<Vec<(Value, Value)>, Refusal> {
        let key = "properties-to-modify";
        let properties = self.optional(key, "a map with texts for keys", |value| {
            value.as_map().filter(|map| map.iter().all(|(key, _)| key.as_str().is_some()))
        })?;
        Ok(properties.unwrap_or_default().to_vec())
    }
}

pub(super) fn missing(key: &str, what: &str) -> Refusal {
    Refusal::bad_request(format!("the request's body has no '{key}' that is {what}"))
}
