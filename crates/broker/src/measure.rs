//! Observes queues: their orders, the reason why a message waits, and the measures of all entities for monitoring.

use std::time::Duration;

use peeklock_engine::{Counts, Engine, ExplainedMessage, OrderView};
use peeklock_journal::Log;
use peeklock_types::{EntityKind, EntityName, SequenceNumber, Timestamp};

use crate::broker::Broker;
use crate::manage::AdminError;
use crate::request::entities::{ExplainMessage, MeasureEntities, ShowOrder};
use crate::shard::Shard;

/// The maximum number of entities measured in one request. The shard serves nothing else meanwhile, so a request should
/// take approximately one millisecond.
pub const MEASURE_COUNT_MAX: usize = 64;
/// The number of lanes after which a page ends, because queues with many tenants take longer to measure.
const MEASURE_LANES_MAX: usize = 10_000;
/// The interval at which a shard samples the counters of its classes, for windows of the past.
const SAMPLE_EVERY: Duration = Duration::from_secs(10);

/// The measures of one entity.
#[derive(Clone, Debug)]
pub struct Measure {
    pub name: EntityName,
    pub kind: EntityKind,
    pub counts: Counts,
    /// The number of subscriptions of a topic.
    pub subscription_count: usize,
    /// The order of the queue; `None` for a plain queue or a topic.
    pub order: Option<Box<OrderView>>,
}

impl<L: Log> Shard<L> {
    /// Samples the counters of the classes if a sample is due.
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

    /// Explains why a message has not been received yet, and which messages are ahead of it.
    pub async fn explain_message(
        &self,
        name: EntityName,
        number: SequenceNumber,
    ) -> Result<ExplainedMessage, AdminError> {
        self.ask_at(&name.clone(), ExplainMessage { name, number }).await
    }

    /// Returns entities of one shard in the order of their names, after `after`: at most [`MEASURE_COUNT_MAX`]. An
    /// empty list means that there are no more.
    pub async fn measure(&self, shard: usize, after: Option<EntityName>) -> Result<Vec<Measure>, AdminError> {
        self.ask(shard, MeasureEntities { after, top: MEASURE_COUNT_MAX }).await
    }
}
