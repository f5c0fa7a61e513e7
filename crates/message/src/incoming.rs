//! Messages from senders: the stored form, and the attributes that the engine needs.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use peeklock_amqp::{Header, MessageIdRef, PropertiesRef, RawMap, Sections};
use peeklock_engine::Attributes;
use peeklock_types::{SessionId, Timestamp, limits};

use crate::error::StoreError;
use crate::lifetime::time_to_live_ms;
use crate::stored::StoredMessage;
use crate::view::{Parts, view};

pub(crate) const SCHEDULED_TIME: &str = "x-opt-scheduled-enqueue-time";

/// The values that an entity needs from each message sent to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// The message id, for duplicate detection and forwarding.
    pub message_id: bool,
    /// The view, for the filters of a topic or the order of a queue.
    pub view: bool,
}

/// Appends the stored form of a sender's message and returns the attributes that the engine needs. Most messages have
/// none.
///
/// `new_id` generates the id of a message that has none.
pub fn store(
    payload: &[u8],
    now: Timestamp,
    needs: Needs,
    new_id: impl FnOnce() -> u128,
    out: &mut BytesMut,
) -> Result<Option<Box<Attributes>>, StoreError> {
    let sections = Sections::scan(payload)?;
    let properties = sections.properties()?;
    let mut digits = [0; 32];
    let new_id = match properties.message_id {
        Some(_) => None,
        None => Some(write_hex(new_id(), &mut digits)),
    };
    let scanned = Scanned::read(&sections, &properties, now)?;
    let view = match needs.view {
        true => Some(checked(scanned.view(new_id, Some(payload.len()))?)?),
        false => None,
    };
    StoredMessage::encode_read(out, &sections, (&scanned.header, &properties), new_id)?;
    scanned.attributes(needs, view)
}

/// Returns the attributes of a large message whose front was received. [`LargeMessage`](crate::LargeMessage) stores the
/// message itself.
pub fn describe_front(
    front: &[u8],
    new_id: &str,
    now: Timestamp,
    needs: Needs,
) -> Result<Option<Box<Attributes>>, StoreError> {
    let sections = Sections::scan(front)?;
    let properties = sections.properties()?;
    let scanned = Scanned::read(&sections, &properties, now)?;
    let view = checked(scanned.view(properties.message_id.is_none().then_some(new_id), None)?);
    // The queue may get an order before the upload ends, and the front of a large message is decoded only once.
    let view = if needs.view { Some(view?) } else { view.ok() };
    scanned.attributes(needs, view)
}

/// A message whose sections were scanned once.
struct Scanned<'s, 'a> {
    sections: &'s Sections<'a>,
    properties: &'s PropertiesRef<'a>,
    annotations: RawMap<'a>,
    header: Header,
    now: Timestamp,
    time_to_live: Option<Duration>,
    scheduled_for: Option<Timestamp>,
}

impl<'s, 'a> Scanned<'s, 'a> {
    fn read(
        sections: &'s Sections<'a>,
        properties: &'s PropertiesRef<'a>,
        now: Timestamp,
    ) -> Result<Self, StoreError> {
        check_message_id(properties.message_id)?;
        let header = sections.header()?;
        let annotations = sections.message_annotations()?;
        let time_to_live = time_to_live(&header, properties);
        let scheduled_for = scheduled_for(&annotations)?.filter(|due| *due > now);
        Ok(Scanned { sections, properties, annotations, header, now, time_to_live, scheduled_for })
    }

    /// Returns the view for filters and orders. `new_id` replaces an id that the sender omitted.
    fn view(&self, new_id: Option<&str>, size_bytes: Option<usize>) -> Result<Bytes, StoreError> {
        let parts = Parts {
            properties: *self.properties,
            new_id,
            application_properties: self.sections.application_properties()?,
            annotations: self.annotations,
            priority: self.header.priority,
            time_to_live: self.time_to_live,
            enqueued_at: Some(self.now),
            size_bytes,
        };
        Ok(view(&parts)?)
    }

    /// Returns the attributes, unless there are none.
    fn attributes(&self, needs: Needs, view: Option<Bytes>) -> Result<Option<Box<Attributes>>, StoreError> {
        let session = self.properties.group_id.map(SessionId::parse).transpose()?;
        let message_id = self.properties.message_id.filter(|_| needs.message_id).map(id_bytes);
        let (time_to_live, scheduled_for) = (self.time_to_live, self.scheduled_for);
        // The struct has hundreds of bytes, so it is not built for a message without attributes.
        if session.is_none()
            && message_id.is_none()
            && time_to_live.is_none()
            && scheduled_for.is_none()
            && view.is_none()
        {
            return Ok(None);
        }
        let attributes =
            Attributes { session, time_to_live, scheduled_for, message_id, view, ..Attributes::default() };
        Ok(Some(Box::new(attributes)))
    }
}

/// Capacity for the size of a large message, which is added at the end of the upload.
const SIZE_ENTRY_BYTES: usize = 16;

