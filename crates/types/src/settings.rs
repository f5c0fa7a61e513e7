use std::time::Duration;

use crate::{EntityKind, EntityName, OrderError, OrderSettings};

/// The limits that apply everywhere. The name of a limit contains its unit.
pub mod limits {
    use std::time::Duration;

    pub const ENTITY_NAME_CHARS_MAX: usize = 260;
    pub const SUBSCRIPTION_NAME_CHARS_MAX: usize = 50;
    pub const RULE_NAME_CHARS_MAX: usize = 50;
    pub const SUBSCRIPTIONS_PER_TOPIC_MAX: usize = 2000;
    pub const SQL_RULES_PER_TOPIC_MAX: usize = 2000;
    pub const CORRELATION_RULES_PER_TOPIC_MAX: usize = 100_000;
    /// SQL filters that one send may evaluate, over all its messages. It limits the time for which a send blocks its
    /// shard.
    pub const SQL_EVALUATIONS_MAX: usize = 4096 * SQL_RULES_PER_TOPIC_MAX;
    pub const USER_METADATA_CHARS_MAX: usize = 1024;
    /// Bytes that the copies of one send add to the journal, beside the bodies: all of them share one commit group.
    pub const COPIES_SIZE_BYTES_MAX: usize = 2 * 1024 * 1024;
    /// Properties of one message in the form for filters.
    pub const VIEW_SIZE_BYTES_MAX: usize = 256 * 1024;
    pub const LOCK_DURATION_MIN: Duration = Duration::from_secs(1);
    pub const LOCK_DURATION_MAX: Duration = Duration::from_secs(300);
    /// The largest value that the service and its SDKs can represent: NServiceBus creates every queue with it.
    pub const DELIVERY_COUNT_MAX: u32 = 2_147_483_647;
    pub const MESSAGE_ID_CHARS_MAX: usize = 128;
    pub const SESSION_ID_CHARS_MAX: usize = 128;
    pub const SESSION_STATE_BYTES_MAX: usize = 256 * 1024;
    pub const DEAD_LETTER_TEXT_CHARS_MAX: usize = 4096;
    /// The default limit of one message with all its sections; also the limit of one batch.
    pub const MESSAGE_SIZE_BYTES_MAX: usize = 1024 * 1024;
    /// The same limit in a namespace of the standard tier.
    pub const STANDARD_MESSAGE_SIZE_BYTES_MAX: u32 = 256 * 1024;
    /// The largest message limit that a queue can set.
    pub const LARGE_MESSAGE_SIZE_BYTES_MAX: usize = 100 * 1024 * 1024;
    /// Bodies of all messages in one response, unless it contains only one.
    pub const ANSWER_SIZE_BYTES_MAX: usize = 4 * 1024 * 1024;
    /// Bodies up to this size are loaded whole. Larger ones are read piece by piece.
    pub const WHOLE_BODY_BYTES_MAX: u32 = 2 * 1024 * 1024;
    /// The bytes of a larger body that are loaded first: all sections that its sender wrote before the content.
    pub const BODY_FRONT_BYTES: u32 = 512 * 1024;
    /// Messages that one peek or one management call may refer to. A sent batch is limited by its bytes alone.
    pub const BATCH_COUNT_MAX: usize = 4096;
    /// Bytes that are stored for a small message beside those that were sent: a prefix, an id and the alignment. Many
    /// messages share a batch.
    pub const STORED_EXTRA_BYTES_MAX: usize = 64;
    pub const TIME_TO_LIVE_MIN: Duration = Duration::from_millis(1);
    /// The maximum time until a scheduled message is due, and of a delay: ten years.
    pub const SCHEDULE_AHEAD_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
    /// The maximum time for which the holder of a receipt can hide a message: a week, as in storage queues.
    pub const HIDDEN_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
    /// Messages that one take returns.
    pub const TAKE_COUNT_MAX: usize = 32;
    /// Names and values that a queue stores for its owner, all together.
    pub const METADATA_SIZE_BYTES_MAX: usize = 16 * 1024;
    pub const METADATA_COUNT_MAX: usize = 1024;
    pub const AUTO_DELETE_ON_IDLE_MIN: Duration = Duration::from_secs(1);
    pub const DUPLICATE_WINDOW_MIN: Duration = Duration::from_secs(1);
    /// The smallest value that the service accepts over ATOM; our own documents accept less.
    pub const DUPLICATE_WINDOW_ATOM_MIN: Duration = Duration::from_secs(20);
    pub const DUPLICATE_WINDOW_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
    /// A message that was forwarded this often is not forwarded again.
    pub const FORWARD_HOPS_MAX: u8 = 4;
    /// Sends and settlements of one transaction.
    pub const TRANSACTION_STEPS_MAX: usize = 100;
    /// Bodies of one transaction together, except large ones: they share one commit group.
    pub const TRANSACTION_SIZE_BYTES_MAX: usize = 10 * 1024 * 1024;
    /// Classes of messages in one queue, and classes of tenants.
    pub const CLASSES_MAX: usize = 16;
    pub const CLASS_NAME_CHARS_MAX: usize = 50;
    pub const CLASS_RULES_MAX: usize = 100;
    pub const CLASS_EXPRESSION_CHARS_MAX: usize = 1024;
    pub const WEIGHT_MAX: u32 = 1000;
    pub const RATE_PER_SECOND_MAX: u64 = 10_000_000;
    /// Tenants of all classes of one queue that have messages in it; further ones share a lane.
    pub const LANES_MAX: usize = 10_000;
    /// A longer tenant name is truncated.
    pub const TENANT_BYTES_MAX: usize = 128;
    /// The largest limit of unsettled messages per receiver on a queue with an order.
    pub const OUTSTANDING_MAX: u32 = 100_000;
    /// A receiver on a queue with an order may hold as many messages as it settles in this time.
    pub const OUTSTANDING_HORIZON: Duration = Duration::from_millis(OUTSTANDING_HORIZON_MS);
    pub const OUTSTANDING_HORIZON_MS: u64 = 100;
    /// Queues and subscriptions of one queue group, and queue groups of a namespace.
    pub const QUEUE_GROUP_MEMBERS_MAX: usize = 32;
    pub const GROUPS_MAX: usize = 1000;
    pub const PARTITIONS_MAX: u32 = 1024;
    pub const CONSUMER_GROUPS_MAX: usize = 1000;
    pub const CONSUMER_GROUP_CHARS_MAX: usize = 50;
    pub const RETENTION_MIN: Duration = Duration::from_secs(1);
    pub const RETENTION_BYTES_MIN: u64 = 1024 * 1024;
    /// An event or a batch of events, with all its sections.
    pub const PUBLICATION_SIZE_BYTES_MAX: usize = 1024 * 1024;
    pub const PARTITION_KEY_CHARS_MAX: usize = 128;
    /// Readers without an owner level, per partition and consumer group.
    pub const PLAIN_READERS_MAX: usize = 5;
    /// Producers whose last sends one partition remembers, to detect repeated ones.
    pub const PRODUCERS_MAX: usize = 1024;
    /// The characters in the name of a reader or of an owner.
    pub const OWNER_CHARS_MAX: usize = 256;
    /// Ten thousand years: longer than any meaningful duration, and far below the range of all clocks.
    pub const DURATION_MAX: Duration = Duration::from_secs(10_000 * 365 * 24 * 3600);
}

