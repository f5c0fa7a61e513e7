//! Writes a delivery: new sections, followed by the unchanged bytes of the stored message.

use bytes::{BufMut, BytesMut};

use peeklock_amqp::codec::{CompoundWriter, STRING8, put_counted, put_descriptor, section};
use peeklock_amqp::{DecodeError, Decoder, Encode, Problem, Properties, RawMap, RawValue, Sections, Value};

use crate::lifetime::{FIELDS_BEFORE_EXPIRY, Lifetime, time_to_live_ms, times};
use crate::stored::{StoredMessage, put_raw};

/// Capacity for all bytes before the bare message, apart from annotations of variable length.
const FRONT_LEN_MAX: usize = 288;

// Keys as encoded symbols, each with the format code of the value that follows it.
const LOCK_TOKEN: &[u8] = b"\xa3\x10x-opt-lock-token\x98";
const SEQUENCE_NUMBER: &[u8] = b"\xa3\x15x-opt-sequence-number\x81";
const ENQUEUED_TIME: &[u8] = b"\xa3\x13x-opt-enqueued-time\x83";
const LOCKED_UNTIL: &[u8] = b"\xa3\x12x-opt-locked-until\x83";
const MESSAGE_STATE: &[u8] = b"\xa3\x13x-opt-message-state";
const ENQUEUE_SEQUENCE_NUMBER: &[u8] = b"\xa3\x1dx-opt-enqueue-sequence-number\x81";
const DEAD_LETTER_SOURCE: &[u8] = b"\xa3\x17x-opt-deadletter-source";
const CLASS: &[u8] = b"\xa3\x14x-opt-peeklock-class";
const TENANT: &[u8] = b"\xa3\x15x-opt-peeklock-tenant";

const EMPTY_LIST: &[u8] = &[0x45];

/// The values that the broker adds to one delivery of a message.
#[derive(Debug, Clone, Copy, Default)]
pub struct Stamp<'a> {
    /// The number of deliveries before this one.
    pub delivery_count: u32,
    pub sequence_number: i64,
    pub enqueued_at_ms: i64,
    pub locked_until_ms: Option<i64>,
    /// Omitted if zero, which is the state of an active message.
    pub message_state: i32,
    /// Omitted if zero, for a message that was not forwarded.
    pub enqueue_sequence_number: i64,
    /// A UUID in network byte order.
    pub lock_token: Option<[u8; 16]>,
    pub dead_letter_source: Option<&'a str>,
    /// The class and the tenant that the order of the queue assigned to the message.
    pub class: Option<&'a str>,
    pub tenant: Option<&'a str>,
    /// Replaces the sender's expiry and creation times if the sender requested another time to live or omitted one of
    /// the times.
    pub lifetime: Option<Lifetime>,
    /// An encoded map with string keys that is merged into the application properties.
    pub patch: Option<&'a [u8]>,
    /// Replaces the stored sections in front of the body; the patch is already included.
    pub rewritten: Option<&'a Rewritten>,
}

/// The sections in front of a message's body, rewritten.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rewritten {
    pub properties: Properties,
    /// The keys are strings.
    pub application_properties: Vec<(Value, Value)>,
}

impl Rewritten {
    /// Decodes the properties and application properties of a message.
    pub(crate) fn of(sections: &Sections<'_>) -> Result<Self, DecodeError> {
        Ok(Rewritten {
            properties: sections.owned_properties()?,
            application_properties: sections.application_properties()?.decode()?,
        })
    }
}

impl Encode for Rewritten {
    fn encode(&self, out: &mut BytesMut) {
        self.properties.encode(out);
        put_descriptor(out, section::APPLICATION_PROPERTIES);
        let map = CompoundWriter::map(out);
        for (key, value) in &self.application_properties {
            key.encode(out);
            value.encode(out);
        }
        map.finish(out, self.application_properties.len() * 2);
    }
}

impl<'a> StoredMessage<'a> {
    /// Appends one delivery of the message. Fails only if the patch is not a map or the stored form is damaged; nothing
    /// is appended in that case.
    pub fn write_delivery(&self, out: &mut BytesMut, stamp: &Stamp<'_>) -> Result<(), DecodeError> {
        let rest = self.write_front(out, stamp)?;
        out.put_slice(rest);
        Ok(())
    }

