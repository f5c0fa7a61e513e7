//! The case of names in metadata, which answers preserve. HTTP header names are case-insensitive and the HTTP library
//! converts them to lower case. The owner of the connection therefore attaches the original case to a request, and
//! reads the required case from an answer.

use axum::response::Response;
use http::HeaderName;
use http::request::Parts;

use crate::answer::put_header;

/// The case of metadata headers: an extension of requests and answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spelling(pub Vec<String>);

impl Spelling {
    pub const PREFIX: &str = "x-ms-meta-";
}

/// Returns the name after the prefix of a header, in its original case.
pub(crate) fn spelled<'p>(parts: &'p Parts, header: &'p HeaderName) -> Option<&'p str> {
    let known = parts.extensions.get::<Spelling>().map_or(&[][..], |spelling| &spelling.0);
    let written = known.iter().find(|known| known.eq_ignore_ascii_case(header.as_str()));
    let plain = header.as_str().strip_prefix(Spelling::PREFIX)?;
    Some(written.and_then(|written| written.get(Spelling::PREFIX.len()..)).unwrap_or(plain))
}

pub(crate) fn put_metadata<'m>(response: &mut Response, metadata: impl Iterator<Item = (&'m str, &'m str)>) {
    let mut spelling = Spelling::default();
    for (name, value) in metadata {
        let header = format!("{}{name}", Spelling::PREFIX);
        if let Ok(name) = HeaderName::try_from(header.as_str()) {
            put_header(response, &name, value);
            spelling.0.push(header);
        }
    }
    if !spelling.0.is_empty() {
        response.extensions_mut().insert(spelling);
    }
}
