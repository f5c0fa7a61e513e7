//! Text forms of durations, sizes and words, in both directions.

use std::time::Duration;

use peeklock_types::{PoisonSession, QueueStatus, RetryPolicy, Tier};

use crate::iso8601;

/// The text of an absent value where there is no `null`.
pub const NONE: &str = "none";

/// The names of the tiers.
const TIERS: [(&str, Tier); 2] = [("premium", Tier::Premium), ("standard", Tier::Standard)];

pub const STATUSES: [(&str, QueueStatus); 4] = [
    ("active", QueueStatus::Active),
    ("send-disabled", QueueStatus::SendDisabled),
    ("receive-disabled", QueueStatus::ReceiveDisabled),
    ("disabled", QueueStatus::Disabled),
];

/// The names of the ways to treat a session with a poison message.
pub const POISON_SESSIONS: [(&str, PoisonSession); 3] = [
    ("dead-letter", PoisonSession::DeadLetter),
    ("block", PoisonSession::Block),
    ("set-aside", PoisonSession::SetAside),
];

/// Units from small to large, each in milliseconds.
const DURATION_UNITS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
const SIZE_UNITS: [(&str, u64); 5] =
    [("", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)];

/// A text that is not a valid value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{given}' is not {what}; write {allowed}")]
pub struct TextError {
    pub given: String,
    pub what: &'static str,
    pub allowed: String,
}

impl TextError {
    pub(crate) fn new(given: &str, what: &'static str, allowed: impl Into<String>) -> Self {
        TextError { given: excerpt(given), what, allowed: allowed.into() }
    }
}

/// Returns the part of a text that errors contain.
pub(crate) fn excerpt(text: &str) -> String {
    const CHARS_MAX: usize = 80;
    match text.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// Parses `500ms`, `30s`, `1h30m`, `7d`, and ISO 8601: `PT1M`, `P14D`.
pub fn parse_duration(text: &str) -> Result<Duration, TextError> {
    let parsed = if text.starts_with('P') { iso8601::parse(text).ok() } else { parse_units(text) };
    parsed.ok_or_else(|| TextError::new(text, "a duration", "500ms, 30s, 5m, 1h30m, 7d or PT30S"))
}

/// Parses numbers with units, each unit at most once, the larger first.
fn parse_units(text: &str) -> Option<Duration> {
    let (mut rest, mut below, mut millis) = (text, u64::MAX, 0_u64);
    while !rest.is_empty() {
        let (number, after) = split_digits(rest)?;
        let name_end = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (name, after) = after.split_at_checked(name_end)?;
        let (_, unit) = DURATION_UNITS.iter().find(|(known, _)| *known == name)?;
        if *unit >= below {
            return None;
        }
        millis = millis.checked_add(number.checked_mul(*unit)?)?;
        (rest, below) = (after, *unit);
    }
    (below != u64::MAX).then(|| Duration::from_millis(millis))
}

/// Returns the duration in the largest unit without a fraction, in a form that can be parsed.
pub fn show_duration(span: Duration) -> String {
    let millis = span.as_millis();
    let unit = DURATION_UNITS
        .iter()
        .rev()
        .find(|(_, unit)| millis >= u128::from(*unit) && millis.is_multiple_of(u128::from(*unit)));
    let (name, unit) = unit.unwrap_or(&DURATION_UNITS[0]);
    format!("{}{name}", millis / u128::from(*unit))
}

/// Parses `1000`, `64KiB`, `100MiB`, `1GiB` or `2TiB`.
pub fn parse_size(text: &str) -> Result<u64, TextError> {
    let parsed = || {
        let (number, name) = split_digits(text)?;
        let (_, unit) = SIZE_UNITS.iter().find(|(known, _)| *known == name)?;
        number.checked_mul(*unit)
    };
    parsed().ok_or_else(|| TextError::new(text, "a size", "1000 (bytes), 64KiB, 100MiB, 1GiB or 2TiB"))
}

pub fn show_size(size_bytes: u64) -> String {
    let unit =
        SIZE_UNITS.iter().rev().find(|(_, unit)| size_bytes >= *unit && size_bytes.is_multiple_of(*unit));
    let (name, unit) = unit.unwrap_or(&SIZE_UNITS[0]);
    format!("{}{name}", size_bytes / unit)
}

fn split_digits(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at_checked(end)?;
    Some((digits.parse().ok()?, rest))
}

pub fn parse_tier(text: &str) -> Result<Tier, TextError> {
    parse_word(text, "a tier", &TIERS)
}

pub fn show_tier(tier: Tier) -> &'static str {
    word_of(&TIERS, tier)
}

