//! The settings of a queue as people write and read them. Each is declared once, for `queue create`, `queue update` and `serve --queue`.

use std::time::Duration;

use anyhow::{Result, anyhow};
use clap::Parser;
use peeklock_client::{EntityName, PoisonSession, QueueSettings, QueueStatus, RetryPolicy, Setting};
use peeklock_spec::{
    MessageSize, NONE, parse_duration, parse_poison_session, parse_retry, parse_size, parse_status,
    show_duration, show_poison_session, show_retry, show_size, show_status,
};

#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Settings")]
pub(crate) struct Settings {
    /// Every message belongs to a session, and one receiver at a time gets a session's messages, in order; cannot be changed later
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true", hide_possible_values = true)]
    sessions: Option<bool>,
    /// How long a received message or session stays locked [default: 60s]
    #[arg(long, value_name = "TIME", visible_alias = "lock", value_parser = parse_duration)]
    lock_duration: Option<Duration>,
    /// After so many failed deliveries a message goes to the dead-letter queue [default: 10]
    #[arg(long, value_name = "COUNT", visible_alias = "max-delivery")]
    max_delivery_count: Option<u32>,
    /// How long a message may wait before it expires, or 'none'; a message may say less itself [default: none]
    #[arg(long, value_name = "TIME", value_parser = or_none(parse_duration))]
    ttl: Option<Maybe<Duration>>,
    /// Expired messages go to the dead-letter queue instead of being dropped
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true", hide_possible_values = true)]
    dead_letter_expired: Option<bool>,
    /// Delete the queue when nobody has used it for so long, or 'none' [default: none]
    #[arg(long, value_name = "TIME", value_parser = or_none(parse_duration))]
    auto_delete_idle: Option<Maybe<Duration>>,
    /// Drop a message whose id was seen within this time, or 'none'; a queue has it from the start or never [default: none]
    #[arg(long, value_name = "TIME", value_parser = or_none(parse_duration))]
    duplicate_window: Option<Maybe<Duration>>,
    /// Refuse messages when the queue holds so much, or 'none' for what the disk takes [default: none]
    #[arg(long, value_name = "SIZE", value_parser = or_none(parse_size))]
    max_size: Option<Maybe<u64>>,
    /// Largest message, up to 100MiB [default: 1MiB]
    #[arg(long, value_name = "SIZE")]
    max_message_size: Option<MessageSize>,
    /// Which ways are open: active, send-disabled, receive-disabled or disabled [default: active]
    #[arg(long, value_name = "STATUS", value_parser = parse_status)]
    status: Option<QueueStatus>,
    /// Move every message on to this queue, or 'none' [default: none]
    #[arg(long, value_name = "QUEUE", value_parser = or_none(EntityName::parse))]
    forward_to: Option<Maybe<EntityName>>,
    /// Move dead-lettered messages on to this queue, or 'none' [default: none]
    #[arg(long, value_name = "QUEUE", value_parser = or_none(EntityName::parse))]
    forward_dead_letters_to: Option<Maybe<EntityName>>,
    /// How long a message whose delivery failed stays away: immediate, fixed:5s, linear:5s..1m, exponential:1s..10m or
    /// exponential:1s..10m:jitter [default: immediate]
    #[arg(long, value_name = "POLICY", value_parser = parse_retry)]
    retry: Option<RetryPolicy>,
    /// When a message of a session has failed too often: dead-letter (the session goes on without it), block (nothing overtakes it) or
    /// set-aside (only who asks for the session by name gets it) [default: dead-letter]
    #[arg(long, value_name = "RULE", value_parser = parse_poison_session)]
    poison_session: Option<PoisonSession>,
}

/// A value, or the wish for none.
#[derive(Clone, Debug)]
struct Maybe<T>(Option<T>);

