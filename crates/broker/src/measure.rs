//! What happens in queues, for those who watch them: orders, why a message waits, and everything at once for monitoring.

use std::time::Duration;

use peeklock_engine::{Counts, Engine, ExplainedMessage, OrderView};
use peeklock_journal::Log;
use peeklock_types::{EntityKind, EntityName, SequenceNumber, Timestamp};

use crate::broker::Broker;
use crate::manage::AdminError;
use crate::request::entities::{ExplainMessage, MeasureEntities, ShowOrder};
use crate::shard::Shard;

/// Entities measured in one request. A shard does nothing else meanwhile, so it is a matter of a millisecond or so.
pub const MEASURE_COUNT_MAX: usize = 64;
/// A page ends behind so many lanes, for queues with many tenants take longer.
const MEASURE_LANES_MAX: usize = 10_000;
/// How often a shard notes how its classes stand, for windows of the past.
const SAMPLE_EVERY: Duration = Duration::from_secs(10);

/// One entity, as monitoring sees it.
#[derive(Clone, Debug)]
pub struct Measure {
    pub name: EntityName,
    pub kind: EntityKind,
    pub counts: Counts,
    /// Of a topic.
    pub subscription_count: usize,
    /// `None`: a plain queue, or a topic.
    pub order: Option<Box<OrderView>>,
}

impl<L: Log> Shard<L> {
    /// Lets the engine note how classes stand, if it is time to.
    pub(crate) fn sample(&mut self, now: Timestamp) {
        if now >= self.sampled_at + SAMPLE_EVERY || now < self.sampled_at {
            self.sampled_at = now;
            self.state.engine.sample_orders(now);
        }
    }
}

pub(crate) fn measure_page(
    engine: &Engine,
    now: Timestamp,
    after: Option<&EntityName>,
    top: usize,
) -> Vec<Measure> {
    let (mut page, mut lane_count) = (Vec::new(), 0);
    let mut found = engine.queues_after(after).filter(|queue| !queue.name.is_internal());
    while page.len() < top.min(MEASURE_COUNT_MAX)
        && lane_count < MEASURE_LANES_MAX
        && let Some(queue) = found.next()
    {
        let measured = measure(engine, now, &queue);
        lane_count += measured.order.as_ref().map_or(0, |order| order.lane_count);
        page.push(measured);
    }
    page
}

fn measure(engine: &Engine, now: Timestamp, queue: &peeklock_engine::QueueView<'_>) -> Measure {
    let mut counts = queue.counts;
    let is_topic = queue.kind == EntityKind::Topic;
    if is_topic {
        counts.size_bytes = engine.topic_size(queue.entity);
    }
    Measure {
        name: queue.name.clone(),
        kind: queue.kind,
        counts,
        subscription_count: if is_topic { engine.subscriptions(queue.entity).count() } else { 0 },
        order: engine.order_view(now, queue.entity).map(Box::new),
    }
}

impl Broker {
    /// Returns the order of a queue or subscription; `None` if it has none.
    pub async fn order(&self, name: EntityName) -> Result<Option<Box<OrderView>>, AdminError> {
        self.ask_at(&name.clone(), ShowOrder { name }).await
    }

    /// Explains why a message has not been received yet, and behind what it waits.
    pub async fn explain_message(
        &self,
        name: EntityName,
        number: SequenceNumber,
    ) -> Result<ExplainedMessage, AdminError> {
        self.ask_at(&name.clone(), ExplainMessage { name, number }).await
    }

    /// Returns some entities of one shard, by name, after `after`: at most [`MEASURE_COUNT_MAX`]. An empty list: there are no more.
    pub async fn measure(&self, shard: usize, after: Option<EntityName>) -> Result<Vec<Measure>, AdminError> {
        self.ask(shard, MeasureEntities { after, top: MEASURE_COUNT_MAX }).await
    }
}
