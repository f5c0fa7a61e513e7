//! The header and the properties of a message.

use bytes::{Bytes, BytesMut};

use crate::codec::{Decode, DecodeError, Decoder, Encode, Problem, composite};
use crate::text::{Symbol, Text};
use crate::value::Value;

composite! {
    /// The header section. Absent fields stay absent; the accessors apply the defaults.
    #[derive(Copy, Default)]
    pub struct Header: 0x70 {
        pub durable: Option<bool>,
        pub priority: Option<u8>,
        /// Milliseconds.
        pub ttl: Option<u32>,
        pub first_acquirer: Option<bool>,
        pub delivery_count: Option<u32>,
    }
}

impl Header {
    /// AMQP 1.0 §3.2.1: the default priority.
    pub const PRIORITY_DEFAULT: u8 = 4;

    pub fn priority(&self) -> u8 {
        self.priority.unwrap_or(Self::PRIORITY_DEFAULT)
    }

    pub fn delivery_count(&self) -> u32 {
        self.delivery_count.unwrap_or(0)
    }

    pub(super) fn decode_section(encoded: &[u8]) -> Result<Self, DecodeError> {
        Self::decode_fields(&mut Decoder::new(encoded))
    }
}

/// A message-id or correlation-id. The type is part of the identity: a reply must repeat it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum MessageId {
    Ulong(u64),
    Uuid([u8; 16]),
    Binary(Bytes),
    String(Text),
}

/// A [`MessageId`] in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MessageIdRef<'a> {
    Ulong(u64),
    Uuid([u8; 16]),
    Binary(&'a [u8]),
    String(&'a str),
}

impl MessageIdRef<'_> {
    pub fn to_owned(&self) -> MessageId {
        match *self {
            Self::Ulong(id) => MessageId::Ulong(id),
            Self::Uuid(id) => MessageId::Uuid(id),
            Self::Binary(id) => MessageId::Binary(Bytes::copy_from_slice(id)),
            Self::String(id) => MessageId::String(id.to_owned().into()),
        }
    }
}

impl MessageId {
    pub fn as_ref(&self) -> MessageIdRef<'_> {
        match self {
            Self::Ulong(id) => MessageIdRef::Ulong(*id),
            Self::Uuid(id) => MessageIdRef::Uuid(*id),
            Self::Binary(id) => MessageIdRef::Binary(id),
            Self::String(id) => MessageIdRef::String(id.as_str()),
        }
    }
}

impl From<MessageId> for Value {
    fn from(id: MessageId) -> Self {
        match id {
            MessageId::Ulong(id) => Self::Ulong(id),
            MessageId::Uuid(id) => Self::Uuid(id),
            MessageId::Binary(id) => Self::Binary(id),
            MessageId::String(id) => Self::String(id),
        }
    }
}

impl From<&'static str> for MessageId {
    fn from(id: &'static str) -> Self {
        Self::String(id.into())
    }
}

impl From<String> for MessageId {
    fn from(id: String) -> Self {
        Self::String(id.into())
    }
}

impl Encode for MessageId {
    fn encode(&self, out: &mut BytesMut) {
        match self {
            Self::Ulong(id) => id.encode(out),
            Self::Uuid(id) => Value::Uuid(*id).encode(out),
            Self::Binary(id) => id.encode(out),
            Self::String(id) => id.encode(out),
        }
    }
}

/// The properties section, owned.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Properties {
    pub message_id: Option<MessageId>,
    pub user_id: Option<Bytes>,
    pub to: Option<Text>,
    pub subject: Option<Text>,
    pub reply_to: Option<Text>,
    pub correlation_id: Option<MessageId>,
    pub content_type: Option<Symbol>,
    pub content_encoding: Option<Symbol>,
    /// Milliseconds since 1970 UTC, like every time here.
    pub absolute_expiry_time: Option<i64>,
    pub creation_time: Option<i64>,
    pub group_id: Option<Text>,
    pub group_sequence: Option<u32>,
    pub reply_to_group_id: Option<Text>,
}

/// The properties section in place: reading it allocates nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PropertiesRef<'a> {
    pub message_id: Option<MessageIdRef<'a>>,
    pub user_id: Option<&'a [u8]>,
    pub to: Option<&'a str>,
    pub subject: Option<&'a str>,
    pub reply_to: Option<&'a str>,
    pub correlation_id: Option<MessageIdRef<'a>>,
    pub content_type: Option<&'a str>,
    pub content_encoding: Option<&'a str>,
    pub absolute_expiry_time: Option<i64>,
    pub creation_time: Option<i64>,
    pub group_id: Option<&'a str>,
    pub group_sequence: Option<u32>,
    pub reply_to_group_id: Option<&'a str>,
}

impl Properties {
    pub(crate) const CODE: u8 = 0x73;
}

