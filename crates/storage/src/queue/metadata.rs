//! The names and values that a queue carries for its owner, in headers.

use axum::response::Response;
use http::HeaderMap;
use http::header::HeaderName;
use peeklock_broker::engine::Metadata;
use peeklock_http::shown;

use crate::answer::put_header;
use crate::call::text_of;
use crate::problem::Problem;

const PREFIX: &str = "x-ms-meta-";
/// What the service allows; names and values together.
const SIZE_BYTES_MAX: usize = 8 * 1024;

/// Names are in lower case, as HTTP gives them to us.
pub(super) fn read(headers: &HeaderMap) -> Result<Metadata, Problem> {
    let mut pairs = Vec::new();
    for name in headers.keys() {
        let Some(key) = name.as_str().strip_prefix(PREFIX) else { continue };
        if key.is_empty() {
            let text = format!("the header '{PREFIX}' has no name behind it; give it one");
            return Err(Problem::bad("EmptyMetadataKey", text));
        }
        if !is_identifier(key) {
            return Err(Problem::bad(
                "InvalidMetadata",
                format!(
                    "'{}' is no name for metadata; use letters, digits and '_', and begin with no digit",
                    shown(key)
                ),
            ));
        }
        let values: Vec<_> = headers.get_all(name).iter().map(text_of).collect();
        pairs.push((key.to_owned(), values.join(",")));
    }
    pairs.sort();
    let size_bytes: usize = pairs.iter().map(|(name, value)| name.len() + value.len()).sum();
    if size_bytes > SIZE_BYTES_MAX {
        let text = format!("the metadata has {size_bytes} bytes; at most {SIZE_BYTES_MAX} are allowed");
        return Err(Problem::bad("MetadataTooLarge", text));
    }
    Ok(Metadata(pairs))
}

fn is_identifier(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    name.bytes().all(is_part) && !name.starts_with(|first: char| first.is_ascii_digit())
}

pub(super) fn write(metadata: &Metadata, response: &mut Response) {
    for (name, value) in &metadata.0 {
        if let Ok(name) = HeaderName::try_from(format!("{PREFIX}{name}")) {
            put_header(response, &name, value);
        }
    }
}
