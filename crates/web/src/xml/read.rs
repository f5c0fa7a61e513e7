//! Reads an XML document into a tree, within limits.

use quick_xml::XmlVersion;
use quick_xml::events::{BytesRef, BytesStart, Event};
use quick_xml::name::{Namespace, NamespaceResolver, ResolveResult};
use quick_xml::reader::NsReader;

use super::{ARRAYS, ATOM, COUNTS, INSTANCE, SERVICE_BUS};

/// The maximum depth of nested elements. The deepest elements that clients send, the parameters of a rule, are on level
/// eight.
pub const DEPTH_MAX: usize = 16;
pub const ELEMENT_COUNT_MAX: usize = 10_000;
/// The maximum number of namespace declarations in scope: the name of each element is looked up among them.
const BINDING_COUNT_MAX: usize = 32;
const ATTRIBUTE_COUNT_MAX: usize = 32;

/// An element with the values that the callers need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Element {
    pub space: Space,
    pub name: String,
    /// The value of `i:type`, without its prefix.
    pub kind: Option<String>,
    pub is_nil: bool,
    /// All text directly inside the element, with its white space.
    pub text: String,
    pub children: Vec<Element>,
}

/// The namespace of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Space {
    Atom,
    /// Includes the namespaces of counts and arrays, which occur only in descriptions of Service Bus.
    ServiceBus,
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum XmlError {
    #[error("the body is not UTF-8 from byte {at} on; send XML in UTF-8")]
    NotUtf8 { at: usize },
    #[error("the body has no XML element; send an Atom entry with the description as its content")]
    Empty,
    #[error("the body is not XML at line {line}, column {column}: {what}")]
    Malformed { line: usize, column: usize, what: String },
    #[error("line {line}, column {column}: a document type (DTD) is not allowed; leave it out")]
    DocType { line: usize, column: usize },
    #[error(
        "line {line}, column {column}: the entity '&{name};' is unknown; only lt, gt, amp, apos, quot and numbers are allowed"
    )]
    Entity { line: usize, column: usize, name: String },
    #[error("line {line}, column {column}: elements nest deeper than {DEPTH_MAX}")]
    TooDeep { line: usize, column: usize },
    #[error("line {line}, column {column}: more than {ELEMENT_COUNT_MAX} elements")]
    TooManyElements { line: usize, column: usize },
    #[error("line {line}, column {column}: more than {ATTRIBUTE_COUNT_MAX} attributes on one element")]
    TooManyAttributes { line: usize, column: usize },
}

impl Element {
    /// Returns the first child with this name.
    pub fn child(&self, name: &str) -> Option<&Element> {
        self.children.iter().find(|child| child.name == name)
    }

    /// Returns the text without surrounding white space. Do not use this for a text of the user, whose white space is
    /// content.
    pub fn trimmed(&self) -> &str {
        self.text.trim()
    }
}

/// Parses one document, in time and memory proportional to the number of bytes.
pub fn read(bytes: &[u8]) -> Result<Element, XmlError> {
    let text = std::str::from_utf8(bytes).map_err(|error| XmlError::NotUtf8 { at: error.valid_up_to() })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    Tree { text, open: Vec::new(), root: None, element_count: 0 }.build()
}

/// An incomplete document.
struct Tree<'a> {
    text: &'a str,
    /// The elements that are open at the current position, outermost first.
    open: Vec<Element>,
    root: Option<Element>,
    element_count: usize,
}

/// A problem without its position.
enum Trouble {
    Malformed(String),
    DocType,
    Entity(String),
    TooDeep,
    TooManyElements,
    TooManyAttributes,
}

impl<E: Into<quick_xml::Error>> From<E> for Trouble {
    fn from(error: E) -> Self {
        Trouble::Malformed(error.into().to_string())
    }
}

