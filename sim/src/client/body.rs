//! Messages whose bodies show whether they arrived unchanged.

use bytes::Bytes;
use fastrand::Rng;
use peeklock_client::{Header, Message, MessageExt, ReceivedMessage};

use crate::log::MessageNumber;
use crate::scenario::order::{PAYING, PRIORITY, TENANT, TIER, tenant_name};
use crate::scenario::topic::{MARK, Traits, color_name, subject_name};
use crate::scenario::{Said, Target, Wish};

/// The property that the broker writes into copies that an action has changed.
const RULE_NAME: &str = "RuleName";

/// Builds the message with this number. Its body follows from the number and the size, and the properties for rules
/// from the number.
pub(crate) fn message(number: MessageNumber, size_bytes: usize, target: Target) -> Message {
    let message = Message::data(bytes(number, size_bytes))
        .with_message_id(format!("m{number}"))
        .with_property("size", u64::try_from(size_bytes).unwrap_or(0));
    let message = wishing(message, Wish::of(number));
    let Target::Topic(topic) = target else { return message };
    let Traits { color, subject, level } = Traits::of(number);
    let message = message
        .with_property("topic", u64::try_from(topic).unwrap_or(u64::MAX))
        .with_property("level", u64::from(level))
        .with_subject(subject_name(subject));
    match color {
        Some(color) => message.with_property("color", color_name(color)),
        None => message,
    }
}

/// Adds the sender's priority and tenant to the message.
fn wishing(mut message: Message, wish: Wish) -> Message {
    if wish.header.is_some() {
        message.header = Some(Header { priority: wish.header, ..message.header.unwrap_or_default() });
    }
    message = match wish.property {
        Some(Said::Name(name)) => message.with_property(PRIORITY, name.to_owned()),
        Some(Said::Number(number)) => message.with_property(PRIORITY, u64::from(number)),
        Some(Said::Text(number)) => message.with_property(PRIORITY, number.to_string()),
        None => message,
    };
    if let Some(tenant) = wish.tenant {
        message = message.with_property(TENANT, tenant_name(tenant));
    }
    if wish.is_paying { message.with_property(TIER, PAYING.to_owned()) } else { message }
}

fn bytes(number: MessageNumber, size_bytes: usize) -> Bytes {
    let mut rng = Rng::with_seed(u64::from(number) << 32 | size_bytes as u64);
    let mut bytes = vec![0; size_bytes];
    rng.fill(&mut bytes);
    bytes.into()
}

/// The contents of a received message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) number: Option<MessageNumber>,
    /// The topic to which the message was sent.
    pub(crate) topic: Option<usize>,
    /// The rule that made this copy.
    pub(crate) rule: Option<String>,
    /// Whether the body is unchanged, and the message has the mark of its rule and no other.
    pub(crate) is_intact: bool,
}

pub(crate) fn read(message: &ReceivedMessage) -> Read {
    let number = message.message_id().and_then(|id| id.strip_prefix('m')?.parse().ok());
    let figure = |name: &str| message.message.property(name).and_then(|figure| figure.as_u64());
    let text = |name: &str| message.message.property(name).and_then(|text| text.as_str().map(str::to_owned));
    let size = figure("size");
    let expected = number.zip(size).map(|(number, size)| bytes(number, usize::try_from(size).unwrap_or(0)));
    let is_whole = match (expected, message.body_bytes()) {
        (Some(expected), Some(found)) => expected[..] == found[..],
        _ => false,
    };
    let (rule, mark) = (text(RULE_NAME), text(MARK));
    let topic = figure("topic").and_then(|topic| usize::try_from(topic).ok());
    Read { number, topic, is_intact: is_whole && rule == mark, rule }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_body_is_noticed() {
        let of = |number, size| message(number, size, Target::Queue(0));
        let read = |message| {
            let Read { number, is_intact, .. } = read(&ReceivedMessage { message, lock_token: None });
            (number, is_intact)
        };
        assert_eq!(read(of(7, 100)), (Some(7), true));
        assert_eq!(read(of(7, 0)), (Some(7), true));
        let mut changed = of(7, 100);
        changed.body = of(8, 100).body;
        assert_eq!(read(changed), (Some(7), false));
        assert_eq!(read(Message::data("x")), (None, false));
    }

    #[test]
    fn a_copy_with_the_mark_of_another_rule_is_noticed() {
        let of = |rule: &str| {
            let message = message(7, 10, Target::Topic(2)).with_property(RULE_NAME, rule.to_owned());
            read(&ReceivedMessage { message: message.with_property(MARK, "a".to_owned()), lock_token: None })
        };
        let expected = Read { number: Some(7), topic: Some(2), rule: Some("a".to_owned()), is_intact: true };
        assert_eq!(of("a"), expected);
        assert!(!of("b").is_intact);
    }
}
