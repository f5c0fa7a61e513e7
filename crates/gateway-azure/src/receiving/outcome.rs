//! Maps a receiver's delivery state to a settlement.

use peeklock_amqp::{AmqpError, DeliveryState, Fields, Value};
use peeklock_broker::engine::Settlement;
use peeklock_message::{DEAD_LETTER_DESCRIPTION, DEAD_LETTER_REASON, encode_patch};

use crate::connection::request::Mirror;
use crate::error::Refusal;
use crate::receiving::delay::take_delay;

/// Returns the settlement, or `Ok(None)` if the state does not require one yet.
pub(crate) fn settlement_of(
    state: Option<DeliveryState>,
    settled: bool,
) -> Result<Option<(Settlement, Mirror)>, Refusal> {
    Ok(Some(match state {
        Some(DeliveryState::Accepted) => (Settlement::Complete, Mirror::Accepted),
        Some(DeliveryState::Released) => (Settlement::Release, Mirror::Released),
        Some(DeliveryState::Modified { undeliverable_here, message_annotations, .. }) => {
            let properties = entries(message_annotations.unwrap_or_default());
            // SDK quirk: Python sends "delivery failed" for both; only this field distinguishes a deferral from an
            // abandonment.
            let settlement = match undeliverable_here {
                Some(true) => Settlement::Defer { patch: encode_patch(properties)? },
                _ => abandon(properties)?,
            };
            (settlement, Mirror::Modified)
        }
        Some(DeliveryState::Rejected { error }) => {
            (dead_letter(error.map(|error| *error))?, Mirror::Rejected)
        }
        Some(DeliveryState::Transactional { .. } | DeliveryState::Declared { .. }) => {
            return Err(Refusal::bad_request("a settlement names one outcome; this state is none"));
        }
        // The delivery is settled without an outcome: there is no sign that the message was processed.
        None if settled => (Settlement::Release, Mirror::Released),
        None | Some(DeliveryState::Received { .. }) => return Ok(None),
    }))
}

/// Returns the dead-letter settlement. The reason and description are in the error's info; all other values there, and
/// a reason that is not a text, are properties to set.
fn dead_letter(error: Option<AmqpError>) -> Result<Settlement, Refusal> {
    let mut info = error.and_then(|error| error.info).unwrap_or_default();
    let mut take = |key: &str| {
        let text = info.get(key)?.as_str()?.to_owned();
        info.remove(key);
        Some(text)
    };
    let (reason, description) = (take(DEAD_LETTER_REASON), take(DEAD_LETTER_DESCRIPTION));
    Ok(Settlement::DeadLetter { reason, description, patch: encode_patch(entries(info))? })
}

/// The name of the property of an abandonment that only interrupts the handling of the message. It is never stored. An SDK that lets messages go
/// that it never worked on uses the outcome *released* instead, which never counts.
const INTERRUPTED: &str = "peeklock-interrupted";

/// Returns an abandonment that sets these properties, one of which may be the delay until the next delivery.
pub(crate) fn abandon(mut properties: Vec<(Value, Value)>) -> Result<Settlement, Refusal> {
    if let Some(at) = properties.iter().position(|(key, _)| key.as_str() == Some(INTERRUPTED)) {
        let (_, value) = properties.remove(at);
        match value {
            Value::Boolean(true) if properties.is_empty() => return Ok(Settlement::Interrupt),
            Value::Boolean(false) | Value::Null => {}
            _ => {
                let text =
                    format!("'{INTERRUPTED}' is true or false, and true excludes all other properties");
                return Err(Refusal::bad_request(text));
            }
        }
    }
    let delay = take_delay(&mut properties)?;
    Ok(Settlement::Abandon { patch: encode_patch(properties)?, delay })
}

fn entries(fields: Fields) -> Vec<(Value, Value)> {
    fields.into_iter().map(|(key, value)| (Value::String(key.to_text()), value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interruption_is_no_property() {
        let with = |value: Value| vec![(Value::from(INTERRUPTED), value)];
        let told = |settlement: Result<_, Refusal>| settlement.map_err(|refusal| refusal.description);
        assert_eq!(told(abandon(with(true.into()))), Ok(Settlement::Interrupt));
        let plain = Settlement::Abandon { patch: None, delay: None };
        assert_eq!(told(abandon(with(false.into()))), Ok(plain.clone()));
        assert_eq!(told(abandon(with(Value::Null))), Ok(plain));
        assert!(abandon(with(1.into())).is_err());
        let mut two = with(true.into());
        two.push(("step".into(), 1.into()));
        assert!(abandon(two).is_err());
    }
}
