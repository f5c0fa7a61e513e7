//! Writes a delivery: new sections, followed by the unchanged bytes of the stored message.

use bytes::{BufMut, BytesMut};

use peeklock_amqp::codec::{CompoundWriter, STRING8, Short, put_counted, put_descriptor, section};
use peeklock_amqp::{DecodeError, Decoder, Encode, Problem, Properties, RawMap, RawValue, Sections, Value};

use crate::lifetime::{FIELDS_BEFORE_EXPIRY, Lifetime, time_to_live_ms, times};
use crate::stored::{StoredMessage, put_raw};

/// Capacity for all bytes before the bare message, apart from annotations of variable length.
const FRONT_LEN_MAX: usize = 288;

// Keys as encoded symbols, each with the format code of the value that follows it.
const LOCK_TOKEN: &[u8; 19] = b"\xa3\x10x-opt-lock-token\x98";
const SEQUENCE_NUMBER: &[u8; 24] = b"\xa3\x15x-opt-sequence-number\x81";
const ENQUEUED_TIME: &[u8; 22] = b"\xa3\x13x-opt-enqueued-time\x83";
const LOCKED_UNTIL: &[u8; 21] = b"\xa3\x12x-opt-locked-until\x83";
const MESSAGE_STATE: &[u8; 21] = b"\xa3\x13x-opt-message-state";
const ENQUEUE_SEQUENCE_NUMBER: &[u8; 32] = b"\xa3\x1dx-opt-enqueue-sequence-number\x81";
const DEAD_LETTER_SOURCE: &[u8] = b"\xa3\x17x-opt-deadletter-source";
const CLASS: &[u8] = b"\xa3\x14x-opt-peeklock-class";
const TENANT: &[u8] = b"\xa3\x15x-opt-peeklock-tenant";

const EMPTY_LIST: &[u8] = &[0x45];

/// Descriptor and list (6), and the largest encodings of the five fields.
const HEADER_LEN_MAX: usize = 6 + 1 + 2 + 5 + 1 + 5;
const LOCK_TOKEN_PAIR_LEN: usize = LOCK_TOKEN.len() + 16;
/// The broker's annotations apart from texts: four longs and the state.
const ANNOTATIONS_LEN_MAX: usize = SEQUENCE_NUMBER.len()
    + ENQUEUED_TIME.len()
    + LOCKED_UNTIL.len()
    + ENQUEUE_SEQUENCE_NUMBER.len()
    + 4 * 8
    + MESSAGE_STATE.len()
    + 5;
/// The descriptor and the larger header of a map.
const MAP_HEAD_LEN_MAX: usize = 3 + 9;
/// The three sections that the broker writes.
const SHORT_LEN_MAX: usize =
    HEADER_LEN_MAX + MAP_HEAD_LEN_MAX + LOCK_TOKEN_PAIR_LEN + MAP_HEAD_LEN_MAX + ANNOTATIONS_LEN_MAX;

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
        let mut front = Front { short: Short::new(), out };
        self.put_header(&mut front.short, stamp);
        self.put_delivery_annotations(&mut front, stamp.lock_token.as_ref());
        self.put_annotations(&mut front, stamp);
        front.flush();
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

    fn put_header(&self, front: &mut Short<SHORT_LEN_MAX>, stamp: &Stamp<'_>) {
        let start = front.begin_composite(section::HEADER, 5);
        front.put_bool(self.durable);
        front.put_ubyte(self.priority);
        front.put_uint(stamp.lifetime.map(|lifetime| lifetime.header_ttl_ms()).or(self.ttl_ms));
        front.put_bool(self.first_acquirer);
        front.put_uint(Some(stamp.delivery_count));
        front.finish_composite(start);
    }

    /// Appends the broker's lock token and the sender's delivery annotations.
    fn put_delivery_annotations(&self, front: &mut Front<'_>, lock_token: Option<&[u8; 16]>) {
        let senders = self.raw_delivery_annotations();
        if lock_token.is_none() && senders.count == 0 {
            return;
        }
        let mut own = Short::<LOCK_TOKEN_PAIR_LEN>::new();
        if let Some(token) = lock_token {
            own.put(*LOCK_TOKEN);
            own.put(*token);
        }
        let count = usize::from(senders.count) + usize::from(lock_token.is_some());
        front.put_map(section::DELIVERY_ANNOTATIONS, count, &own, [&[], senders.entries]);
    }

    fn put_annotations(&self, front: &mut Front<'_>, stamp: &Stamp<'_>) {
        let senders = self.raw_annotations();
        let mut own = Short::<ANNOTATIONS_LEN_MAX>::new();
        let mut count = usize::from(senders.count) + 2;
        put_long(&mut own, *SEQUENCE_NUMBER, stamp.sequence_number);
        put_long(&mut own, *ENQUEUED_TIME, stamp.enqueued_at_ms);
        if let Some(until) = stamp.locked_until_ms {
            put_long(&mut own, *LOCKED_UNTIL, until);
            count += 1;
        }
        if stamp.message_state != 0 {
            own.put(*MESSAGE_STATE);
            own.put_int(stamp.message_state);
            count += 1;
        }
        if stamp.enqueue_sequence_number != 0 {
            put_long(&mut own, *ENQUEUE_SEQUENCE_NUMBER, stamp.enqueue_sequence_number);
            count += 1;
        }
        let texts =
            [(DEAD_LETTER_SOURCE, stamp.dead_letter_source), (CLASS, stamp.class), (TENANT, stamp.tenant)];
        let mut encoded = BytesMut::new();
        for (key, text) in texts {
            if let Some(text) = text {
                encoded.put_slice(key);
                put_counted(&mut encoded, STRING8, text.as_bytes());
                count += 1;
            }
        }
        front.put_map(section::MESSAGE_ANNOTATIONS, count, &own, [&encoded, senders.entries]);
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

/// The sections in front of a message: parts of limited length are composed on the stack.
struct Front<'o> {
    short: Short<SHORT_LEN_MAX>,
    out: &'o mut BytesMut,
}

impl Front<'_> {
    /// Puts a section that is a map with `count` pairs: own ones, followed by encoded ones of any length.
    fn put_map<const LEN: usize>(&mut self, code: u8, count: usize, own: &Short<LEN>, others: [&[u8]; 2]) {
        let others_len: usize = others.iter().map(|part| part.len()).sum();
        self.short.put_map(code, own.as_slice().len() + others_len, count * 2);
        self.short.append(own);
        for part in others.into_iter().filter(|part| !part.is_empty()) {
            self.flush();
            self.out.put_slice(part);
        }
    }

    fn flush(&mut self) {
        self.out.put_slice(self.short.as_slice());
        self.short.clear();
    }
}

fn put_long<const LEN: usize, const N: usize>(own: &mut Short<N>, key_and_code: [u8; LEN], value: i64) {
    own.put(key_and_code);
    own.put(value.to_be_bytes());
}
