//! Messages that tell whether they arrived as they were sent.

use bytes::Bytes;
use fastrand::Rng;
use peeklock_client::{Message, ReceivedMessage};

use crate::log::MessageNumber;

/// The message with this number: its body follows from the number and the size.
pub(crate) fn message(number: MessageNumber, size_bytes: usize) -> Message {
    Message::data(bytes(number, size_bytes))
        .with_message_id(format!("m{number}"))
        .with_property("size", u64::try_from(size_bytes).unwrap_or(0))
}

fn bytes(number: MessageNumber, size_bytes: usize) -> Bytes {
    let mut rng = Rng::with_seed(u64::from(number) << 32 | size_bytes as u64);
    let mut bytes = vec![0; size_bytes];
    rng.fill(&mut bytes);
    bytes.into()
}

/// The number of a message, and whether its body is the one that was sent.
pub(crate) fn read(message: &ReceivedMessage) -> (Option<MessageNumber>, bool) {
    let number = message.message_id().and_then(|id| id.strip_prefix('m')?.parse().ok());
    let size = message.message.property("size").and_then(|size| size.as_u64());
    let expected = number.zip(size).map(|(number, size)| bytes(number, usize::try_from(size).unwrap_or(0)));
    let is_intact = match (expected, message.body_bytes()) {
        (Some(expected), Some(found)) => expected[..] == found[..],
        _ => false,
    };
    (number, is_intact)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_body_is_noticed() {
        let received = |message| ReceivedMessage { message, lock_token: None };
        assert_eq!(read(&received(message(7, 100))), (Some(7), true));
        assert_eq!(read(&received(message(7, 0))), (Some(7), true));
        let mut changed = message(7, 100);
        changed.body = message(8, 100).body;
        assert_eq!(read(&received(changed)), (Some(7), false));
        assert_eq!(read(&received(Message::data("x"))), (None, false));
    }
}
