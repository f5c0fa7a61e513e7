//! The settings of entities as people write and read them. Each is declared once, for `create`, `update` and `serve --queue`.

use std::time::Duration;

use anyhow::{Result, anyhow};
use clap::Parser;
use peeklock_client::{EntityName, OrderSettings, PoisonSession, QueueSettings, QueueStatus, RetryPolicy};
use peeklock_spec::{
    self as spec, MessageSize, NONE, Size, SubscriptionSpec, TopicSpec, parse_duration, parse_poison_session,
    parse_retry, parse_status, show_duration, show_poison_session, show_retry, show_size, show_status,
};

use crate::order::{self, OrderFlags};

/// Of queues and subscriptions: how messages are handed out.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Settings")]
struct Delivering {
    /// Every message belongs to a session, and one receiver at a time gets a session's messages, in order; cannot be changed later
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true", hide_possible_values = true)]
    sessions: Option<bool>,
    /// How long a received message or session stays locked [default: 60s]
    #[arg(long, value_name = "TIME", visible_alias = "lock", value_parser = parse_duration)]
    lock_duration: Option<Duration>,
    /// After so many failed deliveries a message goes to the dead-letter queue [default: 10]
    #[arg(long, value_name = "COUNT", visible_alias = "max-delivery")]
    max_delivery_count: Option<u32>,
    /// Expired messages go to the dead-letter queue instead of being dropped
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true", hide_possible_values = true)]
    dead_letter_expired: Option<bool>,
    /// Move every message on to this queue or topic, or 'none' [default: none]
    #[arg(long, value_name = "ENTITY", value_parser = or_none(EntityName::parse))]
    forward_to: Option<Maybe<EntityName>>,
    /// Move dead-lettered messages on to this queue or topic, or 'none' [default: none]
    #[arg(long, value_name = "ENTITY", value_parser = or_none(EntityName::parse))]
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

/// Of queues and topics: what senders may bring.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Settings")]
struct Taking {
    /// Drop a message whose id was seen within this time, or 'none'; an entity has it from the start or never [default: none]
    #[arg(long, value_name = "TIME", value_parser = or_none(parse_duration))]
    duplicate_window: Option<Maybe<Duration>>,
    /// Refuse messages when the entity holds so much, or 'none' for what the disk takes [default: none]
    #[arg(long, value_name = "SIZE", value_parser = or_none(str::parse::<Size>))]
    max_size: Option<Maybe<Size>>,
    /// Largest message, up to 100MiB [default: 1MiB]
    #[arg(long, value_name = "SIZE")]
    max_message_size: Option<MessageSize>,
}

/// Of all entities.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Settings")]
struct General {
    /// How long a message may wait before it expires, or 'none'; a message may say less itself [default: none]
    #[arg(long, value_name = "TIME", value_parser = or_none(parse_duration))]
    ttl: Option<Maybe<Duration>>,
    /// Delete the entity when nobody has used it for so long, or 'none' [default: none]
    #[arg(long, value_name = "TIME", value_parser = or_none(parse_duration))]
    auto_delete_idle: Option<Maybe<Duration>>,
    /// Which ways are open: active, send-disabled, receive-disabled or disabled [default: active]
    #[arg(long, value_name = "STATUS", value_parser = parse_status)]
    status: Option<QueueStatus>,
    /// A note that is kept with the entity, or 'none' [default: none]
    #[arg(long, value_name = "TEXT", value_parser = or_none(|text: &str| anyhow::Ok(text.to_owned())))]
    user_metadata: Option<Maybe<String>>,
}

/// A value, or the wish for none.
#[derive(Clone, Debug)]
pub(crate) struct Maybe<T>(pub(crate) Option<T>);

impl<T> Maybe<T> {
    pub(crate) fn wish(self) -> Option<T> {
        self.0
    }
}

#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct Settings {
    #[command(flatten)]
    delivering: Delivering,
    #[command(flatten)]
    general: General,
    #[command(flatten)]
    taking: Taking,
    #[command(flatten)]
    pub(crate) order: OrderFlags,
}

#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct TopicSettings {
    #[command(flatten)]
    general: General,
    #[command(flatten)]
    taking: Taking,
}

#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct SubscriptionSettings {
    #[command(flatten)]
    delivering: Delivering,
    #[command(flatten)]
    general: General,
    /// A message for which a filter cannot be evaluated goes to the dead-letter queue instead of being passed over [default: true]
    #[arg(
        long,
        value_name = "true|false",
        help_heading = "Settings",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        hide_possible_values = true
    )]
    dead_letter_filter_errors: Option<bool>,
    #[command(flatten)]
    pub(crate) order: OrderFlags,
}

