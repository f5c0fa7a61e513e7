//! Metrics of queues, subscriptions, topics and classes.

use peeklock_broker::Measure;
use peeklock_broker::engine::{ClassView, Counts, OrderView, TargetView};
use peeklock_spec::show_duration;
use peeklock_types::{EntityKind, Timestamp};

use super::family::{Family, Kind, Labels};

/// The maximum size of the metrics of all entities. A class has approximately 75 lines, so the limit is sufficient for
/// some thousand classes.
const SIZE_BYTES_MAX: usize = 64 << 20;

pub(super) struct Entities {
    queue: QueueFamilies,
    class: ClassFamilies,
    tenant_class: ClassFamilies,
    /// The number of entities that are omitted because of the size limit.
    pub(super) left_out_count: u64,
}

impl Default for Entities {
    fn default() -> Self {
        Entities {
            queue: QueueFamilies::default(),
            class: ClassFamilies::new("peeklock_class"),
            tenant_class: ClassFamilies::new("peeklock_tenant_class"),
            left_out_count: 0,
        }
    }
}

impl Entities {
    /// Adds an entity. `labels` are common to all entities of a namespace.
    pub(super) fn add(&mut self, labels: &Labels, now: Timestamp, entity: &Measure) {
        if self.size_bytes() >= SIZE_BYTES_MAX {
            self.left_out_count += 1;
            return;
        }
        if entity.kind == EntityKind::Topic {
            self.queue.add_topic(&labels.with("topic", entity.name.as_str()), entity);
            return;
        }
        let labels = labels.with("queue", entity.name.as_str());
        self.queue.add_counts(&labels, &entity.counts);
        let Some(order) = entity.order.as_deref() else { return };
        self.queue.add_order(&labels, now, order);
        for class in &order.classes {
            self.class.add(&labels.with("class", class.name.as_str()), now, class);
        }
        for class in &order.tenant_classes {
            self.tenant_class.add(&labels.with("tenant_class", class.name.as_str()), now, class);
        }
    }

    pub(super) fn families(&self) -> impl Iterator<Item = &Family> {
        self.queue.families().into_iter().chain(self.class.families()).chain(self.tenant_class.families())
    }

    fn size_bytes(&self) -> usize {
        self.families().map(Family::size_bytes).sum()
    }
}

struct QueueFamilies {
    messages: Family,
    size_bytes: Family,
    topic_scheduled: Family,
    topic_size_bytes: Family,
    topic_subscriptions: Family,
    lanes: Family,
    limited: Family,
    misfits: Family,
    crowded: Family,
    throttled: Family,
}

impl Default for QueueFamilies {
    fn default() -> Self {
        let gauge = |name: &str, help| Family::new(name, Kind::Gauge, help);
        let counter = |name: &str, help| Family::new(name, Kind::Counter, help);
        QueueFamilies {
            messages: gauge(
                "peeklock_queue_messages",
                "Messages of a queue or subscription by state; those that are locked are counted as active or deferred, too",
            ),
            size_bytes: gauge(
                "peeklock_queue_size_bytes",
                "Bytes of all messages of a queue or subscription",
            ),
            topic_scheduled: gauge(
                "peeklock_topic_scheduled_messages",
                "Messages of a topic that are not due yet",
            ),
            topic_size_bytes: gauge(
                "peeklock_topic_size_bytes",
                "Bytes of all messages of a topic, in all its subscriptions",
            ),
            topic_subscriptions: gauge("peeklock_topic_subscriptions", "Subscriptions of a topic"),
            lanes: gauge("peeklock_queue_lanes", "Classes and tenants of a queue that have messages"),
            limited: gauge(
                "peeklock_queue_limited_seconds",
                "Time until a rate lets the next message of a queue go; 0 if one may go now",
            ),
            misfits: counter(
                "peeklock_queue_misfits_total",
                "Messages whose priority fitted no class; they went to the default class",
            ),
            crowded: counter(
                "peeklock_queue_crowded_total",
                "Messages of tenants that share a lane because there are too many",
            ),
            throttled: counter(
                "peeklock_queue_throttled_total",
                "Messages that were not taken because of a send rate",
            ),
        }
    }
}

impl QueueFamilies {
    fn add_counts(&mut self, labels: &Labels, counts: &Counts) {
        let by_state = [
            ("active", counts.active_count),
            ("locked", counts.locked_count),
            ("deferred", counts.deferred_count),
            ("scheduled", counts.scheduled_count),
            ("dead_letter", counts.dead_letter_count),
            ("transfer", counts.transfer_count),
            ("transfer_dead_letter", counts.transfer_dead_letter_count),
        ];
        for (state, count) in by_state {
            self.messages.add(&labels.with("state", state), count);
        }
        self.size_bytes.add(labels, counts.size_bytes);
    }

