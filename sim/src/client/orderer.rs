//! Changes the order of queues while they are used.

use peeklock_broker::AdminError;
use peeklock_types::{EntityName, OrderSettings};
use tokio::time::timeout;

use super::{PATIENCE, Party};
use crate::log::{Answer, Event, QueueIndex};
use crate::scenario::Queue;
use crate::scenario::order::{Scope, changed};

/// Changes only queues that had an order at first.
pub(crate) async fn reorder(mut party: Party, every_ms: u64) {
    let mut orders: Vec<_> =
        party.world.scenario.queues.iter().map(|queue| queue.settings.order.clone()).collect();
    let ordered: Vec<_> = (0..orders.len()).filter(|n| orders.get(*n).is_some_and(Option::is_some)).collect();
    while !party.is_over() && !ordered.is_empty() {
        party.pause_up_to(2 * every_ms).await;
        let Some(queue) = party.rng.choice(&ordered).copied() else { return };
        let Some(scope) = party.world.scenario.queues.get(queue).map(Scope::of) else { return };
        let Some(order) = orders.get_mut(queue) else { return };
        *order = changed(&mut party.rng, order.as_deref(), scope).map(Box::new);
        let order = order.clone();
        update(&party, queue, order).await;
    }
}

pub(crate) async fn update(party: &Party, queue: QueueIndex, order: Option<Box<OrderSettings>>) {
    let request = party.world.log.next_request();
    party.log(Event::Ordering { request, queue, order: order.clone() });
    let answer = ask(party, queue, order).await.unwrap_or(Answer::Unknown);
    party.log(Event::Ordered { request, answer });
}

async fn ask(party: &Party, queue: QueueIndex, order: Option<Box<OrderSettings>>) -> Option<Answer> {
    let Queue { name, settings, .. } = party.world.scenario.queues.get(queue)?;
    let settings = peeklock_types::QueueSettings { order, ..settings.clone() };
    let name = EntityName::parse(name).ok()?;
    let Some(broker) = party.world.office.broker() else {
        let why = "nobody was there to be asked".to_owned();
        return Some(Answer::Refused { lock_lost: false, why });
    };
    match timeout(PATIENCE, broker.update(name, settings, None)).await.ok()? {
        Ok(_) => Some(Answer::Done),
        Err(AdminError::Refused(why)) => Some(Answer::Refused { lock_lost: false, why: why.to_string() }),
        Err(AdminError::Stopped(_)) => None,
    }
}
