//! Durations as ATOM and `Config.json` write them: [ISO 8601](peeklock_types::iso8601), with one duration that means "no limit".

use std::time::Duration;

use peeklock_types::iso8601;

use crate::text::TextError;

/// The longest `TimeSpan` of .NET. Service Bus uses it for "no limit".
pub const INFINITE: &str = "P10675199DT2H48M5.4775807S";
/// A duration of this length or longer means "no limit".
pub const INFINITE_FROM: Duration = Duration::from_secs(10_675_199 * 86_400);

pub fn parse(text: &str) -> Result<Duration, TextError> {
    let parsed = iso8601::parse(text).filter(|parsed| !parsed.has_fraction_above_seconds);
    parsed.map(|parsed| parsed.span).ok_or_else(|| {
        TextError::new(text, "a duration", "it as ISO 8601 does: PT30S, PT5M, PT1H30M, P14D or P1DT12H")
    })
}

/// Like [`parse`], with `None` for "no limit".
pub fn parse_or_infinite(text: &str) -> Result<Option<Duration>, TextError> {
    parse(text).map(|span| Some(span).filter(|span| *span < INFINITE_FROM))
}

pub use iso8601::show;

pub fn show_or_infinite(span: Option<Duration>) -> String {
    span.map_or_else(|| INFINITE.to_owned(), show)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_seconds_have_a_fraction() {
        assert_eq!(parse("PT1.5S"), Ok(Duration::from_millis(1500)));
        assert!(parse("PT1.5M").is_err());
        assert_eq!(parse("P1M"), Ok(Duration::from_secs(30 * 86_400)));
    }

    #[test]
    fn a_duration_without_limit_is_none() {
        assert_eq!(parse_or_infinite(INFINITE), Ok(None));
        assert_eq!(parse_or_infinite("P10675199DT2H48M5.477S"), Ok(None));
        assert_eq!(parse_or_infinite("PT1S"), Ok(Some(Duration::from_secs(1))));
        assert_eq!(show_or_infinite(None), INFINITE);
    }
}
