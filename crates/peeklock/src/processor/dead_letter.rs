//! The diagnostics of dead letters: stable properties that group equal failures.

use std::time::SystemTime;

use peeklock_amqp::{Fields, Value};

use crate::handler::{Failure, Work};
use crate::{Outcome, ReceivedMessage};

/// The limit of the description.
const DESCRIPTION_BYTES_MAX: usize = 4096;
/// The property with the time of the first failure, in milliseconds since 1970. It travels with the message from attempt to attempt.
const FIRST_FAILED: &str = "x-dl-first-failed";

/// Returns the outcome that dead-letters a message.
pub(super) fn outcome(reason: &str, failure: &Failure, work: &Work, processor: &str) -> Outcome {
    let message = work.message();
    let mut properties = Fields::new()
        .with("x-dl-error-type", failure.type_name)
        .with("x-dl-fingerprint", fingerprint(reason, failure))
        .with("x-dl-attempts", work.attempt())
        .with("x-dl-processor", processor.to_owned())
        .with(FIRST_FAILED, first_failed(message));
    if let Some(trace) = message.message.property("traceparent").and_then(Value::as_str) {
        properties.insert("x-dl-trace", trace.to_owned());
    }
    let description = cut(failure.to_string(), DESCRIPTION_BYTES_MAX);
    Outcome::DeadLetterWith { reason: reason.to_owned(), description, properties }
}

/// Returns the properties of a message that is tried again later.
pub(super) fn retry_properties(message: &ReceivedMessage) -> Fields {
    match message.message.property(FIRST_FAILED) {
        Some(_) => Fields::new(),
        None => Fields::new().with(FIRST_FAILED, first_failed(message)),
    }
}

fn first_failed(message: &ReceivedMessage) -> Value {
    message.message.property(FIRST_FAILED).cloned().unwrap_or_else(|| Value::Timestamp(now_millis()))
}

/// Returns the time of day. It is only shown to people, so a wrong clock does no harm.
fn now_millis() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Returns a hash of reason, error type and place. It is the same in every process and version, so that equal failures form a group.
fn fingerprint(reason: &str, failure: &Failure) -> String {
    let place = failure.place.map(|place| format!("{}:{}", place.file(), place.line())).unwrap_or_default();
    let text = [reason, failure.type_name, &place].join("\n");
    format!("{:016x}", fnv(text.as_bytes()))
}

/// FNV-1a with 64 bits.
fn fnv(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// Shortens a text to at most `bytes_max` bytes, at the end of a character.
fn cut(mut text: String, bytes_max: usize) -> String {
    if text.len() > bytes_max {
        let end = (0..=bytes_max).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handler::HandlerError;

    #[test]
    fn a_description_has_at_most_4_kib() {
        let long = "ä".repeat(3000);
        let short = cut(long, DESCRIPTION_BYTES_MAX);
        assert_eq!((short.len(), short.chars().count()), (4096, 2048));
        assert_eq!(cut("a".repeat(5000), 4095).len(), 4095);
        assert_eq!(cut("short".to_owned(), 4096), "short");
    }

    #[test]
    fn equal_failures_have_one_fingerprint() {
        let fail = || HandlerError::retry(std::io::Error::other("the text does not matter"));
        let (one, two) = (fail(), fail());
        assert_eq!(fingerprint("MaxAttempts", one.failure()), fingerprint("MaxAttempts", two.failure()));
        assert_ne!(fingerprint("MaxAttempts", one.failure()), fingerprint("Panic", one.failure()));
        let other = HandlerError::retry(std::fmt::Error);
        assert_ne!(fingerprint("MaxAttempts", one.failure()), fingerprint("MaxAttempts", other.failure()));
        assert_eq!(fnv(b"a"), 0xaf63_dc4c_8601_ec8c, "the published test value");
    }
}
