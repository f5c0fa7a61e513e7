//! Times and durations in text, because the filter language has no other way to write them.

use std::fmt::Write;

const TICKS_PER_SECOND: i64 = 10_000_000;
const TICKS_PER_MINUTE: i64 = 60 * TICKS_PER_SECOND;
const TICKS_PER_HOUR: i64 = 60 * TICKS_PER_MINUTE;
const TICKS_PER_DAY: i64 = 24 * TICKS_PER_HOUR;
const MS_PER_SECOND: i64 = 1000;
const MS_PER_MINUTE: i64 = 60 * MS_PER_SECOND;
const MS_PER_HOUR: i64 = 60 * MS_PER_MINUTE;
const MS_PER_DAY: i64 = 24 * MS_PER_HOUR;
const FRACTION_DIGITS: u32 = 7;

/// Takes apart a text from the front.
struct Scanner<'a> {
    rest: &'a str,
}

impl<'a> Scanner<'a> {
    fn takes(&mut self, c: char) -> bool {
        self.rest.strip_prefix(c).map(|rest| self.rest = rest).is_some()
    }

    fn takes_any(&mut self, choices: &[char]) -> bool {
        choices.iter().any(|c| self.takes(*c))
    }

    fn digits(&mut self) -> &'a str {
        let end = self.rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at(end);
        self.rest = rest;
        digits
    }

    /// Exactly this many digits.
    fn number(&mut self, digit_count: usize) -> Option<i64> {
        let (digits, rest) = self.rest.split_at_checked(digit_count)?;
        self.rest = rest;
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
    }

    /// Ticks behind a decimal point; further digits are below what we keep.
    fn fraction_ticks(&mut self) -> Option<i64> {
        let digits = self.digits();
        if digits.is_empty() {
            return None;
        }
        let mut ticks = 0;
        for place in 0..FRACTION_DIGITS {
            let digit = digits.as_bytes().get(place as usize).map_or(0, |byte| byte - b'0');
            ticks = ticks * 10 + i64::from(digit);
        }
        Some(ticks)
    }
}

/// ISO 8601, such as `2026-01-31`, `2026-01-31T12:30:05.25Z` or `2026-01-31 12:30+02:00`. Without a zone it is UTC.
pub(crate) fn parse_time(text: &str) -> Option<i64> {
    let mut scanner = Scanner { rest: text };
    let year = scanner.number(4)?;
    let month = scanner.takes('-').then(|| scanner.number(2))??;
    let day = scanner.takes('-').then(|| scanner.number(2))??;
    if !(1..=12).contains(&month) || !(1..=days_in_month(year, month)).contains(&day) {
        return None;
    }
    let mut ms = days_since_1970(year, month, day) * MS_PER_DAY;
    if scanner.takes_any(&['T', 't', ' ']) {
        ms += time_of_day_ms(&mut scanner)?;
        ms -= zone_ms(&mut scanner)?;
    }
    scanner.rest.is_empty().then_some(ms)
}

fn time_of_day_ms(scanner: &mut Scanner<'_>) -> Option<i64> {
    let hour = scanner.number(2)?;
    let minute = scanner.takes(':').then(|| scanner.number(2))??;
    let mut ms = hour * MS_PER_HOUR + minute * MS_PER_MINUTE;
    let mut second = 0;
    if scanner.takes(':') {
        second = scanner.number(2)?;
        ms += second * MS_PER_SECOND;
        if scanner.takes('.') {
            ms += scanner.fraction_ticks()? / (TICKS_PER_SECOND / MS_PER_SECOND);
        }
    }
    (hour < 24 && minute < 60 && second < 60).then_some(ms)
}

fn zone_ms(scanner: &mut Scanner<'_>) -> Option<i64> {
    if scanner.rest.is_empty() || scanner.takes_any(&['Z', 'z']) {
        return Some(0);
    }
    let sign = if scanner.takes('-') { -1 } else { scanner.takes('+').then_some(1)? };
    let hour = scanner.number(2)?;
    scanner.takes(':');
    let minute = scanner.number(2)?;
    (hour < 24 && minute < 60).then_some(sign * (hour * MS_PER_HOUR + minute * MS_PER_MINUTE))
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Counted from the 1st of March, so that the leap day is the last of its year.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    year * 365 + leap_days + day_of_year - 719_468
}

