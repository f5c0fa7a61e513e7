//! Times in the formats of the storage services: RFC 1123 in headers and lists, ISO 8601 in signatures.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use peeklock_types::{Timestamp, calendar};

/// Formats a time as `Mon, 16 Nov 2026 10:00:00 GMT`, rounded down to whole seconds.
pub(crate) fn http_date(time: Timestamp) -> String {
    // The format has four digits for the year; later times are reduced to the latest one.
    let millis = time.as_millis().min(253_402_300_799_000);
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_millis(millis))
}

pub(crate) fn parse_http_date(text: &str) -> Option<Timestamp> {
    let since = httpdate::parse_http_date(text.trim()).ok()?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    Some(Timestamp::from_millis(u64::try_from(since.as_millis()).ok()?))
}

/// Parses `2026-11-16`, `2026-11-16T10:00Z`, `2026-11-16T10:00:00Z` or the last with a fraction, all UTC.
pub(crate) fn parse_iso(text: &str) -> Option<Timestamp> {
    // A date alone has no zone, and a time has `Z`; the general grammar accepts more.
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit() || b"-:.TZ".contains(&byte));
    if !is_plain || text.contains('T') != text.ends_with('Z') {
        return None;
    }
    let millis = calendar::parse(text, calendar::Form::Iso8601)?;
    u64::try_from(millis).ok().map(Timestamp::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_headers_are_parsed_and_formatted() {
        let time = Timestamp::from_millis(1_794_823_200_999);
        assert_eq!(http_date(time), "Mon, 16 Nov 2026 10:00:00 GMT");
        assert_eq!(parse_http_date(&http_date(time)), Some(Timestamp::from_millis(1_794_823_200_000)));
        assert_eq!(parse_http_date("yesterday"), None);
        assert!(!http_date(Timestamp::MAX).is_empty());
    }

    #[test]
    fn times_of_signatures_are_parsed_in_all_formats() {
        let at = |millis| Some(Timestamp::from_millis(millis));
        assert_eq!(parse_iso("2026-11-16"), at(1_794_787_200_000));
        assert_eq!(parse_iso("2026-11-16T10:00Z"), at(1_794_823_200_000));
        assert_eq!(parse_iso("2026-11-16T10:00:01Z"), at(1_794_823_201_000));
        assert_eq!(parse_iso("2026-11-16T10:00:01.5000000Z"), at(1_794_823_201_500));
        assert_eq!(parse_iso("2000-02-29"), at(951_782_400_000));
        assert_eq!(parse_iso("1970-01-01T00:00:00Z"), at(0));
    }

    #[test]
    fn invalid_times_are_rejected() {
        for text in [
            "",
            "2026",
            "2026-13-01",
            "2026-02-30",
            "1900-01-01",
            "2026-11-16T10:00",
            "2026-11-16T25:00Z",
            "2026-11-16T10:00:00+01:00",
            "2026-11-16T10:00:00.Z",
            "2026-11-16T10Z",
            "+026-11-16",
            "2026-1-16",
            "2026-11-16T10:00:00:00Z",
            "2026-11-16T10:00:00.éZ",
        ] {
            assert_eq!(parse_iso(text), None, "{text}");
        }
    }
}