pub fn parse_status(text: &str) -> Result<QueueStatus, TextError> {
    parse_word(text, "a status", &STATUSES)
}

pub fn show_status(status: QueueStatus) -> &'static str {
    word_of(&STATUSES, status)
}

pub fn parse_poison_session(text: &str) -> Result<PoisonSession, TextError> {
    parse_word(text, "a way to treat poison sessions", &POISON_SESSIONS)
}

pub fn show_poison_session(rule: PoisonSession) -> &'static str {
    word_of(&POISON_SESSIONS, rule)
}

/// Parses one of several words. Case and dashes do not matter, so that `SendDisabled` is accepted.
pub(crate) fn parse_word<T: Copy>(
    text: &str,
    what: &'static str,
    words: &[(&str, T)],
) -> Result<T, TextError> {
    let plain = |word: &str| word.replace(['-', '_'], "").to_ascii_lowercase();
    let found = words.iter().find(|(word, _)| plain(word) == plain(text));
    found.map(|(_, meaning)| *meaning).ok_or_else(|| {
        let known: Vec<_> = words.iter().map(|(word, _)| *word).collect();
        TextError::new(text, what, one_of(&known))
    })
}

pub(crate) fn word_of<T: PartialEq>(words: &[(&'static str, T)], meaning: T) -> &'static str {
    words.iter().find(|(_, known)| *known == meaning).map_or("", |(word, _)| word)
}

/// Joins words: `a, b or c`.
pub(crate) fn one_of(words: &[&str]) -> String {
    match words.split_last() {
        None => String::new(),
        Some((last, [])) => (*last).to_owned(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
    }
}

/// Parses `immediate`, `fixed:5s`, `linear:5s..1m`, `exponential:1s..10m` or `exponential:1s..10m:jitter`.
pub fn parse_retry(text: &str) -> Result<RetryPolicy, TextError> {
    const ALLOWED: &str =
        "immediate, fixed:5s, linear:5s..1m, exponential:1s..10m or exponential:1s..10m:jitter";
    let wrong = || TextError::new(text, "a retry policy", ALLOWED);
    let range = |range: &str| -> Result<_, TextError> {
        let (from, to) = range.split_once("..").ok_or_else(wrong)?;
        Ok((parse_duration(from)?, parse_duration(to)?))
    };
    let mut parts = text.split(':');
    let (kind, times, extra) = (parts.next(), parts.next(), parts.next());
    let policy = match (kind, times, extra) {
        (Some("immediate"), None, None) => RetryPolicy::Immediate,
        (Some("fixed"), Some(delay), None) => RetryPolicy::Fixed { delay: parse_duration(delay)? },
        (Some("linear"), Some(times), None) => {
            let (step, cap) = range(times)?;
            RetryPolicy::Linear { step, cap }
        }
        (Some("exponential"), Some(times), None | Some("jitter")) => {
            let (base, cap) = range(times)?;
            RetryPolicy::Exponential { base, cap, jitter: extra.is_some() }
        }
        _ => return Err(wrong()),
    };
    if parts.next().is_some() { Err(wrong()) } else { Ok(policy) }
}

pub fn show_retry(policy: RetryPolicy) -> String {
    let shown = show_duration;
    match policy {
        RetryPolicy::Immediate => "immediate".to_owned(),
        RetryPolicy::Fixed { delay } => format!("fixed:{}", shown(delay)),
        RetryPolicy::Linear { step, cap } => format!("linear:{}..{}", shown(step), shown(cap)),
        RetryPolicy::Exponential { base, cap, jitter } => {
            format!("exponential:{}..{}{}", shown(base), shown(cap), if jitter { ":jitter" } else { "" })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_unit() {
        let millis = |text| parse_duration(text).unwrap().as_millis();
        assert_eq!(millis("500ms"), 500);
        assert_eq!(millis("30s"), 30_000);
        assert_eq!(millis("1h30m"), 5_400_000);
        assert_eq!(millis("1d2h3m4s5ms"), 93_784_005);
        assert_eq!(millis("PT1M"), 60_000);
        assert_eq!(millis("P14D"), 14 * 86_400_000);
        for wrong in [
            "",
            "5",
            "s",
            "1w",
            "-1s",
            "1.5s",
            "30m1h",
            "1s1s",
            "1h30",
            "1 h",
            "99999999999999999999s",
            "9999999999999999999h",
        ] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
        let told = parse_duration("5").unwrap_err().to_string();
        assert_eq!(told, "'5' is not a duration; write 500ms, 30s, 5m, 1h30m, 7d or PT30S");
    }

    #[test]
    fn sizes_are_bytes_or_have_a_unit() {
        assert_eq!(parse_size("1000").unwrap(), 1000);
        assert_eq!(parse_size("64KiB").unwrap(), 65_536);
        assert_eq!(parse_size("1GiB").unwrap(), 1 << 30);
        for wrong in ["", "GiB", "1GB", "1 GiB", "-1", "1.5MiB", "99999999999TiB"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_shown_text_can_be_parsed() {
        for text in ["0ms", "1ms", "1500ms", "30s", "90s", "5m", "1h", "36h", "7d"] {
            assert_eq!(show_duration(parse_duration(text).unwrap()), text);
        }
        for text in ["0", "1000", "1025", "1KiB", "100MiB", "1GiB", "2TiB"] {
            assert_eq!(show_size(parse_size(text).unwrap()), text);
        }
        for text in
            ["immediate", "fixed:5s", "linear:5s..1m", "exponential:1s..10m", "exponential:1ms..10m:jitter"]
        {
            assert_eq!(show_retry(parse_retry(text).unwrap()), text);
        }
        for (text, status) in STATUSES {
            assert_eq!((show_status(status), parse_status(text)), (text, Ok(status)));
        }
        for (text, rule) in POISON_SESSIONS {
            assert_eq!((show_poison_session(rule), parse_poison_session(text)), (text, Ok(rule)));
        }
    }

    #[test]
    fn invalid_retry_policies_are_rejected() {
        for wrong in [
            "",
            "never",
            "fixed",
            "fixed:5",
            "fixed:5s..1m",
            "linear:5s",
            "linear:5s..",
            "exponential:1s..2s:shaky",
            "exponential:1s..2s:jitter:more",
            "immediate:5s",
            "fixed:5s:jitter",
        ] {
            assert!(parse_retry(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn words_are_accepted_in_any_spelling_and_errors_list_them() {
        assert_eq!(parse_status("SendDisabled"), Ok(QueueStatus::SendDisabled));
        let told = parse_status("asleep").unwrap_err().to_string();
        assert_eq!(
            told,
            "'asleep' is not a status; write active, send-disabled, receive-disabled or disabled"
        );
    }

    #[test]
    fn errors_contain_only_the_start_of_a_long_text() {
        let told = parse_size(&"ä".repeat(10_000)).unwrap_err().to_string();
        assert!(told.chars().count() < 200, "{told}");
    }
}
