//! What a command has done, for people and for programs.

use std::io::{self, Write};

use serde_json::{Map, Value};

/// `Created queue 'orders'`, or `{"done":"created","queue":"orders"}`.
pub(crate) fn said(out: &mut Vec<u8>, as_json: bool, done: &str, kind: &str, name: &str) -> io::Result<()> {
    said_with(out, as_json, done, kind, name, "")
}

/// The same with a few words more for people: `Created queue 'orders' (…)`.
pub(crate) fn said_with(
    out: &mut Vec<u8>,
    as_json: bool,
    done: &str,
    kind: &str,
    name: &str,
    more: &str,
) -> io::Result<()> {
    if as_json {
        let entry = |key: &str, value: &str| (key.to_owned(), Value::from(value));
        let object: Map<_, _> = [entry(kind, name), entry("done", done)].into_iter().collect();
        return writeln!(out, "{}", Value::from(object));
    }
    let (first, rest) = done.split_at_checked(1).unwrap_or_default();
    let more = if more.is_empty() { String::new() } else { format!(" ({more})") };
    writeln!(out, "{}{rest} {kind} '{name}'{more}", first.to_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_in_both_forms() {
        let mut out = Vec::new();
        said(&mut out, false, "created", "queue", "orders").unwrap();
        said(&mut out, true, "created", "queue", "orders").unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "Created queue 'orders'\n{\"done\":\"created\",\"queue\":\"orders\"}\n"
        );
    }
}
