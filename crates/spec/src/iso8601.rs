//! Durations as ISO 8601 writes them: `PT30S`, `P14D`, `PT1H30M`. Management over HTTP and `Config.json` speak of time in this form.

use std::fmt::Write;
use std::time::Duration;

use crate::text::TextError;

/// The longest time that .NET knows; Service Bus says it where it means "for ever".
pub const INFINITE: &str = "P10675199DT2H48M5.4775807S";
/// Whatever lasts this long or longer is meant to last for ever.
pub const INFINITE_FROM: Duration = Duration::from_secs(10_675_199 * DAY);

const DAY: u64 = 86_400;
/// As .NET counts them where it has to.
const DAYS_PER_YEAR: u64 = 365;
const DAYS_PER_MONTH: u64 = 30;
const DATE_UNITS: [(char, u64); 4] =
    [('Y', DAYS_PER_YEAR * DAY), ('M', DAYS_PER_MONTH * DAY), ('W', 7 * DAY), ('D', DAY)];
const TIME_UNITS: [(char, u64); 3] = [('H', 3600), ('M', 60), ('S', 1)];

pub fn parse(text: &str) -> Result<Duration, TextError> {
    span_of(text).ok_or_else(|| {
        TextError::new(text, "a duration", "it as ISO 8601 does: PT30S, PT5M, PT1H30M, P14D or P1DT12H")
    })
}

/// Like [`parse`], with `None` for what is meant to last for ever.
pub fn parse_or_infinite(text: &str) -> Result<Option<Duration>, TextError> {
    parse(text).map(|span| Some(span).filter(|span| *span < INFINITE_FROM))
}

/// As .NET and the SDKs print it; what is finer than 100 ns is left out.
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

pub fn show_or_infinite(span: Option<Duration>) -> String {
    span.map_or_else(|| INFINITE.to_owned(), show)
}

fn span_of(text: &str) -> Option<Duration> {
    let rest = text.strip_prefix('P')?;
    let (date, time) = match rest.split_once('T') {
        Some((date, time)) => (date, Some(time).filter(|time| !time.is_empty())?),
        None => (rest, ""),
    };
    if date.is_empty() && time.is_empty() {
        return None;
    }
    sum(date, &DATE_UNITS)?.checked_add(sum(time, &TIME_UNITS)?)
}

/// Numbers, each before its unit; the units in their order.
fn sum(text: &str, units: &[(char, u64)]) -> Option<Duration> {
    let (mut rest, mut units, mut span) = (text, units, Duration::ZERO);
    while !rest.is_empty() {
        let end = rest.find(|c: char| c.is_ascii_alphabetic())?;
        let (number, after) = rest.split_at_checked(end)?;
        let mut after = after.chars();
        let name = after.next()?;
        let place = units.iter().position(|(known, _)| *known == name)?;
        let (_, seconds) = units.get(place)?;
        units = units.get(place + 1..)?;
        span = span.checked_add(times(number, *seconds, name)?)?;
        rest = after.as_str();
    }
    Some(span)
}

fn times(number: &str, seconds: u64, unit: char) -> Option<Duration> {
    let (whole, fraction) = match number.split_once('.') {
        // Only seconds have parts.
        Some((whole, fraction)) if unit == 'S' => (whole, fraction),
        Some(_) => return None,
        None => (number, "0"),
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return None;
    }
    let seconds = whole.parse::<u64>().ok()?.checked_mul(seconds)?;
    let nanos = format!("{fraction:0<9}").get(..9)?.parse().ok()?;
    Some(Duration::new(seconds, nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read() {
        let millis = |text| parse(text).unwrap().as_millis();
        assert_eq!(millis("PT0S"), 0);
        assert_eq!(millis("PT1M"), 60_000);
        assert_eq!(millis("PT1H30M"), 5_400_000);
        assert_eq!(millis("P14D"), 14 * 86_400_000);
        assert_eq!(millis("P1DT0.25S"), 86_400_250);
        assert_eq!(millis("P1Y2M"), (365 + 60) * 86_400_000);
        assert_eq!(millis("PT90M"), 5_400_000);
        assert_eq!(parse(INFINITE).unwrap(), Duration::new(10_675_199 * DAY + 10_085, 477_580_700));
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
            "PT1.5M",
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
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_shown_can_be_read_again() {
        for text in ["PT0S", "PT1M", "PT1H30M", "P14D", "P1DT0.25S", "PT0.0000001S", "P1DT2H3M4S", INFINITE] {
            assert_eq!(show(parse(text).unwrap()), text);
        }
    }

    #[test]
    fn for_ever_is_no_duration() {
        assert_eq!(parse_or_infinite(INFINITE), Ok(None));
        assert_eq!(parse_or_infinite("P10675199DT2H48M5.477S"), Ok(None));
        assert_eq!(parse_or_infinite("PT1S"), Ok(Some(Duration::from_secs(1))));
        assert_eq!(show_or_infinite(None), INFINITE);
    }
}
