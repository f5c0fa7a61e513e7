//! The start position of a reader: the filter of its attach.

use peeklock_amqp::{Attach, Value, condition};
use peeklock_broker::hubs::StartAt;
use peeklock_types::Timestamp;

use crate::error::Refusal;

pub(crate) const SELECTOR: &str = "apache.org:selector-filter:string";

const PREFIX: &str = "amqp.annotation.";

/// Returns the start position. Without a filter a reader starts at the oldest event.
pub(crate) fn start_of(attach: &Attach) -> Result<StartAt, Refusal> {
    let filter = attach.source.as_ref().and_then(|source| source.filter.as_ref());
    let Some(value) = filter.and_then(|filter| filter.get(SELECTOR)) else { return Ok(StartAt::Earliest) };
    // SDK quirk: the descriptor has three forms; it is ignored, because the key identifies the filter.
    let value = match value {
        Value::Described(described) => &described.value,
        plain => plain,
    };
    match value {
        Value::Null => Ok(StartAt::Earliest),
        Value::String(text) => parse(text.as_str()),
        _ => {
            let text = format!("the filter {SELECTOR} is not a text");
            Err(Refusal::new(400, condition::INVALID_FIELD, text))
        }
    }
}

/// Parses `name > 'value'` or `name >= value`, with or without spaces and quotes.
fn parse(selector: &str) -> Result<StartAt, Refusal> {
    let unreadable = || {
        let text = format!(
            "the filter '{selector}' names no position; write amqp.annotation.x-opt-offset > '…', or x-opt-sequence-number or \
             x-opt-enqueued-time in place of x-opt-offset"
        );
        Refusal::bad_request(text)
    };
    let (name, rest) = selector.split_once('>').ok_or_else(unreadable)?;
    let name = name.trim().strip_prefix(PREFIX).ok_or_else(unreadable)?;
    let (inclusive, value) = match rest.strip_prefix('=') {
        Some(value) => (true, value),
        None => (false, rest),
    };
    let value = value.trim();
    let value = value.strip_prefix('\'').and_then(|value| value.strip_suffix('\'')).unwrap_or(value);
    if value.is_empty() || value.contains(['\'', ' ']) {
        return Err(unreadable());
    }
    match name {
        "x-opt-offset" if value == "@latest" => Ok(StartAt::Latest),
        "x-opt-offset" | "x-opt-sequence-number" => {
            let number = value.parse().map_err(|_| no_position(name, value))?;
            Ok(at_number(number, inclusive))
        }
        "x-opt-enqueued-time" => {
            let millis: i64 = value.parse().map_err(|_| no_position(name, value))?;
            Ok(at_time(millis, inclusive))
        }
        _ => Err(unreadable()),
    }
}

/// Returns the position of a number. Negative numbers mean the start: SDKs send −1 for the oldest event that is stored.
fn at_number(number: i64, inclusive: bool) -> StartAt {
    match u64::try_from(number) {
        Ok(sequence) => StartAt::Sequence { sequence, inclusive },
        Err(_) => StartAt::Earliest,
    }
}

fn at_time(millis: i64, inclusive: bool) -> StartAt {
    match u64::try_from(millis) {
        Ok(millis) => StartAt::Time { at: Timestamp::from_millis(millis), inclusive },
        Err(_) => StartAt::Earliest,
    }
}

fn no_position(name: &str, value: &str) -> Refusal {
    let text = format!("'{value}' is no {name} of this broker: those are decimal numbers");
    Refusal::new(400, condition::ARGUMENT_OUT_OF_RANGE, text)
}

#[cfg(test)]
mod tests {
    use peeklock_amqp::{Fields, Role, Source};

    use super::*;

    fn of(filter: Option<Value>) -> Result<StartAt, Refusal> {
        let filter = filter.map(|value| Fields::new().with(SELECTOR, value));
        let source = Source { filter, ..Source::with_address("h/ConsumerGroups/g/Partitions/0") };
        start_of(&Attach { source: Some(source), ..Attach::new("link", 0, Role::Receiver) })
    }

    fn sequence(sequence: u64, inclusive: bool) -> StartAt {
        StartAt::Sequence { sequence, inclusive }
    }

    #[test]
    fn positions_of_all_sdks_are_parsed() {
        let at = Timestamp::from_millis(1_700_000_000_000);
        let positions = [
            ("amqp.annotation.x-opt-offset > '4100'", sequence(4100, false)),
            ("amqp.annotation.x-opt-offset >= '4100'", sequence(4100, true)),
            ("amqp.annotation.x-opt-offset >'4100'", sequence(4100, false)),
            ("amqp.annotation.x-opt-offset >='4100'", sequence(4100, true)),
            ("amqp.annotation.x-opt-offset > 4100", sequence(4100, false)),
            ("  amqp.annotation.x-opt-sequence-number>=0 ", sequence(0, true)),
            ("amqp.annotation.x-opt-sequence-number > '-1'", StartAt::Earliest),
            ("amqp.annotation.x-opt-offset > '-1'", StartAt::Earliest),
            ("amqp.annotation.x-opt-offset >= '-1'", StartAt::Earliest),
            ("amqp.annotation.x-opt-offset > '@latest'", StartAt::Latest),
            ("amqp.annotation.x-opt-offset > @latest", StartAt::Latest),
            ("amqp.annotation.x-opt-enqueued-time > '1700000000000'", StartAt::Time { at, inclusive: false }),
            ("amqp.annotation.x-opt-enqueued-time >= 1700000000000", StartAt::Time { at, inclusive: true }),
            ("amqp.annotation.x-opt-enqueued-time > '-62135596800000'", StartAt::Earliest),
        ];
        for (text, expected) in positions {
            let text = Value::from(text);
            for descriptor in [Value::symbol(SELECTOR), 0x468C_0000_0004_u64.into(), 0x137000000A_u64.into()]
            {
                let described = Value::described(descriptor, text.clone());
                assert_eq!(of(Some(described)).unwrap(), expected, "{text:?}");
            }
            assert_eq!(of(Some(text)).unwrap(), expected);
        }
        assert_eq!(of(None).unwrap(), StartAt::Earliest);
        assert_eq!(of(Some(Value::Null)).unwrap(), StartAt::Earliest);
    }

    #[test]
    fn invalid_positions_are_rejected() {
        let bad = [
            "",
            "x-opt-offset > '1'",
            "amqp.annotation.x-opt-offset < '1'",
            "amqp.annotation.x-opt-offset = '1'",
            "amqp.annotation.x-opt-offset > ",
            "amqp.annotation.x-opt-offset > '1' or 1 = 1",
            "amqp.annotation.x-opt-other > '1'",
        ];
        for text in bad {
            assert_eq!(of(Some(text.into())).unwrap_err().condition, condition::ARGUMENT_ERROR, "{text}");
        }
        let foreign = of(Some("amqp.annotation.x-opt-offset > '1:2:3'".into())).unwrap_err();
        assert_eq!(foreign.condition, condition::ARGUMENT_OUT_OF_RANGE);
        assert_eq!(of(Some(Value::Int(1))).unwrap_err().condition, condition::INVALID_FIELD);
    }
}