impl Settings {
    /// What was said, and nothing else.
    pub(crate) fn said(self) -> Vec<Setting> {
        let said = [
            self.sessions.map(Setting::RequiresSession),
            self.lock_duration.map(Setting::LockDuration),
            self.max_delivery_count.map(Setting::MaxDeliveryCount),
            self.ttl.map(|ttl| Setting::DefaultTimeToLive(ttl.0)),
            self.dead_letter_expired.map(Setting::DeadLetterOnExpiration),
            self.auto_delete_idle.map(|idle| Setting::AutoDeleteOnIdle(idle.0)),
            self.duplicate_window.map(|window| Setting::DuplicateWindow(window.0)),
            self.max_size.map(|size| Setting::MaxSizeBytes(size.0)),
            self.max_message_size.map(|size| Setting::MaxMessageSizeBytes(size.0)),
            self.status.map(Setting::Status),
            self.forward_to.map(|queue| Setting::ForwardTo(queue.0)),
            self.forward_dead_letters_to.map(|queue| Setting::ForwardDeadLettersTo(queue.0)),
            self.retry.map(Setting::Retry),
            self.poison_session.map(Setting::PoisonSession),
        ];
        said.into_iter().flatten().collect()
    }

    /// The settings of a new queue.
    pub(crate) fn of_new(self, name: &EntityName) -> Result<QueueSettings> {
        let mut settings = QueueSettings::default();
        self.said().into_iter().for_each(|setting| setting.apply(&mut settings));
        settings.check(name)?;
        Ok(settings)
    }
}

/// `NAME[,SETTING[=VALUE]]…`, with the settings of `queue create`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QueueSpec {
    pub(crate) name: EntityName,
    pub(crate) settings: QueueSettings,
}

#[derive(Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct Declared {
    #[command(flatten)]
    settings: Settings,
}

impl QueueSpec {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut parts = text.split(',');
        let name = EntityName::parse(parts.next().unwrap_or_default())?;
        let flags = parts.map(|part| format!("--{part}"));
        let declared = Declared::try_parse_from(flags).map_err(|error| anyhow!(first_line(&error)))?;
        Ok(QueueSpec { settings: declared.settings.of_new(&name)?, name })
    }
}

/// What is wrong, without the usage of a command that nobody has called.
fn first_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    format!(
        "{}; the settings are the flags of `peeklock queue create`, without the dashes",
        line.trim_start_matches("error: ").replace("'--", "'")
    )
}

fn or_none<T, E: Into<anyhow::Error>>(
    parse: impl Fn(&str) -> Result<T, E> + Clone + Send + Sync,
) -> impl Fn(&str) -> Result<Maybe<T>> + Clone + Send + Sync {
    move |text| {
        if text == NONE {
            Ok(Maybe(None))
        } else {
            parse(text).map(|value| Maybe(Some(value))).map_err(Into::into)
        }
    }
}