/// The settings of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueSettings {
    pub lock_duration: Duration,
    /// A message that failed this often goes to the dead-letter queue.
    pub max_delivery_count: u32,
    /// Every message belongs to a session. Cannot be changed later.
    pub requires_session: bool,
    /// The time to live of a message that specifies none, and the maximum for others.
    pub default_time_to_live: Option<Duration>,
    /// Expired messages go to the dead-letter queue; otherwise they are deleted.
    pub dead_letter_on_expiration: bool,
    /// The queue is deleted when it has not been used for this time.
    pub auto_delete_on_idle: Option<Duration>,
    /// A message whose id was seen within this time is dropped. Duplicate detection cannot be turned on or off later.
    pub duplicate_window: Option<Duration>,
    /// Stores and shows a window that was set although duplicates are not detected, without effect.
    pub unused_duplicate_window: Option<Duration>,
    /// Bytes of all bodies, including dead-lettered ones. `None`: limited by the disk.
    pub max_size_bytes: Option<u64>,
    /// The maximum number of messages of a queue, including dead-lettered ones. `None`: no limit.
    pub max_count: Option<u32>,
    pub max_message_size_bytes: u32,
    pub status: QueueStatus,
    /// The target to which every message is forwarded.
    pub forward_to: Option<EntityName>,
    pub forward_dead_letters_to: Option<EntityName>,
    pub retry: RetryPolicy,
    pub poison_session: PoisonSession,
    /// The order in which messages are delivered. `None`: as they were enqueued.
    pub order: Option<Box<OrderSettings>>,
    /// For a subscription: a message on which a filter cannot be evaluated goes to the dead-letter queue; otherwise the
    /// filter does not match.
    pub dead_letter_on_filter_error: bool,
    /// Stores and shows the setting, without effect: all operations are batched.
    pub batched_operations: bool,
    /// Stores and shows `SupportOrdering`, without effect: the order of messages is always kept.
    pub support_ordering: bool,
    /// Stores and shows `EnableExpress`, without effect: every message is on disk before it is confirmed.
    pub express: bool,
    /// Stores and shows `EnablePartitioning`, without effect: the entity stays whole in one shard. Cannot be changed
    /// later.
    pub partitioning: bool,
    /// Free text of the owner.
    pub user_metadata: Option<String>,
}

