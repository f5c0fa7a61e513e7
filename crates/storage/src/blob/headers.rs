//! The headers of the Blob calls.

use axum::response::Response;
use http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_TYPE, ETAG, HeaderName,
    IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE, LAST_MODIFIED,
};
use peeklock_broker::blob::{Blob, BlobHeaders, Condition, Lease, LeaseId, LeaseState, Metadata, Tag};
use peeklock_types::{Etag, Timestamp};
use peeklock_web::shown;

use crate::answer::put_header;
use crate::call::{Call, text_of};
use crate::problem::Problem;
use crate::spelling::{self, Spelling, spelled};
use crate::time::{http_date, parse_http_date};

/// The supported headers with this prefix, and those without an effect here.
const KNOWN: [&str; 20] = [
    "x-ms-date",
    "x-ms-version",
    "x-ms-client-request-id",
    "x-ms-return-client-request-id",
    "x-ms-blob-type",
    "x-ms-blob-content-type",
    "x-ms-blob-content-encoding",
    "x-ms-blob-content-language",
    "x-ms-blob-content-disposition",
    "x-ms-blob-content-md5",
    "x-ms-blob-cache-control",
    "x-ms-range",
    "x-ms-blob-public-access",
    "x-ms-delete-snapshots",
    "x-ms-lease-id",
    "x-ms-lease-action",
    "x-ms-lease-duration",
    "x-ms-lease-break-period",
    "x-ms-proposed-lease-id",
    "x-ms-range-get-content-md5",
];

/// Query parameters that name unsupported resources, each with a reason.
const ABSENT: [(&str, &str); 4] = [
    ("snapshot", "there are no snapshots"),
    ("versionid", "there are no versions of blobs"),
    ("delimiter", "lists have no folders"),
    ("where", "blobs have no tags"),
];

/// Rejects tags, tiers, checksums and other headers that would otherwise be ignored.
pub(super) fn check_unknown(call: &Call<'_>) -> Result<(), Problem> {
    if let Some((name, why)) =
        ABSENT.iter().find(|(name, _)| call.query(name).is_some_and(|value| !value.is_empty()))
    {
        return Err(Problem::not_supported(format!("the query has '{name}', and {why} here")));
    }
    let is_unknown = |name: &&str| {
        name.starts_with("x-ms-") && !name.starts_with(Spelling::PREFIX) && !KNOWN.contains(name)
    };
    match call.parts.headers.keys().map(HeaderName::as_str).find(is_unknown) {
        Some(name) => Err(Problem::not_supported(format!("the header '{}' is not supported", shown(name)))),
        None => Ok(()),
    }
}

pub(super) fn metadata(call: &Call<'_>) -> Result<Metadata, Problem> {
    let mut metadata = Metadata::default();
    for (header, value) in &call.parts.headers {
        if let Some(name) = spelled(&call.parts, header) {
            let wrong = |error: peeklock_broker::blob::MetadataError| {
                use peeklock_broker::blob::MetadataError as E;
                let code = match error {
                    E::Name { .. } | E::Value { .. } => "InvalidMetadata",
                    E::TooLarge | E::TooMany => "MetadataTooLarge",
                };
                Problem::bad(code, error.to_string())
            };
            metadata.add(name, text_of(value).trim()).map_err(wrong)?;
        }
    }
    Ok(metadata)
}

/// Returns the headers that describe the content: those of the service, or those of HTTP.
pub(super) fn of_content(call: &Call<'_>) -> BlobHeaders {
    let text = |own: &str, of_http: Option<HeaderName>| {
        let text = call.header(own).or_else(|| of_http.and_then(|name| call.header(name)));
        text.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
    };
    BlobHeaders {
        content_type: text("x-ms-blob-content-type", Some(CONTENT_TYPE)),
        content_encoding: text("x-ms-blob-content-encoding", Some(CONTENT_ENCODING)),
        content_language: text("x-ms-blob-content-language", Some(CONTENT_LANGUAGE)),
        content_disposition: text("x-ms-blob-content-disposition", Some(CONTENT_DISPOSITION)),
        cache_control: text("x-ms-blob-cache-control", Some(CACHE_CONTROL)),
        content_md5: text("x-ms-blob-content-md5", None),
    }
}

pub(super) fn condition(call: &Call<'_>) -> Result<Condition, Problem> {
    let tag = |name: HeaderName| call.header(name).map(|text| parse_tag(text.trim()));
    let time = |name: HeaderName| -> Result<Option<Timestamp>, Problem> {
        let Some(text) = call.header(&name) else { return Ok(None) };
        let wrong = || Problem::header(name.as_str(), "is not in the form 'Mon, 16 Nov 2026 10:00:00 GMT'");
        parse_http_date(&text).map(Some).ok_or_else(wrong)
    };
    Ok(Condition {
        if_match: tag(IF_MATCH),
        if_none_match: tag(IF_NONE_MATCH),
        if_modified_since: time(IF_MODIFIED_SINCE)?,
        if_unmodified_since: time(IF_UNMODIFIED_SINCE)?,
        lease_id: lease_id(call, "x-ms-lease-id")?,
    })
}

