//! Text forms of the words and numbers of an order, in both directions.

use peeklock_types::{OrderPolicy, Rate, limits};

use crate::text::{TextError, parse_word, word_of};

/// The names of the policies.
pub const ORDER_POLICIES: [(&str, OrderPolicy); 4] = [
    ("fifo", OrderPolicy::Fifo),
    ("strict", OrderPolicy::Strict),
    ("aged", OrderPolicy::Aged),
    ("weighted", OrderPolicy::Weighted),
];

/// Units of a rate, in seconds.
const RATE_UNITS: [(&str, u64); 3] = [("s", 1), ("m", 60), ("h", 3600)];
const PPM: u64 = 1_000_000;

pub fn parse_order_policy(text: &str) -> Result<OrderPolicy, TextError> {
    parse_word(text, "a policy", &ORDER_POLICIES)
}

pub fn show_order_policy(policy: OrderPolicy) -> &'static str {
    word_of(&ORDER_POLICIES, policy)
}

/// Parses `7-9`, or a single priority.
pub fn parse_priorities(text: &str) -> Result<(u8, u8), TextError> {
    let number = |text: &str| {
        let text = text.trim();
        let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u8>().ok().filter(|_| is_plain)
    };
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let range = number(from).zip(number(to)).filter(|(from, to)| from <= to);
    range.ok_or_else(|| {
        TextError::new(
            text,
            "a range of priorities",
            "the smaller one first, such as 0-3 or 7-9; from 0 to 255",
        )
    })
}

pub fn show_priorities((from, to): (u8, u8)) -> String {
    if from == to { from.to_string() } else { format!("{from}-{to}") }
}

/// Parses `5/s`, `0.5/s`, `300/m` or `10/h`, each optionally with `burst N`. The default burst is the number of messages in a second, at
/// least 1.
pub fn parse_rate(text: &str) -> Result<Rate, TextError> {
    let parsed = || {
        let (number, rest) = text.trim().split_once('/')?;
        let mut words = rest.split_whitespace();
        let unit = words.next()?;
        let (_, seconds) = RATE_UNITS.iter().find(|(known, _)| *known == unit)?;
        let milli = scaled(number.trim(), 3)?;
        // Rounds to the nearest thousandth.
        let per_second_milli = milli.checked_add(seconds / 2)? / seconds;
        let burst = match (words.next(), words.next(), words.next()) {
            (None, ..) => per_second_milli.div_ceil(1000).try_into().ok()?,
            (Some("burst"), Some(count), None) => whole(count)?,
            _ => return None,
        };
        let is_possible = (1..=limits::RATE_PER_SECOND_MAX * 1000).contains(&per_second_milli) && burst > 0;
        is_possible.then_some(Rate { per_second_milli, burst })
    };
    parsed().ok_or_else(|| {
        let max = limits::RATE_PER_SECOND_MAX;
        TextError::new(
            text,
            "a rate",
            format!("5/s, 0.5/s, 300/m or '5/s burst 10', with more than 0/s and at most {max}/s"),
        )
    })
}

/// Parses the weight of a class of messages.
pub fn parse_weight(text: &str) -> Result<u32, TextError> {
    let weight = whole(text).filter(|weight| (1..=limits::WEIGHT_MAX).contains(weight));
    weight.ok_or_else(|| {
        TextError::new(
            text,
            "a weight of a class",
            format!("a whole number from 1 to {}", limits::WEIGHT_MAX),
        )
    })
}

/// Parses the weight of tenants, in thousandths.
pub fn parse_tenant_weight(text: &str) -> Result<u32, TextError> {
    let max = limits::WEIGHT_MAX;
    thousandths(text).filter(|weight| (1..=max * 1000).contains(weight)).ok_or_else(|| {
        let allowed = format!("a number above 0, from 0.001 to {max}, with up to 3 decimals");
        TextError::new(text, "a weight of tenants", allowed)
    })
}

/// Parses a share of the messages in flight, in thousandths.
pub fn parse_share(text: &str) -> Result<u32, TextError> {
    thousandths(text).filter(|share| (1..=1000).contains(share)).ok_or_else(|| {
        TextError::new(text, "a share", "a number above 0 and up to 1, such as 0.3, with up to 3 decimals")
    })
}

/// Parses an objective, in millionths.
pub fn parse_objective(text: &str) -> Result<u32, TextError> {
    let millionths = scaled(text, 6).filter(|part| (1..PPM).contains(part));
    millionths.and_then(|part| u32::try_from(part).ok()).ok_or_else(|| {
        TextError::new(
            text,
            "an objective",
            "a number above 0 and below 1, such as 0.99, with up to 6 decimals",
        )
    })
}

/// Writes `300` thousandths as `0.3`.
pub fn show_thousandths(number: u32) -> String {
    decimal(number.into(), 1000)
}

/// Writes `990000` millionths as `0.99`.
pub fn show_millionths(number: u32) -> String {
    decimal(number.into(), PPM)
}

