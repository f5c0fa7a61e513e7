//! The settings of a queue, one by one: as changes to a queue, and as management requests and responses spell them.

use std::time::Duration;

use peeklock_amqp::Value;
use peeklock_types::{EntityName, PoisonSession, QueueSettings, QueueStatus, RetryPolicy};

/// The states of a queue with their names.
pub const QUEUE_STATUSES: [(&str, QueueStatus); 4] = [
    ("active", QueueStatus::Active),
    ("send-disabled", QueueStatus::SendDisabled),
    ("receive-disabled", QueueStatus::ReceiveDisabled),
    ("disabled", QueueStatus::Disabled),
];

/// What may become of a session with a poison message, with their names.
pub const POISON_SESSIONS: [(&str, PoisonSession); 3] = [
    ("dead-letter", PoisonSession::DeadLetter),
    ("block", PoisonSession::Block),
    ("set-aside", PoisonSession::SetAside),
];

/// One setting of a queue with its value. The meaning of each is told at the field of [`QueueSettings`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Setting {
    LockDuration(Duration),
    MaxDeliveryCount(u32),
    RequiresSession(bool),
    DefaultTimeToLive(Option<Duration>),
    DeadLetterOnExpiration(bool),
    AutoDeleteOnIdle(Option<Duration>),
    DuplicateWindow(Option<Duration>),
    MaxSizeBytes(Option<u64>),
    MaxMessageSizeBytes(u32),
    Status(QueueStatus),
    ForwardTo(Option<EntityName>),
    ForwardDeadLettersTo(Option<EntityName>),
    Retry(RetryPolicy),
    PoisonSession(PoisonSession),
}

impl Setting {
    /// All settings of a queue.
    pub fn all(settings: &QueueSettings) -> Vec<Setting> {
        // Taken apart by name, so that a new setting cannot be forgotten here.
        let QueueSettings {
            lock_duration,
            max_delivery_count,
            requires_session,
            default_time_to_live,
            dead_letter_on_expiration,
            auto_delete_on_idle,
            duplicate_window,
            max_size_bytes,
            max_message_size_bytes,
            status,
            forward_to,
            forward_dead_letters_to,
            retry,
            poison_session,
            // Not spoken of over AMQP.
            dead_letter_on_filter_error: _,
            batched_operations: _,
            user_metadata: _,
        } = settings.clone();
        vec![
            Setting::LockDuration(lock_duration),
            Setting::MaxDeliveryCount(max_delivery_count),
            Setting::RequiresSession(requires_session),
            Setting::DefaultTimeToLive(default_time_to_live),
            Setting::DeadLetterOnExpiration(dead_letter_on_expiration),
            Setting::AutoDeleteOnIdle(auto_delete_on_idle),
            Setting::DuplicateWindow(duplicate_window),
            Setting::MaxSizeBytes(max_size_bytes),
            Setting::MaxMessageSizeBytes(max_message_size_bytes),
            Setting::Status(status),
            Setting::ForwardTo(forward_to),
            Setting::ForwardDeadLettersTo(forward_dead_letters_to),
            Setting::Retry(retry),
            Setting::PoisonSession(poison_session),
        ]
    }

    /// Those that a queue would not have if nobody had said anything.
    pub fn unusual(settings: &QueueSettings) -> Vec<Setting> {
        let usual = Setting::all(&QueueSettings::default());
        Setting::all(settings).into_iter().filter(|setting| !usual.contains(setting)).collect()
    }

    pub fn apply(self, settings: &mut QueueSettings) {
        match self {
            Setting::LockDuration(value) => settings.lock_duration = value,
            Setting::MaxDeliveryCount(value) => settings.max_delivery_count = value,
            Setting::RequiresSession(value) => settings.requires_session = value,
            Setting::DefaultTimeToLive(value) => settings.default_time_to_live = value,
            Setting::DeadLetterOnExpiration(value) => settings.dead_letter_on_expiration = value,
            Setting::AutoDeleteOnIdle(value) => settings.auto_delete_on_idle = value,
            Setting::DuplicateWindow(value) => settings.duplicate_window = value,
            Setting::MaxSizeBytes(value) => settings.max_size_bytes = value,
            Setting::MaxMessageSizeBytes(value) => settings.max_message_size_bytes = value,
            Setting::Status(value) => settings.status = value,
            Setting::ForwardTo(value) => settings.forward_to = value,
            Setting::ForwardDeadLettersTo(value) => settings.forward_dead_letters_to = value,
            Setting::Retry(value) => settings.retry = value,
            Setting::PoisonSession(value) => settings.poison_session = value,
        }
    }

