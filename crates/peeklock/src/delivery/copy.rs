//! Delayed abandonment with a broker that cannot delay a message: one transaction sends a scheduled copy and completes the original.
//!
//! A lost connection leaves one of the two, never none: the transaction takes effect as a whole. Where no copy can be made, the original is
//! abandoned without a delay.
//!
//! The copy never keeps the message id. A queue that detects duplicates confirms a message whose id it knows and drops it, also a scheduled one,
//! and the commit would still complete the original. The SDK cannot read that setting without the Manage right. The new id has a random part,
//! because some brokers may know an id from a transaction that was rolled back.

use std::time::Duration;

use peeklock_amqp::{Fields, Header, Message as AmqpMessage, MessageId, Text, Value};
use peeklock_client::{
    ATTEMPT, Error as Low, MessageExt, ORIGINAL_MESSAGE_ID, ReceivedMessage, Timestamp, Transaction,
};

use super::settle::{by_token, settle, without_lock};
use super::{Hold, Source, Unsettled};
use crate::Outcome;
use crate::error::Error;
use crate::lock::broker_now;
use crate::sender::Sender;

/// The longest message id of Service Bus.
const MESSAGE_ID_CHARS_MAX: usize = 128;
/// The annotations that a broker sets on delivery. Those of the sender stay.
const BROKER_ANNOTATIONS: [&str; 10] = [
    "x-opt-sequence-number",
    "x-opt-enqueued-time",
    "x-opt-enqueue-sequence-number",
    "x-opt-locked-until",
    "x-opt-message-state",
    "x-opt-deadletter-source",
    "x-opt-partition-id",
    "x-opt-lock-token",
    "x-opt-peeklock-class",
    "x-opt-peeklock-tenant",
];

/// Abandons a message that is delivered again after `delay`, as a copy if possible.
pub(super) async fn abandon_after(
    mut unsettled: Unsettled,
    message: &ReceivedMessage,
    properties: Fields,
    delay: Duration,
) -> Result<(), Error> {
    let copy = unsettled.copy(message, &properties, delay);
    let plain = Outcome::AbandonWith { properties, delay: None };
    let Some(hold) = unsettled.hold.take() else { return without_lock(&unsettled.source, &plain) };
    let (source, lock_end) = (&unsettled.source, unsettled.lock_end());
    let Some((copy, token)) = copy.zip(hold.token()) else {
        return settle(source, hold, plain, lock_end).await;
    };
    let work = match source.send_copy(&copy).await {
        Ok(work) => work,
        Err(error) => {
            tracing::debug!(queue = &*source.entity, %error, "a message is abandoned without a delay");
            return settle(source, hold, plain, lock_end).await;
        }
    };
    let is_uncertain = match source.replace(work, hold).await {
        Ok(()) => return Ok(()),
        Err(error) => {
            tracing::debug!(queue = &*source.entity, %error, "a message is abandoned without a delay");
            !matches!(error, Low::RolledBack { .. })
        }
    };
    // If the commit has taken effect after all, the lock is gone and nothing happens.
    by_token(source, token, plain, Some(lock_end), is_uncertain).await
}

impl Unsettled {
    /// Returns the copy that can take the place of the message after `delay`. `None` if it would not come back to the same place, or if the
    /// message is a deferred one, which has to keep its sequence number.
    fn copy(&self, message: &ReceivedMessage, properties: &Fields, delay: Duration) -> Option<AmqpMessage> {
        let is_replaceable = self.source.session.is_none() && is_queue(&self.source.entity);
        if !is_replaceable || !matches!(self.hold, Some(Hold::Link(_))) {
            return None;
        }
        let now = match (self.source.clock, self.received_at) {
            (Some(clock), _) => clock.now(),
            (None, Some(received_at)) => broker_now(message, received_at.elapsed())?,
            (None, None) => return None,
        };
        Some(copy_of(message, properties, now + delay, fastrand::u64(..)))
    }
}

