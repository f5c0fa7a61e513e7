//! The encodings of the types of this crate.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::tags::{
    class_rule, class_settings, hub_setting, order_setting, queue_setting, rate, retry, retry_field, target,
    tenant_class, tenant_settings,
};
use super::{DecodeError, Decoder, Wire, put_number, take_record};
use crate::{
    ClassName, ClassRule, ClassSettings, CommitGroupNumber, ConsumerGroup, EntityKind, EntityName, Etag,
    ExpiredPosition, HubId, HubSettings, OrderPolicy, OrderSettings, PoisonSession, QueueSettings,
    QueueStatus, Rate, RetryPolicy, SequenceNumber, SessionId, ShardId, SubQueue, Target, TenantClass,
    TenantSettings, Timestamp,
};

tagged_fields! { QueueSettings in queue_setting {
    LOCK_DURATION: lock_duration,
    MAX_DELIVERY_COUNT: max_delivery_count,
    REQUIRES_SESSION: requires_session,
    DEFAULT_TIME_TO_LIVE: default_time_to_live,
    DEAD_LETTER_ON_EXPIRATION: dead_letter_on_expiration,
    AUTO_DELETE_ON_IDLE: auto_delete_on_idle,
    DUPLICATE_WINDOW: duplicate_window,
    UNUSED_DUPLICATE_WINDOW: unused_duplicate_window,
    MAX_SIZE_BYTES: max_size_bytes,
    MAX_MESSAGE_SIZE_BYTES: max_message_size_bytes,
    STATUS: status,
    FORWARD_TO: forward_to,
    FORWARD_DEAD_LETTERS_TO: forward_dead_letters_to,
    RETRY: retry,
    POISON_SESSION: poison_session,
    ORDER: order,
    DEAD_LETTER_ON_FILTER_ERROR: dead_letter_on_filter_error,
    BATCHED_OPERATIONS: batched_operations,
    SUPPORT_ORDERING: support_ordering,
    EXPRESS: express,
    PARTITIONING: partitioning,
    USER_METADATA: user_metadata,
    MAX_COUNT: max_count,
}}

tagged_fields! { OrderSettings in order_setting {
    POLICY: policy,
    CLASSES: classes,
    DEFAULT_CLASS: default_class,
    RULES: rules,
    TENANTS: tenants,
    RATE: rate,
    SEND_RATE: send_rate,
    MAX_OUTSTANDING: max_outstanding,
}}

tagged_fields! { ClassSettings in class_settings {
    NAME: name,
    PRIORITIES: priorities,
    OFFSET: offset,
    WEIGHT: weight,
    TARGET: target,
    RATE: rate,
    SEND_RATE: send_rate,
}}

tagged_fields! { Target in target {
    WITHIN: within,
    OBJECTIVE_PPM: objective_ppm,
}}

tagged_fields! { ClassRule in class_rule {
    WHEN: when,
    CLASS: class,
}}

tagged_fields! { TenantSettings in tenant_settings {
    KEY: key,
    CLASSES: classes,
    DEFAULT_CLASS: default_class,
}}

tagged_fields! { TenantClass in tenant_class {
    NAME: name,
    WHEN: when,
    WEIGHT_MILLI: weight_milli,
    MAX_SHARE_MILLI: max_share_milli,
    IS_SHARE_HARD: is_share_hard,
    RATE: rate,
    SEND_RATE: send_rate,
}}

tagged_fields! { Rate in rate {
    PER_SECOND_MILLI: per_second_milli,
    BURST: burst,
}}

tagged_fields! { HubSettings in hub_setting {
    PARTITION_COUNT: partition_count,
    RETENTION: retention,
    RETENTION_BYTES: retention_bytes,
    EXPIRED_POSITION: expired_position,
    STATUS: status,
    USER_METADATA: user_metadata,
}}

coded! { QueueStatus, "status" { 0 = Active, 1 = SendDisabled, 2 = ReceiveDisabled, 3 = Disabled } }
coded! { PoisonSession, "way with poisoned sessions" { 0 = DeadLetter, 1 = Block, 2 = SetAside } }
coded! { OrderPolicy, "order policy" { 0 = Fifo, 1 = Strict, 2 = Aged, 3 = Weighted } }
coded! { ExpiredPosition, "way with expired positions" { 0 = Refuse, 1 = Earliest } }
coded! { EntityKind, "entity kind" { 0 = Queue, 1 = Topic, 2 = Subscription } }

mod retry_policy {
    use super::{RetryPolicy, retry, retry_field};

    records! { RetryPolicy, kinds retry, fields retry_field, room 1 {
        IMMEDIATE: Immediate {} {},
        FIXED: Fixed { delay } {},
        LINEAR: Linear { step, cap } {},
        EXPONENTIAL: Exponential { base, cap, jitter } {},
    }}
}

impl Wire for RetryPolicy {
    const IS_OPEN: bool = false;

