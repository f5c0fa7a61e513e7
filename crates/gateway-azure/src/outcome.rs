//! What a receiver's delivery state asks of the queue.

use bytes::Bytes;
use peeklock_amqp::{AmqpError, DeliveryState, Fields, Value};
use peeklock_broker::engine::Settlement;

use crate::error::Refusal;
use crate::message::encode_patch;
use crate::request::Mirror;

pub(crate) const REASON: &str = "DeadLetterReason";
pub(crate) const DESCRIPTION: &str = "DeadLetterErrorDescription";

/// `Ok(None)`: nothing is asked for yet.
pub(crate) fn settlement_of(
    state: Option<DeliveryState>,
    settled: bool,
) -> Result<Option<(Settlement, Mirror)>, Refusal> {
    Ok(Some(match state {
        Some(DeliveryState::Accepted) => (Settlement::Complete, Mirror::Accepted),
        Some(DeliveryState::Released) => (Settlement::Release, Mirror::Released),
        Some(DeliveryState::Modified { undeliverable_here, message_annotations, .. }) => {
            let patch = patch_of(message_annotations.unwrap_or_default())?;
            // SDK quirk: Python says "delivery failed" for both; only this field tells a deferral from an abandonment.
            let settlement = match undeliverable_here {
                Some(true) => Settlement::Defer { patch },
                _ => Settlement::Abandon { patch },
            };
            (settlement, Mirror::Modified)
        }
        Some(DeliveryState::Rejected { error }) => {
            (dead_letter(error.map(|error| *error))?, Mirror::Rejected)
        }
        Some(DeliveryState::Transactional { .. } | DeliveryState::Declared { .. }) => {
            return Err(Refusal::not_implemented("transactions are not supported yet"));
        }
        // Forgotten without a word: the message was not worked on as far as anybody can tell.
        None if settled => (Settlement::Release, Mirror::Released),
        None | Some(DeliveryState::Received { .. }) => return Ok(None),
    }))
}

/// The reason and description travel in the error's info; what else is there are properties to set.
fn dead_letter(error: Option<AmqpError>) -> Result<Settlement, Refusal> {
    let mut info = error.and_then(|error| error.info).unwrap_or_default();
    let mut take = |key: &str| info.remove(key).as_ref().and_then(Value::as_str).map(str::to_owned);
    let (reason, description) = (take(REASON), take(DESCRIPTION));
    Ok(Settlement::DeadLetter { reason, description, patch: patch_of(info)? })
}

fn patch_of(fields: Fields) -> Result<Option<Bytes>, Refusal> {
    encode_patch(fields.into_iter().map(|(key, value)| (Value::String(key.to_text()), value)).collect())
}
