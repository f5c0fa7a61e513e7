//! Declares the settings of queues, topics and subscriptions. The table below is the only list of them at this edge: the fields of documents,
//! the flags of the command line, their help, the descriptions of the schema and the rows of `show` all follow from it.

use std::borrow::Cow;
use std::time::Duration;

use peeklock_filter::RuleName;
use peeklock_types::{EntityName, PoisonSession, QueueSettings, QueueStatus, RetryPolicy};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

#[cfg(feature = "cli")]
use crate::flag::{any_text, or_none};
use crate::named::{Named, SubscriptionName};
use crate::order::OrderSpec;
use crate::rule::RuleSpec;
use crate::schema;
#[cfg(feature = "cli")]
use crate::text::{parse_duration, parse_poison_session, parse_retry, parse_status};
use crate::written::{Maybe, MessageSize, Setting, Shown, Size, setting};

/// Turns the table into one spec for each kind of entity and into the rows of `show`.
macro_rules! entity_settings {
    (
        queue, subscription { $($delivering:tt)* }
        queue, topic, subscription { $($general:tt)* }
        queue, topic { $($taking:tt)* }
        queue { $($queue:tt)* }
        subscription { $($subscription:tt)* }
    ) => {
        entity_spec! {
            /// A queue.
            QueueSpec as "QueueSettings" { $($delivering)* $($general)* $($taking)* $($queue)* }
            also {}
            only_in_files {}
        }

        entity_spec! {
            /// A topic.
            TopicSpec as "TopicSettings" { $($general)* $($taking)* }
            also {}
            only_in_files {
                /// The topic's subscriptions by name.
                subscriptions: Named<SubscriptionName, SubscriptionSpec>,
            }
        }

        entity_spec! {
            /// A subscription.
            SubscriptionSpec as "SubscriptionSettings" { $($delivering)* $($general)* $($subscription)* }
            also {
                /// In configuration files, and when a subscription is created: all of its rules by name. Without it there is one,
                /// `$Default`, that takes everything.
                rules: Named<RuleName, RuleSpec>,
            }
            only_in_files {}
        }

        entity_rows! { $($delivering)* $($general)* $($taking)* $($queue)* $($subscription)* }
    };
}

