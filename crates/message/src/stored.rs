//! The form in which the broker stores a message.
//!
//! The form has a small prefix with the values of the header, the sender's annotations without those that only the
//! broker writes, and the bare message as received. A delivery consists of a new header, new annotations and these
//! bytes, and is written in one pass.
//!
//! ```text
//! 0       1      2         3  ttl ms   7  annotations   11  annotation     13
//! version flags  priority  │  u32      │  length, u32   │   pairs, u16     │ annotations, delivery annotations, bare message
//! ```
//!
//! A message with delivery annotations, which is rare, has a flag set; the annotations are preceded by their length
//! (u32) and number (u16).

use bytes::{BufMut, BytesMut};

use peeklock_amqp::codec::{
    CompoundWriter, STRING8, length_u32, mend_decimals, put_counted, put_descriptor, section,
};
use peeklock_amqp::{
    BodyKind, DecodeError, Decoder, Header, Problem, PropertiesRef, RawMap, RawValue, Sections,
};

const VERSION: u8 = 2;
const PREFIX_LEN: usize = 13;
const FLAG_DURABLE: u8 = 1;
const FLAG_NOT_DURABLE: u8 = 2;
const FLAG_FIRST_ACQUIRER: u8 = 4;
const FLAG_NOT_FIRST_ACQUIRER: u8 = 8;
const FLAG_PRIORITY: u8 = 16;
const FLAG_TTL: u8 = 32;
const FLAG_DELIVERY_ANNOTATIONS: u8 = 64;

/// Annotations that only the broker writes. Those of a sender are dropped.
const OWNED: [&[u8]; 8] = [
    b"x-opt-sequence-number",
    b"x-opt-enqueued-time",
    b"x-opt-locked-until",
    b"x-opt-message-state",
    b"x-opt-enqueue-sequence-number",
    b"x-opt-deadletter-source",
    b"x-opt-peeklock-class",
    b"x-opt-peeklock-tenant",
];

/// Delivery annotations that only the broker writes.
const OWNED_OF_DELIVERY: [&[u8]; 1] = [b"x-opt-lock-token"];

/// The content of a message whose body was lost on disk, together with the rest of the sender's message: properties
/// with an id, which some SDKs require, and an empty data section. The dead-letter reason of the message states the
/// cause.
const LOST: &[u8] = b"\x00\x53\x73\xc0\x0c\x01\xa1\x09body-lost\x00\x53\x75\xa0\x00";

/// A stored message, parsed.
#[derive(Debug, Clone, Copy)]
pub struct StoredMessage<'a> {
    pub durable: Option<bool>,
    pub priority: Option<u8>,
    pub ttl_ms: Option<u32>,
    pub first_acquirer: Option<bool>,
    annotations: Annotations<'a>,
    delivery_annotations: Annotations<'a>,
    bare: &'a [u8],
}

/// Annotations that a sender wrote.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Annotations<'a> {
    pub(crate) count: u16,
    /// Encoded pairs of a map, without the map's header.
    pub(crate) entries: &'a [u8],
}

impl<'a> StoredMessage<'a> {
    /// Appends the stored form of a sender's message.
    ///
    /// `message_id` is assigned to a message that has none, because SDKs cannot settle a message without an id; with
    /// `None`, the message stays without an id. Everything that a later delivery decodes is checked here, so that only
    /// valid messages are stored. On an error, nothing is appended.
    pub fn encode(
        out: &mut BytesMut,
        sections: &Sections<'_>,
        message_id: Option<&str>,
    ) -> Result<(), DecodeError> {
        let (header, properties) = (sections.header()?, sections.properties()?);
        Self::encode_read(out, sections, (&header, &properties), message_id)
    }

