//! Durations as ISO 8601 writes them: `PT30S`, `P14D`, `PT1H30M`.
//!
//! `jiff` cannot hold the longest `TimeSpan` of .NET, which Service Bus sends for "no limit", so the parser is our own.

use std::fmt::Write;
use std::time::Duration;

const DAY: u64 = 86_400;
/// .NET counts a year as 365 days and a month as 30.
const DATE_UNITS: [(char, u64); 4] = [('Y', 365 * DAY), ('M', 30 * DAY), ('W', 7 * DAY), ('D', DAY)];
const TIME_UNITS: [(char, u64); 3] = [('H', 3600), ('M', 60), ('S', 1)];

/// A duration, and the features of its text that not every decoder accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parsed {
    pub span: Duration,
    /// The text has years or months, which have no fixed length.
    pub has_months: bool,
    /// The text has a fraction of a unit other than the second, such as `PT1.5H`.
    pub has_fraction_above_seconds: bool,
}

pub fn parse(text: &str) -> Option<Parsed> {
    let rest = text.strip_prefix('P')?;
    let (date, time) = match rest.split_once('T') {
        Some((date, time)) => (date, Some(time).filter(|time| !time.is_empty())?),
        None => (rest, ""),
    };
    if date.is_empty() && time.is_empty() {
        return None;
    }
    let mut parsed = Parsed::default();
    add(&mut parsed, date, &DATE_UNITS)?;
    parsed.has_months = date.contains(['Y', 'M']);
    add(&mut parsed, time, &TIME_UNITS)?;
    Some(parsed)
}

/// Writes a duration as .NET and the SDKs do; digits below 100 ns are dropped.
pub fn show(span: Duration) -> String {
    let seconds = span.as_secs();
    let (days, hours, minutes) = (seconds / DAY, seconds / 3600 % 24, seconds / 60 % 60);
    let (seconds, ticks) = (seconds % 60, span.subsec_nanos() / 100);
    let mut shown = String::from("P");
    let part = |shown: &mut String, count: u64, unit: char| {
        if count > 0 {
            // Writing into a string cannot fail.
            let _ = write!(shown, "{count}{unit}");
        }
    };
    part(&mut shown, days, 'D');
    if hours + minutes + seconds > 0 || ticks > 0 || days == 0 {
        shown.push('T');
        part(&mut shown, hours, 'H');
        part(&mut shown, minutes, 'M');
        if ticks > 0 {
            let fraction = format!("{ticks:07}");
            let _ = write!(shown, "{seconds}.{}S", fraction.trim_end_matches('0'));
        } else if seconds > 0 || shown.ends_with('T') {
            let _ = write!(shown, "{seconds}S");
        }
    }
    shown
}

/// Adds all numbers of `text` to `parsed`. Each number is followed by its unit. A unit occurs at most once, and larger
/// units come first.
fn add(parsed: &mut Parsed, text: &str, units: &[(char, u64)]) -> Option<()> {
    let (mut rest, mut units) = (text, units);
    while !rest.is_empty() {
        let end = rest.find(|c: char| c.is_ascii_alphabetic())?;
        let (number, after) = rest.split_at_checked(end)?;
        let mut after = after.chars();
        let name = after.next()?;
        let place = units.iter().position(|(known, _)| *known == name)?;
        let (_, seconds) = units.get(place)?;
        units = units.get(place + 1..)?;
        parsed.span = parsed.span.checked_add(times(number, *seconds)?)?;
        parsed.has_fraction_above_seconds |= name != 'S' && number.contains('.');
        rest = after.as_str();
    }
    Some(())
}

fn times(number: &str, seconds: u64) -> Option<Duration> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return None;
    }
    let whole = Duration::from_secs(whole.parse::<u64>().ok()?.checked_mul(seconds)?);
    let nanos: u64 = format!("{fraction:0<9}").get(..9)?.parse().ok()?;
    whole.checked_add(Duration::from_nanos(nanos.checked_mul(seconds)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The longest `TimeSpan` of .NET.
    const LONGEST: &str = "P10675199DT2H48M5.4775807S";

    #[test]
    fn a_duration_is_parsed() {
        let millis = |text| parse(text).unwrap().span.as_millis();
        assert_eq!(millis("PT0S"), 0);
        assert_eq!(millis("PT1M"), 60_000);
        assert_eq!(millis("PT1H30M"), 5_400_000);
        assert_eq!(millis("P14D"), 14 * 86_400_000);
        assert_eq!(millis("P2W"), 14 * 86_400_000);
        assert_eq!(millis("P1DT0.25S"), 86_400_250);
        assert_eq!(millis("PT90M"), 5_400_000);
        assert_eq!(parse(LONGEST).unwrap().span, Duration::new(10_675_199 * DAY + 10_085, 477_580_700));
        let span = Duration::from_secs((365 + 60) * DAY);
        assert_eq!(parse("P1Y2M"), Some(Parsed { span, has_months: true, ..Parsed::default() }));
        let span = Duration::from_secs(90);
        assert_eq!(
            parse("PT1.5M"),
            Some(Parsed { span, has_fraction_above_seconds: true, ..Parsed::default() })
        );
        for wrong in [
            "",
            "P",
            "PT",
            "P1DT",
            "1M",
            "PT1",
            "PT1D",
            "P1H",
            "PT1S1M",
            "PT1M1M",
            "PT.5S",
            "PT1.S",
            "-PT1S",
            "PT-1S",
            "PT1s",
            "PT+1S",
            "P99999999999999999999D",
            "P99999999999999999D",
            "PT1äS",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_shown_duration_can_be_parsed() {
        for text in ["PT0S", "PT1M", "PT1H30M", "P14D", "P1DT0.25S", "PT0.0000001S", "P1DT2H3M4S", LONGEST] {
            assert_eq!(show(parse(text).unwrap().span), text);
        }
    }
}
