//! The errors that a peer receives about hubs.

use peeklock_amqp::condition;
use peeklock_broker::Error;
use peeklock_broker::hubs::{Error as HubError, ReaderEnd};
use peeklock_types::EntityName;

use super::address::HubAddress;
use crate::error::{ENTITY, Refusal, refusal};

/// Returns the error for a missing hub or part.
/// SDK quirk: JavaScript and .NET identify it only by this text.
pub(super) fn not_found(what: &impl std::fmt::Display, why: &impl std::fmt::Display) -> Refusal {
    let text = format!("{ENTITY}{what}' could not be found. {why}");
    Refusal::new(404, condition::NOT_FOUND, text)
}

pub(super) fn no_such_hub(name: &EntityName) -> Refusal {
    let why = format!("Create it with: peeklock hub create {name}");
    not_found(name, &why)
}

/// Returns the error for a missing partition. Programs search for the service's text.
pub(super) fn no_such_partition(count: u32) -> Refusal {
    let text = format!(
        "The specified partition is invalid for an EventHub partition sender or receiver. It should be between 0 and {}. Parameter name: \
         PartitionId",
        count.saturating_sub(1)
    );
    Refusal::new(400, condition::ARGUMENT_OUT_OF_RANGE, text)
}

/// Returns the error for a request to a hub that only queues, topics and subscriptions support.
pub(crate) fn is_hub(name: &EntityName, what: &str) -> Refusal {
    Refusal::not_allowed(format!("'{name}' is an event hub, {what}"))
}

pub(super) fn refusal_of(error: &Error, address: &HubAddress) -> Refusal {
    match error {
        Error::Hub(error) => hub_refusal(error, Some(address)),
        other => refusal(other, None),
    }
}

/// Returns the error for the peer. `address` is the hub or part of the link or request.
pub(crate) fn hub_refusal(error: &HubError, address: Option<&HubAddress>) -> Refusal {
    use HubError as E;
    let (status, condition) = match error {
        E::NoSuchHub { name } => return no_such_hub(name),
        E::NoSuchGroup { name, .. } => return not_found(name, error),
        E::NoSuchPartition { count, .. } => return no_such_partition(*count),
        E::NoSuchStream { .. } | E::StreamGone { .. } => match address {
            Some(address) => return not_found(address, error),
            None => (404, condition::NOT_FOUND),
        },
        E::HubExists { .. } | E::GroupExists { .. } => (409, condition::ENTITY_ALREADY_EXISTS),
        E::Changed { .. } => (412, condition::PRECONDITION_FAILED),
        E::DefaultGroup => (400, condition::NOT_ALLOWED),
        E::TooManyGroups { .. } | E::TooManyReaders { .. } => (403, condition::RESOURCE_LIMIT_EXCEEDED),
        E::Settings(_) | E::OwnerName { .. } | E::BeyondEnd { .. } | E::Expired { .. } | E::Lost { .. } => {
            (400, condition::ARGUMENT_OUT_OF_RANGE)
        }
        E::Disabled { .. } => (403, condition::ENTITY_DISABLED),
        E::OutOfOrderSequence { .. } => (409, condition::OUT_OF_ORDER_SEQUENCE),
        E::ProducerEpoch { .. } => (409, condition::PRODUCER_EPOCH_STOLEN),
        E::OwnerLevel { .. } | E::NoOwnerLevel { .. } => (410, condition::STOLEN),
        E::StaleEtag { .. } | E::NeverOwned => (412, condition::PRECONDITION_FAILED),
        E::NotOwner { .. } | E::Owned { .. } => (409, condition::PARTITION_NOT_OWNED),
        E::Backwards { .. } | E::OnlyReset => (409, condition::MICROSOFT_PRECONDITION_FAILED),
        E::NoCheckpoint => (404, condition::MESSAGE_NOT_FOUND),
    };
    Refusal::new(status, condition, error.to_string())
}

/// Returns the error for a reader that the partition has detached.
pub(super) fn end_refusal(reason: &ReaderEnd, address: &HubAddress) -> Refusal {
    match reason {
        // Operators search for the service's text in their logs.
        ReaderEnd::Stolen { by, level, name, own_level } => {
            let named = |name: &Option<String>| name.clone().unwrap_or_else(|| "nil".to_owned());
            let own_level = own_level.map(|level| level.to_string()).unwrap_or_default();
            let text = format!(
                "New receiver '{}' with higher epoch of '{level}' is created hence current receiver '{}' with epoch '{own_level}' is \
                 getting disconnected. If you are recreating the receiver, make sure a higher epoch is used. ({address})",
                named(by),
                named(name)
            );
            Refusal::new(410, condition::STOLEN, text)
        }
        ReaderEnd::Expired { next, first } => {
            let text = format!(
                "the reader of '{address}' has fallen behind the retention: event {next} is no longer there, the oldest is {first}; start \
                 there, or at the earliest, to go on"
            );
            Refusal::new(400, condition::ARGUMENT_OUT_OF_RANGE, text)
        }
        ReaderEnd::Lost { from, upto } => {
            let text = format!(
                "the events {from} to {} of '{address}' were damaged on the disk and are lost; start at {upto} to go on, or let the hub pass \
                 over what is gone (expiredPosition: earliest)",
                upto.saturating_sub(1)
            );
            Refusal::new(400, condition::ARGUMENT_OUT_OF_RANGE, text)
        }
        ReaderEnd::Unreadable { from } => {
            let text = format!(
                "the events of '{address}' from {from} on cannot be read from the disk; the broker's log says why"
            );
            Refusal::new(500, condition::INTERNAL_ERROR, text)
        }
        ReaderEnd::Deleted => not_found(address, &"the hub or the consumer group was deleted"),
        ReaderEnd::Disabled => {
            let text = format!("the hub '{}' is disabled for readers; set its status to active", address.hub);
            Refusal::new(403, condition::ENTITY_DISABLED, text)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stolen_reader_receives_the_name_of_the_new_reader() {
        let address = HubAddress::whole(EntityName::parse("clicks").unwrap());
        let reason = ReaderEnd::Stolen { by: Some("b".into()), level: 3, name: None, own_level: Some(2) };
        let refusal = end_refusal(&reason, &address);
        assert_eq!(refusal.condition, condition::STOLEN);
        assert!(refusal.description.starts_with("New receiver 'b' with higher epoch of '3'"));
        assert!(refusal.description.contains("receiver 'nil' with epoch '2'"));
    }

    #[test]
    fn missing_hubs_are_reported_with_the_text_that_sdks_expect() {
        let name = EntityName::parse("clicks").unwrap();
        let address = HubAddress::parse("clicks/Partitions/9").unwrap().unwrap();
        let group = peeklock_types::ConsumerGroup::parse("audit").unwrap();
        let missing = HubError::NoSuchGroup { name: name.clone(), group };
        let gone = end_refusal(&ReaderEnd::Deleted, &address);
        for refusal in [no_such_hub(&name), hub_refusal(&missing, Some(&address)), gone] {
            assert_eq!((refusal.status, refusal.condition), (404, condition::NOT_FOUND));
            assert!(refusal.description.starts_with("The messaging entity 'clicks"), "{refusal:?}");
            assert!(refusal.description.contains("could not be found"), "{refusal:?}");
        }
    }
}