    /// Appends the stored form of a message whose header and properties are already decoded. See
    /// [`encode`](Self::encode).
    pub fn encode_read(
        out: &mut BytesMut,
        sections: &Sections<'_>,
        read: (&Header, &PropertiesRef<'_>),
        message_id: Option<&str>,
    ) -> Result<(), DecodeError> {
        let start = out.len();
        let result = encode_unguarded(out, sections, read, message_id);
        if result.is_err() {
            out.truncate(start);
        }
        result
    }

    /// Decodes the prefix. The rest is not checked again, because `encode` has checked it. Empty bytes are a message
    /// whose body is lost.
    pub fn parse(stored: &'a [u8]) -> Result<Self, DecodeError> {
        if stored.is_empty() {
            return Ok(Self::lost());
        }
        let bad = || DecodeError::new(0, Problem::BadStoredForm);
        let (prefix, rest) = stored.split_first_chunk::<PREFIX_LEN>().ok_or_else(bad)?;
        let [version, flags, priority, t0, t1, t2, t3, l0, l1, l2, l3, c0, c1] = *prefix;
        if version != VERSION {
            return Err(bad());
        }
        let annotations_len = usize::try_from(u32::from_be_bytes([l0, l1, l2, l3])).map_err(|_| bad())?;
        let (entries, rest) = rest.split_at_checked(annotations_len).ok_or_else(bad)?;
        let (delivery_annotations, bare) = if flags & FLAG_DELIVERY_ANNOTATIONS == 0 {
            (Annotations::default(), rest)
        } else {
            Annotations::split_from(rest).ok_or_else(bad)?
        };
        Ok(Self {
            durable: either(flags, FLAG_DURABLE, FLAG_NOT_DURABLE),
            priority: (flags & FLAG_PRIORITY != 0).then_some(priority),
            ttl_ms: (flags & FLAG_TTL != 0).then_some(u32::from_be_bytes([t0, t1, t2, t3])),
            first_acquirer: either(flags, FLAG_FIRST_ACQUIRER, FLAG_NOT_FIRST_ACQUIRER),
            annotations: Annotations { count: u16::from_be_bytes([c0, c1]), entries },
            delivery_annotations,
            bare,
        })
    }

    fn lost() -> Self {
        Self {
            durable: None,
            priority: None,
            ttl_ms: None,
            first_acquirer: None,
            annotations: Annotations::default(),
            delivery_annotations: Annotations::default(),
            bare: LOST,
        }
    }

    /// Returns the properties, application properties, body and footer, in this order.
    pub fn bare(&self) -> &'a [u8] {
        self.bare
    }

    pub(crate) fn with_bare(self, bare: &'a [u8]) -> Self {
        Self { bare, ..self }
    }

    /// Returns the sender's annotations, without those that only the broker writes.
    pub fn annotations(&self) -> RawMap<'a> {
        RawMap::from_content(u32::from(self.annotations.count) * 2, self.annotations.entries)
    }

    pub(crate) fn raw_annotations(&self) -> Annotations<'a> {
        self.annotations
    }

    pub(crate) fn raw_delivery_annotations(&self) -> Annotations<'a> {
        self.delivery_annotations
    }
}

impl<'a> Annotations<'a> {
    const PREFIX_LEN: usize = 6;

    /// Decodes the output of [`put_delivery_annotations`] and returns the bytes after it.
    pub(crate) fn split_from(stored: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (prefix, rest) = stored.split_first_chunk::<{ Annotations::PREFIX_LEN }>()?;
        let [l0, l1, l2, l3, c0, c1] = *prefix;
        let len = usize::try_from(u32::from_be_bytes([l0, l1, l2, l3])).ok()?;
        let (entries, rest) = rest.split_at_checked(len)?;
        Some((Self { count: u16::from_be_bytes([c0, c1]), entries }, rest))
    }
}

fn either(flags: u8, yes: u8, no: u8) -> Option<bool> {
    if flags & yes != 0 {
        return Some(true);
    }
    (flags & no != 0).then_some(false)
}

/// Appends the sender's delivery annotations with their length and number. Returns whether there are any.
pub(crate) fn put_delivery_annotations(
    out: &mut BytesMut,
    map: RawMap<'_>,
    owned: &[&[u8]],
) -> Result<bool, DecodeError> {
    if map.is_empty() {
        return Ok(false);
    }
    let start = out.len();
    out.put_slice(&[0; Annotations::PREFIX_LEN]);
    let content = start + Annotations::PREFIX_LEN;
    let count = put_annotations(out, map, owned)?;
    if count == 0 {
        out.truncate(start);
        return Ok(false);
    }
    mend_decimals(&mut out[content..]);
    let len = length_u32(out.len() - content).to_be_bytes();
    out[start..start + 4].copy_from_slice(&len);
    out[start + 4..content].copy_from_slice(&count.to_be_bytes());
    Ok(true)
}