impl Source {
    /// Begins a transaction and sends the copy in it.
    async fn send_copy(&self, copy: &AmqpMessage) -> Result<Transaction, Error> {
        let open = || Sender::open(self.connection.clone(), &self.entity);
        let link = self.copies.get_or_try_init(open).await?.link().await?;
        let work = self.connection.live().await?.transaction().await?;
        work.send(&link, copy).await?;
        Ok(work)
    }

    /// Completes the original in the transaction of its copy, and commits.
    async fn replace(&self, work: Transaction, hold: Hold) -> Result<(), Low> {
        let completed = match hold {
            Hold::Link(link) if !link.is_cut_off() => work.settle(link, Outcome::Complete).await,
            hold => match hold.token() {
                Some(token) => work.settle_tokens(&self.entity, &[token], Outcome::Complete).await,
                None => Ok(()),
            },
        };
        match completed {
            Ok(()) => work.commit().await,
            Err(error) => {
                // The lock belongs to the transaction until the broker has rolled it back.
                let _ = work.roll_back().await;
                Err(error)
            }
        }
    }
}

/// Returns whether messages can be sent to the entity. A copy to the topic of a subscription would reach its other subscriptions, too.
fn is_queue(entity: &str) -> bool {
    !entity.contains('$') && !entity.split('/').any(|part| part.eq_ignore_ascii_case("subscriptions"))
}

/// Returns the copy of a message that is delivered at the time `due`.
fn copy_of(message: &ReceivedMessage, properties: &Fields, due: Timestamp, random: u64) -> AmqpMessage {
    let mut copy = message.message.clone();
    copy.delivery_annotations.remove("x-opt-lock-token");
    for annotation in BROKER_ANNOTATIONS {
        copy.message_annotations.remove(annotation);
    }
    for (key, value) in properties.iter() {
        set(&mut copy, key.as_str(), value.clone());
    }
    set(&mut copy, ATTEMPT, message.attempt().into());
    let id = message.original_message_id().unwrap_or_default();
    if copy.property(ORIGINAL_MESSAGE_ID).is_none() {
        let id = copy.properties.message_id.take().unwrap_or_else(|| MessageId::String(Text::default()));
        set(&mut copy, ORIGINAL_MESSAGE_ID, id.into());
    }
    let header = copy.header.unwrap_or_default();
    copy.header = Some(Header { ttl: None, first_acquirer: None, delivery_count: None, ..header });
    copy.properties.absolute_expiry_time = None;
    copy.properties.creation_time = None;
    copy = copy.with_message_id(new_id(&id, message.attempt(), random)).with_scheduled_time(due);
    match expiry(message) {
        // The time to live of a scheduled message begins when it becomes available.
        Some(expiry) => copy.with_time_to_live(expiry.since(due).max(Duration::from_millis(1))),
        None => copy,
    }
}

/// Returns the time when the message expires, by the fields that the broker sets on each delivery.
fn expiry(message: &ReceivedMessage) -> Option<Timestamp> {
    match message.message.header?.ttl? {
        // The field holds at most 49 days.
        u32::MAX => message.expires_at(),
        millis => Some(message.enqueued_at()? + Duration::from_millis(millis.into())),
    }
}

/// Returns an id that no other message has, and that shows the original.
fn new_id(id: &str, attempt: u32, random: u64) -> String {
    let suffix = format!("~{attempt}-{random:016x}");
    let id: String = id.chars().take(MESSAGE_ID_CHARS_MAX - suffix.len()).collect();
    id + &suffix
}