impl Settings {
    /// What was said, and nothing else. What is said of the order is done to the current one.
    pub(crate) fn spec(self, current: Option<&OrderSettings>) -> Result<spec::QueueSpec> {
        let Settings { delivering, general, taking, order } = self;
        Ok(spec::QueueSpec {
            lock_duration: delivering.lock_duration,
            max_delivery_count: delivering.max_delivery_count,
            requires_session: delivering.sessions,
            dead_letter_on_expiration: delivering.dead_letter_expired,
            forward_to: delivering.forward_to.map(Maybe::wish),
            forward_dead_letters_to: delivering.forward_dead_letters_to.map(Maybe::wish),
            retry: delivering.retry,
            poison_session: delivering.poison_session,
            default_time_to_live: general.ttl.map(Maybe::wish),
            auto_delete_on_idle: general.auto_delete_idle.map(Maybe::wish),
            status: general.status,
            user_metadata: general.user_metadata.map(Maybe::wish),
            duplicate_window: taking.duplicate_window.map(Maybe::wish),
            max_size: taking.max_size.map(Maybe::wish),
            max_message_size: taking.max_message_size,
            order: order.spec(current)?,
            // These make no difference here, so nobody needs a flag for them.
            batched_operations: None,
            support_ordering: None,
            express: None,
            partitioning: None,
            unused_duplicate_window: None,
        })
    }
}

impl TopicSettings {
    /// What was said, and nothing else.
    pub(crate) fn spec(self) -> TopicSpec {
        let TopicSettings { general, taking } = self;
        TopicSpec {
            default_time_to_live: general.ttl.map(Maybe::wish),
            auto_delete_on_idle: general.auto_delete_idle.map(Maybe::wish),
            status: general.status,
            user_metadata: general.user_metadata.map(Maybe::wish),
            duplicate_window: taking.duplicate_window.map(Maybe::wish),
            max_size: taking.max_size.map(Maybe::wish),
            max_message_size: taking.max_message_size,
            batched_operations: None,
            support_ordering: None,
            express: None,
            partitioning: None,
            unused_duplicate_window: None,
            subscriptions: None,
        }
    }
}

impl SubscriptionSettings {
    /// What was said, and nothing else. What is said of the order is done to the current one.
    pub(crate) fn spec(self, current: Option<&OrderSettings>) -> Result<SubscriptionSpec> {
        let SubscriptionSettings { delivering, general, dead_letter_filter_errors, order } = self;
        Ok(SubscriptionSpec {
            lock_duration: delivering.lock_duration,
            max_delivery_count: delivering.max_delivery_count,
            requires_session: delivering.sessions,
            dead_letter_on_expiration: delivering.dead_letter_expired,
            dead_letter_on_filter_error: dead_letter_filter_errors,
            forward_to: delivering.forward_to.map(Maybe::wish),
            forward_dead_letters_to: delivering.forward_dead_letters_to.map(Maybe::wish),
            retry: delivering.retry,
            poison_session: delivering.poison_session,
            default_time_to_live: general.ttl.map(Maybe::wish),
            auto_delete_on_idle: general.auto_delete_idle.map(Maybe::wish),
            status: general.status,
            user_metadata: general.user_metadata.map(Maybe::wish),
            order: order.spec(current)?,
            batched_operations: None,
            rules: None,
        })
    }
}

/// `NAME[,SETTING[=VALUE]]…`, with the settings of `queue create`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeclaredQueue {
    pub(crate) name: EntityName,
    /// What was said, and nothing else.
    pub(crate) spec: spec::QueueSpec,
}

#[derive(Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct Declared {
    #[command(flatten)]
    settings: Settings,
}

