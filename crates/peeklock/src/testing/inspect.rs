//! What the broker itself sees, for assertions.

use super::{TestBroker, expect};
use crate::admin::Counts;
use crate::{ReceivedMessage, SequenceNumber};

/// The part of a subscription's name between the topic and the subscription.
const SUBSCRIPTIONS: &str = "/Subscriptions/";
/// The number of messages in one request.
const PAGE_COUNT: u32 = 250;

/// Each method takes the name of a queue, or of a subscription as `TOPIC/Subscriptions/NAME`.
impl TestBroker {
    /// Returns the number of messages that clients have locked.
    pub async fn held_locks(&self, entity: &str) -> u64 {
        self.counts(entity).await.locked_count
    }

    /// Returns the number of messages that wait to be received, without those that are locked.
    pub async fn waiting(&self, entity: &str) -> u64 {
        let counts = self.counts(entity).await;
        counts.active_count.saturating_sub(counts.locked_count)
    }

    /// Returns the number of messages that are not due yet.
    pub async fn scheduled(&self, entity: &str) -> u64 {
        self.counts(entity).await.scheduled_count
    }

    /// Returns the number of deferred messages.
    pub async fn deferred(&self, entity: &str) -> u64 {
        self.counts(entity).await.deferred_count
    }

    /// Returns the number of messages that clients of [`TestBroker::client`] have completed, each confirmed by the broker: by a receiver, a
    /// processor or a transaction.
    pub fn completed(&self, entity: &str) -> u64 {
        self.ledger.completed(entity)
    }

    /// Returns all counts.
    pub async fn counts(&self, entity: &str) -> Counts {
        let admin = self.admin();
        let counts = match entity.split_once(SUBSCRIPTIONS) {
            Some((topic, name)) => admin.subscription(topic, name).await.map(|found| found.counts),
            None => admin.queue(entity).await.map(|found| found.counts),
        };
        expect(&format!("count the messages of '{entity}'"), counts)
    }

    /// Returns the dead-lettered messages in order, with their reasons ([`ReceivedMessage::dead_letter_reason`]). They stay where they are.
    pub async fn dead_letters(&self, entity: &str) -> Vec<ReceivedMessage> {
        self.messages(&format!("{entity}/$DeadLetterQueue")).await
    }

    /// Returns all messages in order without locking them: waiting, locked, scheduled and deferred ones.
    pub async fn messages(&self, entity: &str) -> Vec<ReceivedMessage> {
        let client = expect("connect", self.broker.client().await);
        let (mut all, mut next) = (Vec::new(), SequenceNumber(0));
        loop {
            let page = client.peek(entity, next, PAGE_COUNT).await;
            let page = expect(&format!("peek into '{entity}'"), page);
            let Some(last) = page.last().and_then(ReceivedMessage::sequence_number) else { break };
            next = SequenceNumber(last.0 + 1);
            all.extend(page);
        }
        client.close().await;
        all
    }
}
