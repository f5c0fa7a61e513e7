//! Events from senders to partitions.

use std::sync::Arc;
use std::time::Duration;

use peeklock_amqp::DeliveryState;
use peeklock_amqp::connection::{Delivery, Millis};
use peeklock_broker::hubs::{Error as HubError, HubView, Producer};
use peeklock_broker::request::events::Append;
use peeklock_broker::request::hubs::ShowHub;
use peeklock_broker::{Error, Partition};
use peeklock_types::partition_of_key;

use super::error::refusal_of;
use super::publication::{Keys, Publication, Written};
use super::{Destination, Publisher};
use crate::connection::context::Context;
use crate::connection::link::{LinkKind, LinkNumber};
use crate::connection::request::{HubWaiter, SendWaiter};
use crate::error::Refusal;
use crate::publishing::send::confirm;
use crate::transaction::Transactions;
use crate::transaction::coordinator::transaction_of;

/// The minimum time between two lookups of the number of partitions, which can grow. A link that distributes its events
/// performs the lookup when it sends.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// Sends an event or a batch of events from a peer to a partition.
pub(crate) fn on_events(
    context: &mut Context<'_>,
    transactions: &mut Transactions,
    number: LinkNumber,
    delivery: &Delivery,
) {
    look_again(context, number);
    let Some(link) = context.links.get_mut(number) else { return };
    let id = link.id;
    let LinkKind::Publisher(publisher) = &mut link.kind else { return };
    publisher.unconfirmed += 1;
    if let Err(refusal) = publish(context, number, delivery) {
        if let Some(txn_id) = transaction_of(delivery) {
            transactions.doom(txn_id, &refusal.description);
        }
        if !delivery.settled {
            context.connection.settle(id, delivery.id, DeliveryState::rejected(refusal.into()));
        }
        confirm(context, number, 1);
    }
}

fn publish(context: &mut Context<'_>, number: LinkNumber, delivery: &Delivery) -> Result<(), Refusal> {
    let broker = &context.namespace.broker;
    let Some(LinkKind::Publisher(publisher)) = context.links.get_mut(number).map(|link| &mut link.kind)
    else {
        return Ok(());
    };
    if transaction_of(delivery).is_some() {
        let text = "events cannot be sent in a transaction; send them on their own, or to a queue";
        return Err(Refusal::not_allowed(text));
    }
    let publisher_key = publisher.publisher_key();
    let keys = match (&publisher.destination, &publisher_key) {
        (Destination::Partition(_), _) => Keys::Keep,
        (_, Some(key)) => Keys::Publisher(key),
        (_, None) => Keys::Route,
    };
    let publication = Publication::read(delivery.message_format, &delivery.payload, keys)?;
    let partition = Partition { hub: publisher.hub, number: publisher.next_partition(publication.key()) };
    let numbered = publisher.numbered;
    let shard = broker.place_partition(&publisher.address.hub, partition.number);
    let waiter = SendWaiter::for_delivery(number, delivery);
    let Written { block, first } = publication.write(numbered)?;
    let producer = numbered.zip(first);
    let producer = producer.map(|(of, sequence)| Producer { id: of.id, epoch: of.epoch, sequence });
    context.ask(shard, waiter, Append { partition, block, producer });
    Ok(())
}

/// Handles a partition's answer to a publication.
pub(crate) fn on_published(context: &mut Context<'_>, waiter: SendWaiter, result: Result<(), Error>) {
    let (number, delivery) = waiter.delivery();
    let Some(link) = context.links.get_mut(number) else { return };
    let LinkKind::Publisher(publisher) = &link.kind else { return };
    let id = link.id;
    let Err(error) = result else {
        if let Some(delivery) = delivery {
            context.connection.settle(id, delivery, DeliveryState::Accepted);
        }
        return confirm(context, number, 1);
    };
    let refusal = refusal_of(&error, &publisher.address).at(&context.host);
    if let Some(delivery) = delivery {
        context.connection.settle(id, delivery, DeliveryState::rejected(refusal.clone().into()));
    }
    confirm(context, number, 1);
    if ends_link(&error) {
        context.connection.detach(id, Some(refusal.into()));
    }
}

