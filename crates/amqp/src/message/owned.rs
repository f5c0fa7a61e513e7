//! A whole message as owned values, for requests, replies and clients. The broker's path never decodes this much.

use bytes::{Bytes, BytesMut};

use crate::codec::{CompoundWriter, DecodeError, Encode, put_descriptor, section};
use crate::message::{BodyKind, Header, MessageId, Properties, RawMap, RawValue, Sections};
use crate::text::{Symbol, Text};
use crate::value::{Fields, Value};

#[derive(Debug, Clone, Default, PartialEq)]
pub enum Body {
    #[default]
    None,
    Data(Vec<Bytes>),
    Sequence(Vec<Vec<Value>>),
    Value(Value),
}

/// A message with every section decoded.
///
/// ```
/// use peeklock_amqp::{Encode, Message, Value};
///
/// let reply = Message::value(Value::Null).with_correlation_id("7").with_property("status-code", 202);
/// assert_eq!(Message::decode(&reply.to_bytes()).unwrap(), reply);
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Message {
    pub header: Option<Header>,
    pub delivery_annotations: Fields,
    pub message_annotations: Fields,
    pub properties: Properties,
    pub application_properties: Vec<(Text, Value)>,
    pub body: Body,
    pub footer: Fields,
}

impl Message {
    /// Creates a message with an amqp-value body.
    pub fn value(value: impl Into<Value>) -> Self {
        Self { body: Body::Value(value.into()), ..Self::default() }
    }

    /// Creates a message with one data section.
    pub fn data(data: impl Into<Bytes>) -> Self {
        Self { body: Body::Data(vec![data.into()]), ..Self::default() }
    }

    #[must_use]
    pub fn with_message_id(mut self, id: impl Into<MessageId>) -> Self {
        self.properties.message_id = Some(id.into());
        self
    }

    #[must_use]
    pub fn with_correlation_id(mut self, id: impl Into<MessageId>) -> Self {
        self.properties.correlation_id = Some(id.into());
        self
    }

    /// Adds an application property.
    #[must_use]
    pub fn with_property(mut self, key: impl Into<Text>, value: impl Into<Value>) -> Self {
        self.application_properties.push((key.into(), value.into()));
        self
    }

    /// Returns an application property.
    pub fn property(&self, key: &str) -> Option<&Value> {
        self.application_properties.iter().find(|(name, _)| *name == key).map(|(_, value)| value)
    }

    pub fn decode(input: &[u8]) -> Result<Self, DecodeError> {
        let sections = Sections::scan(input)?;
        let header = sections.header()?;
        Ok(Self {
            header: (header != Header::default()).then_some(header),
            delivery_annotations: fields(sections.delivery_annotations()?)?,
            message_annotations: fields(sections.message_annotations()?)?,
            properties: sections.owned_properties()?,
            application_properties: text_entries(sections.application_properties()?)?,
            body: sections.owned_body()?,
            footer: fields(sections.footer()?)?,
        })
    }
}

fn fields(map: RawMap<'_>) -> Result<Fields, DecodeError> {
    map.entries()
        .map(|entry| {
            let entry = entry?;
            Ok((entry.key.decode_as::<Symbol>()?, entry.value.decode()?))
        })
        .collect()
}

fn text_entries(map: RawMap<'_>) -> Result<Vec<(Text, Value)>, DecodeError> {
    map.entries()
        .map(|entry| {
            let entry = entry?;
            Ok((entry.key.decode_as::<Text>()?, entry.value.decode()?))
        })
        .collect()
}

impl Sections<'_> {
    /// Decodes the body.
    pub fn owned_body(&self) -> Result<Body, DecodeError> {
        Ok(match self.body_kind() {
            BodyKind::None => Body::None,
            BodyKind::Data => Body::Data(self.data().map(Bytes::copy_from_slice).collect()),
            BodyKind::Sequence => {
                let list = |raw: RawValue<'_>| if raw.is_null() { Ok(Vec::new()) } else { raw.decode_as() };
                Body::Sequence(self.body_values().map(list).collect::<Result<_, _>>()?)
            }
            BodyKind::Value => match self.value() {
                Some(value) => Body::Value(value.decode()?),
                None => Body::None,
            },
        })
    }
}

impl Encode for Message {
    fn encode(&self, out: &mut BytesMut) {
        if let Some(header) = &self.header {
            header.encode(out);
        }
        put_fields(out, section::DELIVERY_ANNOTATIONS, &self.delivery_annotations);
        put_fields(out, section::MESSAGE_ANNOTATIONS, &self.message_annotations);
        if self.properties != Properties::default() {
            self.properties.encode(out);
        }
        put_application_properties(out, &self.application_properties);
        put_body(out, &self.body);
        put_fields(out, section::FOOTER, &self.footer);
    }
}

fn put_fields(out: &mut BytesMut, code: u8, fields: &Fields) {
    if !fields.is_empty() {
        put_descriptor(out, code);
        fields.encode(out);
    }
}

fn put_application_properties(out: &mut BytesMut, entries: &[(Text, Value)]) {
    if entries.is_empty() {
        return;
    }
    put_descriptor(out, section::APPLICATION_PROPERTIES);
    let map = CompoundWriter::map(out);
    for (key, value) in entries {
        key.encode(out);
        value.encode(out);
    }
    map.finish(out, entries.len() * 2);
}

fn put_body(out: &mut BytesMut, body: &Body) {
    match body {
        Body::None => {}
        Body::Data(parts) => parts.iter().for_each(|part| put_section(out, section::DATA, part)),
        Body::Sequence(lists) => lists.iter().for_each(|list| put_section(out, section::SEQUENCE, list)),
        Body::Value(value) => put_section(out, section::VALUE, value),
    }
}

fn put_section(out: &mut BytesMut, code: u8, value: &impl Encode) {
    put_descriptor(out, code);
    value.encode(out);
}
