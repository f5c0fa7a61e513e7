//! Times as text: RFC 3339.

use peeklock_types::{Timestamp, calendar};

use crate::text::TextError;

/// Writes a time as RFC 3339 does, in UTC.
pub fn show_time(at: Timestamp) -> String {
    calendar::show(i64::try_from(at.as_millis()).unwrap_or(i64::MAX))
}

/// Parses `2026-01-31T18:00:00Z` or `2026-01-31T18:00:00.250+01:00`. A time without its zone would mean different moments on different machines.
pub fn parse_time(text: &str) -> Result<Timestamp, TextError> {
    const ALLOWED: &str = "2026-01-31T18:00:00Z or 2026-01-31T19:00:00+01:00";
    let millis = calendar::parse(text, calendar::Form::Rfc3339).and_then(|millis| u64::try_from(millis).ok());
    millis.map(Timestamp::from_millis).ok_or_else(|| TextError::new(text, "a time", ALLOWED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown() {
        let shown = |millis| show_time(Timestamp::from_millis(millis));
        assert_eq!(shown(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(shown(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(shown(1_700_000_000_123), "2023-11-14T22:13:20.123Z");
        assert_eq!(shown(1_735_689_599_999), "2024-12-31T23:59:59.999Z");
        // Far in the future, but valid input.
        assert!(shown(u64::MAX).ends_with('Z'));
    }

    #[test]
    fn a_shown_time_can_be_parsed() {
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
    fn invalid_times_are_rejected() {
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
