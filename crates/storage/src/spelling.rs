//! Names in metadata come back as they were written. HTTP does not tell upper from lower case, and neither does what we read it with, so whoever holds
//! the connection says beside a request how its headers were spelled, and reads beside an answer how they should be.

use axum::response::Response;
use http::HeaderName;
use http::request::Parts;

use crate::answer::put_header;

/// How headers for metadata are spelled: an extension of requests and of answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spelling(pub Vec<String>);

impl Spelling {
    pub const PREFIX: &str = "x-ms-meta-";
}

/// The name behind the prefix of a header, as it was written.
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