fn look_again(context: &mut Context<'_>, number: LinkNumber) {
    let now = context.millis;
    let Some(LinkKind::Publisher(publisher)) = context.links.get_mut(number).map(|link| &mut link.kind)
    else {
        return;
    };
    if publisher.is_due_for_look(now) {
        let name = publisher.address.hub.clone();
        let shard = context.namespace.broker.place(&name);
        context.ask(shard, HubWaiter::Publisher(number), ShowHub { name });
    }
}

pub(crate) fn on_looked(context: &mut Context<'_>, number: LinkNumber, result: Result<HubView, Error>) {
    if let Some(LinkKind::Publisher(publisher)) = context.links.get_mut(number).map(|link| &mut link.kind)
        && let Ok(view) = result
        && view.id == publisher.hub
    {
        publisher.set_partition_count(view.settings.partition_count);
    }
}

/// Returns whether the error ends the link. A hub of that name may be created again, or another producer may have
/// replaced this one: only a new link detects this.
fn ends_link(error: &Error) -> bool {
    let Error::Hub(error) = error else { return false };
    matches!(
        **error,
        HubError::NoSuchStream { .. } | HubError::StreamGone { .. } | HubError::ProducerEpoch { .. }
    )
}

impl Publisher {
    fn publisher_key(&self) -> Option<Arc<str>> {
        match &self.destination {
            Destination::Key { key, .. } => Some(Arc::clone(key)),
            Destination::Any { .. } | Destination::Partition(_) => None,
        }
    }

    fn next_partition(&mut self, key: Option<&str>) -> u32 {
        match (&mut self.destination, key) {
            (Destination::Partition(number), _) => *number,
            (
                Destination::Any { partition_count, .. } | Destination::Key { partition_count, .. },
                Some(key),
            ) => partition_of_key(key, *partition_count),
            (Destination::Any { partition_count, next, .. }, None) => {
                *next = next.wrapping_add(1);
                next.checked_rem(*partition_count).unwrap_or(0)
            }
            (Destination::Key { key, partition_count, .. }, None) => partition_of_key(key, *partition_count),
        }
    }

    fn is_due_for_look(&mut self, now: Millis) -> bool {
        let (Destination::Any { looked_at, .. } | Destination::Key { looked_at, .. }) = &mut self.destination
        else {
            return false;
        };
        let is_due = looked_at.after(LOOK_AGAIN_AFTER) <= now;
        if is_due {
            *looked_at = now;
        }
        is_due
    }

    fn set_partition_count(&mut self, count: u32) {
        if let Destination::Any { partition_count, .. } | Destination::Key { partition_count, .. } =
            &mut self.destination
        {
            *partition_count = count;
        }
    }
}

#[cfg(test)]
mod tests {
    use peeklock_types::{EntityName, HubId};

    use super::*;
    use crate::hub::HubAddress;

    fn publisher(destination: Destination) -> Publisher {
        let address = HubAddress::whole(EntityName::parse("clicks").unwrap());
        Publisher { address, hub: HubId(1), destination, numbered: None, unconfirmed: 0, confirmed: 0 }
    }

    #[test]
    fn events_without_a_key_are_distributed_and_events_with_a_key_stay_together() {
        let destination = Destination::Any { partition_count: 4, next: u32::MAX - 1, looked_at: Millis(0) };
        let mut link = publisher(destination);
        let turns: Vec<_> = (0..8).map(|_| link.next_partition(None)).collect();
        assert_eq!(turns, [3, 0, 1, 2, 3, 0, 1, 2]);
        for _ in 0..3 {
            assert_eq!(link.next_partition(Some("abc")), 1);
        }
        link.set_partition_count(10);
        assert_eq!(link.next_partition(Some("abcd")), 8);
        let mut till =
            publisher(Destination::Key { key: "abcd".into(), partition_count: 4, looked_at: Millis(0) });
        assert_eq!(till.next_partition(None), 2);
        let mut fixed = publisher(Destination::Partition(3));
        assert_eq!(
            fixed.next_partition(Some("abc")),
            3,
            "the events of a partition link are never re-routed"
        );
    }

    #[test]
    fn the_number_of_partitions_is_refreshed_periodically() {
        let mut link = publisher(Destination::Any { partition_count: 4, next: 0, looked_at: Millis(0) });
        assert!(!link.is_due_for_look(Millis(4999)));
        assert!(link.is_due_for_look(Millis(5000)));
        assert!(!link.is_due_for_look(Millis(5001)), "one lookup is in flight");
        assert!(!publisher(Destination::Partition(0)).is_due_for_look(Millis(9999)));
    }
}