impl Tree<'_> {
    fn build(mut self) -> Result<Element, XmlError> {
        let mut reader = NsReader::from_str(self.text);
        reader.resolver_mut().set_max_namespace_bindings(BINDING_COUNT_MAX);
        loop {
            let before = reader.buffer_position();
            let event = reader.read_event().map_err(|error| (reader.error_position(), error.into()));
            let is_end = matches!(event, Ok(Event::Eof));
            let handled = event
                .and_then(|event| self.handle(event, reader.resolver()).map_err(|trouble| (before, trouble)));
            handled.map_err(|(at, trouble)| self.error(at, trouble))?;
            if is_end {
                return self.root.ok_or(XmlError::Empty);
            }
        }
    }

    fn handle(&mut self, event: Event<'_>, resolver: &NamespaceResolver) -> Result<(), Trouble> {
        match event {
            Event::Start(start) => self.begin(&start, resolver),
            Event::Empty(start) => self.begin(&start, resolver).and_then(|()| self.end()),
            Event::End(_) => self.end(),
            Event::Text(text) => self.add(&text.xml10_content()),
            Event::CData(text) => self.add(&text.xml10_content()),
            Event::GeneralRef(reference) => self.add(&resolve(&reference)?),
            Event::DocType(_) => Err(Trouble::DocType),
            Event::Comment(_) | Event::Decl(_) | Event::PI(_) => Ok(()),
            Event::Eof => match self.open.last() {
                Some(open) => Err(Trouble::Malformed(format!("the element '{}' is not closed", open.name))),
                None => Ok(()),
            },
        }
    }

    fn begin(&mut self, start: &BytesStart<'_>, resolver: &NamespaceResolver) -> Result<(), Trouble> {
        if self.root.is_some() {
            return Err(Trouble::Malformed("a second root element".to_owned()));
        }
        if self.open.len() >= DEPTH_MAX {
            return Err(Trouble::TooDeep);
        }
        self.element_count += 1;
        if self.element_count > ELEMENT_COUNT_MAX {
            return Err(Trouble::TooManyElements);
        }
        let (space, name) = resolver.resolve_element(start.name());
        let mut element = Element {
            space: space_of(&space)?,
            name: name.as_ref().to_owned(),
            kind: None,
            is_nil: false,
            text: String::new(),
            children: Vec::new(),
        };
        read_attributes(&mut element, start, resolver)?;
        self.open.push(element);
        Ok(())
    }

    fn end(&mut self) -> Result<(), Trouble> {
        let unopened = || Trouble::Malformed("an element ends that was not begun".to_owned());
        let element = self.open.pop().ok_or_else(unopened)?;
        match self.open.last_mut() {
            Some(parent) => parent.children.push(element),
            None => self.root = Some(element),
        }
        Ok(())
    }

    fn add(&mut self, text: &str) -> Result<(), Trouble> {
        match self.open.last_mut() {
            Some(element) => element.text.push_str(text),
            None if text.trim().is_empty() => {}
            None => return Err(Trouble::Malformed("text outside of the root element".to_owned())),
        }
        Ok(())
    }

    fn error(&self, at: u64, trouble: Trouble) -> XmlError {
        let (line, column) = place(self.text, at);
        match trouble {
            Trouble::Malformed(what) => XmlError::Malformed { line, column, what },
            Trouble::DocType => XmlError::DocType { line, column },
            Trouble::Entity(name) => XmlError::Entity { line, column, name },
            Trouble::TooDeep => XmlError::TooDeep { line, column },
            Trouble::TooManyElements => XmlError::TooManyElements { line, column },
            Trouble::TooManyAttributes => XmlError::TooManyAttributes { line, column },
        }
    }
}

fn read_attributes(
    element: &mut Element,
    start: &BytesStart<'_>,
    resolver: &NamespaceResolver,
) -> Result<(), Trouble> {
    let mut attributes = start.attributes();
    // The check for repeated names is off, because it compares each name with all others.
    attributes.with_checks(false);
    for (count, attribute) in attributes.enumerate() {
        if count >= ATTRIBUTE_COUNT_MAX {
            return Err(Trouble::TooManyAttributes);
        }
        let attribute = attribute.map_err(quick_xml::Error::InvalidAttr)?;
        let (space, name) = resolver.resolve_attribute(attribute.key);
        if !matches!(space, ResolveResult::Bound(Namespace(INSTANCE))) {
            continue;
        }
        let value = attribute.normalized_value(XmlVersion::Implicit1_0)?;
        match name.as_ref() {
            // The prefix denotes XML Schema or Service Bus; the type names of the two do not overlap.
            "type" => element.kind = Some(value.rsplit(':').next().unwrap_or_default().to_owned()),
            "nil" => element.is_nil = matches!(value.trim(), "true" | "1"),
            _ => {}
        }
    }
    Ok(())
}

fn space_of(space: &ResolveResult<'_>) -> Result<Space, Trouble> {
    match space {
        ResolveResult::Bound(Namespace(ATOM)) => Ok(Space::Atom),
        ResolveResult::Bound(Namespace(SERVICE_BUS | COUNTS | ARRAYS)) => Ok(Space::ServiceBus),
        ResolveResult::Bound(_) | ResolveResult::Unbound => Ok(Space::Other),
        ResolveResult::Unknown(prefix) => {
            Err(Trouble::Malformed(format!("the namespace prefix '{prefix}' is not declared")))
        }
    }
}