impl Encode for Properties {
    fn encode(&self, out: &mut BytesMut) {
        let time = |time: Option<i64>| time.map(Value::Timestamp);
        crate::codec::put_descriptor(out, Self::CODE);
        let mut list = crate::codec::ListWriter::begin(out);
        list.field(out, &self.message_id);
        list.field(out, &self.user_id);
        list.field(out, &self.to);
        list.field(out, &self.subject);
        list.field(out, &self.reply_to);
        list.field(out, &self.correlation_id);
        list.field(out, &self.content_type);
        list.field(out, &self.content_encoding);
        list.field(out, &time(self.absolute_expiry_time));
        list.field(out, &time(self.creation_time));
        list.field(out, &self.group_id);
        list.field(out, &self.group_sequence);
        list.field(out, &self.reply_to_group_id);
        list.finish_trimmed(out);
    }
}

impl<'a> PropertiesRef<'a> {
    /// The number of fields in the list.
    const FIELD_COUNT: u32 = 13;

    /// Decodes the list after the section's descriptor. Most messages have few properties, so only the fields that are
    /// there take time. Fields of later versions are ignored.
    pub(super) fn decode(encoded: &'a [u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(encoded);
        let list = decoder.enter_list("properties")?;
        let (count, mut fields, mut found) = (list.count, Fields { decoder }, Self::default());
        for index in 0..count.min(Self::FIELD_COUNT) {
            if !fields.decoder.take_null() {
                found.set(index, &mut fields)?;
            }
        }
        Ok(found)
    }

    /// Decodes the field at this place of the list.
    fn set(&mut self, index: u32, fields: &mut Fields<'a>) -> Result<(), DecodeError> {
        match index {
            0 => self.message_id = Some(fields.message_id()?),
            1 => self.user_id = Some(fields.decoder.binary()?),
            2 => self.to = Some(fields.text()?),
            3 => self.subject = Some(fields.text()?),
            4 => self.reply_to = Some(fields.text()?),
            5 => self.correlation_id = Some(fields.message_id()?),
            6 => self.content_type = Some(fields.text()?),
            7 => self.content_encoding = Some(fields.text()?),
            8 => self.absolute_expiry_time = Some(fields.time()?),
            9 => self.creation_time = Some(fields.time()?),
            10 => self.group_id = Some(fields.text()?),
            11 => self.group_sequence = Some(u32::decode(&mut fields.decoder)?),
            _ => self.reply_to_group_id = Some(fields.text()?),
        }
        Ok(())
    }

    pub fn to_owned(&self) -> Properties {
        let text = |text: Option<&str>| text.map(|text| Text::from(text.to_owned()));
        // A symbol is ASCII; another content type is dropped instead of repeated.
        let symbol = |text: Option<&str>| text.and_then(|text| Symbol::parse(text).ok());
        Properties {
            message_id: self.message_id.map(|id| id.to_owned()),
            user_id: self.user_id.map(Bytes::copy_from_slice),
            to: text(self.to),
            subject: text(self.subject),
            reply_to: text(self.reply_to),
            correlation_id: self.correlation_id.map(|id| id.to_owned()),
            content_type: symbol(self.content_type),
            content_encoding: symbol(self.content_encoding),
            absolute_expiry_time: self.absolute_expiry_time,
            creation_time: self.creation_time,
            group_id: text(self.group_id),
            group_sequence: self.group_sequence,
            reply_to_group_id: text(self.reply_to_group_id),
        }
    }
}

/// The fields of a properties list, one after the other.
struct Fields<'a> {
    decoder: Decoder<'a>,
}

impl<'a> Fields<'a> {
    fn text(&mut self) -> Result<&'a str, DecodeError> {
        let bytes = self.decoder.characters("text")?;
        std::str::from_utf8(bytes).map_err(|_| self.decoder.error(Problem::NotUtf8))
    }

    fn time(&mut self) -> Result<i64, DecodeError> {
        let found = self.decoder.peek().unwrap_or_default();
        let number = Value::decode_all(self.decoder.raw()?)?;
        number.as_timestamp().ok_or_else(|| self.decoder.unexpected("a timestamp", found))
    }

    fn message_id(&mut self) -> Result<MessageIdRef<'a>, DecodeError> {
        let found = self.decoder.peek().unwrap_or_default();
        match found {
            0x44 | 0x53 | 0x80 => u64::decode(&mut self.decoder).map(MessageIdRef::Ulong),
            0xa0 | 0xb0 => self.decoder.binary().map(MessageIdRef::Binary),
            0xa1 | 0xb1 => self.text().map(MessageIdRef::String),
            0x98 => {
                self.decoder.byte()?;
                self.decoder.array().map(MessageIdRef::Uuid)
            }
            code => Err(self.decoder.unexpected("a message id", code)),
        }
    }
}
