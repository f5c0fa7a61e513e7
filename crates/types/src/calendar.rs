//! Parses and prints times as text. `jiff` supplies the calendar. The grammars are our own, because RFC 3339 and the
//! services accept other texts than `jiff` does.

use jiff::SignedDuration;
use jiff::civil::{Date, DateTime, Time, date};

const EPOCH: DateTime = date(1970, 1, 1).at(0, 0, 0, 0);
const MS_PER_MINUTE: i64 = 60_000;

/// The parts that a text may omit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Requires all parts: `2026-01-31T18:00:00Z`, `2026-01-31T18:00:00.250+01:00`.
    Rfc3339,
    /// Accepts a date alone, a time without seconds, a zone without its colon, and no zone, which means UTC.
    Iso8601,
}

/// Parses a time into milliseconds since 1970; finer digits are dropped.
pub fn parse(text: &str, form: Form) -> Option<i64> {
    let mut scanner = Scanner { rest: text };
    let is_strict = form == Form::Rfc3339;
    let day = scanner.date()?;
    let starts_time = scanner.takes_any(&['T', 't', ' ']);
    if !starts_time {
        let is_whole = scanner.rest.is_empty() && !is_strict;
        return is_whole.then(|| millis_of(day.at(0, 0, 0, 0)))?;
    }
    let (time, fraction_ms) = scanner.time(is_strict)?;
    let zone_ms = scanner.zone_ms(is_strict)?;
    let millis = millis_of(day.to_datetime(time))? + fraction_ms - zone_ms;
    scanner.rest.is_empty().then_some(millis)
}

/// Writes milliseconds since 1970 in UTC, such as `2026-01-31T18:00:00.250Z`. A time outside the range of the calendar
/// becomes its first or last time.
pub fn show(millis: i64) -> String {
    let (at, fraction) = (at(millis), millis.rem_euclid(1000));
    format!("{}.{fraction:03}Z", to_seconds(at))
}

/// Like [`show`], without a fraction of zero: `2026-01-31T18:00:00Z`.
pub fn show_short(millis: i64) -> String {
    if millis.rem_euclid(1000) == 0 { format!("{}Z", to_seconds(at(millis))) } else { show(millis) }
}

fn at(millis: i64) -> DateTime {
    EPOCH.saturating_add(SignedDuration::from_millis(millis))
}

fn to_seconds(at: DateTime) -> String {
    let (year, month, day) = (at.year(), at.month(), at.day());
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}", at.hour(), at.minute(), at.second())
}

fn millis_of(at: DateTime) -> Option<i64> {
    i64::try_from(at.duration_since(EPOCH).as_millis()).ok()
}

/// Consumes a text from the front.
struct Scanner<'a> {
    rest: &'a str,
}

impl Scanner<'_> {
    fn takes(&mut self, c: char) -> bool {
        self.rest.strip_prefix(c).map(|rest| self.rest = rest).is_some()
    }

    fn takes_any(&mut self, choices: &[char]) -> bool {
        choices.iter().any(|c| self.takes(*c))
    }

    /// Takes exactly this many digits.
    fn number<T: TryFrom<u16>>(&mut self, digit_count: usize) -> Option<T> {
        let (digits, rest) = self.rest.split_at_checked(digit_count)?;
        let number: u16 = if digits.bytes().all(|byte| byte.is_ascii_digit()) {
            digits.parse().ok()?
        } else {
            return None;
        };
        self.rest = rest;
        T::try_from(number).ok()
    }

    fn date(&mut self) -> Option<Date> {
        let year = self.number(4)?;
        let month = self.takes('-').then(|| self.number(2))??;
        let day = self.takes('-').then(|| self.number(2))??;
        Date::new(year, month, day).ok()
    }

    /// Takes a time of day with whole seconds, and the milliseconds of its fraction.
    fn time(&mut self, needs_seconds: bool) -> Option<(Time, i64)> {
        let hour = self.number(2)?;
        let minute = self.takes(':').then(|| self.number(2))??;
        let has_seconds = self.takes(':');
        if !has_seconds && needs_seconds {
            return None;
        }
        let second = if has_seconds { self.number(2)? } else { 0 };
        let fraction_ms = if has_seconds && self.takes('.') { self.fraction_ms()? } else { 0 };
        Some((Time::new(hour, minute, second, 0).ok()?, fraction_ms))
    }

    fn fraction_ms(&mut self) -> Option<i64> {
        let end = self.rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at_checked(end).filter(|(digits, _)| !digits.is_empty())?;
        self.rest = rest;
        format!("{digits:0<3}").get(..3)?.parse().ok()
    }

    /// Takes the distance from UTC.
    fn zone_ms(&mut self, is_strict: bool) -> Option<i64> {
        if self.takes_any(&['Z', 'z']) || (self.rest.is_empty() && !is_strict) {
            return Some(0);
        }
        let sign = if self.takes('-') { -1 } else { self.takes('+').then_some(1)? };
        let hour: i64 = self.number::<u16>(2)?.into();
        if !self.takes(':') && is_strict {
            return None;
        }
        let minute: i64 = self.number::<u16>(2)?.into();
        (hour < 24 && minute < 60).then_some(sign * (hour * 60 + minute) * MS_PER_MINUTE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_parsed_and_shown() {
        let cases = [
            ("1970-01-01", 0, "1970-01-01T00:00:00Z"),
            ("1970-01-01T00:00:00.001Z", 1, "1970-01-01T00:00:00.001Z"),
            ("2000-02-29T12:30:00Z", 951_827_400_000, "2000-02-29T12:30:00Z"),
            ("2000-02-29 14:30+0200", 951_827_400_000, "2000-02-29T12:30:00Z"),
            ("1969-12-31T23:59:59Z", -1000, "1969-12-31T23:59:59Z"),
            ("0001-01-01T00:00:00Z", -62_135_596_800_000, "0001-01-01T00:00:00Z"),
            ("9999-12-31T23:59:59.9999999Z", 253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        ];
        for (text, millis, shown) in cases {
            assert_eq!(parse(text, Form::Iso8601), Some(millis), "{text}");
            assert_eq!(show_short(millis), shown, "{text}");
            assert_eq!(parse(&show(millis), Form::Rfc3339), Some(millis), "{text}");
        }
        assert!(show(i64::MAX).starts_with("9999-12-31T23:59:59"));
    }

    #[test]
    fn a_text_that_is_no_time_is_rejected_in_both_forms() {
        for text in [
            "",
            "2026",
            "2026-13-01",
            "2026-02-29",
            "2026-01-01T24:00",
            "2026-01-01T10",
            "2026-01-01x",
            "2026-01-01T10:00:60Z",
        ] {
            assert_eq!(parse(text, Form::Iso8601), None, "{text}");
        }
        for text in ["2026-01-01", "2026-01-01T10:00Z", "2026-01-01T10:00:00", "2026-01-01T10:00:00+0100"] {
            assert!(parse(text, Form::Iso8601).is_some(), "{text}");
            assert_eq!(parse(text, Form::Rfc3339), None, "{text}");
        }
    }
}