    /// Adds the setting to the body of a request.
    pub(crate) fn encode(&self, body: &mut Vec<(Value, Value)>) {
        let entry = match self {
            Setting::LockDuration(value) => ("lock-duration-ms", millis(*value)),
            Setting::MaxDeliveryCount(value) => ("max-delivery-count", (*value).into()),
            Setting::RequiresSession(value) => ("requires-session", (*value).into()),
            Setting::DefaultTimeToLive(value) => ("default-time-to-live-ms", or_null(*value, millis)),
            Setting::DeadLetterOnExpiration(value) => ("dead-letter-on-expiration", (*value).into()),
            Setting::AutoDeleteOnIdle(value) => ("auto-delete-on-idle-ms", or_null(*value, millis)),
            Setting::DuplicateWindow(value) => ("duplicate-window-ms", or_null(*value, millis)),
            Setting::MaxSizeBytes(value) => ("max-size-bytes", or_null(*value, Value::Ulong)),
            Setting::MaxMessageSizeBytes(value) => ("max-message-size-bytes", (*value).into()),
            Setting::Status(value) => ("status", word_of(&QUEUE_STATUSES, *value).into()),
            Setting::ForwardTo(value) => ("forward-to", or_null(value.as_ref(), name)),
            Setting::ForwardDeadLettersTo(value) => {
                ("forward-dead-letters-to", or_null(value.as_ref(), name))
            }
            Setting::PoisonSession(value) => ("poison-session", word_of(&POISON_SESSIONS, *value).into()),
            Setting::Retry(value) => return encode_retry(*value, body),
        };
        body.push((entry.0.into(), entry.1));
    }
}

fn encode_retry(policy: RetryPolicy, body: &mut Vec<(Value, Value)>) {
    let mut push = |key: &'static str, value: Value| body.push((key.into(), value));
    match policy {
        RetryPolicy::Immediate => push("retry", "immediate".into()),
        RetryPolicy::Fixed { delay } => {
            push("retry", "fixed".into());
            push("retry-delay-ms", millis(delay));
        }
        RetryPolicy::Linear { step, cap } => {
            push("retry", "linear".into());
            push("retry-delay-ms", millis(step));
            push("retry-cap-ms", millis(cap));
        }
        RetryPolicy::Exponential { base, cap, jitter } => {
            push("retry", "exponential".into());
            push("retry-delay-ms", millis(base));
            push("retry-cap-ms", millis(cap));
            push("retry-jitter", jitter.into());
        }
    }
}

/// The settings of a queue as a response describes it. `None`: something is missing or of an unexpected type.
pub(crate) fn decode(queue: &Value) -> Option<QueueSettings> {
    let entry = Entry(queue);
    Some(QueueSettings {
        lock_duration: entry.duration("lock-duration-ms")?,
        max_delivery_count: queue.lookup("max-delivery-count").and_then(Value::as_u32)?,
        requires_session: entry.boolean("requires-session")?,
        default_time_to_live: entry.optional("default-time-to-live-ms", Entry::duration)?,
        dead_letter_on_expiration: entry.boolean("dead-letter-on-expiration")?,
        auto_delete_on_idle: entry.optional("auto-delete-on-idle-ms", Entry::duration)?,
        duplicate_window: entry.optional("duplicate-window-ms", Entry::duration)?,
        max_size_bytes: entry.optional("max-size-bytes", Entry::number)?,
        max_message_size_bytes: queue.lookup("max-message-size-bytes").and_then(Value::as_u32)?,
        status: entry.word("status", &QUEUE_STATUSES)?,
        forward_to: entry.optional("forward-to", Entry::name)?,
        forward_dead_letters_to: entry.optional("forward-dead-letters-to", Entry::name)?,
        retry: entry.retry()?,
        poison_session: entry.word("poison-session", &POISON_SESSIONS)?,
        ..QueueSettings::default()
    })
}

/// The map of a queue, read by key.
#[derive(Clone, Copy)]
struct Entry<'a>(&'a Value);

impl<'a> Entry<'a> {
    /// `Some(None)` for what is absent or null; `None` for what cannot be read.
    fn optional<T>(self, key: &str, read: impl Fn(Self, &str) -> Option<T>) -> Option<Option<T>> {
        match self.0.lookup(key) {
            None | Some(Value::Null) => Some(None),
            Some(_) => read(self, key).map(Some),
        }
    }