fn checked(view: Bytes) -> Result<Bytes, StoreError> {
    if view.len() + SIZE_ENTRY_BYTES > limits::VIEW_SIZE_BYTES_MAX {
        return Err(StoreError::LargeView { size_bytes: view.len() });
    }
    Ok(view)
}

/// Writes a number in hexadecimal. The standard formatter would take as long as storing a small message.
fn write_hex(number: u128, digits: &mut [u8; 32]) -> &str {
    for (pair, byte) in digits.chunks_exact_mut(2).zip(number.to_be_bytes()) {
        let digit = |nibble: u8| if nibble < 10 { b'0' + nibble } else { b'a' + nibble - 10 };
        pair.copy_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
    }
    std::str::from_utf8(digits).unwrap_or_default()
}

fn check_message_id(id: Option<MessageIdRef<'_>>) -> Result<(), StoreError> {
    let char_count = match id {
        // A character has at least one byte.
        Some(MessageIdRef::String(text)) if text.len() <= limits::MESSAGE_ID_CHARS_MAX => return Ok(()),
        Some(MessageIdRef::String(text)) => text.chars().count(),
        Some(MessageIdRef::Binary(bytes)) => bytes.len(),
        _ => 0,
    };
    if char_count > limits::MESSAGE_ID_CHARS_MAX {
        return Err(StoreError::LongMessageId { char_count });
    }
    Ok(())
}

/// Returns the id with a tag for its type: `1` and `"1"` are different ids.
fn id_bytes(id: MessageIdRef<'_>) -> Bytes {
    let tagged = |tag: u8, value: &[u8]| [&[tag], value].concat().into();
    match id {
        MessageIdRef::Ulong(number) => tagged(b'n', &number.to_be_bytes()),
        MessageIdRef::Uuid(uuid) => tagged(b'u', &uuid),
        MessageIdRef::Binary(bytes) => tagged(b'b', bytes),
        MessageIdRef::String(text) => tagged(b's', text.as_bytes()),
    }
}

fn time_to_live(header: &Header, properties: &PropertiesRef<'_>) -> Option<Duration> {
    let asked_ms = time_to_live_ms(header.ttl, properties.absolute_expiry_time, properties.creation_time)?;
    Some(Duration::from_millis(asked_ms).min(limits::DURATION_MAX))
}

fn scheduled_for(annotations: &RawMap<'_>) -> Result<Option<Timestamp>, StoreError> {
    let value = annotations.get(SCHEDULED_TIME)?;
    let Some(value) = value.filter(|value| !value.is_null()) else { return Ok(None) };
    let millis = value.as_timestamp().ok_or(StoreError::ScheduledTime)?;
    Ok(Some(Timestamp::from_millis(u64::try_from(millis).unwrap_or_default())))
}

#[cfg(test)]
mod tests {
    use peeklock_amqp::{Encode, Fields, Message, MessageId, Properties, Value};
    use peeklock_engine::Patch;
    use peeklock_filter::{Entries, SystemProperty, ValueRef, ViewProperty};

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    fn store(
        payload: &[u8],
        now: Timestamp,
        needs: Needs,
        out: &mut BytesMut,
    ) -> Result<Option<Box<Attributes>>, StoreError> {
        super::store(payload, now, needs, || 7, out)
    }

    fn attributes(message: &Message) -> Result<Option<Box<Attributes>>, StoreError> {
        store(&message.to_bytes(), NOW, Needs { message_id: true, view: false }, &mut BytesMut::new())
    }

    fn with_ttl(ttl: u32, expires: Option<i64>, created: Option<i64>) -> Option<Duration> {
        let message = Message {
            header: Some(Header { ttl: Some(ttl), ..Header::default() }),
            properties: Properties {
                absolute_expiry_time: expires,
                creation_time: created,
                ..Properties::default()
            },
            ..Message::data("x")
        };
        attributes(&message).unwrap().unwrap().time_to_live
    }

    fn scheduled_at(time: impl Into<Value>) -> Result<Option<Timestamp>, StoreError> {
        let annotations = Fields::new().with(SCHEDULED_TIME, time);
        let found = attributes(&Message { message_annotations: annotations, ..Message::data("x") })?;
        Ok(found.and_then(|found| found.scheduled_for))
    }

    #[test]
    fn generated_ids_are_plain_hex() {
        for number in [0, u128::MAX, 0x0123_4567_89ab_cdef_0f1e_2d3c_4b5a_6978] {
            assert_eq!(write_hex(number, &mut [0; 32]), format!("{number:032x}"));
        }
    }

    #[test]
    fn a_plain_message_has_no_attributes() {
        assert_eq!(attributes(&Message::data("x")).unwrap(), None);
    }

    #[test]
    fn a_session_id_is_returned_and_limited() {
        let of = |id: String| {
            let properties = Properties { group_id: Some(id.into()), ..Properties::default() };
            attributes(&Message { properties, ..Message::data("x") })
        };
        let found = of("s".into()).unwrap().unwrap();
        assert_eq!(found.session, Some(SessionId::parse("s").unwrap()));
        assert!(of("".into()).unwrap().unwrap().session.is_some(), "an empty session id is a session id");
        assert!(matches!(of("x".repeat(129)), Err(StoreError::Session(_))));
    }