impl DeclaredQueue {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut parts = text.split(',');
        let name = EntityName::parse(parts.next().unwrap_or_default())?;
        let flags = parts.map(|part| format!("--{part}"));
        let declared = Declared::try_parse_from(flags).map_err(|error| anyhow!(first_line(&error)))?;
        let spec = declared.settings.spec(None)?;
        spec.settings().check()?;
        Ok(DeclaredQueue { name, spec })
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

pub(crate) fn or_none<T, E: Into<anyhow::Error>>(
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

/// The settings that an entity would not have if nobody had said anything, in the words of the flags that set them.
pub(crate) fn unusual(settings: &QueueSettings) -> Vec<(&'static str, String)> {
    let usual = described(&QueueSettings::default());
    described(settings).into_iter().zip(usual).filter(|(is, usual)| is != usual).map(|(is, _)| is).collect()
}

/// Of an entity with an order, that and what else is unusual, in one line; of others nothing.
pub(crate) fn in_short(settings: &QueueSettings) -> String {
    let Some(order) = &settings.order else { return String::new() };
    let lock = format!("lock {}", show_duration(settings.lock_duration));
    let rest = unusual(settings).into_iter().filter(|(key, _)| *key != "lock-duration");
    let rest = rest.map(|(key, value)| format!("{key} {value}"));
    [order::summary(order), lock].into_iter().chain(rest).collect::<Vec<_>>().join("; ")
}

fn described(settings: &QueueSettings) -> Vec<(&'static str, String)> {
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
        user_metadata,
        batched_operations: _,
        support_ordering: _,
        express: _,
        partitioning: _,
        unused_duplicate_window: _,
        dead_letter_on_filter_error,
        // Has a page of its own.
        order: _,
    } = settings;
    let time = |span: &Option<Duration>| span.map_or_else(|| NONE.to_owned(), show_duration);
    let name = |name: &Option<EntityName>| name.as_ref().map_or_else(|| NONE.to_owned(), ToString::to_string);
    vec![
        ("sessions", requires_session.to_string()),
        ("lock-duration", show_duration(*lock_duration)),
        ("max-delivery-count", max_delivery_count.to_string()),
        ("ttl", time(default_time_to_live)),
        ("dead-letter-expired", dead_letter_on_expiration.to_string()),
        ("dead-letter-filter-errors", dead_letter_on_filter_error.to_string()),
        ("auto-delete-idle", time(auto_delete_on_idle)),
        ("duplicate-window", time(duplicate_window)),
        ("max-size", max_size_bytes.map_or_else(|| NONE.to_owned(), show_size)),
        ("max-message-size", show_size((*max_message_size_bytes).into())),
        ("status", show_status(*status).to_owned()),
        ("forward-to", name(forward_to)),
        ("forward-dead-letters-to", name(forward_dead_letters_to)),
        ("retry", show_retry(*retry)),
        ("poison-session", show_poison_session(*poison_session).to_owned()),
        ("user-metadata", user_metadata.clone().unwrap_or_else(|| NONE.to_owned())),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> QueueSettings {
        DeclaredQueue::parse(&format!("orders{text}")).unwrap().spec.settings()
    }

    fn refused(text: &str) -> String {
        DeclaredQueue::parse(text).err().unwrap_or_else(|| panic!("{text} is taken")).to_string()
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
        for wrong in ["", "a b", "orders,lock", "orders,max-delivery=0", "orders,,", "orders,retry=fixed"] {
            let told = refused(wrong);
            assert_eq!(told.lines().count(), 1, "{told}");
        }
    }

    #[test]
    fn every_setting_is_shown_as_it_can_be_said() {
        let every = ",sessions=true,lock-duration=5s,max-delivery-count=3,ttl=90s,dead-letter-expired=true,auto-delete-idle=1d,\
                     duplicate-window=10m,max-size=3GiB,max-message-size=100MiB,status=send-disabled,forward-dead-letters-to=dead,\
                     retry=linear:5s..1m,poison-session=set-aside,user-metadata=mine";
        let unusual = unusual(&settings(every));
        let shown = unusual.iter().map(|(key, value)| format!(",{key}={value}")).collect::<String>();
        assert_eq!(settings(&shown), settings(every), "{shown}");
        assert_eq!(unusual.len(), 14, "forward-to has no place beside sessions");
        assert_eq!(settings(",forward-to=next").forward_to, EntityName::parse("next").ok());
    }

    #[test]
    fn none_clears_what_may_be_absent() {
        let flags = ["--ttl", "none", "--max-size", "none", "--forward-to", "none"];
        let said = Declared::try_parse_from(flags).unwrap().settings.spec(None).unwrap();
        let expected = spec::QueueSpec {
            default_time_to_live: Some(None),
            max_size: Some(None),
            forward_to: Some(None),
            ..spec::QueueSpec::default()
        };
        assert_eq!(said, expected);
        assert!(Declared::try_parse_from(["--lock-duration", "none"]).is_err());
    }
}
