//! The outcomes of a delivery and their AMQP encoding.

use std::time::Duration;

use bytes::Bytes;
use peeklock_amqp::{AmqpError, DeliveryState, Fields, Symbol, Value, condition};

/// The name of the property with the delay before an abandoned message is delivered again.
const RETRY_AFTER_MS: &str = "peeklock-retry-after-ms";
/// The property of an abandonment that only interrupts the handling of a message, with the value `true` and without other properties. A broker
/// with [`Extensions::counts_interruptions`](crate::Extensions::counts_interruptions) counts it as a delivery only after many times.
pub const INTERRUPTED_PROPERTY: &str = "peeklock-interrupted";

/// The outcome of a settled message.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The message is processed and removed.
    Complete,
    /// The message becomes available again with its delivery count increased.
    Abandon,
    /// Like [`Outcome::Abandon`], with application properties to set on the message and a delay before the next delivery (`None`: the delay
    /// of the queue). Only a broker with [`Extensions::delays_abandoned`](crate::Extensions::delays_abandoned) supports the delay; others
    /// store it as a property.
    AbandonWith {
        /// Application properties to set.
        properties: Fields,
        /// The delay before the next delivery.
        delay: Option<Duration>,
    },
    /// The message stays in the queue until a receiver fetches it by its sequence number.
    Defer,
    /// The message moves to the dead-letter queue.
    DeadLetter {
        /// The reason, as a short name.
        reason: String,
        /// The reason, as a sentence.
        description: String,
    },
    /// Like [`Outcome::DeadLetter`], with application properties to set on the message.
    DeadLetterWith {
        /// The reason, as a short name.
        reason: String,
        /// The reason, as a sentence.
        description: String,
        /// Application properties to set.
        properties: Fields,
    },
    /// The message becomes available again; its delivery count does not increase.
    Release,
}

impl Outcome {
    pub(crate) fn into_state(self) -> DeliveryState {
        match self {
            Outcome::Complete => DeliveryState::Accepted,
            Outcome::Abandon => modified(false, None),
            Outcome::AbandonWith { properties, delay } => {
                let properties = with_delay(properties, delay);
                modified(false, (!properties.is_empty()).then_some(properties))
            }
            Outcome::Defer => modified(true, None),
            Outcome::DeadLetter { reason, description } => rejected(reason, description, Fields::new()),
            Outcome::DeadLetterWith { reason, description, properties } => {
                rejected(reason, description, properties)
            }
            Outcome::Release => DeliveryState::Released,
        }
    }

    /// Returns the status for the `update-disposition` management operation.
    pub(crate) fn status(&self) -> &'static str {
        match self {
            Outcome::Complete => "completed",
            Outcome::Abandon | Outcome::AbandonWith { .. } | Outcome::Release => "abandoned",
            // Service Bus and its SDKs use this spelling.
            Outcome::Defer => "defered",
            Outcome::DeadLetter { .. } | Outcome::DeadLetterWith { .. } => "suspended",
        }
    }

    /// Returns the further entries for the `update-disposition` operation.
    pub(crate) fn into_entries(self) -> Vec<(Value, Value)> {
        match self {
            Outcome::DeadLetter { reason, description } => vec![
                ("deadletter-reason".into(), reason.into()),
                ("deadletter-description".into(), description.into()),
            ],
            Outcome::DeadLetterWith { reason, description, properties } => vec![
                ("deadletter-reason".into(), reason.into()),
                ("deadletter-description".into(), description.into()),
                to_modify(&properties),
            ],
            Outcome::AbandonWith { properties, delay } => vec![to_modify(&with_delay(properties, delay))],
            Outcome::Complete | Outcome::Abandon | Outcome::Defer | Outcome::Release => Vec::new(),
        }
    }
}

fn to_modify(properties: &Fields) -> (Value, Value) {
    let entries = properties.iter().map(|(key, value)| (key.as_str().to_owned().into(), value.clone()));
    ("properties-to-modify".into(), Value::Map(entries.collect()))
}

/// Returns the state that moves a message to the dead-letter queue. Service Bus sets the further entries of the error's map as properties.
fn rejected(reason: String, description: String, properties: Fields) -> DeliveryState {
    let condition = Symbol::from_static(condition::DEAD_LETTER);
    let error =
        AmqpError { condition, description: None, info: (!properties.is_empty()).then_some(properties) };
    let error = error.with_info("DeadLetterReason", reason);
    DeliveryState::rejected(error.with_info("DeadLetterErrorDescription", description))
}

fn with_delay(properties: Fields, delay: Option<Duration>) -> Fields {
    match delay {
        Some(delay) => properties.with(RETRY_AFTER_MS, u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)),
        None => properties,
    }
}

fn modified(undeliverable_here: bool, message_annotations: Option<Fields>) -> DeliveryState {
    DeliveryState::Modified {
        delivery_failed: Some(true),
        undeliverable_here: Some(undeliverable_here),
        message_annotations,
    }
}

/// Wraps a delivery in a transaction.
pub(crate) fn in_transaction(id: Option<&Bytes>) -> Option<DeliveryState> {
    id.map(|id| DeliveryState::Transactional { txn_id: id.clone(), outcome: None })
}

/// Returns the outcome, unwrapped from its transaction if there is one.
pub(crate) fn outcome_of(state: Option<DeliveryState>) -> Option<DeliveryState> {
    match state {
        Some(DeliveryState::Transactional { outcome, .. }) => outcome.map(|outcome| *outcome),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_have_the_encoding_of_service_bus() {
        assert_eq!(Outcome::Complete.into_state(), DeliveryState::Accepted);
        assert_eq!(Outcome::Release.into_state(), DeliveryState::Released);
        let deferred =
            |state| matches!(state, DeliveryState::Modified { undeliverable_here: Some(true), .. });
        assert!(deferred(Outcome::Defer.into_state()));
        assert!(!deferred(Outcome::Abandon.into_state()));
        let later = Outcome::AbandonWith {
            properties: Fields::new().with("step", 2),
            delay: Some(Duration::from_secs(5)),
        };
        assert_eq!(later.clone().into_entries().len(), 1);
        let DeliveryState::Modified { undeliverable_here: Some(false), message_annotations, .. } =
            later.into_state()
        else {
            panic!("not abandoned")
        };
        let expected = Fields::new().with("step", 2).with(RETRY_AFTER_MS, 5000_u64);
        assert_eq!(message_annotations, Some(expected));
        let dead = Outcome::DeadLetter { reason: "bad".into(), description: "street is empty".into() };
        let DeliveryState::Rejected { error: Some(error) } = dead.into_state() else {
            panic!("not rejected")
        };
        assert_eq!(error.condition, condition::DEAD_LETTER);
        assert_eq!(error.info.unwrap().get("DeadLetterReason").unwrap().as_str(), Some("bad"));
        let dead = Outcome::DeadLetterWith {
            reason: "bad".into(),
            description: "street is empty".into(),
            properties: Fields::new().with("x-dl-attempts", 3),
        };
        assert_eq!(dead.clone().into_entries().len(), 3);
        let DeliveryState::Rejected { error: Some(error) } = dead.into_state() else {
            panic!("not rejected")
        };
        let info = error.info.unwrap();
        assert_eq!(info.get("DeadLetterReason").unwrap().as_str(), Some("bad"));
        assert_eq!(info.get("x-dl-attempts").unwrap().as_i32(), Some(3));
    }
}