/// A setting in the words of the flag that sets it: its name and its value.
pub(crate) fn describe(setting: &Setting) -> (&'static str, String) {
    let time = |span: &Option<Duration>| span.map_or_else(|| NONE.to_owned(), show_duration);
    let name = |name: &Option<EntityName>| name.as_ref().map_or_else(|| NONE.to_owned(), ToString::to_string);
    match setting {
        Setting::RequiresSession(value) => ("sessions", value.to_string()),
        Setting::LockDuration(value) => ("lock-duration", show_duration(*value)),
        Setting::MaxDeliveryCount(value) => ("max-delivery-count", value.to_string()),
        Setting::DefaultTimeToLive(value) => ("ttl", time(value)),
        Setting::DeadLetterOnExpiration(value) => ("dead-letter-expired", value.to_string()),
        Setting::AutoDeleteOnIdle(value) => ("auto-delete-idle", time(value)),
        Setting::DuplicateWindow(value) => ("duplicate-window", time(value)),
        Setting::MaxSizeBytes(value) => ("max-size", value.map_or_else(|| NONE.to_owned(), show_size)),
        Setting::MaxMessageSizeBytes(value) => ("max-message-size", show_size((*value).into())),
        Setting::Status(value) => ("status", show_status(*value).to_owned()),
        Setting::ForwardTo(value) => ("forward-to", name(value)),
        Setting::ForwardDeadLettersTo(value) => ("forward-dead-letters-to", name(value)),
        Setting::Retry(value) => ("retry", show_retry(*value)),
        Setting::PoisonSession(value) => ("poison-session", show_poison_session(*value).to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> QueueSettings {
        QueueSpec::parse(&format!("orders{text}")).unwrap().settings
    }

    fn refused(text: &str) -> String {
        QueueSpec::parse(text).err().unwrap_or_else(|| panic!("{text} is taken")).to_string()
    }

    #[test]
    fn a_queue_may_bring_its_settings() {
        assert_eq!(settings(""), QueueSettings::default());
        let set = settings(",lock=5s,max-delivery=3");
        assert_eq!((set.lock_duration, set.max_delivery_count), (Duration::from_secs(5), 3));
        let set = settings(
            ",sessions,ttl=1h,dead-letter-expired=false,max-size=1GiB,retry=exponential:1s..10m:jitter",
        );
        assert!(set.requires_session && !set.dead_letter_on_expiration);
        assert_eq!(set.default_time_to_live, Some(Duration::from_secs(3600)));
        assert_eq!(set.max_size_bytes, Some(1 << 30));
        let (base, cap) = (Duration::from_secs(1), Duration::from_secs(600));
        assert_eq!(set.retry, RetryPolicy::Exponential { base, cap, jitter: true });
    }

    #[test]
    fn what_is_no_setting_is_named() {
        assert!(refused("orders,color=red").contains("'color'"), "{}", refused("orders,color=red"));
        assert!(refused("orders,lock=5").contains("'5' is not a duration"), "{}", refused("orders,lock=5"));
        assert!(refused("orders,status=asleep").contains("write active, send-disabled"));
        assert!(refused("orders,lock=2h").contains("lock duration"));
        assert!(refused("orders,forward-to=orders").contains("itself"));
        for wrong in ["", "a b", "orders,lock", "orders,max-delivery=0", "orders,,", "orders,retry=fixed"] {
            let told = refused(wrong);
            assert_eq!(told.lines().count(), 1, "{told}");
        }
    }

    #[test]
    fn every_setting_is_shown_as_it_can_be_said() {
        let every = ",sessions=true,lock-duration=5s,max-delivery-count=3,ttl=90s,dead-letter-expired=true,auto-delete-idle=1d,\
                     duplicate-window=10m,max-size=3GiB,max-message-size=100MiB,status=send-disabled,forward-dead-letters-to=dead,\
                     retry=linear:5s..1m,poison-session=set-aside";
        let unusual = Setting::unusual(&settings(every));
        let shown =
            unusual.iter().map(describe).map(|(key, value)| format!(",{key}={value}")).collect::<String>();
        assert_eq!(settings(&shown), settings(every), "{shown}");
        assert_eq!(unusual.len(), 13, "forward-to has no place beside sessions");
        assert_eq!(settings(",forward-to=next").forward_to, EntityName::parse("next").ok());
        for retry in
            ["immediate", "fixed:5s", "linear:5s..1m", "exponential:1s..10m", "exponential:1ms..10m:jitter"]
        {
            assert_eq!(show_retry(parse_retry(retry).unwrap()), retry);
        }
    }

    #[test]
    fn none_clears_what_may_be_absent() {
        let flags = ["--ttl", "none", "--max-size", "none", "--forward-to", "none"];
        let said = Declared::try_parse_from(flags).unwrap().settings.said();
        assert_eq!(
            said,
            [Setting::DefaultTimeToLive(None), Setting::MaxSizeBytes(None), Setting::ForwardTo(None)]
        );
        assert!(Declared::try_parse_from(["--lock-duration", "none"]).is_err());
    }
}
