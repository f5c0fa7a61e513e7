//! Payloads of senders, before and after the message crate stores them.

use bytes::BytesMut;
use peeklock_amqp::{Batch, DecodeError, is_batch};
use peeklock_broker::Found;
use peeklock_broker::engine::Attributes;
use peeklock_message::{Needs, StoreError};
use peeklock_types::Timestamp;

use crate::error::Refusal;

/// Returns the values that an entity requires of each message.
pub(crate) fn needs_of(found: &Found) -> Needs {
    Needs { message_id: found.needs_message_id, view: found.needs_view }
}

/// Appends the stored form of a message and returns its attributes. A message without an id gets a random one.
pub(crate) fn store(
    payload: &[u8],
    now: Timestamp,
    needs: Needs,
    out: &mut BytesMut,
) -> Result<Option<Box<Attributes>>, Refusal> {
    Ok(peeklock_message::store(payload, now, needs, || fastrand::u128(..), out)?)
}

/// Returns the refusal for a message that is not valid AMQP.
pub(crate) fn unreadable(error: DecodeError) -> Refusal {
    StoreError::from(error).into()
}

/// Calls `take` with the message of a delivery, or with each message of a batch. Rejects an empty batch.
pub(crate) fn each_message(
    message_format: u32,
    payload: &[u8],
    mut take: impl FnMut(&[u8]) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    if !is_batch(message_format) {
        return take(payload);
    }
    let mut is_empty = true;
    for part in Batch::new(payload) {
        let unreadable = |error| Refusal::bad_request(format!("the batch is not valid AMQP: {error}"));
        take(part.map_err(unreadable)?)?;
        is_empty = false;
    }
    if is_empty {
        return Err(Refusal::bad_request("the batch is empty"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use peeklock_amqp::{BATCH_FORMAT, BatchBuilder, Encode, Message};

    use super::*;

    #[test]
    fn batches_are_split_and_empty_ones_are_rejected() {
        let mut builder = BatchBuilder::new(1000);
        for body in ["a", "b"] {
            assert!(builder.try_add(&Message::data(body).to_bytes()));
        }
        let batch = builder.finish();
        let mut count = 0;
        let mut take = |_: &[u8]| {
            count += 1;
            Ok(())
        };
        each_message(BATCH_FORMAT, &batch, &mut take).unwrap();
        assert!(each_message(BATCH_FORMAT, b"", &mut take).is_err());
        assert!(each_message(BATCH_FORMAT, b"nonsense", &mut take).is_err());
        each_message(0, b"", &mut take).unwrap();
        assert_eq!(count, 3);
    }
}
