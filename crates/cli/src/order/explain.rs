//! Explains why a message waits, as text.

use std::io::{self, Write};

use peeklock::low_level::{EntityName, ExplainedMessage};

use crate::describe::Page;
use crate::serve::plural;

pub(crate) fn explain(out: &mut Vec<u8>, queue: &EntityName, message: &ExplainedMessage) -> io::Result<()> {
    writeln!(
        out,
        "Message {} of '{queue}' is {}",
        message.sequence_number,
        message.state.replace("in-", "in a ")
    )?;
    let mut page = Page(out);
    if let Some(class) = &message.class {
        page.line("Class", class)?;
    }
    if let Some(tenant) = &message.tenant {
        let class = message.tenant_class.as_ref().map(|class| format!(" ({class})")).unwrap_or_default();
        page.line("Tenant", &format!("{tenant}{class}"))?;
    }
    page.line("Why", &message.why)?;
    if message.state != "waiting" && message.ahead.is_empty() {
        return Ok(());
    }
    page.line("Goes before it", &ahead(message))
}

/// Counts the messages ahead: `12 messages of high, 3 of low`.
fn ahead(message: &ExplainedMessage) -> String {
    let each: Vec<_> = message.ahead.iter().filter(|ahead| ahead.count > 0).collect();
    match each.split_first() {
        None if message.ahead_count == 0 => "nothing".to_owned(),
        None => plural(message.ahead_count, "message"),
        Some((first, [])) if message.class.is_none() => plural(first.count, "message"),
        Some((first, rest)) => {
            let mut text = format!("{} of {}", plural(first.count, "message"), first.class);
            rest.iter().for_each(|ahead| text.push_str(&format!(", {} of {}", ahead.count, ahead.class)));
            text
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use peeklock::low_level::Ahead;

    fn told(message: &ExplainedMessage) -> String {
        let mut out = Vec::new();
        explain(&mut out, &EntityName::parse("jobs").unwrap(), message).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_messages_ahead_are_counted_by_class() {
        let ahead = |class: &str, count| Ahead { class: class.to_owned(), count };
        let mut message = ExplainedMessage {
            sequence_number: 17,
            state: "waiting".to_owned(),
            class: Some("low".to_owned()),
            tenant: Some("acme".to_owned()),
            tenant_class: Some("free".to_owned()),
            why: "Others are more urgent.".to_owned(),
            ahead: vec![ahead("high", 12), ahead("normal", 0), ahead("low", 3)],
            ahead_count: 15,
        };
        let text = told(&message);
        assert_eq!(
            text,
            "Message 17 of 'jobs' is waiting\n\
             Class                    low\n\
             Tenant                   acme (free)\n\
             Why                      Others are more urgent.\n\
             Goes before it           12 messages of high, 3 of low\n"
        );
        message.ahead.clear();
        message.ahead_count = 0;
        assert!(told(&message).ends_with("nothing\n"));
        message.state = "in-session".to_owned();
        assert!(told(&message).starts_with("Message 17 of 'jobs' is in a session\n"));
        assert!(!told(&message).contains("before"));
    }
}
