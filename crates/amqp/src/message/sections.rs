//! Finds the sections of an encoded message.

use crate::codec::{DecodeError, Decoder, Problem, section};
use crate::message::{Header, Properties, PropertiesRef, RawMap, RawValue};

/// The kind of a message's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyKind {
    /// There is no body section. SDK quirk: pyamqp sends none for an empty body.
    None,
    Data,
    Sequence,
    Value,
}

/// The sections of one encoded message, found in one pass and not yet decoded.
///
/// Sections may be in any order (pyamqp writes delivery annotations last), and none is required. The body's sections
/// must be adjacent, because their order is part of the message.
#[derive(Debug, Clone, Copy)]
pub struct Sections<'a> {
    /// The encoded values, without their descriptors.
    header: Option<RawValue<'a>>,
    delivery_annotations: Option<RawValue<'a>>,
    message_annotations: Option<RawValue<'a>>,
    properties: Option<RawValue<'a>>,
    application_properties: Option<RawValue<'a>>,
    footer: Option<RawValue<'a>>,
    input: &'a [u8],
    /// The range of the body sections, including descriptors.
    body_start: usize,
    body_end: usize,
    body_kind: BodyKind,
    /// The body's descriptors are in the form that every client reads.
    body_is_canonical: bool,
}

/// One section: its code, its encoded value, and its range.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Section<'a> {
    pub(crate) code: u8,
    pub(crate) value: RawValue<'a>,
    start: usize,
    end: usize,
}

/// Reads one section after the other.
#[derive(Debug)]
pub(crate) struct SectionReader<'a> {
    decoder: Decoder<'a>,
}

impl<'a> SectionReader<'a> {
    pub(crate) fn new(input: &'a [u8]) -> Self {
        Self { decoder: Decoder::new(input) }
    }

    pub(crate) fn next(&mut self) -> Result<Option<Section<'a>>, DecodeError> {
        if self.decoder.is_empty() {
            return Ok(None);
        }
        let start = self.decoder.position();
        let code = self.decoder.descriptor_code("a message section")?;
        let value = RawValue::new(self.decoder.raw()?);
        let unknown = Problem::UnknownDescriptor { expected: "a message section", code };
        let code = u8::try_from(code).map_err(|_| DecodeError::new(start, unknown))?;
        Ok(Some(Section { code, value, start, end: self.decoder.position() }))
    }

    pub(crate) fn error(&self, problem: Problem) -> DecodeError {
        self.decoder.error(problem)
    }
}

impl<'a> Sections<'a> {
    pub fn scan(input: &'a [u8]) -> Result<Self, DecodeError> {
        let mut sections = Self::empty(input);
        let mut reader = SectionReader::new(input);
        while let Some(found) = reader.next()? {
            sections.place(&reader, found)?;
        }
        Ok(sections)
    }

    fn empty(input: &'a [u8]) -> Self {
        Self {
            header: None,
            delivery_annotations: None,
            message_annotations: None,
            properties: None,
            application_properties: None,
            footer: None,
            input,
            body_start: 0,
            body_end: 0,
            body_kind: BodyKind::None,
            body_is_canonical: true,
        }
    }

    fn place(&mut self, reader: &SectionReader<'a>, found: Section<'a>) -> Result<(), DecodeError> {
        let (place, name) = match found.code {
            section::HEADER => (&mut self.header, "header"),
            section::DELIVERY_ANNOTATIONS => (&mut self.delivery_annotations, "delivery-annotations"),
            section::MESSAGE_ANNOTATIONS => (&mut self.message_annotations, "message-annotations"),
            section::PROPERTIES => (&mut self.properties, "properties"),
            section::APPLICATION_PROPERTIES => (&mut self.application_properties, "application-properties"),
            section::FOOTER => (&mut self.footer, "footer"),
            section::DATA | section::SEQUENCE | section::VALUE => {
                return self.place_body(reader, found);
            }
            code => {
                let expected = "a message section";
                return Err(reader.error(Problem::UnknownDescriptor { expected, code: code.into() }));
            }
        };
        match place.replace(found.value) {
            None => Ok(()),
            Some(_) => Err(reader.error(Problem::DuplicateSection { section: name })),
        }
    }

    fn place_body(&mut self, reader: &SectionReader<'a>, found: Section<'a>) -> Result<(), DecodeError> {
        let kind = match found.code {
            section::DATA => BodyKind::Data,
            section::SEQUENCE => BodyKind::Sequence,
            _ => BodyKind::Value,
        };
        match self.body_kind {
            BodyKind::None => self.body_start = found.start,
            BodyKind::Value if kind == BodyKind::Value => {
                return Err(reader.error(Problem::DuplicateSection { section: "amqp-value" }));
            }
            before if before != kind => return Err(reader.error(Problem::MixedBody)),
            _ if found.start != self.body_end => return Err(reader.error(Problem::SplitBody)),
            _ => {}
        }
        self.body_end = found.end;
        self.body_kind = kind;
        let raw = self.input.get(found.start..found.end).unwrap_or_default();
        self.body_is_canonical &= raw.starts_with(&[0x00, 0x53]);
        found.check_body_type(reader)
    }