/// Sets an application property.
fn set(message: &mut AmqpMessage, key: &str, value: Value) {
    match message.application_properties.iter_mut().find(|(name, _)| *name == key) {
        Some((_, old)) => *old = value,
        None => message.application_properties.push((key.to_owned().into(), value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_millis(secs * 1000)
    }

    fn received(message: AmqpMessage) -> ReceivedMessage {
        ReceivedMessage { message, lock_token: None }
    }

    fn delivered() -> AmqpMessage {
        let mut message =
            AmqpMessage::data("coffee").with_message_id("order-17").with_property("region", "EU");
        message.header = Some(Header { delivery_count: Some(2), priority: Some(7), ..Header::default() });
        message.message_annotations.insert("x-opt-sequence-number", 7_i64);
        message.message_annotations.insert("x-opt-enqueued-time", Value::Timestamp(100_000));
        message.message_annotations.insert("x-opt-partition-key", "p");
        message.message_annotations.insert("x-mine", 1);
        message
    }

    #[test]
    fn a_copy_is_the_message_with_another_id_and_a_time() {
        let properties = Fields::new().with("region", "US").with("step", 2);
        let copy = copy_of(&received(delivered()), &properties, at(160), 0xab);
        assert_eq!(copy.body, AmqpMessage::data("coffee").body);
        let header = copy.header.unwrap();
        assert_eq!((header.priority, header.delivery_count, header.ttl), (Some(7), None, None));
        let annotations = Fields::new()
            .with("x-opt-partition-key", "p")
            .with("x-mine", 1)
            .with("x-opt-scheduled-enqueue-time", Value::Timestamp(160_000));
        assert_eq!(copy.message_annotations, annotations);
        let text = |key| copy.property(key).and_then(Value::as_str).map(str::to_owned);
        assert_eq!(text("region").as_deref(), Some("US"));
        assert_eq!(text(ORIGINAL_MESSAGE_ID).as_deref(), Some("order-17"));
        assert_eq!(copy.properties.message_id, Some("order-17~3-00000000000000ab".into()));
        // A copy of the copy continues the count, and still shows the original.
        let again = received(copy_of(&received(copy), &properties, at(200), 1));
        assert_eq!(again.attempt(), 5);
        assert_eq!(again.message_id().as_deref(), Some("order-17~4-0000000000000001"));
        assert_eq!(again.original_message_id().as_deref(), Some("order-17"));
    }

    #[test]
    fn a_copy_expires_when_the_original_would() {
        let with_ttl = |ttl| {
            let mut message = delivered();
            message.header = Some(Header { ttl: Some(ttl), ..Header::default() });
            message.properties.absolute_expiry_time = Some(4_000_000_000);
            message.properties.creation_time = Some(1);
            copy_of(&received(message), &Fields::new(), at(160), 0)
        };
        let copy = with_ttl(100_000);
        assert_eq!(copy.header.unwrap().ttl, Some(40_000));
        assert_eq!((copy.properties.absolute_expiry_time, copy.properties.creation_time), (None, None));
        assert_eq!(with_ttl(50_000).header.unwrap().ttl, Some(1), "it expires before its time");
        assert_eq!(with_ttl(u32::MAX).header.unwrap().ttl, Some(4_000_000_000 - 160_000));
    }

    #[test]
    fn ids_of_any_type_and_length_have_a_copy() {
        let mut message = delivered();
        message.properties.message_id = Some(MessageId::Ulong(5));
        let copy = copy_of(&received(message), &Fields::new(), at(1), 0);
        assert_eq!(copy.property(ORIGINAL_MESSAGE_ID), Some(&Value::Ulong(5)));
        assert_eq!(copy.properties.message_id, Some("5~3-0000000000000000".into()));
        let long = new_id(&"ä".repeat(200), u32::MAX, u64::MAX);
        assert_eq!(long.chars().count(), MESSAGE_ID_CHARS_MAX);
        assert!(long.ends_with("~4294967295-ffffffffffffffff"));
    }

    #[test]
    fn only_queues_take_copies() {
        assert!(is_queue("orders") && is_queue("shop/orders"));
        assert!(!is_queue("news/Subscriptions/weather") && !is_queue("orders/$DeadLetterQueue"));
        assert!(!is_queue("a/b/subscriptions/c"));
    }
}
