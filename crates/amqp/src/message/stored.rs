//! The form in which the broker keeps a message.
//!
//! Stored: a small prefix with what the header said, the sender's annotations without those the broker owns, and the
//! bare message as it came. A delivery is a new header, new annotations and those same bytes, written in one pass.
//!
//! ```text
//! 0       1      2         3  ttl ms   7  annotations   11  annotation     13
//! version flags  priority  │  u32      │  length, u32   │   entries, u16   │ annotations, bare message
//! ```

use bytes::{BufMut, BytesMut};

use crate::codec::{
    CompoundWriter, DecodeError, Decoder, Problem, STRING8, length_u32, put_counted, put_descriptor, section,
};
use crate::message::{BodyKind, Header, PropertiesRef, RawMap, RawValue, Sections};

const VERSION: u8 = 1;
const PREFIX_LEN: usize = 13;
const FLAG_DURABLE: u8 = 1;
const FLAG_PRIORITY: u8 = 2;
const FLAG_TTL: u8 = 4;

/// Annotations that only the broker may write: a sender's are dropped, not believed.
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

/// What a message says that has lost its body on the disk, and with it all that its sender wrote: properties with an id, which some SDKs need,
/// and no data. Why it is so stands beside it, as the reason of a dead letter.
const LOST: &[u8] = b"\x00\x53\x73\xc0\x0c\x01\xa1\x09body-lost\x00\x53\x75\xa0\x00";

/// A stored message, parsed.
#[derive(Debug, Clone, Copy)]
pub struct StoredMessage<'a> {
    pub durable: bool,
    pub priority: Option<u8>,
    pub ttl_ms: Option<u32>,
    annotation_count: u16,
    /// Encoded map entries without the map's header.
    annotations: &'a [u8],
    bare: &'a [u8],
}

impl<'a> StoredMessage<'a> {
    /// Appends the stored form of a message that a sender wrote.
    ///
    /// `message_id` is given to a message that has none, because SDKs cannot settle one without; None leaves it without.
    /// Whatever a later delivery must be able to read is checked here, so that only good messages are stored. On an error
    /// nothing is appended.
    pub fn encode(
        out: &mut BytesMut,
        sections: &Sections<'_>,
        message_id: Option<&str>,
    ) -> Result<(), DecodeError> {
        let (header, properties) = (sections.header()?, sections.properties()?);
        Self::encode_read(out, sections, (&header, &properties), message_id)
    }

    /// The same for a message whose header and properties were read already.
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

    /// Reads the prefix. The rest is taken as it is: `encode` has checked it. No bytes at all are a message whose body is lost.
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
        let (annotations, bare) = rest.split_at_checked(annotations_len).ok_or_else(bad)?;
        Ok(Self {
            durable: flags & FLAG_DURABLE != 0,
            priority: (flags & FLAG_PRIORITY != 0).then_some(priority),
            ttl_ms: (flags & FLAG_TTL != 0).then_some(u32::from_be_bytes([t0, t1, t2, t3])),
            annotation_count: u16::from_be_bytes([c0, c1]),
            annotations,
            bare,
        })
    }

    fn lost() -> Self {
        let (durable, priority, ttl_ms, annotation_count) = (true, None, None, 0);
        Self { durable, priority, ttl_ms, annotation_count, annotations: &[], bare: LOST }
    }

    /// Properties, application properties, body and footer, in this order.
    pub fn bare(&self) -> &'a [u8] {
        self.bare
    }

    pub(super) fn with_bare(self, bare: &'a [u8]) -> Self {
        Self { bare, ..self }
    }

    /// The sender's annotations, without those the broker owns.
    pub fn annotations(&self) -> RawMap<'a> {
        RawMap::from_content(u32::from(self.annotation_count) * 2, self.annotations)
    }

    pub(super) fn annotation_entries(&self) -> (usize, &'a [u8]) {
        (self.annotation_count.into(), self.annotations)
    }
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

/// Appends what the stored form has in front of the body.
pub(super) fn encode_front(
    out: &mut BytesMut,
    sections: &Sections<'_>,
    (header, properties): (&Header, &PropertiesRef<'_>),
    message_id: Option<&str>,
) -> Result<(), DecodeError> {
    check_application_properties(sections.application_properties()?)?;
    let start = out.len();
    out.put_slice(&[0; PREFIX_LEN]);
    let count = put_annotations(out, sections.message_annotations()?)?;
    let annotations_len = out.len() - start - PREFIX_LEN;
    out[start..start + PREFIX_LEN].copy_from_slice(&prefix(header, annotations_len, count));
    let new_id = message_id.filter(|_| properties.message_id.is_none());
    put_properties(out, sections.raw_properties(), new_id)?;
    put_raw(out, section::APPLICATION_PROPERTIES, sections.raw_application_properties());
    Ok(())
}

fn prefix(header: &Header, annotations_len: usize, annotation_count: u16) -> [u8; PREFIX_LEN] {
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    let flags = flag(header.durable == Some(true), FLAG_DURABLE)
        | flag(header.priority.is_some(), FLAG_PRIORITY)
        | flag(header.ttl.is_some(), FLAG_TTL);
    let [t0, t1, t2, t3] = header.ttl.unwrap_or(0).to_be_bytes();
    let [l0, l1, l2, l3] = length_u32(annotations_len).to_be_bytes();
    let [c0, c1] = annotation_count.to_be_bytes();
    [VERSION, flags, header.priority.unwrap_or(0), t0, t1, t2, t3, l0, l1, l2, l3, c0, c1]
}

/// A patch is merged into this map by key, and filters look into it.
fn check_application_properties(map: RawMap<'_>) -> Result<(), DecodeError> {
    for entry in map.entries() {
        entry?.key.decode_str()?;
    }
    Ok(())
}

/// Copies the entries that are the sender's to write, and counts them.
fn put_annotations(out: &mut BytesMut, map: RawMap<'_>) -> Result<u16, DecodeError> {
    let mut count: u16 = 0;
    for entry in map.entries() {
        let entry = entry?;
        if !OWNED.contains(&entry.key.decode_str()?.as_bytes()) {
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

/// Writes the properties with an id in the first place, and the other fields as they were.
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
        // The first field is null or missing, else there would be an id.
        decoder.take_null();
        out.put_slice(decoder.remaining());
        count = usize::try_from(fields.count).unwrap_or(usize::MAX).max(1);
    }
    list.finish(out, count);
    Ok(())
}

pub(super) fn put_raw(out: &mut BytesMut, code: u8, value: Option<RawValue<'_>>) {
    if let Some(value) = value {
        put_descriptor(out, code);
        out.put_slice(value.as_encoded());
    }
}

/// SDK quirk: pyamqp reads sections by the third byte, so descriptors in another form are written anew.
pub(super) fn put_body(out: &mut BytesMut, sections: &Sections<'_>) {
    if sections.body_is_canonical() {
        return out.put_slice(sections.raw_body());
    }
    let code = match sections.body_kind() {
        BodyKind::None => return,
        BodyKind::Data => section::DATA,
        BodyKind::Sequence => section::SEQUENCE,
        BodyKind::Value => section::VALUE,
    };
    sections.body_values().for_each(|value| put_raw(out, code, Some(value)));
}