    #[test]
    fn a_time_to_live_that_exceeds_the_header_is_read_from_the_times() {
        let day_ms = 86_400_000;
        assert_eq!(with_ttl(5, None, None), Some(Duration::from_millis(5)));
        assert_eq!(with_ttl(0, None, None), Some(Duration::ZERO), "the queue rejects it");
        assert_eq!(with_ttl(5, Some(100), Some(0)), Some(Duration::from_millis(5)));
        let most = Duration::from_millis(u32::MAX.into());
        assert_eq!(with_ttl(u32::MAX, None, Some(0)), Some(most));
        assert_eq!(with_ttl(u32::MAX, Some(9), Some(0)), Some(most));
        assert_eq!(with_ttl(u32::MAX, Some(i64::MAX), Some(-1)), Some(most), "invalid times are ignored");
        let hundred_days = Some(Duration::from_secs(100 * 86_400));
        assert_eq!(with_ttl(u32::MAX, Some(100 * day_ms), Some(0)), hundred_days);
        assert_eq!(with_ttl(u32::MAX, Some(i64::MAX), Some(0)), Some(limits::DURATION_MAX));
    }

    #[test]
    fn only_a_future_time_schedules_a_message() {
        let now = i64::try_from(NOW.as_millis()).unwrap();
        assert_eq!(scheduled_at(Value::Timestamp(now + 5)).unwrap(), Some(NOW + Duration::from_millis(5)));
        assert_eq!(
            scheduled_at(now + 5).unwrap(),
            Some(NOW + Duration::from_millis(5)),
            "a long is accepted"
        );
        assert_eq!(scheduled_at(Value::Timestamp(now)).unwrap(), None);
        assert_eq!(scheduled_at(Value::Timestamp(-5)).unwrap(), None);
        assert_eq!(scheduled_at(Value::Null).unwrap(), None);
        assert_eq!(scheduled_at("tomorrow").unwrap_err(), StoreError::ScheduledTime);
    }

    #[test]
    fn ids_of_different_types_are_different_ids() {
        let of = |id: MessageId| {
            let properties = Properties { message_id: Some(id), ..Properties::default() };
            let message = Message { properties, ..Message::data("x") };
            attributes(&message).unwrap().unwrap().message_id.unwrap()
        };
        let ids = [
            of(MessageId::Ulong(49)),
            of(MessageId::String("1".into())),
            of(MessageId::Binary(Bytes::from_static(b"1"))),
            of(MessageId::Uuid([49; 16])),
            of(MessageId::Binary(Bytes::from_static(&[49; 16]))),
        ];
        for (i, id) in ids.iter().enumerate() {
            assert!(!ids[i + 1..].contains(id), "{i}");
        }
        let properties = Properties { message_id: Some("1".into()), ..Properties::default() };
        let message = Message { properties, ..Message::data("x") };
        let plain = store(&message.to_bytes(), NOW, Needs::default(), &mut BytesMut::new()).unwrap();
        assert_eq!(plain, None, "no view is built unless the entity needs it");
    }

    /// Returns the priority in a view.
    fn priority_in(view: &[u8]) -> Option<i64> {
        Entries::of(view).find_map(|entry| match entry.unwrap() {
            ViewProperty::System(SystemProperty::Priority, ValueRef::Long(priority)) => Some(priority),
            _ => None,
        })
    }

    #[test]
    fn the_priority_of_the_header_is_in_the_view_and_stored() {
        let needs = Needs { view: true, ..Needs::default() };
        for priority in [None, Some(0), Some(9), Some(255)] {
            let header = Some(Header { priority, ..Header::default() });
            let payload = Message { header, ..Message::data("x") }.to_bytes();
            let expected = priority.map(i64::from);
            let mut stored = BytesMut::new();
            let seen = store(&payload, NOW, needs, &mut stored).unwrap().unwrap();
            assert_eq!(priority_in(&seen.view.unwrap()), expected);
            let described = crate::describe(&stored, &Patch::default()).unwrap();
            assert_eq!(
                priority_in(&described),
                expected,
                "also in a view that is derived from the stored form"
            );
            assert_eq!(store(&payload, NOW, Needs::default(), &mut stored).unwrap(), None);
        }
    }

    #[test]
    fn a_large_message_always_has_a_view_and_is_rejected_only_where_the_view_is_needed() {
        let of = |count: usize, view: bool| {
            let properties = vec![("p".into(), Value::from("x".repeat(count)))];
            let message = Message { application_properties: properties, ..Message::data("x") };
            describe_front(&message.to_bytes(), "id", NOW, Needs { view, ..Needs::default() })
        };
        assert!(of(5, false).unwrap().unwrap().view.is_some());
        assert!(of(5, true).unwrap().unwrap().view.is_some());
        let too_much = limits::VIEW_SIZE_BYTES_MAX;
        assert_eq!(of(too_much, false).unwrap(), None);
        assert!(matches!(of(too_much, true), Err(StoreError::LargeView { .. })));
    }
}
