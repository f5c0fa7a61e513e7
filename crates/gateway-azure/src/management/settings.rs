//! The settings of a queue as management requests and responses spell them.

use std::time::Duration;

use peeklock_amqp::Value;
use peeklock_types::{EntityName, PoisonSession, QueueSettings, QueueStatus, RetryPolicy};

use crate::error::Refusal;

/// What a retry policy takes that is named without its times.
const RETRY_DELAY_DEFAULT: Duration = Duration::from_secs(1);
const RETRY_CAP_DEFAULT: Duration = Duration::from_secs(300);

const STATUSES: [(&str, QueueStatus); 4] = [
    ("active", QueueStatus::Active),
    ("send-disabled", QueueStatus::SendDisabled),
    ("receive-disabled", QueueStatus::ReceiveDisabled),
    ("disabled", QueueStatus::Disabled),
];

const POISON_SESSIONS: [(&str, PoisonSession); 3] = [
    ("dead-letter", PoisonSession::DeadLetter),
    ("block", PoisonSession::Block),
    ("set-aside", PoisonSession::SetAside),
];

/// The settings of a new queue.
pub(super) fn create(name: &EntityName, body: &Value) -> Result<QueueSettings, Refusal> {
    let mut settings = QueueSettings::default();
    change(&mut settings, body)?;
    settings.check(name).map_err(|error| Refusal::bad_request(error.to_string()))?;
    Ok(settings)
}

/// Changes what the body names. Null clears what may be absent.
pub(super) fn change(settings: &mut QueueSettings, body: &Value) -> Result<(), Refusal> {
    let entries = body.as_map().ok_or_else(|| Refusal::bad_request("the request's body is not a map"))?;
    let mut retry = Retry::of(settings.retry);
    for (key, value) in entries {
        let key =
            key.as_str().ok_or_else(|| Refusal::bad_request("a key of the request's body is not a text"))?;
        let entry = Entry { key, value };
        if !(change_time(settings, entry)? || change_limit(settings, entry)? || retry.change(entry)?) {
            return Err(Refusal::bad_request(format!("a queue has no setting '{key}'")));
        }
    }
    settings.retry = retry.policy()?;
    Ok(())
}