fn decimal(number: u64, unit: u64) -> String {
    let digits = unit.ilog10() as usize;
    match number % unit {
        0 => (number / unit).to_string(),
        rest => format!("{}.{}", number / unit, format!("{rest:0digits$}").trim_end_matches('0')),
    }
}

fn thousandths(text: &str) -> Option<u32> {
    scaled(text, 3)?.try_into().ok()
}

fn whole(text: &str) -> Option<u32> {
    scaled(text, 0)?.try_into().ok()
}

/// Parses a decimal number and multiplies it by ten to the power of `digits`. Returns `None` if it has more decimals or is not a number. It
/// works on the text, so that a shown number has its original digits.
fn scaled(text: &str, digits: usize) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let fraction = fraction.trim_end_matches('0');
    if whole.is_empty() || !is_number(whole) || !is_number(fraction) || fraction.len() > digits {
        return None;
    }
    format!("{whole}{fraction:0<digits$}").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_per_second_with_a_burst() {
        let rate = |text| parse_rate(text).map(|rate| rate.to_string()).unwrap();
        assert_eq!(rate("5/s"), "5/s burst 5");
        assert_eq!(rate("0.5/s"), "0.5/s burst 1");
        assert_eq!(rate("300/m"), "5/s burst 5");
        assert_eq!(rate("1/m"), "0.017/s burst 1");
        assert_eq!(rate("3600/h burst 7"), "1/s burst 7");
        assert_eq!(rate("1.5/s  burst 1"), "1.5/s burst 1");
        for wrong in [
            "",
            "5",
            "/s",
            "5/",
            "0/s",
            "-5/s",
            "5/d",
            "5/s burst",
            "5/s burst 0",
            "5/s burst -1",
            "5/s bursts 5",
            "5/s burst 5 5",
            "nan/s",
            "inf/s",
            "1e3/s",
            "0.0001/s",
            "10000001/s",
            "5/s burst 99999999999",
            "99999999999999999999/s",
        ] {
            assert!(parse_rate(wrong).is_err(), "{wrong}");
        }
        let told = parse_rate("0/s").unwrap_err().to_string();
        assert!(told.starts_with("'0/s' is not a rate; write 5/s, 0.5/s, 300/m or '5/s burst 10'"), "{told}");
    }

    #[test]
    fn ranges_go_from_the_smaller_to_the_larger() {
        assert_eq!(parse_priorities("7-9"), Ok((7, 9)));
        assert_eq!(parse_priorities("5"), Ok((5, 5)));
        assert_eq!((show_priorities((7, 9)), show_priorities((5, 5))), ("7-9".to_owned(), "5".to_owned()));
        for wrong in ["", "-", "9-7", "-1", "0-256", "a-b", "1-2-3", "+1", "0..3"] {
            assert!(parse_priorities(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn weights_and_shares_are_above_zero() {
        assert_eq!((parse_weight("1"), parse_weight("1000")), (Ok(1), Ok(1000)));
        assert_eq!((parse_tenant_weight("0.5"), parse_tenant_weight("4")), (Ok(500), Ok(4000)));
        assert_eq!((parse_share("1"), parse_share("0.30")), (Ok(1000), Ok(300)));
        assert_eq!(parse_objective("0.999999"), Ok(999_999));
        for wrong in ["", "0", "-1", "1001", "1.5", "nan", "NaN", "inf", "1e2", " 1", "."] {
            assert!(parse_weight(wrong).is_err(), "{wrong}");
        }
        for wrong in ["", "0", "-0.5", "0.0001", "1000.1", "nan", "inf", ".5", "1.x"] {
            assert!(parse_tenant_weight(wrong).is_err(), "{wrong}");
        }
        for wrong in ["0", "1.001", "0.3333", "-0.1", "30%"] {
            assert!(parse_share(wrong).is_err(), "{wrong}");
        }
        for wrong in ["0", "1", "1.0", "99", "0.9999999"] {
            assert!(parse_objective(wrong).is_err(), "{wrong}");
        }
        let told = parse_weight("0").unwrap_err().to_string();
        assert_eq!(told, "'0' is not a weight of a class; write a whole number from 1 to 1000");
    }

    #[test]
    fn a_shown_text_can_be_parsed() {
        for milli in [1, 10, 300, 999, 1000, 1001, 2500, 1_000_000] {
            assert_eq!(parse_tenant_weight(&show_thousandths(milli)), Ok(milli));
        }
        for ppm in [1, 10, 500_000, 990_000, 999_999] {
            assert_eq!(parse_objective(&show_millionths(ppm)), Ok(ppm));
        }
        for (text, policy) in ORDER_POLICIES {
            assert_eq!((show_order_policy(policy), parse_order_policy(text)), (text, Ok(policy)));
        }
        let told = parse_order_policy("lifo").unwrap_err().to_string();
        assert_eq!(told, "'lifo' is not a policy; write fifo, strict, aged or weighted");
    }
}