/// Resolves the five predefined entities of XML, and character references.
fn resolve(reference: &BytesRef<'_>) -> Result<String, Trouble> {
    if let Some(char) = reference.resolve_char_ref()? {
        return match char {
            '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..='\u{10ffff}' => {
                Ok(char.to_string())
            }
            _ => Err(Trouble::Malformed(format!("the character U+{:04X} is not allowed", u32::from(char)))),
        };
    }
    let text = match &**reference {
        "lt" => "<",
        "gt" => ">",
        "amp" => "&",
        "apos" => "'",
        "quot" => "\"",
        name => return Err(Trouble::Entity(name.chars().take(64).collect())),
    };
    Ok(text.to_owned())
}

/// Returns the line and the column, both counted from 1, the column in characters.
fn place(text: &str, at: u64) -> (usize, usize) {
    let mut at = usize::try_from(at).unwrap_or(usize::MAX).min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    let before = text.get(..at).unwrap_or_default();
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = before.matches('\n').count() + 1;
    (line, before.get(line_start..).unwrap_or_default().chars().count() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_str(text: &str) -> Result<Element, XmlError> {
        read(text.as_bytes())
    }

    #[test]
    fn both_styles_of_prefixes_give_the_same_tree() {
        let python = r#"<?xml version='1.0' encoding='utf-8'?>
<ns0:entry xmlns:ns0="http://www.w3.org/2005/Atom" xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"><ns0:content type="application/xml"><QueueDescription><UserMetadata>x&lt;&amp;&#x41;</UserMetadata></QueueDescription></ns0:content></ns0:entry>"#;
        let js = r#"<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><QueueDescription xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"><UserMetadata><![CDATA[x<&]]>A</UserMetadata></QueueDescription></content></entry>"#;
        let tree = read_str(python).unwrap();
        assert_eq!(tree.children, read_str(js).unwrap().children);
        assert_eq!((tree.space, tree.name.as_str()), (Space::Atom, "entry"));
        let description = tree.child("content").unwrap().child("QueueDescription").unwrap();
        assert_eq!(description.space, Space::ServiceBus);
        assert_eq!(description.child("UserMetadata").unwrap().text, "x<&A");
    }

    #[test]
    fn types_are_read_with_any_prefix() {
        let tree = read_str(
            r#"<a xmlns:p4="http://www.w3.org/2001/XMLSchema-instance" p4:type="l28:double" type="no"><b p4:nil="true"/></a>"#,
        )
        .unwrap();
        assert_eq!(tree.kind.as_deref(), Some("double"));
        assert!(tree.children[0].is_nil);
    }

    #[test]
    fn document_types_and_entities_are_rejected() {
        let billion = "<!DOCTYPE a [<!ENTITY b \"x\">]><a>&b;</a>";
        assert!(matches!(read_str(billion), Err(XmlError::DocType { line: 1, .. })));
        let entity = read_str("<a>\n &b;</a>").unwrap_err();
        assert_eq!(entity, XmlError::Entity { line: 2, column: 2, name: "b".to_owned() });
        assert!(matches!(read_str("<a>&#0;</a>"), Err(XmlError::Malformed { .. })));
        assert!(matches!(read_str("<a>&#x1;</a>"), Err(XmlError::Malformed { .. })));
    }

    #[test]
    fn an_error_in_the_syntax_has_its_position() {
        for text in
            ["<a><b></a>", "<a>", "<a/><b/>", "x<a/>", "<a b=c/>", "<x:a/>", "</a>", "<a", "<a>&</a>", "{}"]
        {
            assert!(
                matches!(read_str(text), Err(XmlError::Malformed { line: 1, .. })),
                "{text}: {:?}",
                read_str(text)
            );
        }
        assert_eq!(read_str("").unwrap_err(), XmlError::Empty);
        assert_eq!(read(b"<a>\xff</a>").unwrap_err(), XmlError::NotUtf8 { at: 3 });
    }

    #[test]
    fn depth_elements_and_attributes_are_limited() {
        let nested = |depth| "<a>".repeat(depth) + &"</a>".repeat(depth);
        assert!(read_str(&nested(DEPTH_MAX)).is_ok());
        assert!(matches!(read_str(&nested(DEPTH_MAX + 1)), Err(XmlError::TooDeep { .. })));
        let wide = |count| format!("<a>{}</a>", "<b/>".repeat(count));
        assert!(read_str(&wide(ELEMENT_COUNT_MAX - 1)).is_ok());
        assert!(matches!(read_str(&wide(ELEMENT_COUNT_MAX)), Err(XmlError::TooManyElements { .. })));
        let many: String = (0..=ATTRIBUTE_COUNT_MAX).map(|i| format!(" a{i}=\"\"")).collect();
        assert!(matches!(read_str(&format!("<a{many}/>")), Err(XmlError::TooManyAttributes { .. })));
        let bindings: String = (0..=BINDING_COUNT_MAX).map(|i| format!(" xmlns:a{i}=\"b\"")).collect();
        assert!(matches!(read_str(&format!("<a{bindings}/>")), Err(XmlError::Malformed { .. })));
    }
}