macro_rules! entity_spec {
    (
        $(#[doc = $doc:literal])*
        $name:ident as $schema_name:literal { $( $(#[doc = $help:literal])* $field:ident: $kind:ty => $setting:ident [$($flag:tt)*], )* }
        also { $( $(#[$also_doc:meta])* $also:ident: $also_kind:ty, )* }
        only_in_files { $( $(#[$file_doc:meta])* $file:ident: $file_kind:ty, )* }
    ) => {
        $(#[doc = $doc])*
        ///
        /// `None` leaves a setting as it is. Where a setting can be absent, `Some(None)` removes it.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase", deny_unknown_fields, default)]
        #[cfg_attr(feature = "cli", derive(clap::Args), command(next_help_heading = "Settings"))]
        pub struct $name {
            $(
                $(#[doc = $help])*
                #[serde(with = "setting", skip_serializing_if = "Option::is_none")]
                #[cfg_attr(feature = "cli", arg($($flag)*))]
                pub $field: Option<$kind>,
            )*
            $(
                $(#[$also_doc])*
                #[serde(skip_serializing_if = "Option::is_none")]
                #[cfg_attr(feature = "cli", arg(skip))]
                pub $also: Option<$also_kind>,
            )*
            $(
                $(#[$file_doc])*
                #[serde(skip_serializing_if = "Option::is_none")]
                #[cfg_attr(feature = "cli", arg(skip))]
                pub $file: Option<$file_kind>,
            )*
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                Cow::Borrowed($schema_name)
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                let mut settings = vec![
                    $( schema::setting::<$kind>(generator, stringify!($field), concat!($( $help ),*)), )*
                ];
                // These keys occur only in input, not in responses.
                if generator.contract().is_deserialize() {
                    settings.extend([ $( (stringify!($also), generator.subschema_for::<$also_kind>()), )* ]);
                }
                schema::settings(concat!($( $doc ),*), settings)
            }
        }

        impl $name {
            /// Returns a spec with every setting.
            pub fn of(settings: &QueueSettings) -> Self {
                $name {
                    $( $field: Some(Setting::of(&settings.$setting)), )*
                    $( $also: None, )*
                    $( $file: None, )*
                }
            }

            /// Changes the settings that have a value here. [`QueueSettings::check`] decides whether the result is valid.
            pub fn apply(&self, settings: &mut QueueSettings) {
                $( if let Some(value) = &self.$field { settings.$setting = value.value(); } )*
            }

            /// Returns the settings of a new entity.
            pub fn settings(&self) -> QueueSettings {
                let mut settings = QueueSettings::default();
                self.apply(&mut settings);
                settings
            }
        }
    };
}

macro_rules! entity_rows {
    ($( $(#[$help:meta])* $field:ident: $kind:ty => $setting:ident [$($flag:tt)*], )*) => {
        /// Returns the settings that have a flag: the name of the flag, and the value in the form of the flag.
        pub fn setting_rows(settings: &QueueSettings) -> Vec<(&'static str, String)> {
            [$( row!(<$kind as Setting>::of(&settings.$setting), $($flag)*), )*].into_iter().flatten().collect()
        }
    };
}

macro_rules! row {
    ($value:expr, skip) => {
        None
    };
    ($value:expr, long = $name:literal $($rest:tt)*) => {
        Some(($name, $value.shown()))
    };
}

// Each row has the help text, the key in documents (in camel case there), the form of its value, the setting of the engine, and the arguments
// of `clap` for the flag, or `skip` for a setting without a flag. A `Maybe` value can be absent: `null` in JSON, `none` elsewhere.
entity_settings! {
    queue, subscription {
        /// Every message belongs to a session, and one receiver at a time gets a session's messages, in order; cannot be changed later
        requires_session: bool => requires_session [
            long = "sessions", value_name = "true|false",
            num_args = 0..=1, require_equals = true, default_missing_value = "true", hide_possible_values = true
        ],
        /// How long a received message or session stays locked [default: 60s]
        lock_duration: Duration => lock_duration [
            long = "lock-duration", value_name = "TIME", visible_alias = "lock", value_parser = parse_duration
        ],
        /// After so many failed deliveries a message goes to the dead-letter queue [default: 10]
        max_delivery_count: u32 => max_delivery_count [
            long = "max-delivery-count", value_name = "COUNT", visible_alias = "max-delivery"
        ],
        /// Expired messages go to the dead-letter queue instead of being dropped
        dead_letter_on_expiration: bool => dead_letter_on_expiration [
            long = "dead-letter-expired", value_name = "true|false",
            num_args = 0..=1, require_equals = true, default_missing_value = "true", hide_possible_values = true
        ],
        /// Move every message on to this queue or topic, or 'none' [default: none]
        forward_to: Maybe<EntityName> => forward_to [
            long = "forward-to", value_name = "ENTITY", value_parser = or_none(EntityName::parse)
        ],
        /// Move dead-lettered messages on to this queue or topic, or 'none' [default: none]
        forward_dead_letters_to: Maybe<EntityName> => forward_dead_letters_to [
            long = "forward-dead-letters-to", value_name = "ENTITY", value_parser = or_none(EntityName::parse)
        ],
        /// How long a message whose delivery failed stays away: immediate, fixed:5s, linear:5s..1m, exponential:1s..10m or
        /// exponential:1s..10m:jitter [default: immediate]
        retry: RetryPolicy => retry [long = "retry", value_name = "POLICY", value_parser = parse_retry],
        /// When a message of a session has failed too often: dead-letter (the session goes on without it), block (nothing overtakes it) or
        /// set-aside (only who asks for the session by name gets it) [default: dead-letter]
        poison_session: PoisonSession => poison_session [
            long = "poison-session", value_name = "RULE", value_parser = parse_poison_session
        ],
        /// In which order messages are handed out; without it, as they came
        order: Maybe<OrderSpec> => order [skip],
    }
    queue, topic, subscription {
        /// How long a message may wait before it expires, or 'none'; a message may say less itself [default: none]
        default_time_to_live: Maybe<Duration> => default_time_to_live [
            long = "ttl", value_name = "TIME", value_parser = or_none(parse_duration)
        ],
        /// Delete the entity when nobody has used it for so long, or 'none' [default: none]
        auto_delete_on_idle: Maybe<Duration> => auto_delete_on_idle [
            long = "auto-delete-idle", value_name = "TIME", value_parser = or_none(parse_duration)
        ],
        /// Which ways are open: active, send-disabled, receive-disabled or disabled [default: active]
        status: QueueStatus => status [long = "status", value_name = "STATUS", value_parser = parse_status],
        /// A note that is kept with the entity, or 'none' [default: none]
        user_metadata: Maybe<String> => user_metadata [
            long = "user-metadata", value_name = "TEXT", value_parser = or_none(any_text)
        ],
        /// Kept and shown, without effect: the broker always works in batches
        batched_operations: bool => batched_operations [skip],
    }
    queue, topic {
        /// Drop a message whose id was seen within this time, or 'none'; an entity has it from the start or never [default: none]
        duplicate_window: Maybe<Duration> => duplicate_window [
            long = "duplicate-window", value_name = "TIME", value_parser = or_none(parse_duration)
        ],
        /// Refuse messages when the entity holds so much, or 'none' for what the disk takes [default: none]
        max_size: Maybe<Size> => max_size_bytes [
            long = "max-size", value_name = "SIZE", value_parser = or_none(str::parse::<Size>)
        ],
        /// Largest message, up to 100MiB [default: 1MiB]
        max_message_size: MessageSize => max_message_size_bytes [long = "max-message-size", value_name = "SIZE"],
        /// Kept and shown, without effect: a window that was given although duplicates are not detected
        unused_duplicate_window: Maybe<Duration> => unused_duplicate_window [skip],
        /// Kept and shown, without effect: the order of messages is always kept
        support_ordering: bool => support_ordering [skip],
        /// Kept and shown, without effect: every message is on disk before it is confirmed
        express: bool => express [skip],
        /// Kept and shown, without effect: an entity stays whole in one shard
        partitioning: bool => partitioning [skip],
    }
    queue {
        /// Refuse messages when the queue holds so many, dead-lettered ones included, or 'none' [default: none]
        max_count: Maybe<u32> => max_count [
            long = "max-count", value_name = "COUNT", value_parser = or_none(str::parse::<u32>)
        ],
    }
    subscription {
        /// A message for which a filter cannot be evaluated goes to the dead-letter queue instead of being passed over [default: true]
        dead_letter_on_filter_error: bool => dead_letter_on_filter_error [
            long = "dead-letter-filter-errors", value_name = "true|false",
            num_args = 0..=1, require_equals = true, default_missing_value = "true", hide_possible_values = true
        ],
    }
}