    fn add_topic(&mut self, labels: &Labels, topic: &Measure) {
        self.topic_scheduled.add(labels, topic.counts.scheduled_count);
        self.topic_size_bytes.add(labels, topic.counts.size_bytes);
        self.topic_subscriptions.add(labels, topic.subscription_count);
    }

    fn add_order(&mut self, labels: &Labels, now: Timestamp, order: &OrderView) {
        self.lanes.add(labels, order.lane_count);
        let limited = order.limited_until.map_or(0.0, |until| until.since(now).as_secs_f64());
        self.limited.add(labels, limited);
        self.misfits.add(labels, order.misfit_count);
        self.crowded.add(labels, order.crowded_count);
        self.throttled.add(labels, order.throttled_count);
    }

    fn families(&self) -> [&Family; 10] {
        [
            &self.messages,
            &self.size_bytes,
            &self.topic_scheduled,
            &self.topic_size_bytes,
            &self.topic_subscriptions,
            &self.lanes,
            &self.limited,
            &self.misfits,
            &self.crowded,
            &self.throttled,
        ]
    }
}

/// Metrics of classes of messages, or of tenants.
struct ClassFamilies {
    waiting: Family,
    in_flight: Family,
    oldest_age: Family,
    enqueued: Family,
    started: Family,
    settled: Family,
    time_in_queue: Family,
    critical_time: Family,
    target: Family,
    objective: Family,
    good: Family,
    bad: Family,
    burn: Family,
}

impl ClassFamilies {
    fn new(prefix: &str) -> Self {
        let family = |name: &str, kind, help| Family::new(format!("{prefix}_{name}"), kind, help);
        let gauge = |name, help| family(name, Kind::Gauge, help);
        let counter = |name, help| family(name, Kind::Counter, help);
        let histogram = |name, help| family(name, Kind::Histogram, help);
        ClassFamilies {
            waiting: gauge("waiting", "Messages of a class that wait to be received"),
            in_flight: gauge("in_flight", "Messages of a class that receivers hold"),
            oldest_age: gauge(
                "oldest_age_seconds",
                "How long the oldest message of a class has waited; 0 if none waits",
            ),
            enqueued: counter("enqueued_total", "Messages of a class that came"),
            started: counter("started_total", "Messages of a class that were delivered for the first time"),
            settled: counter(
                "settled_total",
                "Messages of a class that receivers completed or dead-lettered",
            ),
            time_in_queue: histogram(
                "time_in_queue_seconds",
                "From when a message could be received to its first delivery",
            ),
            critical_time: histogram(
                "critical_time_seconds",
                "From when a message could be received to its settlement",
            ),
            target: gauge("target_seconds", "Within which time messages of a class shall start"),
            objective: gauge(
                "target_objective_ratio",
                "The share of messages of a class that shall make their target",
            ),
            good: counter("target_good_total", "Messages of a class that started within their target"),
            bad: counter(
                "target_bad_total",
                "Messages of a class that did not, also those that still wait and are late already",
            ),
            burn: gauge(
                "target_burn_rate",
                "How fast a class uses up the allowed share of late messages; at 1 it is just used",
            ),
        }
    }

    fn add(&mut self, labels: &Labels, now: Timestamp, class: &ClassView) {
        self.waiting.add(labels, class.waiting_count);
        self.in_flight.add(labels, class.locked_count);
        let oldest_age = class.oldest.map_or(0.0, |oldest| now.since(oldest).as_secs_f64());
        self.oldest_age.add(labels, oldest_age);
        self.enqueued.add(labels, class.enqueued_count);
        self.started.add(labels, class.started_count);
        self.settled.add(labels, class.settled_count);
        self.time_in_queue.add_histogram(labels, &class.time_in_queue);
        self.critical_time.add_histogram(labels, &class.critical_time);
        if let Some(target) = &class.target {
            self.add_target(labels, target);
        }
    }

    fn add_target(&mut self, labels: &Labels, view: &TargetView) {
        self.target.add(labels, view.target.within.as_secs_f64());
        self.objective.add(labels, f64::from(view.target.objective_ppm) / 1e6);
        self.good.add(labels, view.good_count);
        self.bad.add(labels, view.bad_count);
        for window in &view.windows {
            let labels = labels.with("window", &show_duration(window.span));
            self.burn.add(&labels, view.burn(window).unwrap_or(0.0));
        }
    }

    fn families(&self) -> [&Family; 13] {
        [
            &self.waiting,
            &self.in_flight,
            &self.oldest_age,
            &self.enqueued,
            &self.started,
            &self.settled,
            &self.time_in_queue,
            &self.critical_time,
            &self.target,
            &self.objective,
            &self.good,
            &self.bad,
            &self.burn,
        ]
    }
}
