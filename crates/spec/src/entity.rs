//! The settings of queues, topics and subscriptions as documents write them. Each is declared once, here, for both ways.

use std::time::Duration;

use peeklock_filter::RuleName;
use peeklock_types::{EntityName, PoisonSession, QueueSettings, QueueStatus, RetryPolicy};
use serde::{Deserialize, Serialize};

use crate::named::{Named, SubscriptionName};
use crate::order::OrderSpec;
use crate::rule::RuleSpec;
use crate::written::{MessageSize, Size, optional, required};

/// Declares a spec: for each field its key, how it is written, and the setting it stands for.
macro_rules! entity_spec {
    (
        $(#[$doc:meta])*
        $name:ident {
            required { $( $required:ident: $required_as:ty => $required_setting:ident, )* }
            optional { $( $optional:ident: $optional_as:ty => $optional_setting:ident, )* }
            also { $( $(#[$also_doc:meta])* $also:ident: $also_as:ty, )* }
        }
    ) => {
        $(#[$doc])*
        ///
        /// What is `None` was not said. Where a setting can be absent, `Some(None)` says that it shall be.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase", deny_unknown_fields, default)]
        pub struct $name {
            $( #[serde(with = "required", skip_serializing_if = "Option::is_none")] pub $required: Option<$required_as>, )*
            $( #[serde(with = "optional", skip_serializing_if = "Option::is_none")] pub $optional: Option<Option<$optional_as>>, )*
            $( $(#[$also_doc])* #[serde(skip_serializing_if = "Option::is_none")] pub $also: Option<$also_as>, )*
        }

        impl $name {
            /// Everything that the settings say.
            pub fn of(settings: &QueueSettings) -> Self {
                $name {
                    $( $required: Some(settings.$required_setting.into()), )*
                    $( $optional: Some(settings.$optional_setting.clone().map(Into::into)), )*
                    $( $also: None, )*
                }
            }

            /// Changes what was said, and nothing else. Whether the whole makes sense is for [`QueueSettings::check`] to say.
            pub fn apply(&self, settings: &mut QueueSettings) {
                $( if let Some(value) = self.$required { settings.$required_setting = value.into(); } )*
                $( if let Some(value) = &self.$optional { settings.$optional_setting = value.clone().map(Into::into); } )*
            }

            /// The settings of a new entity.
            pub fn settings(&self) -> QueueSettings {
                let mut settings = QueueSettings::default();
                self.apply(&mut settings);
                settings
            }
        }
    };
}

entity_spec! {
    /// A queue.
    QueueSpec {
        required {
            lock_duration: Duration => lock_duration,
            max_delivery_count: u32 => max_delivery_count,
            requires_session: bool => requires_session,
            dead_letter_on_expiration: bool => dead_letter_on_expiration,
            max_message_size: MessageSize => max_message_size_bytes,
            status: QueueStatus => status,
            retry: RetryPolicy => retry,
            poison_session: PoisonSession => poison_session,
            batched_operations: bool => batched_operations,
            support_ordering: bool => support_ordering,
            express: bool => express,
            partitioning: bool => partitioning,
        }
        optional {
            default_time_to_live: Duration => default_time_to_live,
            auto_delete_on_idle: Duration => auto_delete_on_idle,
            duplicate_window: Duration => duplicate_window,
            unused_duplicate_window: Duration => unused_duplicate_window,
            max_size: Size => max_size_bytes,
            forward_to: EntityName => forward_to,
            forward_dead_letters_to: EntityName => forward_dead_letters_to,
            order: OrderSpec => order,
            user_metadata: String => user_metadata,
        }
        also {}
    }
}

entity_spec! {
    /// A topic.
    TopicSpec {
        required {
            max_message_size: MessageSize => max_message_size_bytes,
            status: QueueStatus => status,
            batched_operations: bool => batched_operations,
            support_ordering: bool => support_ordering,
            express: bool => express,
            partitioning: bool => partitioning,
        }
        optional {
            default_time_to_live: Duration => default_time_to_live,
            auto_delete_on_idle: Duration => auto_delete_on_idle,
            duplicate_window: Duration => duplicate_window,
            unused_duplicate_window: Duration => unused_duplicate_window,
            max_size: Size => max_size_bytes,
            user_metadata: String => user_metadata,
        }
        also {
            /// In configuration files: the topic's subscriptions by name.
            subscriptions: Named<SubscriptionName, SubscriptionSpec>,
        }
    }
}

entity_spec! {
    /// A subscription.
    SubscriptionSpec {
        required {
            lock_duration: Duration => lock_duration,
            max_delivery_count: u32 => max_delivery_count,
            requires_session: bool => requires_session,
            dead_letter_on_expiration: bool => dead_letter_on_expiration,
            dead_letter_on_filter_error: bool => dead_letter_on_filter_error,
            status: QueueStatus => status,
            retry: RetryPolicy => retry,
            poison_session: PoisonSession => poison_session,
            batched_operations: bool => batched_operations,
        }
        optional {
            default_time_to_live: Duration => default_time_to_live,
            auto_delete_on_idle: Duration => auto_delete_on_idle,
            forward_to: EntityName => forward_to,
            forward_dead_letters_to: EntityName => forward_dead_letters_to,
            order: OrderSpec => order,
            user_metadata: String => user_metadata,
        }
        also {
            /// In configuration files, and when a subscription is created: all of its rules by name. Without it there is one,
            /// `$Default`, that takes everything.
            rules: Named<RuleName, RuleSpec>,
        }
    }
}