/// False if the key is none of these.
fn change_time(settings: &mut QueueSettings, entry: Entry<'_>) -> Result<bool, Refusal> {
    match entry.key {
        "lock-duration-ms" => settings.lock_duration = entry.duration()?,
        "default-time-to-live-ms" => settings.default_time_to_live = entry.optional(Entry::duration)?,
        "auto-delete-on-idle-ms" => settings.auto_delete_on_idle = entry.optional(Entry::duration)?,
        "duplicate-window-ms" => settings.duplicate_window = entry.optional(Entry::duration)?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn change_limit(settings: &mut QueueSettings, entry: Entry<'_>) -> Result<bool, Refusal> {
    match entry.key {
        "name" => {}
        "max-delivery-count" => settings.max_delivery_count = entry.small_number()?,
        "requires-session" => settings.requires_session = entry.boolean()?,
        "dead-letter-on-expiration" => settings.dead_letter_on_expiration = entry.boolean()?,
        "max-size-bytes" => settings.max_size_bytes = entry.optional(Entry::number)?,
        "max-message-size-bytes" => settings.max_message_size_bytes = entry.small_number()?,
        "status" => settings.status = entry.word(&STATUSES)?,
        "forward-to" => settings.forward_to = entry.optional(Entry::name)?,
        "forward-dead-letters-to" => settings.forward_dead_letters_to = entry.optional(Entry::name)?,
        "poison-session" => settings.poison_session = entry.word(&POISON_SESSIONS)?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// One setting as the request gives it.
#[derive(Clone, Copy)]
struct Entry<'a> {
    key: &'a str,
    value: &'a Value,
}

impl<'a> Entry<'a> {
    fn wrong(self, what: &str) -> Refusal {
        Refusal::bad_request(format!("the setting '{}' must be {what}", self.key))
    }

    fn optional<T>(self, read: impl FnOnce(Self) -> Result<T, Refusal>) -> Result<Option<T>, Refusal> {
        if self.value.is_null() { Ok(None) } else { read(self).map(Some) }
    }

    fn number(self) -> Result<u64, Refusal> {
        self.value.as_u64().ok_or_else(|| self.wrong("a whole number, zero or more"))
    }

    /// One that is too large stays too large, for the check of the settings to name the bounds.
    fn small_number(self) -> Result<u32, Refusal> {
        self.number().map(|number| u32::try_from(number).unwrap_or(u32::MAX))
    }

    fn duration(self) -> Result<Duration, Refusal> {
        self.number().map(Duration::from_millis)
    }

    fn boolean(self) -> Result<bool, Refusal> {
        self.value.as_bool().ok_or_else(|| self.wrong("a boolean"))
    }

    fn text(self) -> Result<&'a str, Refusal> {
        self.value.as_str().ok_or_else(|| self.wrong("a text"))
    }

    fn name(self) -> Result<EntityName, Refusal> {
        let name = EntityName::parse(self.text()?);
        name.map_err(|error| self.wrong(&format!("the name of a queue: {error}")))
    }

    fn word<T: Copy>(self, words: &[(&str, T)]) -> Result<T, Refusal> {
        let text = self.text()?;
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, meaning)| *meaning);
        let all = || words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ");
        found.ok_or_else(|| self.wrong(&format!("one of: {}", all())))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RetryKind {
    Immediate,
    Fixed,
    Linear,
    Exponential,
}

const RETRY_KINDS: [(&str, RetryKind); 4] = [
    ("immediate", RetryKind::Immediate),
    ("fixed", RetryKind::Fixed),
    ("linear", RetryKind::Linear),
    ("exponential", RetryKind::Exponential),
];

/// A retry policy in parts, as its settings come one by one.
struct Retry {
    kind: RetryKind,
    delay: Duration,
    cap: Duration,
    jitter: bool,
    /// What was said of it, beside its kind.
    said: Vec<&'static str>,
}

impl Retry {
    fn of(policy: RetryPolicy) -> Self {
        let (kind, delay, cap, jitter) = match policy {
            RetryPolicy::Immediate => (RetryKind::Immediate, RETRY_DELAY_DEFAULT, RETRY_CAP_DEFAULT, false),
            RetryPolicy::Fixed { delay } => (RetryKind::Fixed, delay, RETRY_CAP_DEFAULT, false),
            RetryPolicy::Linear { step, cap } => (RetryKind::Linear, step, cap, false),
            RetryPolicy::Exponential { base, cap, jitter } => (RetryKind::Exponential, base, cap, jitter),
        };
        Retry { kind, delay, cap, jitter, said: Vec::new() }
    }

    fn change(&mut self, entry: Entry<'_>) -> Result<bool, Refusal> {
        match entry.key {
            "retry" => self.kind = entry.word(&RETRY_KINDS)?,
            "retry-delay-ms" => {
                self.delay = entry.duration()?;
                self.said.push("retry-delay-ms");
            }
            "retry-cap-ms" => {
                self.cap = entry.duration()?;
                self.said.push("retry-cap-ms");
            }
            "retry-jitter" => {
                self.jitter = entry.boolean()?;
                self.said.push("retry-jitter");
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn policy(self) -> Result<RetryPolicy, Refusal> {
        let Retry { kind, delay, cap, jitter, said } = self;
        let (policy, taken): (_, &[&str]) = match kind {
            RetryKind::Immediate => (RetryPolicy::Immediate, &[]),
            RetryKind::Fixed => (RetryPolicy::Fixed { delay }, &["retry-delay-ms"]),
            RetryKind::Linear => {
                (RetryPolicy::Linear { step: delay, cap }, &["retry-delay-ms", "retry-cap-ms"])
            }
            RetryKind::Exponential => {
                let taken: &[&str] = &["retry-delay-ms", "retry-cap-ms", "retry-jitter"];
                (RetryPolicy::Exponential { base: delay, cap, jitter }, taken)
            }
        };
        match said.into_iter().find(|key| !taken.contains(key)) {
            None => Ok(policy),
            Some(key) => {
                let kind = word_of(&RETRY_KINDS, kind);
                Err(Refusal::bad_request(format!(
                    "the retry policy '{kind}' does not have the setting '{key}'"
                )))
            }
        }
    }
}

/// All settings; those that are absent are left out.
pub(super) fn describe(settings: &QueueSettings) -> Vec<(&'static str, Value)> {
    let millis = |span: Duration| Value::Ulong(u64::try_from(span.as_millis()).unwrap_or(u64::MAX));
    let name = |name: &EntityName| Value::from(name.to_string());
    let mut entries = vec![
        ("lock-duration-ms", millis(settings.lock_duration)),
        ("max-delivery-count", Value::Uint(settings.max_delivery_count)),
        ("requires-session", Value::Boolean(settings.requires_session)),
        ("dead-letter-on-expiration", Value::Boolean(settings.dead_letter_on_expiration)),
        ("max-message-size-bytes", Value::Uint(settings.max_message_size_bytes)),
        ("status", Value::from(word_of(&STATUSES, settings.status))),
        ("poison-session", Value::from(word_of(&POISON_SESSIONS, settings.poison_session))),
    ];
    let optional = [
        ("default-time-to-live-ms", settings.default_time_to_live.map(millis)),
        ("auto-delete-on-idle-ms", settings.auto_delete_on_idle.map(millis)),
        ("duplicate-window-ms", settings.duplicate_window.map(millis)),
        ("max-size-bytes", settings.max_size_bytes.map(Value::Ulong)),
        ("forward-to", settings.forward_to.as_ref().map(name)),
        ("forward-dead-letters-to", settings.forward_dead_letters_to.as_ref().map(name)),
    ];
    entries.extend(optional.into_iter().filter_map(|(key, value)| Some((key, value?))));
    let retry = Retry::of(settings.retry);
    entries.push(("retry", Value::from(word_of(&RETRY_KINDS, retry.kind))));
    let kind = retry.kind;
    if kind != RetryKind::Immediate {
        entries.push(("retry-delay-ms", millis(retry.delay)));
    }
    if matches!(kind, RetryKind::Linear | RetryKind::Exponential) {
        entries.push(("retry-cap-ms", millis(retry.cap)));
    }
    if kind == RetryKind::Exponential {
        entries.push(("retry-jitter", Value::Boolean(retry.jitter)));
    }
    entries
}

fn word_of<T: PartialEq>(words: &[(&'static str, T)], meaning: T) -> &'static str {
    words.iter().find(|(_, known)| *known == meaning).map_or("unknown", |(word, _)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(entries: Vec<(&'static str, Value)>) -> Value {
        Value::Map(entries.into_iter().map(|(key, value)| (key.into(), value)).collect())
    }

    fn created(entries: Vec<(&'static str, Value)>) -> Result<QueueSettings, String> {
        let name = EntityName::parse("q").unwrap();
        create(&name, &body(entries)).map_err(|refusal| refusal.description)
    }

    fn name(text: &str) -> Option<EntityName> {
        Some(EntityName::parse(text).unwrap())
    }

    #[test]
    fn nothing_said_is_the_default() {
        assert_eq!(created(vec![("name", "q".into())]), Ok(QueueSettings::default()));
    }

    #[test]
    fn every_setting_comes_back_as_it_was_said() {
        let settings = QueueSettings {
            lock_duration: Duration::from_secs(5),
            max_delivery_count: 3,
            requires_session: true,
            default_time_to_live: Some(Duration::from_millis(7)),
            dead_letter_on_expiration: true,
            auto_delete_on_idle: Some(Duration::from_secs(9)),
            duplicate_window: Some(Duration::from_secs(10)),
            max_size_bytes: Some(11),
            max_message_size_bytes: 12,
            status: QueueStatus::ReceiveDisabled,
            forward_to: None,
            forward_dead_letters_to: name("there"),
            retry: RetryPolicy::Exponential {
                base: Duration::from_millis(13),
                cap: Duration::from_millis(14),
                jitter: true,
            },
            poison_session: PoisonSession::SetAside,
            // Not said over AMQP.
            ..QueueSettings::default()
        };
        assert_eq!(created(describe(&settings)), Ok(settings));
        for retry in [
            RetryPolicy::Fixed { delay: Duration::from_millis(1) },
            RetryPolicy::Linear { step: Duration::from_millis(1), cap: Duration::from_millis(2) },
        ] {
            let settings = QueueSettings { retry, forward_to: name("on"), ..QueueSettings::default() };
            assert_eq!(created(describe(&settings)), Ok(settings));
        }
    }

    #[test]
    fn an_unknown_key_or_a_wrong_type_is_named() {
        let refused = |key, value: Value| created(vec![(key, value)]).unwrap_err();
        assert!(refused("colour", 1.into()).contains("'colour'"));
        assert!(refused("lock-duration-ms", "long".into()).contains("'lock-duration-ms'"));
        assert!(refused("lock-duration-ms", Value::Null).contains("'lock-duration-ms'"));
        assert!(refused("max-delivery-count", (-1).into()).contains("'max-delivery-count'"));
        assert!(refused("max-delivery-count", u64::MAX.into()).contains("delivery count"));
        assert!(refused("requires-session", 1.into()).contains("'requires-session'"));
        assert!(refused("status", "asleep".into()).contains("send-disabled"));
        assert!(refused("forward-to", "a b".into()).contains("'forward-to'"));
        assert!(refused("forward-to", "q".into()).contains("itself"));
        assert!(refused("retry", "never".into()).contains("exponential"));
        assert!(refused("retry-delay-ms", 5.into()).contains("'immediate'"));
        assert!(created(vec![("retry", "fixed".into()), ("retry-jitter", true.into())]).is_err());
        assert!(create(&EntityName::parse("q").unwrap(), &Value::Null).is_err());
    }

    #[test]
    fn a_change_keeps_what_it_does_not_name_and_null_clears() {
        let mut settings = created(vec![
            ("default-time-to-live-ms", 5.into()),
            ("forward-to", "on".into()),
            ("max-size-bytes", 6.into()),
            ("retry", "exponential".into()),
            ("retry-delay-ms", 7.into()),
        ])
        .unwrap();
        let changes = vec![
            ("name", "q".into()),
            ("forward-to", Value::Null),
            ("max-size-bytes", Value::Null),
            ("retry-cap-ms", 8.into()),
            ("max-delivery-count", 2.into()),
        ];
        change(&mut settings, &body(changes)).map_err(|refusal| refusal.description).unwrap();
        let expected = QueueSettings {
            default_time_to_live: Some(Duration::from_millis(5)),
            max_delivery_count: 2,
            retry: RetryPolicy::Exponential {
                base: Duration::from_millis(7),
                cap: Duration::from_millis(8),
                jitter: false,
            },
            ..QueueSettings::default()
        };
        assert_eq!(settings, expected);
        change(&mut settings, &body(vec![("retry", "immediate".into())])).map_err(|_| ()).unwrap();
        assert_eq!(settings.retry, RetryPolicy::Immediate);
    }
}