fn date_of_day(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

pub(crate) fn print_time(ms: i64) -> String {
    let (year, month, day) = date_of_day(ms.div_euclid(MS_PER_DAY));
    let rest = ms.rem_euclid(MS_PER_DAY);
    let (hour, minute) = (rest / MS_PER_HOUR, rest / MS_PER_MINUTE % 60);
    let (second, ms) = (rest / MS_PER_SECOND % 60, rest % MS_PER_SECOND);
    let fraction = if ms == 0 { String::new() } else { format!(".{ms:03}") };
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z")
}

/// ISO 8601 (`PT1M30S`, `P14D`) or the form of .NET (`00:01:30`, `14.00:00:00`). Years and months have no fixed length.
pub(crate) fn parse_span(text: &str) -> Option<i64> {
    let mut scanner = Scanner { rest: text };
    let is_negative = scanner.takes('-');
    let ticks =
        if scanner.takes_any(&['P', 'p']) { iso_span(&mut scanner) } else { clock_span(&mut scanner) }?;
    if !scanner.rest.is_empty() {
        return None;
    }
    if is_negative { ticks.checked_neg() } else { Some(ticks) }
}

fn iso_span(scanner: &mut Scanner<'_>) -> Option<i64> {
    let mut ticks = 0_i64;
    let mut units: &[(char, i64)] = &[('W', 7 * TICKS_PER_DAY), ('D', TICKS_PER_DAY)];
    let (mut in_time, mut part_count) = (false, 0);
    while !scanner.rest.is_empty() {
        if !in_time && scanner.takes_any(&['T', 't']) {
            units = &[('H', TICKS_PER_HOUR), ('M', TICKS_PER_MINUTE), ('S', TICKS_PER_SECOND)];
            (in_time, part_count) = (true, 0);
            continue;
        }
        let whole: i64 = scanner.digits().parse().ok()?;
        let fraction = if scanner.takes('.') { Some(scanner.fraction_ticks()?) } else { None };
        let place =
            units.iter().position(|(unit, _)| scanner.takes_any(&[*unit, unit.to_ascii_lowercase()]))?;
        let (passed, rest) = units.split_at_checked(place + 1)?;
        let (unit, unit_ticks) = *passed.last()?;
        if fraction.is_some() && unit != 'S' {
            return None;
        }
        // Each unit once, the larger first.
        units = rest;
        ticks = ticks.checked_add(whole.checked_mul(unit_ticks)?)?.checked_add(fraction.unwrap_or(0))?;
        part_count += 1;
    }
    (part_count > 0).then_some(ticks)
}

fn clock_span(scanner: &mut Scanner<'_>) -> Option<i64> {
    let (mut days, mut hour): (i64, &str) = (0, scanner.digits());
    if scanner.takes('.') {
        days = hour.parse().ok()?;
        hour = scanner.digits();
    }
    let hour: i64 = hour.parse().ok()?;
    let minute = scanner.takes(':').then(|| scanner.number(2))??;
    let second = scanner.takes(':').then(|| scanner.number(2))??;
    let fraction = if scanner.takes('.') { scanner.fraction_ticks()? } else { 0 };
    if hour >= 24 || minute >= 60 || second >= 60 {
        return None;
    }
    let clock = hour * TICKS_PER_HOUR + minute * TICKS_PER_MINUTE + second * TICKS_PER_SECOND + fraction;
    days.checked_mul(TICKS_PER_DAY)?.checked_add(clock)
}

pub(crate) fn print_span(ticks: i64) -> String {
    let sign = if ticks < 0 { "-" } else { "" };
    let ticks = ticks.unsigned_abs();
    let per = |unit: i64| unit.unsigned_abs();
    let mut text = format!("{sign}P");
    if ticks >= per(TICKS_PER_DAY) {
        let _ = write!(text, "{}D", ticks / per(TICKS_PER_DAY));
    }
    let rest = ticks % per(TICKS_PER_DAY);
    if rest > 0 || ticks == 0 {
        text.push('T');
    }
    let (hours, minutes) = (rest / per(TICKS_PER_HOUR), rest / per(TICKS_PER_MINUTE) % 60);
    let (seconds, fraction) = (rest / per(TICKS_PER_SECOND) % 60, rest % per(TICKS_PER_SECOND));
    if hours > 0 {
        let _ = write!(text, "{hours}H");
    }
    if minutes > 0 {
        let _ = write!(text, "{minutes}M");
    }
    if fraction > 0 {
        let digits = format!("{fraction:07}");
        let _ = write!(text, "{seconds}.{}S", digits.trim_end_matches('0'));
    } else if seconds > 0 || ticks == 0 {
        let _ = write!(text, "{seconds}S");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_shown() {
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
    fn spans_are_read_and_shown() {
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
