//! What a receiver says about a message, and how AMQP says it.

use peeklock_amqp::{AmqpError, DeliveryState, Symbol, condition};

/// How a message is settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done: the message goes for good.
    Complete,
    /// Failed: available again, with one more delivery on its count.
    Abandon,
    /// Set aside until somebody asks for its sequence number.
    Defer,
    /// Moved to the dead-letter queue.
    DeadLetter { reason: String, description: String },
    /// Given back untouched, without counting a delivery.
    Release,
}

impl Outcome {
    pub(crate) fn into_state(self) -> DeliveryState {
        match self {
            Outcome::Complete => DeliveryState::Accepted,
            Outcome::Abandon => modified(false),
            Outcome::Defer => modified(true),
            Outcome::DeadLetter { reason, description } => {
                let error = AmqpError {
                    condition: Symbol::from_static(condition::DEAD_LETTER),
                    description: None,
                    info: None,
                };
                let error = error.with_info("DeadLetterReason", reason);
                DeliveryState::rejected(error.with_info("DeadLetterErrorDescription", description))
            }
            Outcome::Release => DeliveryState::Released,
        }
    }

    /// The word of the `update-disposition` management call.
    pub(crate) fn status(&self) -> &'static str {
        match self {
            Outcome::Complete => "completed",
            Outcome::Abandon | Outcome::Release => "abandoned",
            // Spelled so by Service Bus and all its SDKs.
            Outcome::Defer => "defered",
            Outcome::DeadLetter { .. } => "suspended",
        }
    }
}

fn modified(undeliverable_here: bool) -> DeliveryState {
    DeliveryState::Modified {
        delivery_failed: Some(true),
        undeliverable_here: Some(undeliverable_here),
        message_annotations: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_what_service_bus_expects() {
        assert_eq!(Outcome::Complete.into_state(), DeliveryState::Accepted);
        assert_eq!(Outcome::Release.into_state(), DeliveryState::Released);
        let deferred =
            |state| matches!(state, DeliveryState::Modified { undeliverable_here: Some(true), .. });
        assert!(deferred(Outcome::Defer.into_state()));
        assert!(!deferred(Outcome::Abandon.into_state()));
        let dead = Outcome::DeadLetter { reason: "bad".into(), description: "street is empty".into() };
        let DeliveryState::Rejected { error: Some(error) } = dead.into_state() else {
            panic!("not rejected")
        };
        assert_eq!(error.condition, condition::DEAD_LETTER);
        assert_eq!(error.info.unwrap().get("DeadLetterReason").unwrap().as_str(), Some("bad"));
    }
}
