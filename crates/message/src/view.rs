//! The view of a message for the filters of a topic and the order of a queue.

use std::borrow::Cow;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use peeklock_amqp::{DecodeError, Encode, PropertiesRef, RawMap, Sections};
use peeklock_engine::Patch;
use peeklock_filter::{SystemProperty, ValueRef, ViewBuilder};
use peeklock_types::{Timestamp, limits};

use crate::changes;
use crate::incoming::SCHEDULED_TIME;
use crate::outgoing::timestamp;
use crate::stored::StoredMessage;
use crate::values::{id_text, seen};

const PARTITION_KEY: &str = "x-opt-partition-key";
const VIA_PARTITION_KEY: &str = "x-opt-via-partition-key";

/// .NET ticks per millisecond; filters count time spans in ticks.
const TICKS_PER_MS: u128 = 10_000;

/// The parts of a message that filters evaluate.
pub(crate) struct Parts<'a> {
    pub(crate) properties: PropertiesRef<'a>,
    /// Replaces an id that the sender omitted.
    pub(crate) new_id: Option<&'a str>,
    pub(crate) application_properties: RawMap<'a>,
    pub(crate) annotations: RawMap<'a>,
    /// The priority in the header, if the header has one.
    pub(crate) priority: Option<u8>,
    pub(crate) time_to_live: Option<Duration>,
    pub(crate) enqueued_at: Option<Timestamp>,
    pub(crate) size_bytes: Option<usize>,
}

/// Builds the view. Values that are not set are omitted; filters treat them as null.
pub(crate) fn view(parts: &Parts<'_>) -> Result<Bytes, DecodeError> {
    let mut view = ViewBuilder::new();
    put_properties(parts, &mut view);
    put_annotations(parts, &mut view)?;
    if let Some(priority) = parts.priority {
        view.system_ref(SystemProperty::Priority, &ValueRef::Long(priority.into()));
    }
    put_times(parts, &mut view);
    for entry in parts.application_properties.entries() {
        let entry = entry?;
        if let Some(name) = entry.key.as_str() {
            view.user_ref(name, &seen(&entry.value)?);
        }
    }
    Ok(view.finish())
}

fn put_properties(parts: &Parts<'_>, view: &mut ViewBuilder) {
    let properties = &parts.properties;
    let id = properties.message_id.map(id_text).or_else(|| parts.new_id.map(Cow::Borrowed));
    let texts = [
        (SystemProperty::MessageId, id),
        (SystemProperty::CorrelationId, properties.correlation_id.map(id_text)),
        (SystemProperty::SessionId, properties.group_id.map(Cow::Borrowed)),
        (SystemProperty::ReplyToSessionId, properties.reply_to_group_id.map(Cow::Borrowed)),
        (SystemProperty::To, properties.to.map(Cow::Borrowed)),
        (SystemProperty::ReplyTo, properties.reply_to.map(Cow::Borrowed)),
        (SystemProperty::Label, properties.subject.map(Cow::Borrowed)),
        (SystemProperty::ContentType, properties.content_type.map(Cow::Borrowed)),
    ];
    for (property, text) in texts {
        if let Some(text) = text {
            view.system_ref(property, &ValueRef::Text(text));
        }
    }
}

fn put_annotations(parts: &Parts<'_>, view: &mut ViewBuilder) -> Result<(), DecodeError> {
    let found = [
        (SystemProperty::PartitionKey, PARTITION_KEY),
        (SystemProperty::ViaPartitionKey, VIA_PARTITION_KEY),
        (SystemProperty::ScheduledEnqueueTimeUtc, SCHEDULED_TIME),
    ];
    if parts.annotations.entry_count() == 0 {
        return Ok(());
    }
    for (property, key) in found {
        if let Some(value) = parts.annotations.get(key)? {
            view.system_ref(property, &seen(&value)?);
        }
    }
    Ok(())
}

fn put_times(parts: &Parts<'_>, view: &mut ViewBuilder) {
    if let Some(span) = parts.time_to_live {
        let ticks = i64::try_from(span.as_millis().saturating_mul(TICKS_PER_MS)).unwrap_or(i64::MAX);
        view.system_ref(SystemProperty::TimeToLive, &ValueRef::Span(ticks));
    }
    if let Some(now) = parts.enqueued_at {
        view.system_ref(SystemProperty::EnqueuedTimeUtc, &ValueRef::Time(timestamp(now)));
        view.system_ref(SystemProperty::DeliveryCount, &ValueRef::Long(0));
        if let Some(span) = parts.time_to_live {
            view.system_ref(SystemProperty::ExpiresAtUtc, &ValueRef::Time(timestamp(now + span)));
        }
    }
    if let Some(size_bytes) = parts.size_bytes {
        let size_bytes = i64::try_from(size_bytes).unwrap_or(i64::MAX);
        view.system_ref(SystemProperty::Size, &ValueRef::Long(size_bytes));
    }
}

/// Returns the view with the size of the message added. The size of a large message is known only at its end.
pub fn with_size(view: &Bytes, size_bytes: usize) -> Bytes {
    let mut size = ViewBuilder::new();
    let size_bytes = i64::try_from(size_bytes).unwrap_or(i64::MAX);
    size.system_ref(SystemProperty::Size, &ValueRef::Long(size_bytes));
    [view.as_ref(), size.finish().as_ref()].concat().into()
}

/// Returns the view of a stored message, for a topic to which it is forwarded or a queue with an order.
///
/// Returns `None` if the message cannot be decoded or its view exceeds the limit. Such a message matches only filters
/// that evaluate no property, and gets the default class.
pub fn describe(stored: &[u8], patch: &Patch) -> Option<Bytes> {
    let stored = StoredMessage::parse(stored).ok()?;
    let view = if patch.is_empty() {
        view_of_stored(&stored, &stored.front_sections().ok()?)
    } else {
        let mut front = BytesMut::new();
        changes::rewrite(&stored, patch).ok()?.encode(&mut front);
        view_of_stored(&stored, &Sections::scan(&front).ok()?)
    };
    view.ok().filter(|view| view.len() <= limits::VIEW_SIZE_BYTES_MAX)
}

fn view_of_stored(stored: &StoredMessage<'_>, front: &Sections<'_>) -> Result<Bytes, DecodeError> {
    view(&Parts {
        properties: front.properties()?,
        new_id: None,
        application_properties: front.application_properties()?,
        annotations: stored.annotations(),
        priority: stored.priority,
        time_to_live: stored.ttl_ms.map(|ms| Duration::from_millis(ms.into())),
        enqueued_at: None,
        size_bytes: None,
    })
}