    /// Returns the header. The accessors apply the defaults of a missing one.
    pub fn header(&self) -> Result<Header, DecodeError> {
        set(self.header).map_or_else(|| Ok(Header::default()), |raw| Header::decode_section(raw.as_encoded()))
    }

    pub fn raw_header(&self) -> Option<RawValue<'a>> {
        set(self.header)
    }

    pub fn delivery_annotations(&self) -> Result<RawMap<'a>, DecodeError> {
        RawMap::section(self.delivery_annotations)
    }

    pub fn message_annotations(&self) -> Result<RawMap<'a>, DecodeError> {
        RawMap::section(self.message_annotations)
    }

    /// Returns all thirteen properties, borrowed.
    pub fn properties(&self) -> Result<PropertiesRef<'a>, DecodeError> {
        set(self.properties)
            .map_or_else(|| Ok(PropertiesRef::default()), |raw| PropertiesRef::decode(raw.as_encoded()))
    }

    pub fn owned_properties(&self) -> Result<Properties, DecodeError> {
        self.properties().map(|properties| properties.to_owned())
    }

    pub fn raw_properties(&self) -> Option<RawValue<'a>> {
        set(self.properties)
    }

    pub fn application_properties(&self) -> Result<RawMap<'a>, DecodeError> {
        RawMap::section(self.application_properties)
    }

    pub fn raw_application_properties(&self) -> Option<RawValue<'a>> {
        set(self.application_properties)
    }

    pub fn footer(&self) -> Result<RawMap<'a>, DecodeError> {
        RawMap::section(self.footer)
    }

    pub fn raw_footer(&self) -> Option<RawValue<'a>> {
        set(self.footer)
    }

    pub fn has_footer(&self) -> bool {
        self.footer.is_some()
    }

    pub fn has_delivery_annotations(&self) -> bool {
        self.delivery_annotations.is_some()
    }

    /// Returns the name of the first section other than delivery annotations and footer.
    pub fn first_front_section(&self) -> Option<&'static str> {
        let found = [
            (self.header.is_some(), "header"),
            (self.message_annotations.is_some(), "message-annotations"),
            (self.properties.is_some(), "properties"),
            (self.application_properties.is_some(), "application-properties"),
            (self.body_kind != BodyKind::None, "second body"),
        ];
        found.into_iter().find_map(|(is_there, name)| is_there.then_some(name))
    }

    pub fn body_kind(&self) -> BodyKind {
        self.body_kind
    }

    /// Returns the encoded body sections, with their descriptors as the sender wrote them.
    pub fn raw_body(&self) -> &'a [u8] {
        self.input.get(self.body_start..self.body_end).unwrap_or_default()
    }

    /// Returns the range of the body sections in the input.
    pub fn body_range(&self) -> std::ops::Range<usize> {
        self.body_start..self.body_end
    }

    pub fn body_is_canonical(&self) -> bool {
        self.body_is_canonical
    }

    /// Returns the values of the body's sections: binaries, lists, or the one value.
    pub fn body_values(&self) -> impl Iterator<Item = RawValue<'a>> + use<'a> {
        let mut reader = SectionReader::new(self.raw_body());
        // The scan has read these bytes before, so no error is possible.
        std::iter::from_fn(move || reader.next().ok().flatten().map(|section| section.value))
    }

    /// Returns the content of each data section; a null is empty.
    pub fn data(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.body_values().map(|value| value.as_binary().unwrap_or_default())
    }

    /// Returns the body when it is an amqp-value.
    pub fn value(&self) -> Option<RawValue<'a>> {
        if self.body_kind == BodyKind::Value { self.body_values().next() } else { None }
    }
}

/// Treats a null section as a missing one.
fn set(value: Option<RawValue<'_>>) -> Option<RawValue<'_>> {
    value.filter(|value| !value.is_null())
}

impl Section<'_> {
    // SDK quirk: JavaScript sends a body that is null as a null in a data or amqp-sequence section.
    fn check_body_type(&self, reader: &SectionReader<'_>) -> Result<(), DecodeError> {
        let is_null = self.value.is_null();
        let (fits, expected) = match self.code {
            section::DATA => (is_null || self.value.as_binary().is_some(), "a binary in a data section"),
            section::SEQUENCE => (is_null || self.value.is_list(), "a list in an amqp-sequence section"),
            _ => (true, ""),
        };
        let code = self.value.as_encoded().first().copied().unwrap_or_default();
        if fits { Ok(()) } else { Err(reader.error(Problem::Unexpected { expected, code })) }
    }
}