/// The tier of a namespace, like the service's price tiers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tier {
    /// Messages of up to 100 MiB, 1 MiB by default.
    #[default]
    Premium,
    /// Messages of up to 256 KiB, without an exception for any entity.
    Standard,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueStatus {
    #[default]
    Active,
    SendDisabled,
    ReceiveDisabled,
    Disabled,
}

impl QueueStatus {
    pub fn can_send(self) -> bool {
        matches!(self, QueueStatus::Active | QueueStatus::ReceiveDisabled)
    }

    pub fn can_receive(self) -> bool {
        matches!(self, QueueStatus::Active | QueueStatus::SendDisabled)
    }
}

/// The delay of a message after a failed delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RetryPolicy {
    /// No delay.
    #[default]
    Immediate,
    Fixed {
        delay: Duration,
    },
    /// `step` after the first failure, twice that after the second, up to `cap`.
    Linear {
        step: Duration,
        cap: Duration,
    },
    /// `base` after the first failure, doubled with each, up to `cap`; with jitter evenly distributed from zero to that
    /// value.
    Exponential {
        base: Duration,
        cap: Duration,
        jitter: bool,
    },
}

/// The handling of a session when a message in it has failed as often as the queue permits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PoisonSession {
    /// The message goes to the dead-letter queue, and the session continues without it.
    #[default]
    DeadLetter,
    /// The message stays in its place and is delivered again and again: nothing overtakes it.
    Block,
    /// The message stays, and only receivers that request the session by name get it.
    SetAside,
}

