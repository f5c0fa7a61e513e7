//! The metadata of a queue, in headers.

use axum::response::Response;
use http::request::Parts;
use peeklock_broker::engine::Metadata;
use peeklock_web::shown;

use crate::call::text_of;
use crate::problem::Problem;
use crate::spelling::{Spelling, put_metadata, spelled};

/// The limit of the service for names and values together.
const SIZE_BYTES_MAX: usize = 8 * 1024;

/// Parses the metadata, sorted by name, with the client's case.
pub(super) fn read(parts: &Parts) -> Result<Metadata, Problem> {
    let (headers, mut pairs) = (&parts.headers, Vec::new());
    for name in headers.keys() {
        let Some(key) = spelled(parts, name) else { continue };
        if key.is_empty() {
            let text = format!("the header '{}' has no name behind it; give it one", Spelling::PREFIX);
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
    pairs.sort_by_key(|(name, _): &(String, String)| name.to_ascii_lowercase());
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
    put_metadata(response, metadata.0.iter().map(|(name, value)| (name.as_str(), value.as_str())));
}

/// Compares metadata. Names that differ only in case are equal.
pub(super) fn is_same(left: &Metadata, right: &Metadata) -> bool {
    let mut pairs = left.0.iter().zip(&right.0);
    left.0.len() == right.0.len()
        && pairs.all(|(left, right)| left.0.eq_ignore_ascii_case(&right.0) && left.1 == right.1)
}
