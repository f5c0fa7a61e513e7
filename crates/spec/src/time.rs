//! Points in time as people write them: RFC 3339.

use peeklock_types::Timestamp;

use crate::text::TextError;

const DAYS_TO_MARCH_0000: i64 = 719_468;
const DAYS_PER_ERA: i64 = 146_097;
const SECONDS_PER_DAY: i64 = 86_400;

/// As RFC 3339 writes it, in UTC.
pub fn show_time(at: Timestamp) -> String {
    let (seconds, millis) = (at.as_millis() / 1000, at.as_millis() % 1000);
    let (day, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(i64::try_from(day).unwrap_or(i64::MAX / 2));
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// `2026-01-31T18:00:00Z`, `2026-01-31T18:00:00.250+01:00`. A time without its zone would mean different moments on different machines.
pub fn parse_time(text: &str) -> Result<Timestamp, TextError> {
    const ALLOWED: &str = "2026-01-31T18:00:00Z or 2026-01-31T19:00:00+01:00";
    time_of(text).ok_or_else(|| TextError::new(text, "a time", ALLOWED))
}

fn time_of(text: &str) -> Option<Timestamp> {
    let (date, rest) = text.split_once(['T', 't', ' '])?;
    let zone_at = rest.find(['Z', 'z', '+', '-'])?;
    let (clock, zone) = rest.split_at_checked(zone_at)?;
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let (clock, fraction) = clock.split_once('.').map_or((clock, None), |(clock, part)| (clock, Some(part)));
    let [hour, minute, second] = numbers(clock, ':', [2, 2, 2])?;
    let is_real = (1..=12).contains(&month)
        && (1..=days_in(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    let seconds = day_number(year, month, day) * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second;
    let millis = (seconds - zone_of(zone)?) * 1000 + fraction.map_or(Some(0), millis_of)?;
    u64::try_from(millis).ok().filter(|_| is_real).map(Timestamp::from_millis)
}

/// Three numbers of so many digits.
fn numbers(text: &str, between: char, lengths: [usize; 3]) -> Option<[i64; 3]> {
    let mut parts = text.split(between);
    let mut number = |length| parts.next().filter(|part| part.len() == length).and_then(digits);
    let numbers = [number(lengths[0])?, number(lengths[1])?, number(lengths[2])?];
    parts.next().is_none().then_some(numbers)
}

fn digits(text: &str) -> Option<i64> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

/// Milliseconds; what is finer is left out.
fn millis_of(fraction: &str) -> Option<i64> {
    digits(fraction)?;
    digits(format!("{fraction:0<3}").get(..3)?)
}

/// Seconds ahead of UTC.
fn zone_of(text: &str) -> Option<i64> {
    if text.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let sign = if text.starts_with('-') { -1 } else { 1 };
    let [hours, minutes, _] = numbers(&format!("{}:00", text.get(1..)?), ':', [2, 2, 2])?;
    (hours < 24 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60))
}

fn days_in(year: i64, month: i64) -> i64 {
    let (next_year, next_month) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
    day_number(next_year, next_month, 1) - day_number(year, month, 1)
}

/// Days since 1970-01-01. Counts in years that start in March, so that leap days come last.
fn day_number(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let march_month = (month + 9) % 12;
    let day_of_year = (153 * march_month + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * DAYS_PER_ERA + day_of_era - DAYS_TO_MARCH_0000
}

/// The way back.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + DAYS_TO_MARCH_0000;
    let (era, day_of_era) = (days / DAYS_PER_ERA, days % DAYS_PER_ERA);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_readable() {
        let shown = |millis| show_time(Timestamp::from_millis(millis));
        assert_eq!(shown(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(shown(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(shown(1_700_000_000_123), "2023-11-14T22:13:20.123Z");
        assert_eq!(shown(1_735_689_599_999), "2024-12-31T23:59:59.999Z");
        // Longer than anybody waits, but no reason to fall over.
        assert!(shown(u64::MAX).ends_with('Z'));
    }

    #[test]
    fn a_time_that_was_shown_can_be_said_again() {
        for millis in [0, 951_782_400_000, 1_700_000_000_123, 1_735_689_599_999, 4_102_444_800_000] {
            let at = Timestamp::from_millis(millis);
            assert_eq!(parse_time(&show_time(at)).unwrap(), at);
        }
        let at = |text| parse_time(text).unwrap().as_millis();
        assert_eq!(at("2023-11-14T23:13:20.1234+01:00"), 1_700_000_000_123);
        assert_eq!(at("2023-11-14 18:43:20-03:30"), 1_700_000_000_000);
        assert_eq!(at("2023-11-14t22:13:20.5z"), 1_700_000_000_500);
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for wrong in [
            "",
            "tomorrow",
            "2023-11-14",
            "2023-11-14T22:13:20",
            "2023-02-29T00:00:00Z",
            "2023-13-01T00:00:00Z",
            "2023-00-01T00:00:00Z",
            "2023-11-00T00:00:00Z",
            "2023-11-14T24:00:00Z",
            "2023-11-14T22:60:00Z",
            "2023-11-14T22:13Z",
            "2023-11-14T22:13:20.Z",
            "2023-11-14T22:13:20.xZ",
            "1969-12-31T23:59:59Z",
            "2023-11-14T22:13:20+1",
            "2023-11-14T22:13:20+24:00",
            "2023-11-14T22:13:20Zulu",
            "+023-11-14T22:13:20Z",
            "2023-11-14T22:13:20.äZ",
        ] {
            assert!(parse_time(wrong).is_err(), "{wrong}");
        }
    }
}
