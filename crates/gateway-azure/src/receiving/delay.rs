//! The delay after which an abandoned message is delivered again.
//!
//! SDKs have no parameter for it, but they can change properties with a settlement. Two property names are reserved for
//! it; they are removed from the changes and never stored.

use std::time::Duration;

use peeklock_amqp::{Described, Value, condition};
use peeklock_types::{iso8601, limits};

use crate::error::Refusal;

const AFTER_MS: &str = "peeklock-retry-after-ms";
const AFTER: &str = "peeklock-retry-after";
/// The descriptor of a .NET `TimeSpan`: a number of ticks.
const TIMESPAN: &str = "com.microsoft:timespan";

/// Removes the delay from the properties that an abandonment sets, and returns it.
pub(crate) fn take_delay(properties: &mut Vec<(Value, Value)>) -> Result<Option<Duration>, Refusal> {
    let mut take = |name: &str| {
        let at = properties.iter().position(|(key, _)| key.as_str() == Some(name))?;
        Some(properties.remove(at).1).filter(|value| !value.is_null())
    };
    let (after_ms, after) = (take(AFTER_MS), take(AFTER));
    let delay = match (after_ms, after) {
        (Some(value), _) => value.as_u64().map(Duration::from_millis).ok_or_else(|| {
            Refusal::bad_request(format!("'{AFTER_MS}' must be a whole number of milliseconds, zero or more"))
        })?,
        (None, Some(value)) => duration_of(&value).ok_or_else(|| {
            let text =
                format!("'{AFTER}' must be a number of seconds, zero or more, or a duration like PT1M30S");
            Refusal::bad_request(text)
        })?,
        (None, None) => return Ok(None),
    };
    if delay > limits::SCHEDULE_AHEAD_MAX {
        let text = format!("a delay of {delay:?} is over the limit of {:?}", limits::SCHEDULE_AHEAD_MAX);
        return Err(Refusal::new(400, condition::ARGUMENT_OUT_OF_RANGE, text));
    }
    Ok(Some(delay))
}

fn duration_of(value: &Value) -> Option<Duration> {
    match value {
        Value::Float(seconds) => Duration::try_from_secs_f32(*seconds).ok(),
        Value::Double(seconds) => Duration::try_from_secs_f64(*seconds).ok(),
        Value::String(text) => parse_duration(text.as_str()),
        Value::Described(described) => timespan(described),
        number => number.as_u64().map(Duration::from_secs),
    }
}

fn timespan(described: &Described) -> Option<Duration> {
    const TICKS_PER_MS: u64 = 10_000;
    let ticks = described.value.as_u64().filter(|_| described.descriptor.as_str() == Some(TIMESPAN))?;
    Some(Duration::from_millis(ticks / TICKS_PER_MS))
}

/// Parses an ISO 8601 duration of weeks, days, hours, minutes and seconds. Years and months have no fixed length.
fn parse_duration(text: &str) -> Option<Duration> {
    iso8601::parse(text).filter(|parsed| !parsed.has_months).map(|parsed| parsed.span)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(key: &'static str, value: impl Into<Value>) -> Result<Option<Duration>, Refusal> {
        let mut properties = vec![("kept".into(), 1.into()), (key.into(), value.into())];
        let delay = take_delay(&mut properties);
        assert_eq!(properties, vec![("kept".into(), Value::Int(1))], "the delay is never stored");
        delay
    }

    #[test]
    fn all_forms_of_a_delay_are_parsed() {
        let minute_and_half = Ok(Some(Duration::from_secs(90)));
        let told = |delay: Result<_, Refusal>| delay.map_err(|refusal| refusal.description);
        assert_eq!(told(taken(AFTER_MS, 90_000)), minute_and_half);
        assert_eq!(told(taken(AFTER_MS, 90_000_u64)), minute_and_half);
        assert_eq!(told(taken(AFTER, 90_u8)), minute_and_half);
        assert_eq!(told(taken(AFTER, 90.0)), minute_and_half);
        assert_eq!(told(taken(AFTER, 90.0_f32)), minute_and_half);
        assert_eq!(told(taken(AFTER, "PT1M30S")), minute_and_half);
        let timespan = Value::described(Value::symbol(TIMESPAN), 900_000_000_i64);
        assert_eq!(told(taken(AFTER, timespan)), minute_and_half);
        assert_eq!(told(taken(AFTER, Value::Null)), Ok(None));
        assert_eq!(told(taken(AFTER, 0)), Ok(Some(Duration::ZERO)));
        assert_eq!(told(take_delay(&mut vec![("other".into(), 1.into())])), Ok(None));
    }

    #[test]
    fn invalid_delays_are_rejected() {
        assert!(taken(AFTER_MS, -1).is_err());
        assert!(taken(AFTER_MS, 1.5).is_err());
        assert!(taken(AFTER_MS, "PT1S").is_err());
        assert!(taken(AFTER, -0.5).is_err());
        assert!(taken(AFTER, f64::NAN).is_err());
        assert!(taken(AFTER, f64::INFINITY).is_err());
        assert!(taken(AFTER, "soon").is_err());
        assert!(taken(AFTER, Value::Boolean(true)).is_err());
        assert!(taken(AFTER, i64::MAX).is_err(), "longer than the largest delay");
    }

    #[test]
    fn iso_durations_are_parsed_exactly() {
        let seconds = |text| parse_duration(text).map(|duration| duration.as_secs_f64());
        assert_eq!(seconds("P1W2DT3H4M5.25S"), Some(604_800.0 + 172_800.0 + 10_800.0 + 240.0 + 5.25));
        assert_eq!(seconds("PT0.5S"), Some(0.5));
        assert_eq!(seconds("P1D"), Some(86_400.0));
        for bad in [
            "", "P", "PT", "P1DT", "1S", "PT1", "PTS", "PT1S1M", "P1M", "P1Y", "PT-1S", "PTinfS", "PT1e3S",
            "PT1.2.3S",
        ] {
            assert_eq!(seconds(bad), None, "{bad}");
        }
    }
}
