//! Events whose bodies show whether they arrived unchanged.

use bytes::{BufMut, Bytes, BytesMut};
use fastrand::Rng;
use peeklock_amqp::{Encode, Message, Sections};
use peeklock_message::StoredEvent;

use crate::log::EventNumber;

/// Builds the event with this number. Its body follows from the number and the size.
pub(super) fn message(number: EventNumber, size_bytes: usize) -> Message {
    let mut bytes = BytesMut::with_capacity(size_bytes + 4);
    bytes.put_u32_le(number);
    bytes.extend_from_slice(&filling(number, size_bytes));
    Message::data(bytes.freeze())
}

/// Writes the event in the gateway's stored form.
pub(super) fn put_stored(out: &mut BytesMut, number: EventNumber, size_bytes: usize) {
    let encoded = message(number, size_bytes).to_bytes();
    let sections = Sections::scan(&encoded).expect("the message was just encoded");
    StoredEvent::encode(out, &sections, None).expect("the message was just scanned");
}

/// Returns the number of a stored event, and whether the event is unchanged.
pub(super) fn read_stored(stored: &Bytes) -> (Option<EventNumber>, bool) {
    StoredEvent::parse(stored).map_or((None, false), |event| read(event.bare()))
}

/// Returns the number of an event from its sections, and whether the event is unchanged.
pub(super) fn read(sections: &[u8]) -> (Option<EventNumber>, bool) {
    let Ok(sections) = Sections::scan(sections) else { return (None, false) };
    let body: Vec<u8> = sections.data().flatten().copied().collect();
    let Some((number, rest)) = body.split_first_chunk() else { return (None, false) };
    let number = u32::from_le_bytes(*number);
    (Some(number), rest == filling(number, rest.len()))
}

fn filling(number: EventNumber, size_bytes: usize) -> Vec<u8> {
    let mut bytes = vec![0; size_bytes];
    Rng::with_seed(u64::from(number) << 32 | size_bytes as u64).fill(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_event_is_noticed() {
        let mut stored = BytesMut::new();
        put_stored(&mut stored, 7, 100);
        let stored = stored.freeze();
        assert_eq!(read_stored(&stored), (Some(7), true));
        let mut changed = stored.to_vec();
        if let Some(last) = changed.last_mut() {
            *last ^= 1;
        }
        assert_eq!(read_stored(&changed.into()), (Some(7), false));
        assert_eq!(read_stored(&Bytes::new()), (None, false));
    }
}