    /// Appends the new bytes of a delivery and returns the stored bytes that follow them, which avoids a copy of the
    /// body.
    ///
    /// For a large message, the first
    /// [`LargeMessage::STORED_FRONT_BYTES_MAX`](crate::LargeMessage::STORED_FRONT_BYTES_MAX) bytes of the stored form
    /// are sufficient; the rest of the stored form follows the returned bytes.
    pub fn write_front(&self, out: &mut BytesMut, stamp: &Stamp<'_>) -> Result<&'a [u8], DecodeError> {
        let start = out.len();
        let annotations_len = self.raw_annotations().entries.len();
        out.reserve(FRONT_LEN_MAX + annotations_len + self.raw_delivery_annotations().entries.len());
        self.put_header(out, stamp);
        self.put_delivery_annotations(out, stamp.lock_token.as_ref());
        self.put_annotations(out, stamp);
        self.put_bare(out, stamp).inspect_err(|_| out.truncate(start))
    }

    /// Returns the message without its body and the sections after it. For a large message, the front is sufficient.
    pub fn without_body(self) -> Result<Self, DecodeError> {
        let (front, _) = split_front(self.bare())?;
        Ok(self.with_bare(front))
    }

    /// Appends the changed sections of the bare message and returns the unchanged rest.
    fn put_bare(&self, out: &mut BytesMut, stamp: &Stamp<'_>) -> Result<&'a [u8], DecodeError> {
        let lifetime = match stamp.lifetime {
            Some(lifetime) if !self.asks_for(&lifetime)? => Some(lifetime),
            _ => None,
        };
        if let Some(rewritten) = stamp.rewritten {
            return self.put_rewritten(out, rewritten, lifetime);
        }
        match (stamp.patch, lifetime) {
            (None, None) => Ok(self.bare()),
            (None, Some(lifetime)) => self.put_expiring(out, lifetime),
            (Some(patch), lifetime) => self.put_patched(out, patch, lifetime),
        }
    }

    /// Returns whether the sender requested this time to live and wrote both times. They are then delivered as sent,
    /// because SDKs compute their difference.
    fn asks_for(&self, lifetime: &Lifetime) -> Result<bool, DecodeError> {
        let (expiry, creation) = times(self.first_properties()?.map(|(value, _)| value))?;
        let asked = time_to_live_ms(self.ttl_ms, expiry, creation);
        Ok(expiry.is_some() && creation.is_some() && asked == Some(lifetime.time_to_live_ms))
    }

    /// Returns the properties, which are the first section, and the offset of their end.
    fn first_properties(&self) -> Result<Option<(RawValue<'a>, usize)>, DecodeError> {
        let mut decoder = Decoder::new(self.bare());
        if decoder.is_empty() || decoder.descriptor_code("a message section")? != section::PROPERTIES.into() {
            return Ok(None);
        }
        let value = RawValue::new(decoder.raw()?);
        Ok(Some((value, decoder.position())))
    }

    fn put_rewritten(
        &self,
        out: &mut BytesMut,
        rewritten: &Rewritten,
        lifetime: Option<Lifetime>,
    ) -> Result<&'a [u8], DecodeError> {
        let (_, rest) = split_front(self.bare())?;
        match lifetime {
            None => rewritten.encode(out),
            Some(lifetime) => {
                let mut expiring = rewritten.clone();
                expiring.properties.absolute_expiry_time = Some(lifetime.until_ms);
                expiring.properties.creation_time = Some(lifetime.from_ms);
                expiring.encode(out);
            }
        }
        Ok(rest)
    }

    /// Returns the sections in front of the body: properties and application properties.
    pub(crate) fn front_sections(&self) -> Result<Sections<'a>, DecodeError> {
        Sections::scan(split_front(self.bare())?.0)
    }