/// Parses a header with a lease id.
pub(super) fn lease_id(call: &Call<'_>, name: &'static str) -> Result<Option<LeaseId>, Problem> {
    let Some(text) = call.header(name).filter(|text| !text.trim().is_empty()) else { return Ok(None) };
    let wrong = |error| Problem::header(name, format!("is '{}'; {error}", shown(&text)));
    LeaseId::parse(text.trim()).map(Some).map_err(wrong)
}

/// Returns the tag as in lists; headers enclose it in quotes.
pub(super) fn tag(etag: Etag) -> String {
    // The tag is nonzero, because clients could interpret zero as a missing tag.
    format!("0x{:015X}", etag.0.saturating_add(1))
}

/// Parses an entity tag. SDK quirk: some SDKs return the tag as in a list, without quotes.
fn parse_tag(text: &str) -> Tag {
    if text == "*" {
        return Tag::Any;
    }
    let bare = text.strip_prefix("W/").unwrap_or(text);
    let bare = bare.strip_prefix('"').and_then(|bare| bare.strip_suffix('"')).unwrap_or(bare);
    let digits = bare.strip_prefix("0x").filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let number = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
    number.and_then(|number| number.checked_sub(1)).map_or(Tag::Foreign, |number| Tag::Is(Etag(number)))
}

pub(super) fn put_state(response: &mut Response, etag: Etag, modified_at: Timestamp) {
    put_header(response, &ETAG, &format!("\"{}\"", tag(etag)));
    put_header(response, &LAST_MODIFIED, &http_date(modified_at));
}

pub(super) fn put_metadata(response: &mut Response, metadata: &Metadata) {
    spelling::put_metadata(response, metadata.iter());
}

/// Returns the status and the state of a lease, and its kind while it is held.
pub(super) fn lease_texts(
    lease: Option<&Lease>,
    now: Timestamp,
) -> (&'static str, &'static str, Option<&'static str>) {
    let state = LeaseState::of(lease, now);
    let status = if state.is_locked() { "locked" } else { "unlocked" };
    let (name, duration) = match state {
        LeaseState::Available => ("available", None),
        LeaseState::Leased { is_infinite: true } => ("leased", Some("infinite")),
        LeaseState::Leased { is_infinite: false } => ("leased", Some("fixed")),
        LeaseState::Expired => ("expired", None),
        LeaseState::Breaking => ("breaking", None),
        LeaseState::Broken => ("broken", None),
    };
    (status, name, duration)
}

pub(super) fn put_lease(response: &mut Response, lease: Option<&Lease>, now: Timestamp) {
    let (status, state, duration) = lease_texts(lease, now);
    put_header(response, &HeaderName::from_static("x-ms-lease-status"), status);
    put_header(response, &HeaderName::from_static("x-ms-lease-state"), state);
    if let Some(duration) = duration {
        put_header(response, &HeaderName::from_static("x-ms-lease-duration"), duration);
    }
}

pub(super) fn put_properties(response: &mut Response, blob: &Blob, now: Timestamp) {
    put_state(response, blob.etag, blob.modified_at);
    put_metadata(response, &blob.metadata);
    put_lease(response, blob.lease.as_ref(), now);
    put_header(response, &http::header::ACCEPT_RANGES, "bytes");
    put_header(response, &HeaderName::from_static("x-ms-blob-type"), "BlockBlob");
    put_header(response, &HeaderName::from_static("x-ms-creation-time"), &http_date(blob.created_at));
    let headers = &blob.headers;
    let content_type = headers.content_type.as_deref().unwrap_or("application/octet-stream");
    put_header(response, &CONTENT_TYPE, content_type);
    let others = [
        (CONTENT_ENCODING, &headers.content_encoding),
        (CONTENT_LANGUAGE, &headers.content_language),
        (CONTENT_DISPOSITION, &headers.content_disposition),
        (CACHE_CONTROL, &headers.cache_control),
    ];
    for (name, value) in others {
        if let Some(value) = value {
            put_header(response, &name, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_parsed_with_and_without_quotes() {
        for etag in [Etag(0), Etag(7), Etag(u64::MAX - 1)] {
            assert_eq!(parse_tag(&tag(etag)), Tag::Is(etag));
            assert_eq!(parse_tag(&format!("\"{}\"", tag(etag))), Tag::Is(etag));
        }
        assert_eq!(parse_tag("*"), Tag::Any);
        for text in ["", "7", "\"7\"", "0x", "0x0", "0xzz", "0x+1", "\"0x1"] {
            assert_eq!(parse_tag(text), Tag::Foreign, "{text}");
        }
    }
}
