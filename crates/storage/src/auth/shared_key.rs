//! Shared keys: the text that a client signs, and the check of its signature.

use std::time::Duration;

use http::header::{
    CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH, CONTENT_TYPE, DATE, HeaderName, IF_MATCH,
    IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE, RANGE,
};

use super::order;
use super::permit::Permit;
use crate::call::{Call, text_of};
use crate::problem::Problem;
use crate::time::parse_http_date;

const X_MS_DATE: HeaderName = HeaderName::from_static("x-ms-date");
const CONTENT_MD5: HeaderName = HeaderName::from_static("content-md5");
/// The maximum difference between the clocks of a client and the server, in both directions.
const CLOCK_SKEW_MAX: Duration = Duration::from_secs(15 * 60);

/// The way in which the signed text is built from a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scheme {
    Full,
    /// Includes fewer headers, and only `comp` from the query.
    Lite,
}

pub(super) fn check(call: &Call<'_>, credentials: &str, scheme: Scheme) -> Result<Permit, Problem> {
    let Some((account, signature)) = credentials.trim().split_once(':') else {
        return Err(Problem::authentication("the Authorization header is not 'SharedKey ACCOUNT:SIGNATURE'"));
    };
    if account != call.account.name {
        return Err(Problem::authentication(format!(
            "it is signed for the account '{}' and sent to '{}'",
            peeklock_web::shown(account),
            call.account.name
        )));
    }
    check_date(call)?;
    // The order of the service is tried first, because the SDKs use it; then the order of bytes, for clients that
    // follow the documentation literally.
    let texts = [string_to_sign(call, scheme, order::of_service), string_to_sign(call, scheme, str::cmp)];
    if texts.iter().any(|text| call.account.key.has_signed(text, signature)) {
        return Ok(Permit::Owner);
    }
    Err(Problem::authentication(format!(
        "the signature does not fit; check the key of the account '{}'. What was to be signed: {:?}",
        call.account.name,
        texts.first().map(String::as_str).unwrap_or_default()
    )))
}

/// Rejects old requests, so that a recorded request cannot be replayed later.
fn check_date(call: &Call<'_>) -> Result<(), Problem> {
    let date = call.header(X_MS_DATE).or_else(|| call.header(DATE));
    let Some(date) = date else {
        return Err(Problem::authentication("it has neither an x-ms-date nor a Date header"));
    };
    let Some(at) = parse_http_date(&date) else {
        return Err(Problem::authentication("its date is not in the form 'Mon, 16 Nov 2026 10:00:00 GMT'"));
    };
    let now = call.now();
    if at.since(now) > CLOCK_SKEW_MAX || now.since(at) > CLOCK_SKEW_MAX {
        return Err(Problem::authentication(format!(
            "its date is {date}, and here it is {}; more than {} minutes apart are too many, set the clock",
            crate::time::http_date(now),
            CLOCK_SKEW_MAX.as_secs() / 60
        )));
    }
    Ok(())
}

type Compare = fn(&str, &str) -> std::cmp::Ordering;

pub(super) fn string_to_sign(call: &Call<'_>, scheme: Scheme, compare: Compare) -> String {
    let full = [
        CONTENT_ENCODING,
        CONTENT_LANGUAGE,
        CONTENT_LENGTH,
        CONTENT_MD5,
        CONTENT_TYPE,
        DATE,
        IF_MODIFIED_SINCE,
        IF_MATCH,
        IF_NONE_MATCH,
        IF_UNMODIFIED_SINCE,
        RANGE,
    ];
    let lite = [CONTENT_MD5, CONTENT_TYPE, DATE];
    let names: &[HeaderName] = if scheme == Scheme::Full { &full } else { &lite };
    let mut text = format!("{}\n", call.method());
    for name in names {
        text.push_str(&signed_header(call, name));
        text.push('\n');
    }
    push_headers(&mut text, call, compare);
    text.push('/');
    text.push_str(&call.account.name);
    text.push_str(call.raw_path());
    push_query(&mut text, call, scheme);
    text
}

fn signed_header(call: &Call<'_>, name: &HeaderName) -> String {
    // If x-ms-date is present, it is signed with the x-ms headers and Date is ignored.
    if *name == DATE && call.parts.headers.contains_key(X_MS_DATE) {
        return String::new();
    }
    let value = call.header(name).unwrap_or_default();
    // The length of an empty body is signed as an empty text.
    if *name == CONTENT_LENGTH && value == "0" { String::new() } else { value.into_owned() }
}

fn push_headers(text: &mut String, call: &Call<'_>, compare: Compare) {
    let names = call.parts.headers.keys().map(HeaderName::as_str);
    let mut names: Vec<&str> = names.filter(|name| name.starts_with("x-ms-")).collect();
    names.sort_by(|left, right| compare(left, right));
    for name in names {
        let values: Vec<_> = call.parts.headers.get_all(name).iter().map(text_of).collect();
        text.push_str(name);
        text.push(':');
        text.push_str(values.join(",").trim());
        text.push('\n');
    }
}

fn push_query(text: &mut String, call: &Call<'_>, scheme: Scheme) {
    if scheme == Scheme::Lite {
        if let Some(comp) = call.query("comp") {
            text.push_str("?comp=");
            text.push_str(comp);
        }
        return;
    }
    let mut pairs: Vec<(&str, &str)> = call.queries().iter().map(|(key, value)| (&**key, &**value)).collect();
    pairs.sort_unstable();
    let mut last = None;
    for (key, value) in pairs {
        if last == Some(key) {
            text.push(',');
        } else {
            text.push('\n');
            text.push_str(key);
            text.push(':');
            last = Some(key);
        }
        text.push_str(value);
    }
}