    /// Appends the properties with the times of `lifetime` and returns the unchanged sections that follow.
    fn put_expiring(&self, out: &mut BytesMut, lifetime: Lifetime) -> Result<&'a [u8], DecodeError> {
        let properties = self.first_properties()?;
        put_properties(out, properties.map(|(value, _)| value), Some(lifetime))?;
        Ok(self.bare().get(properties.map_or(0, |(_, end)| end)..).unwrap_or_default())
    }

    fn put_header(&self, out: &mut BytesMut, stamp: &Stamp<'_>) {
        put_descriptor(out, section::HEADER);
        let list = CompoundWriter::list(out);
        self.durable.encode(out);
        self.priority.encode(out);
        stamp.lifetime.map(|lifetime| lifetime.header_ttl_ms()).or(self.ttl_ms).encode(out);
        self.first_acquirer.encode(out);
        stamp.delivery_count.encode(out);
        list.finish(out, 5);
    }

    /// Appends the broker's lock token and the sender's delivery annotations.
    fn put_delivery_annotations(&self, out: &mut BytesMut, lock_token: Option<&[u8; 16]>) {
        let senders = self.raw_delivery_annotations();
        if lock_token.is_none() && senders.count == 0 {
            return;
        }
        put_descriptor(out, section::DELIVERY_ANNOTATIONS);
        let map = CompoundWriter::map(out);
        if let Some(token) = lock_token {
            out.put_slice(LOCK_TOKEN);
            out.put_slice(token);
        }
        out.put_slice(senders.entries);
        map.finish(out, (usize::from(senders.count) + usize::from(lock_token.is_some())) * 2);
    }

    fn put_annotations(&self, out: &mut BytesMut, stamp: &Stamp<'_>) {
        let senders = self.raw_annotations();
        put_descriptor(out, section::MESSAGE_ANNOTATIONS);
        let map = CompoundWriter::map(out);
        let mut count = usize::from(senders.count) + 2;
        put_long(out, SEQUENCE_NUMBER, stamp.sequence_number);
        put_long(out, ENQUEUED_TIME, stamp.enqueued_at_ms);
        if let Some(until) = stamp.locked_until_ms {
            put_long(out, LOCKED_UNTIL, until);
            count += 1;
        }
        if stamp.message_state != 0 {
            out.put_slice(MESSAGE_STATE);
            Value::Int(stamp.message_state).encode(out);
            count += 1;
        }
        if stamp.enqueue_sequence_number != 0 {
            put_long(out, ENQUEUE_SEQUENCE_NUMBER, stamp.enqueue_sequence_number);
            count += 1;
        }
        let texts =
            [(DEAD_LETTER_SOURCE, stamp.dead_letter_source), (CLASS, stamp.class), (TENANT, stamp.tenant)];
        for (key, text) in texts {
            if let Some(text) = text {
                out.put_slice(key);
                put_counted(out, STRING8, text.as_bytes());
                count += 1;
            }
        }
        out.put_slice(senders.entries);
        map.finish(out, count * 2);
    }

    /// Appends the sections in front of the body, with the patch merged into the application properties, and returns
    /// the rest. The patch takes precedence.
    fn put_patched(
        &self,
        out: &mut BytesMut,
        patch: &[u8],
        lifetime: Option<Lifetime>,
    ) -> Result<&'a [u8], DecodeError> {
        let patch = RawMap::parse(patch)?;
        let (front, rest) = split_front(self.bare())?;
        let sections = Sections::scan(front)?;
        put_properties(out, sections.raw_properties(), lifetime)?;
        put_descriptor(out, section::APPLICATION_PROPERTIES);
        let map = CompoundWriter::map(out);
        let mut count = 0;
        for entry in sections.application_properties()?.entries() {
            let entry = entry?;
            if patch.get(entry.key.decode_str()?)?.is_none() {
                out.put_slice(entry.as_encoded());
                count += 1;
            }
        }
        for entry in patch.entries() {
            out.put_slice(entry?.as_encoded());
            count += 1;
        }
        map.finish(out, count * 2);
        Ok(rest)
    }
}

/// Splits a bare message after its properties and application properties, which are the first sections.
fn split_front(bare: &[u8]) -> Result<(&[u8], &[u8]), DecodeError> {
    let mut decoder = Decoder::new(bare);
    let mut front_len = 0;
    while !decoder.is_empty() {
        let code = decoder.descriptor_code("a message section")?;
        if code != section::PROPERTIES.into() && code != section::APPLICATION_PROPERTIES.into() {
            break;
        }
        decoder.skip()?;
        front_len = decoder.position();
    }
    bare.split_at_checked(front_len).ok_or_else(|| decoder.error(Problem::BadStoredForm))
}

fn put_properties(
    out: &mut BytesMut,
    raw: Option<RawValue<'_>>,
    lifetime: Option<Lifetime>,
) -> Result<(), DecodeError> {
    let Some(lifetime) = lifetime else {
        put_raw(out, section::PROPERTIES, raw);
        return Ok(());
    };
    put_descriptor(out, section::PROPERTIES);
    let list = CompoundWriter::list(out);
    let mut decoder = raw.map_or_else(|| Decoder::new(EMPTY_LIST), |raw| Decoder::new(raw.as_encoded()));
    let count = decoder.enter_list("properties")?.count;
    for field in 0..FIELDS_BEFORE_EXPIRY {
        if field < count { out.put_slice(decoder.raw()?) } else { None::<bool>.encode(out) }
    }
    Value::Timestamp(lifetime.until_ms).encode(out);
    Value::Timestamp(lifetime.from_ms).encode(out);
    let written = FIELDS_BEFORE_EXPIRY + 2;
    for _ in FIELDS_BEFORE_EXPIRY..count.min(written) {
        decoder.skip()?;
    }
    if count > written {
        out.put_slice(decoder.remaining());
    }
    list.finish(out, usize::try_from(count.max(written)).unwrap_or(usize::MAX));
    Ok(())
}

fn put_long(out: &mut BytesMut, key_and_code: &[u8], value: i64) {
    out.put_slice(key_and_code);
    out.put_i64(value);
}
