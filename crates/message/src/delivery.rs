//! The splicer: a stored message becomes a delivery by new sections in front of its untouched bytes.

use bytes::{BufMut, BytesMut};

use peeklock_amqp::codec::{CompoundWriter, STRING8, put_counted, put_descriptor, section};
use peeklock_amqp::{DecodeError, Decoder, Encode, Problem, Properties, RawMap, RawValue, Sections, Value};

use crate::lifetime::{FIELDS_BEFORE_EXPIRY, Lifetime, time_to_live_ms, times};
use crate::stored::{StoredMessage, put_raw};

/// Room for everything written before the bare message, without annotations of variable length.
const FRONT_LEN_MAX: usize = 288;

// Keys as encoded symbols, with the format code of the value that follows.
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

/// What the broker knows about one delivery of a message.
#[derive(Debug, Clone, Copy, Default)]
pub struct Stamp<'a> {
    /// Deliveries before this one.
    pub delivery_count: u32,
    pub sequence_number: i64,
    pub enqueued_at_ms: i64,
    pub locked_until_ms: Option<i64>,
    /// Left out if it is zero, for an active message.
    pub message_state: i32,
    /// Left out if it is zero, for a message that was not forwarded.
    pub enqueue_sequence_number: i64,
    /// A uuid in network byte order.
    pub lock_token: Option<[u8; 16]>,
    pub dead_letter_source: Option<&'a str>,
    /// Where the queue's order has put the message: its class, and whose it is.
    pub class: Option<&'a str>,
    pub tenant: Option<&'a str>,
    /// Replaces the expiry and creation times of a sender that asked for another time to live, or did not write both.
    pub lifetime: Option<Lifetime>,
    /// An encoded map with string keys that goes over the application properties.
    pub patch: Option<&'a [u8]>,
    /// In place of what was stored; a patch is part of it already.
    pub rewritten: Option<&'a Rewritten>,
}

/// What stands in front of a message's body, written anew.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rewritten {
    pub properties: Properties,
    /// Keys are strings.
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
    /// Appends the message as one delivery of it. Fails only on a patch that is no map, or a stored form that is damaged; then nothing is
    /// appended.
    pub fn write_delivery(&self, out: &mut BytesMut, stamp: &Stamp<'_>) -> Result<(), DecodeError> {
        let rest = self.write_front(out, stamp)?;
        out.put_slice(rest);
        Ok(())
    }

    /// The same in two parts, which saves copying the body: appends what is new for this delivery and returns the stored bytes that
    /// follow it. Of a large message [`LargeMessage::STORED_FRONT_BYTES_MAX`](crate::LargeMessage::STORED_FRONT_BYTES_MAX) bytes are enough; the rest follows what is returned.
    pub fn write_front(&self, out: &mut BytesMut, stamp: &Stamp<'_>) -> Result<&'a [u8], DecodeError> {
        let start = out.len();
        let annotations_len = self.raw_annotations().entries.len();
        out.reserve(FRONT_LEN_MAX + annotations_len + self.raw_delivery_annotations().entries.len());
        self.put_header(out, stamp);
        self.put_delivery_annotations(out, stamp.lock_token.as_ref());
        self.put_annotations(out, stamp);
        self.put_bare(out, stamp).inspect_err(|_| out.truncate(start))
    }

    /// The same message with nothing behind what stands in front of the body. Of a large message the front is enough.
    pub fn without_body(self) -> Result<Self, DecodeError> {
        let (front, _) = split_front(self.bare())?;
        Ok(self.with_bare(front))
    }

    /// Appends what of the bare message is not as it was stored, and returns the rest.
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

    /// Whether the sender asked for this very time to live and wrote both times, which are then delivered as sent: SDKs take their difference.
    fn asks_for(&self, lifetime: &Lifetime) -> Result<bool, DecodeError> {
        let (expiry, creation) = times(self.first_properties()?.map(|(value, _)| value))?;
        let asked = time_to_live_ms(self.ttl_ms, expiry, creation);
        Ok(expiry.is_some() && creation.is_some() && asked == Some(lifetime.time_to_live_ms))
    }

    /// The properties, which come first, and where they end.
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

    /// Only the properties change.
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

    /// The broker's lock token, and what the sender wrote.
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

    /// What stands in front of the body with the patch merged into the application properties: the patch wins. The rest is returned.
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

/// Properties and application properties, which come first in a stored message, and all that follows.
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