    fn text(self, key: &str) -> Option<&'a str> {
        self.0.lookup(key)?.as_str()
    }

    fn number(self, key: &str) -> Option<u64> {
        self.0.lookup(key)?.as_u64()
    }

    fn duration(self, key: &str) -> Option<Duration> {
        self.number(key).map(Duration::from_millis)
    }

    fn boolean(self, key: &str) -> Option<bool> {
        self.0.lookup(key)?.as_bool()
    }

    fn name(self, key: &str) -> Option<EntityName> {
        EntityName::parse(self.text(key)?).ok()
    }

    fn word<T: Copy>(self, key: &str, words: &[(&str, T)]) -> Option<T> {
        let text = self.text(key)?;
        words.iter().find(|(word, _)| *word == text).map(|(_, meaning)| *meaning)
    }

    fn retry(self) -> Option<RetryPolicy> {
        let (delay, cap) = (|| self.duration("retry-delay-ms"), || self.duration("retry-cap-ms"));
        Some(match self.text("retry")? {
            "immediate" => RetryPolicy::Immediate,
            "fixed" => RetryPolicy::Fixed { delay: delay()? },
            "linear" => RetryPolicy::Linear { step: delay()?, cap: cap()? },
            "exponential" => RetryPolicy::Exponential {
                base: delay()?,
                cap: cap()?,
                jitter: self.boolean("retry-jitter")?,
            },
            _ => return None,
        })
    }
}

fn millis(span: Duration) -> Value {
    Value::Ulong(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}

fn name(name: &EntityName) -> Value {
    name.as_str().to_owned().into()
}

fn or_null<T>(value: Option<T>, encode: impl Fn(T) -> Value) -> Value {
    value.map_or(Value::Null, encode)
}

fn word_of<T: PartialEq>(words: &[(&'static str, T)], meaning: T) -> &'static str {
    words.iter().find(|(_, known)| *known == meaning).map_or("", |(word, _)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> QueueSettings {
        let seconds = Duration::from_secs;
        QueueSettings {
            lock_duration: seconds(5),
            max_delivery_count: 3,
            requires_session: true,
            default_time_to_live: Some(seconds(60)),
            dead_letter_on_expiration: true,
            auto_delete_on_idle: Some(seconds(61)),
            duplicate_window: Some(seconds(62)),
            max_size_bytes: Some(1 << 30),
            max_message_size_bytes: 1 << 20 | 1,
            status: QueueStatus::SendDisabled,
            forward_to: EntityName::parse("next").ok(),
            forward_dead_letters_to: EntityName::parse("dead").ok(),
            retry: RetryPolicy::Exponential { base: seconds(1), cap: seconds(9), jitter: true },
            poison_session: PoisonSession::SetAside,
            ..QueueSettings::default()
        }
    }

    fn encoded(settings: &QueueSettings) -> Value {
        let mut body = Vec::new();
        Setting::all(settings).iter().for_each(|setting| setting.encode(&mut body));
        Value::Map(body)
    }

    #[test]
    fn settings_come_back_as_they_were_sent() {
        for settings in [full(), QueueSettings::default()] {
            assert_eq!(decode(&encoded(&settings)), Some(settings));
        }
        let (delay, cap) = (Duration::from_millis(10), Duration::from_millis(50));
        for retry in [RetryPolicy::Fixed { delay }, RetryPolicy::Linear { step: delay, cap }] {
            let settings = QueueSettings { retry, ..QueueSettings::default() };
            assert_eq!(decode(&encoded(&settings)), Some(settings));
        }
    }

    #[test]
    fn applying_all_settings_makes_the_same_queue() {
        let mut made = QueueSettings::default();
        Setting::all(&full()).into_iter().for_each(|setting| setting.apply(&mut made));
        assert_eq!(made, full());
        assert_eq!(Setting::unusual(&full()).len(), Setting::all(&full()).len());
        assert_eq!(Setting::unusual(&QueueSettings::default()), []);
    }

    #[test]
    fn what_is_missing_or_strange_is_noticed() {
        let Value::Map(body) = encoded(&full()) else { panic!("not a map") };
        let without = |key: &str| {
            Value::Map(body.iter().filter(|(name, _)| name.as_str() != Some(key)).cloned().collect())
        };
        assert_eq!(decode(&without("lock-duration-ms")), None);
        assert_eq!(decode(&without("retry-jitter")), None);
        assert_eq!(decode(&without("forward-to")).unwrap().forward_to, None);
        let mut strange = body.clone();
        strange.iter_mut().filter(|(key, _)| key.as_str() == Some("status")).for_each(|e| e.1 = "odd".into());
        assert_eq!(decode(&Value::Map(strange)), None);
    }
}