fn encode_unguarded(
    out: &mut BytesMut,
    sections: &Sections<'_>,
    read: (&Header, &PropertiesRef<'_>),
    message_id: Option<&str>,
) -> Result<(), DecodeError> {
    encode_front(out, sections, read, message_id)?;
    put_body(out, sections);
    put_raw(out, section::FOOTER, sections.raw_footer());
    Ok(())
}

/// Appends the part of the stored form that precedes the body.
pub(crate) fn encode_front(
    out: &mut BytesMut,
    sections: &Sections<'_>,
    (header, properties): (&Header, &PropertiesRef<'_>),
    message_id: Option<&str>,
) -> Result<(), DecodeError> {
    check_application_properties(sections.application_properties()?)?;
    let start = out.len();
    out.put_slice(&[0; PREFIX_LEN]);
    let count = put_annotations(out, sections.message_annotations()?, &OWNED)?;
    let annotations_end = out.len();
    let is_annotated = put_delivery_annotations(out, sections.delivery_annotations()?, &OWNED_OF_DELIVERY)?;
    let annotations_len = annotations_end - start - PREFIX_LEN;
    let prefix = prefix(header, annotations_len, count, is_annotated);
    out[start..start + PREFIX_LEN].copy_from_slice(&prefix);
    mend_decimals(&mut out[start + PREFIX_LEN..annotations_end]);
    let new_id = message_id.filter(|_| properties.message_id.is_none());
    put_properties(out, sections.raw_properties(), new_id)?;
    put_mended(out, section::APPLICATION_PROPERTIES, sections.raw_application_properties());
    Ok(())
}

fn prefix(
    header: &Header,
    annotations_len: usize,
    annotation_count: u16,
    is_annotated: bool,
) -> [u8; PREFIX_LEN] {
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    let flags = flag(header.durable == Some(true), FLAG_DURABLE)
        | flag(header.durable == Some(false), FLAG_NOT_DURABLE)
        | flag(header.first_acquirer == Some(true), FLAG_FIRST_ACQUIRER)
        | flag(header.first_acquirer == Some(false), FLAG_NOT_FIRST_ACQUIRER)
        | flag(header.priority.is_some(), FLAG_PRIORITY)
        | flag(header.ttl.is_some(), FLAG_TTL)
        | flag(is_annotated, FLAG_DELIVERY_ANNOTATIONS);
    let [t0, t1, t2, t3] = header.ttl.unwrap_or(0).to_be_bytes();
    let [l0, l1, l2, l3] = length_u32(annotations_len).to_be_bytes();
    let [c0, c1] = annotation_count.to_be_bytes();
    [VERSION, flags, header.priority.unwrap_or(0), t0, t1, t2, t3, l0, l1, l2, l3, c0, c1]
}

/// Rejects application properties that cannot be merged with a patch by key or evaluated by filters.
fn check_application_properties(map: RawMap<'_>) -> Result<(), DecodeError> {
    for entry in map.entries() {
        entry?.key.decode_str()?;
    }
    Ok(())
}

/// Copies the annotations that a sender is permitted to write and returns their number.
fn put_annotations(out: &mut BytesMut, map: RawMap<'_>, owned: &[&[u8]]) -> Result<u16, DecodeError> {
    let mut count: u16 = 0;
    for entry in map.entries() {
        let entry = entry?;
        if !owned.contains(&entry.key.decode_str()?.as_bytes()) {
            let limit = u16::MAX.into();
            let too_many = Problem::TooMany { count: u32::from(u16::MAX) + 1, limit };
            count = count.checked_add(1).ok_or_else(|| DecodeError::new(0, too_many))?;
            out.put_slice(entry.as_encoded());
        }
    }
    Ok(count)
}

fn put_properties(
    out: &mut BytesMut,
    raw: Option<RawValue<'_>>,
    new_id: Option<&str>,
) -> Result<(), DecodeError> {
    match new_id {
        Some(id) => put_properties_with_id(out, raw, id)?,
        None => put_raw(out, section::PROPERTIES, raw),
    }
    Ok(())
}

/// Writes the properties with an id as the first field and the other fields unchanged.
fn put_properties_with_id(
    out: &mut BytesMut,
    raw: Option<RawValue<'_>>,
    id: &str,
) -> Result<(), DecodeError> {
    put_descriptor(out, section::PROPERTIES);
    let list = CompoundWriter::list(out);
    put_counted(out, STRING8, id.as_bytes());
    let mut count = 1;
    if let Some(raw) = raw {
        let mut decoder = Decoder::new(raw.as_encoded());
        let fields = decoder.enter_list("properties")?;
        // The first field is null or missing, because the properties have no id.
        decoder.take_null();
        out.put_slice(decoder.remaining());
        count = usize::try_from(fields.count).unwrap_or(usize::MAX).max(1);
    }
    list.finish(out, count);
    Ok(())
}

pub(crate) fn put_raw(out: &mut BytesMut, code: u8, value: Option<RawValue<'_>>) {
    if let Some(value) = value {
        put_descriptor(out, code);
        out.put_slice(value.as_encoded());
    }
}

/// Writes a section with decimals in the encoding that all SDKs decode.
pub(crate) fn put_mended(out: &mut BytesMut, code: u8, value: Option<RawValue<'_>>) {
    let start = out.len();
    put_raw(out, code, value);
    mend_decimals(&mut out[start..]);
}

/// Writes the body sections. SDK quirk: pyamqp identifies sections by the third byte, so descriptors in another encoding
/// are rewritten.
pub(crate) fn put_body(out: &mut BytesMut, sections: &Sections<'_>) {
    let code = match sections.body_kind() {
        BodyKind::None => return,
        BodyKind::Data => section::DATA,
        BodyKind::Sequence => section::SEQUENCE,
        BodyKind::Value => section::VALUE,
    };
    let start = out.len();
    if sections.body_is_canonical() {
        out.put_slice(sections.raw_body());
    } else {
        sections.body_values().for_each(|value| put_raw(out, code, Some(value)));
    }
    if code != section::DATA {
        mend_decimals(&mut out[start..]);
    }
}
