//! Times as the storage services write them: RFC 1123 in headers and lists, ISO 8601 in signatures.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use peeklock_types::Timestamp;

const DAY_S: u64 = 86_400;

/// `Mon, 16 Nov 2026 10:00:00 GMT`, with whole seconds, rounded down.
pub(crate) fn http_date(time: Timestamp) -> String {
    // A time that no calendar of four digits holds is of no use to a client anyway.
    let millis = time.as_millis().min(253_402_300_799_000);
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_millis(millis))
}

pub(crate) fn parse_http_date(text: &str) -> Option<Timestamp> {
    let since = httpdate::parse_http_date(text.trim()).ok()?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    Some(Timestamp::from_millis(u64::try_from(since.as_millis()).ok()?))
}

/// `2026-11-16`, `2026-11-16T10:00Z`, `2026-11-16T10:00:00Z` or the last with a fraction, all UTC.
pub(crate) fn parse_iso(text: &str) -> Option<Timestamp> {
    let (date, time) = match text.split_once('T') {
        Some((date, time)) => (date, Some(time.strip_suffix('Z')?)),
        None => (text, None),
    };
    let days = days_of(date)?;
    let (seconds, millis) = match time {
        Some(time) => seconds_of(time)?,
        None => (0, 0),
    };
    Some(Timestamp::from_millis((days * DAY_S + seconds) * 1000 + millis))
}

fn seconds_of(time: &str) -> Option<(u64, u64)> {
    let mut parts = time.split(':');
    let hours = number(parts.next()?, 2, 23)?;
    let minutes = number(parts.next()?, 2, 59)?;
    let (seconds, millis) = match parts.next() {
        Some(seconds) => {
            let (whole, fraction) = seconds.split_once('.').unwrap_or((seconds, "0"));
            let is_fraction =
                (1..=9).contains(&fraction.len()) && fraction.bytes().all(|b| b.is_ascii_digit());
            let millis = format!("{fraction:0<3}").get(..3)?.parse().ok().filter(|_| is_fraction)?;
            (number(whole, 2, 60)?, millis)
        }
        None => (0, 0),
    };
    parts.next().is_none().then_some((hours * 3600 + minutes * 60 + seconds, millis))
}

/// Days since 1970-01-01.
fn days_of(date: &str) -> Option<u64> {
    let mut parts = date.split('-');
    let year = number(parts.next()?, 4, 9999).filter(|year| *year >= 1970)?;
    let month = number(parts.next()?, 2, 12)?;
    let day = number(parts.next()?, 2, 31)?;
    if parts.next().is_some() || month == 0 || day == 0 || day > days_in(year, month) {
        return None;
    }
    let leap_days = |year: u64| year / 4 - year / 100 + year / 400;
    let of_years = (year - 1970) * 365 + leap_days(year - 1) - leap_days(1969);
    let of_months: u64 = (1..month).map(|month| days_in(year, month)).sum();
    Some(of_years + of_months + day - 1)
}

fn days_in(year: u64, month: u64) -> u64 {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn number(text: &str, digits: usize, max: u64) -> Option<u64> {
    let fits = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| fits && *number <= max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_headers_are_read_and_written() {
        let time = Timestamp::from_millis(1_794_823_200_999);
        assert_eq!(http_date(time), "Mon, 16 Nov 2026 10:00:00 GMT");
        assert_eq!(parse_http_date(&http_date(time)), Some(Timestamp::from_millis(1_794_823_200_000)));
        assert_eq!(parse_http_date("yesterday"), None);
        assert!(!http_date(Timestamp::MAX).is_empty());
    }

    #[test]
    fn times_of_signatures_are_read_in_all_their_forms() {
        let at = |millis| Some(Timestamp::from_millis(millis));
        assert_eq!(parse_iso("2026-11-16"), at(1_794_787_200_000));
        assert_eq!(parse_iso("2026-11-16T10:00Z"), at(1_794_823_200_000));
        assert_eq!(parse_iso("2026-11-16T10:00:01Z"), at(1_794_823_201_000));
        assert_eq!(parse_iso("2026-11-16T10:00:01.5000000Z"), at(1_794_823_201_500));
        assert_eq!(parse_iso("2000-02-29"), at(951_782_400_000));
        assert_eq!(parse_iso("1970-01-01T00:00:00Z"), at(0));
    }

    #[test]
    fn what_is_no_time_is_refused() {
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