impl Default for QueueSettings {
    fn default() -> Self {
        QueueSettings {
            lock_duration: Duration::from_secs(60),
            max_delivery_count: 10,
            requires_session: false,
            default_time_to_live: None,
            dead_letter_on_expiration: false,
            auto_delete_on_idle: None,
            duplicate_window: None,
            unused_duplicate_window: None,
            max_size_bytes: None,
            max_count: None,
            max_message_size_bytes: 1024 * 1024,
            status: QueueStatus::Active,
            forward_to: None,
            forward_dead_letters_to: None,
            retry: RetryPolicy::Immediate,
            poison_session: PoisonSession::DeadLetter,
            order: None,
            dead_letter_on_filter_error: true,
            batched_operations: true,
            support_ordering: true,
            express: false,
            partitioning: false,
            user_metadata: None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    #[error("a {what} of {given:?} is outside of {min:?} to {max:?}")]
    Duration { what: &'static str, given: Duration, min: Duration, max: Duration },
    #[error("a max delivery count of {given} is outside of 1 to {max}", max = limits::DELIVERY_COUNT_MAX)]
    MaxDeliveryCount { given: u32 },
    #[error("a max size of 0 bytes would take no message; leave it out, or give at least 1")]
    MaxSize,
    #[error("a max count of 0 would take no message; leave it out, or give at least 1")]
    MaxCount,
    #[error("a max message size of {given} bytes is outside of 1 to {max}", max = limits::LARGE_MESSAGE_SIZE_BYTES_MAX)]
    MaxMessageSize { given: u32 },
    #[error(
        "'{target}' is a subscription, which gets messages only from its topic; forward to a queue or a topic"
    )]
    ForwardsToSubscription { target: EntityName },
    #[error("'{what}' cannot be changed after the entity was created; delete it and create it anew")]
    Immutable { what: &'static str },
    #[error("the user metadata has {count} characters; at most {max} are allowed", max = limits::USER_METADATA_CHARS_MAX)]
    UserMetadata { count: usize },
    #[error(transparent)]
    Order(#[from] OrderError),
    #[error("a {kind} has no {what}; {instead}")]
    NotForKind { kind: EntityKind, what: &'static str, instead: &'static str },
}

impl QueueSettings {
    pub fn check(&self) -> Result<(), SettingsError> {
        within("lock duration", self.lock_duration, limits::LOCK_DURATION_MIN, limits::LOCK_DURATION_MAX)?;
        if !(1..=limits::DELIVERY_COUNT_MAX).contains(&self.max_delivery_count) {
            return Err(SettingsError::MaxDeliveryCount { given: self.max_delivery_count });
        }
        self.check_times()?;
        if self.max_size_bytes == Some(0) {
            return Err(SettingsError::MaxSize);
        }
        if self.max_count == Some(0) {
            return Err(SettingsError::MaxCount);
        }
        let size_fits =
            (1..=limits::LARGE_MESSAGE_SIZE_BYTES_MAX).contains(&(self.max_message_size_bytes as usize));
        if !size_fits {
            return Err(SettingsError::MaxMessageSize { given: self.max_message_size_bytes });
        }
        let mut targets = [&self.forward_to, &self.forward_dead_letters_to].into_iter().flatten();
        if let Some(target) = targets.find(|to| to.is_subscription()) {
            return Err(SettingsError::ForwardsToSubscription { target: target.clone() });
        }
        let count = self.user_metadata.as_ref().map_or(0, |text| text.chars().count());
        if count > limits::USER_METADATA_CHARS_MAX {
            return Err(SettingsError::UserMetadata { count });
        }
        self.order.as_ref().map_or(Ok(()), |order| Ok(order.check()?))
    }

    /// Checks that an entity of this kind can have these settings.
    pub fn check_kind(&self, kind: EntityKind) -> Result<(), SettingsError> {
        let on_subscriptions = "set it on the topic's subscriptions";
        let forwards = self.forward_to.is_some() || self.forward_dead_letters_to.is_some();
        let wrong = match kind {
            EntityKind::Queue => [(false, "", ""); 5],
            EntityKind::Topic => [
                (self.requires_session, "sessions", on_subscriptions),
                (forwards, "forwarding", on_subscriptions),
                (self.dead_letter_on_expiration, "dead-letter queue", on_subscriptions),
                (self.order.is_some(), "order of its own", on_subscriptions),
                (self.max_count.is_some(), "max count", "set it on a queue"),
            ],
            EntityKind::Subscription => [
                (
                    self.duplicate_window.or(self.unused_duplicate_window).is_some(),
                    "duplicate detection",
                    "set it on the topic",
                ),
                (self.max_size_bytes.is_some(), "size of its own", "set it on the topic"),
                (self.max_count.is_some(), "max count", "set it on a queue"),
                (self.status == QueueStatus::SendDisabled, "senders", "set the status of the topic"),
                (
                    self.order.as_ref().is_some_and(|order| order.has_send_rates()),
                    "senders",
                    "set send rates on a queue",
                ),
            ],
        };
        match wrong.into_iter().find(|(is_wrong, ..)| *is_wrong) {
            Some((_, what, instead)) => Err(SettingsError::NotForKind { kind, what, instead }),
            None => Ok(()),
        }
    }

    fn check_times(&self) -> Result<(), SettingsError> {
        let max = limits::DURATION_MAX;
        if let Some(given) = self.default_time_to_live {
            within("time to live", given, limits::TIME_TO_LIVE_MIN, max)?;
        }
        if let Some(given) = self.auto_delete_on_idle {
            within("time until deletion of an idle queue", given, limits::AUTO_DELETE_ON_IDLE_MIN, max)?;
        }
        for given in self.duplicate_window.into_iter().chain(self.unused_duplicate_window) {
            let (min, max) = (limits::DUPLICATE_WINDOW_MIN, limits::DUPLICATE_WINDOW_MAX);
            within("duplicate detection window", given, min, max)?;
        }
        let longest = match self.retry {
            RetryPolicy::Immediate => return Ok(()),
            RetryPolicy::Fixed { delay } => [delay, delay],
            RetryPolicy::Linear { step, cap } => [step, cap],
            RetryPolicy::Exponential { base, cap, .. } => [base, cap],
        };
        for given in longest {
            within("retry delay", given, Duration::from_millis(1), limits::SCHEDULE_AHEAD_MAX)?;
        }
        Ok(())
    }

    /// Checks that a queue with these settings may change to `new` ones.
    pub fn check_change(&self, new: &QueueSettings) -> Result<(), SettingsError> {
        if self.requires_session != new.requires_session {
            return Err(SettingsError::Immutable { what: "requires session" });
        }
        if self.duplicate_window.is_some() != new.duplicate_window.is_some() {
            return Err(SettingsError::Immutable { what: "requires duplicate detection" });
        }
        if self.partitioning != new.partitioning {
            return Err(SettingsError::Immutable { what: "enable partitioning" });
        }
        Ok(())
    }
}

fn within(what: &'static str, given: Duration, min: Duration, max: Duration) -> Result<(), SettingsError> {
    if (min..=max).contains(&given) {
        return Ok(());
    }
    Err(SettingsError::Duration { what, given, min, max })
}