    fn put_value(&self, out: &mut Vec<u8>) {
        retry_policy::put_record(self, CommitGroupNumber::NONE, out);
    }

    fn take_value(input: &mut Decoder<'_>, _: &'static str) -> Result<Self, DecodeError> {
        let (kind, fields) = take_record(input)?;
        let policy = retry_policy::take_fields(kind, fields, CommitGroupNumber::NONE)?;
        policy.ok_or(DecodeError::Unknown { of: retry::LIST, tag: kind })
    }
}

/// The main queue is the absent value, because most records are about it.
impl Wire for SubQueue {
    const IS_OPEN: bool = false;

    fn put_value(&self, out: &mut Vec<u8>) {
        out.push(match self {
            SubQueue::Main => 0,
            SubQueue::Transfer => 1,
            SubQueue::DeadLetter => 2,
            SubQueue::TransferDeadLetter => 3,
        });
    }

    fn take_value(input: &mut Decoder<'_>, what: &'static str) -> Result<Self, DecodeError> {
        match input.byte(what)? {
            0 => Ok(SubQueue::Main),
            1 => Ok(SubQueue::Transfer),
            2 => Ok(SubQueue::DeadLetter),
            3 => Ok(SubQueue::TransferDeadLetter),
            code => Err(DecodeError::Unknown { of: "sub-queue", tag: code.into() }),
        }
    }

    fn absent() -> Option<Self> {
        Some(SubQueue::Main)
    }

    fn is_absent(&self) -> bool {
        *self == SubQueue::Main
    }
}

/// Implements [`Wire`] for types that are encoded as a number.
macro_rules! numbers {
    ($( $type:ty: |$value:ident| $number:expr, |$found:ident| $made:expr; )*) => { $(
        impl Wire for $type {
            const IS_OPEN: bool = false;

            #[inline]
            fn put_value(&self, out: &mut Vec<u8>) {
                let $value = self;
                put_number($number, out);
            }

            #[inline]
            fn take_value(input: &mut Decoder<'_>, what: &'static str) -> Result<Self, DecodeError> {
                let $found = input.number(what)?;
                let made: Option<Self> = $made;
                made.ok_or(DecodeError::Value(what))
            }
        }
    )* };
}

numbers! {
    u64: |number| *number, |number| Some(number);
    u32: |number| u64::from(*number), |number| number.try_into().ok();
    u16: |number| u64::from(*number), |number| number.try_into().ok();
    u8: |number| u64::from(*number), |number| number.try_into().ok();
    bool: |flag| u64::from(*flag), |number| match number { 0 => Some(false), 1 => Some(true), _ => None };
    // Whole milliseconds. The limits of all settings are far below 2^64.
    Duration: |span| u64::try_from(span.as_millis()).unwrap_or(u64::MAX), |millis| Some(Duration::from_millis(millis));
    Timestamp: |at| at.as_millis(), |millis| Some(Timestamp::from_millis(millis));
    SequenceNumber: |number| number.0, |number| Some(SequenceNumber(number));
    CommitGroupNumber: |number| number.0, |number| Some(CommitGroupNumber(number));
    Etag: |etag| etag.0, |number| Some(Etag(number));
    HubId: |id| id.0, |id| Some(HubId(id));
    ShardId: |shard| u64::from(shard.0), |number| number.try_into().ok().map(ShardId);
}

/// Implements [`Wire`] for types that are encoded as text.
#[macro_export]
macro_rules! texts {
    ($( $type:ty: $parse:expr; )*) => { $(
        impl $crate::wire::Wire for $type {
            const IS_OPEN: bool = true;

            fn put_value(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(self.as_str().as_bytes());
            }

            fn take_value(
                input: &mut $crate::wire::Decoder<'_>,
                what: &'static str,
            ) -> Result<Self, $crate::wire::DecodeError> {
                let text = std::str::from_utf8(input.remaining()).ok();
                text.and_then(|text| $parse(text).ok()).ok_or($crate::wire::DecodeError::Value(what))
            }
        }
    )* };
}

texts! {
    String: (|text: &str| Ok::<_, std::convert::Infallible>(text.to_owned()));
    EntityName: EntityName::parse_stored;
    SessionId: SessionId::parse;
    ClassName: ClassName::parse;
    ConsumerGroup: ConsumerGroup::parse;
}

impl Wire for Arc<str> {
    const IS_OPEN: bool = true;

    fn put_value(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.as_bytes());
    }

    fn take_value(input: &mut Decoder<'_>, what: &'static str) -> Result<Self, DecodeError> {
        std::str::from_utf8(input.remaining()).map(Arc::from).map_err(|_| DecodeError::Value(what))
    }
}

/// Decodes a copy, because a stored value must not keep a whole commit group in memory.
impl Wire for Bytes {
    const IS_OPEN: bool = true;

    fn put_value(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }

    fn take_value(input: &mut Decoder<'_>, _: &'static str) -> Result<Self, DecodeError> {
        Ok(Bytes::copy_from_slice(input.remaining()))
    }

    fn is_large(&self) -> bool {
        self.len() >= 16 * 1024
    }
}

impl<T: Wire> Wire for Option<T> {
    const IS_OPEN: bool = T::IS_OPEN;

    /// Writes nothing for `None`, so an option can be encoded only as a field: an omitted field is `None`.
    fn put_value(&self, out: &mut Vec<u8>) {
        if let Some(value) = self {
            value.put_value(out);
        }
    }

    fn take_value(input: &mut Decoder<'_>, what: &'static str) -> Result<Self, DecodeError> {
        T::take_value(input, what).map(Some)
    }

    fn absent() -> Option<Self> {
        Some(None)
    }

    fn is_absent(&self) -> bool {
        self.is_none()
    }

    fn is_large(&self) -> bool {
        self.as_ref().is_some_and(T::is_large)
    }
}

impl<T: Wire> Wire for Box<T> {
    const IS_OPEN: bool = T::IS_OPEN;

    fn put_value(&self, out: &mut Vec<u8>) {
        (**self).put_value(out);
    }

    fn take_value(input: &mut Decoder<'_>, what: &'static str) -> Result<Self, DecodeError> {
        T::take_value(input, what).map(Box::new)
    }
}

impl<T: Wire> Wire for Vec<T> {
    const IS_OPEN: bool = true;

    fn put_value(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|item| item.put(out));
    }

    fn take_value(input: &mut Decoder<'_>, what: &'static str) -> Result<Self, DecodeError> {
        let mut items = Vec::new();
        while !input.is_empty() {
            let before = input.rest.len();
            items.push(T::take(input, what)?);
            // Each item takes at least a byte; otherwise damaged bytes could make this loop endless.
            if input.rest.len() == before {
                return Err(DecodeError::Value(what));
            }
        }
        Ok(items)
    }

    fn absent() -> Option<Self> {
        Some(Vec::new())
    }

    fn is_absent(&self) -> bool {
        self.is_empty()
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    const IS_OPEN: bool = false;

    fn put_value(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }

    fn take_value(input: &mut Decoder<'_>, what: &'static str) -> Result<Self, DecodeError> {
        Ok((A::take(input, what)?, B::take(input, what)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::put_field;

    fn bytes_of<T: Wire>(value: &T) -> Vec<u8> {
        let mut bytes = Vec::new();
        value.put_value(&mut bytes);
        bytes
    }

    #[test]
    fn settings_are_decoded_as_encoded() {
        let class = ClassName::parse("high").unwrap();
        let mut settings = QueueSettings {
            forward_to: Some(EntityName::parse("next").unwrap()),
            user_metadata: Some("mine".into()),
            retry: RetryPolicy::Exponential {
                base: Duration::from_secs(1),
                cap: Duration::from_secs(60),
                jitter: true,
            },
            order: Some(Box::new(OrderSettings {
                classes: vec![
                    ClassSettings::new(class.clone(), (8, 9)),
                    ClassSettings::new(class.clone(), (0, 7)),
                ],
                rules: vec![ClassRule { when: "a = 1".into(), class: class.clone() }],
                tenants: Some(TenantSettings {
                    key: "tenant".into(),
                    classes: vec![TenantClass::new(class)],
                    default_class: None,
                }),
                ..OrderSettings::default()
            })),
            ..QueueSettings::default()
        };
        for _ in 0..2 {
            let bytes = bytes_of(&settings);
            assert_eq!(Decoder::new(&bytes).whole::<QueueSettings>("settings"), Ok(settings));
            settings = QueueSettings::default();
        }
    }

    #[test]
    fn an_unknown_setting_is_reported_by_its_number() {
        let mut bytes = bytes_of(&QueueSettings::default());
        put_field(99, &7_u64, &mut bytes);
        let found = Decoder::new(&bytes).whole::<QueueSettings>("settings");
        assert_eq!(found, Err(DecodeError::Unknown { of: "queue setting", tag: 99 }));
        assert_eq!(found.unwrap_err().to_string(), "the queue setting 99 is unknown");
    }

    #[test]
    fn a_missing_required_setting_is_an_error() {
        let found = Decoder::new(&[]).whole::<QueueSettings>("settings");
        assert_eq!(found, Err(DecodeError::Missing("lock_duration")));
    }

    #[test]
    fn repeated_and_unordered_fields_are_rejected() {
        let mut bytes = Vec::new();
        put_field(rate::BURST, &7_u32, &mut bytes);
        put_field(rate::PER_SECOND_MILLI, &7_u64, &mut bytes);
        let found = Decoder::new(&bytes).whole::<Rate>("a rate");
        assert_eq!(found, Err(DecodeError::Value("the order of fields")));
    }
}
