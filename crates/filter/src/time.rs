//! Times and durations as text; the filter language has no literals for them.

use std::time::Duration;

use peeklock_types::{calendar, iso8601};

const TICKS_PER_SECOND: i64 = 10_000_000;
const NANOS_PER_TICK: u32 = 100;

/// Parses ISO 8601, such as `2026-01-31`, `2026-01-31T12:30:05.25Z` or `2026-01-31 12:30+02:00`. A time without a zone is UTC.
pub(crate) fn parse_time(text: &str) -> Option<i64> {
    calendar::parse(text, calendar::Form::Iso8601)
}

pub(crate) fn print_time(ms: i64) -> String {
    calendar::show_short(ms)
}

/// Parses ISO 8601 (`PT1M30S`, `P14D`) or the form of .NET (`00:01:30`, `14.00:00:00`). Years and months have no fixed length.
pub(crate) fn parse_span(text: &str) -> Option<i64> {
    let (unsigned, sign) = text.strip_prefix('-').map_or((text, 1), |unsigned| (unsigned, -1));
    let span = if unsigned.starts_with(['P', 'p']) { iso_span(unsigned) } else { clock_span(unsigned) }?;
    let seconds = i64::try_from(span.as_secs()).ok()?;
    let fraction = i64::from(span.subsec_nanos() / NANOS_PER_TICK);
    Some(sign * seconds.checked_mul(TICKS_PER_SECOND)?.checked_add(fraction)?)
}

fn iso_span(text: &str) -> Option<Duration> {
    let parsed = iso8601::parse(&text.to_ascii_uppercase())?;
    (!parsed.has_months && !parsed.has_fraction_above_seconds).then_some(parsed.span)
}

/// Parses `[days.]hours:minutes:seconds[.fraction]` through the same parts in ISO 8601.
fn clock_span(text: &str) -> Option<Duration> {
    let mut parts = text.split(':');
    let (hours, minutes, seconds) = (parts.next()?, parts.next()?, parts.next()?);
    let (days, hours) = hours.split_once('.').unwrap_or(("0", hours));
    let whole = seconds.split_once('.').map_or(seconds, |(whole, _)| whole);
    let fits = |digits: &str, end: u8| digits.parse::<u8>().is_ok_and(|number| number < end);
    let is_clock = parts.next().is_none()
        && (minutes.len(), whole.len()) == (2, 2)
        && fits(hours, 24)
        && fits(minutes, 60)
        && fits(whole, 60);
    if is_clock {
        Some(iso8601::parse(&format!("P{days}DT{hours}H{minutes}M{seconds}S"))?.span)
    } else {
        None
    }
}

pub(crate) fn print_span(ticks: i64) -> String {
    let (sign, ticks) = (if ticks < 0 { "-" } else { "" }, ticks.unsigned_abs());
    let per_second = TICKS_PER_SECOND.unsigned_abs();
    let nanos = u32::try_from(ticks % per_second).unwrap_or(0) * NANOS_PER_TICK;
    format!("{sign}{}", iso8601::show(Duration::new(ticks / per_second, nanos)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICKS_PER_MINUTE: i64 = 60 * TICKS_PER_SECOND;
    const TICKS_PER_DAY: i64 = 24 * 60 * TICKS_PER_MINUTE;

    #[test]
    fn times_are_parsed_and_printed() {
        let cases = [
            ("1970-01-01", 0),
            ("1970-01-01T00:00:00.001Z", 1),
            ("2000-02-29T12:30:00Z", 951_827_400_000),
            ("2000-02-29 14:30:00+02:00", 951_827_400_000),
            ("1969-12-31T23:59:59Z", -1000),
            ("2026-11-16T03:00:00.1234567Z", 1_794_798_000_123),
        ];
        for (text, ms) in cases {
            assert_eq!(parse_time(text), Some(ms), "{text}");
            assert_eq!(parse_time(&print_time(ms)), Some(ms), "{text}");
        }
        for text in
            ["", "2026", "2026-13-01", "2026-02-29", "2026-01-01T24:00", "2026-01-01T10", "2026-01-01x"]
        {
            assert_eq!(parse_time(text), None, "{text}");
        }
        assert_eq!(print_time(951_827_400_000), "2000-02-29T12:30:00Z");
    }

    #[test]
    fn spans_are_parsed_and_printed() {
        let cases = [
            ("PT1M", TICKS_PER_MINUTE, "PT1M"),
            ("00:01:00", TICKS_PER_MINUTE, "PT1M"),
            ("P14D", 14 * TICKS_PER_DAY, "P14D"),
            ("14.00:00:00.5", 14 * TICKS_PER_DAY + TICKS_PER_SECOND / 2, "P14DT0.5S"),
            ("-PT1.5S", -TICKS_PER_SECOND * 3 / 2, "-PT1.5S"),
            ("P10675199DT2H48M5.4775807S", i64::MAX, "P10675199DT2H48M5.4775807S"),
            ("PT0S", 0, "PT0S"),
        ];
        for (text, ticks, shown) in cases {
            assert_eq!(parse_span(text), Some(ticks), "{text}");
            assert_eq!(print_span(ticks), shown, "{text}");
        }
        for text in
            ["", "P", "PT", "P1Y", "PT1H1H", "1:2:3", "25:00:00", "P99999999999999D", "PT1.5M", "P1DT"]
        {
            assert_eq!(parse_span(text), None, "{text}");
        }
    }
}
