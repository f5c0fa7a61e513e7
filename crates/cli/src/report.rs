//! Reports the result of a command, as text or as JSON, and its error.

use std::io::{self, Write};

use serde_json::{Map, Value};

/// Writes `Created queue 'orders' (summary)`, or `{"done":"created","queue":"orders"}`.
pub(crate) fn report(
    out: &mut Vec<u8>,
    as_json: bool,
    done: &str,
    kind: &str,
    name: &str,
    summary: &str,
) -> io::Result<()> {
    if as_json {
        let entry = |key: &str, value: &str| (key.to_owned(), Value::from(value));
        let object: Map<_, _> = [entry(kind, name), entry("done", done)].into_iter().collect();
        return writeln!(out, "{}", Value::from(object));
    }
    let (first, rest) = done.split_at_checked(1).unwrap_or_default();
    let summary = if summary.is_empty() { String::new() } else { format!(" ({summary})") };
    writeln!(out, "{}{rest} {kind} '{name}'{summary}", first.to_uppercase())
}

/// Returns an error with its causes. The text of an error of the SDK contains its causes, so the text ends with it.
pub(crate) fn causes(error: &anyhow::Error) -> String {
    let mut texts = Vec::new();
    for cause in error.chain() {
        texts.push(cause.to_string());
        if cause.is::<peeklock::Error>() {
            break;
        }
    }
    texts.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_two_forms() {
        let mut out = Vec::new();
        report(&mut out, false, "created", "queue", "orders", "").unwrap();
        report(&mut out, false, "created", "hub", "clicks", "4 partitions").unwrap();
        report(&mut out, true, "created", "queue", "orders", "4 partitions").unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "Created queue 'orders'\nCreated hub 'clicks' (4 partitions)\n{\"done\":\"created\",\"queue\":\"orders\"}\n"
        );
    }
}
