//! The parts of one run.

pub(crate) mod blobs;
mod draw;
pub(crate) mod hub;
pub(crate) mod order;
pub(crate) mod programs;
mod strain;
pub(crate) mod topic;

use std::collections::BTreeSet;
use std::time::Duration;

use peeklock_journal_wal::WalConfig;
use peeklock_types::{QueueSettings, RetryPolicy};

use crate::log::{MessageNumber, Part};
pub(crate) use blobs::Blobs;
pub(crate) use hub::{GROUPS, GroupIndex, Hub, HubReader, Processors, Publisher};
pub(crate) use order::{Said, Wish};
pub use programs::{Flaw, Programs};
pub(crate) use topic::{Rule, Subscription, Test, Topic};

/// The delays of bytes.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    pub delay_ms_max: u64,
    /// One write in this many is delayed for long; 0 for none.
    pub storm_one_in: u32,
    pub storm_ms_max: u64,
}

impl Weather {
    pub const CALM: Weather = Weather { delay_ms_max: 2, storm_one_in: 0, storm_ms_max: 0 };
}

/// The faults of connections.
#[derive(Clone, Copy, Debug, Default)]
pub struct NetworkFaults {
    /// The longest time from the start of a connection to its failure; `None` if connections do not fail.
    pub fails_within_ms: Option<u64>,
    /// Whether some connections fail without an error.
    pub falls_silent: bool,
}

/// The faults of the broker's machine. `false` or 0 means that a fault does not happen.
#[derive(Clone, Copy, Debug, Default)]
pub struct MachineFaults {
    pub kills: bool,
    pub power_cuts: bool,
    pub clean_stops: bool,
    /// The average time between two of the above.
    pub every_ms: u64,
    /// The largest step between the wall clocks of two runs.
    pub clock_step_ms_max: u64,
    /// Whether the wall clock also steps during a run.
    pub steps_in_runs: bool,
    /// The largest number of reads that fail one after the other; 0 if none fails.
    pub failing_reads_max: u64,
    /// Whether steps of the disk fail, alone or together with the power.
    pub disk_errors: bool,
    pub disk_fills: bool,
    pub disk_stall_ms_max: u64,
    pub commit_ms_max: u64,
    /// The longest time for reading, moving and gathering bodies, in the background; 0 if that takes no time.
    pub disk_work_ms_max: u64,
}

/// The weights of a consumer's ways to handle a delivery.
#[derive(Clone, Copy, Debug, Default)]
pub struct Habits {
    pub complete: u32,
    pub abandon: u32,
    /// Abandons the message with a delay.
    pub delay: u32,
    pub defer: u32,
    pub dead_letter: u32,
    pub release: u32,
    pub renew: u32,
    /// Holds the message until its lock expires, without a settlement.
    pub forget: u32,
    /// Settles the message close to the end of its lock.
    pub late: u32,
    pub twice: u32,
    /// Completes the message and sends messages elsewhere, in one transaction.
    pub transact: u32,
}

/// The target of sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Queue(usize),
    Topic(usize),
}

#[derive(Clone, Debug)]
pub struct Consumer {
    pub queue: usize,
    pub credit: u32,
    pub habits: Habits,
    pub work_ms_max: u64,
    pub from_dead_letters: bool,
    pub in_sessions: bool,
    pub fetches_deferred: bool,
    /// The target of its transactions.
    pub target: Target,
}

#[derive(Clone, Debug)]
pub struct Producer {
    pub target: Target,
    pub pause_ms_max: u64,
    pub batch_max: usize,
    pub burst_max: usize,
    pub body_bytes_max: usize,
    /// One message in this many is large, and is sent alone; 0 for none.
    pub large_one_in: u32,
    pub large_bytes_max: usize,
    /// The longest time to live of messages; 0 for none.
    pub lives_ms_max: u64,
    /// The longest time ahead for scheduled messages; 0 if none is scheduled.
    pub ahead_ms_max: u64,
}

#[derive(Clone, Debug)]
pub struct Queue {
    pub name: String,
    pub settings: QueueSettings,
    /// The number of sessions; 0 for a queue without sessions.
    pub session_count: u32,
}

#[derive(Clone, Debug)]
pub struct Scenario {
    /// The queues. Subscriptions are queues too, and follow the others; the queues of programs with the SDK are last.
    pub queues: Vec<Queue>,
    pub topics: Vec<Topic>,
    pub producers: Vec<Producer>,
    pub consumers: Vec<Consumer>,
    /// Queues with a receiver in mode receive-and-delete, and its credit.
    pub deleters: Vec<(usize, u32)>,
    /// Queues with a receiver that never gives credit.
    pub idlers: Vec<usize>,
    /// Queues that a client purges now and then.
    pub purged: Vec<usize>,
    pub peekers: usize,
    pub hub: Option<Hub>,
    pub blobs: Option<Blobs>,
    pub programs: Option<Programs>,
    /// The average time between two changes of the order of a queue; `None` if orders stay.
    pub reorders_every_ms: Option<u64>,
    pub weather: Weather,
    pub network: NetworkFaults,
    pub machine: MachineFaults,
    pub wal: WalConfig,
    pub storm: Duration,
}

impl Scenario {
    /// Returns the time after which nothing of the storm is in progress: locks, lives, schedules, delays.
    pub fn rest(&self) -> Duration {
        let queue_span = |queue: &Queue| {
            let settings = &queue.settings;
            let retry = match settings.retry {
                RetryPolicy::Immediate => Duration::ZERO,
                RetryPolicy::Fixed { delay } => delay,
                RetryPolicy::Linear { cap, .. } | RetryPolicy::Exponential { cap, .. } => cap,
            };
            settings.lock_duration + retry + settings.default_time_to_live.unwrap_or_default()
        };
        let queues = self.queues.iter().map(queue_span).max().unwrap_or_default();
        let own_ms =
            self.producers.iter().map(|producer| producer.lives_ms_max + producer.ahead_ms_max).max();
        let steps_ms = 10 * self.machine.clock_step_ms_max;
        queues
            + Duration::from_millis(own_ms.unwrap_or_default() + steps_ms)
            + draw::DELAY_MAX
            + Duration::from_secs(5)
    }

    pub(crate) fn target_name(&self, target: Target) -> &str {
        match target {
            Target::Queue(queue) => self.queues.get(queue).map_or("", |queue| &queue.name),
            Target::Topic(topic) => self.topics.get(topic).map_or("", |topic| &topic.name),
        }
    }

    pub(crate) fn target_settings(&self, target: Target) -> Option<&QueueSettings> {
        match target {
            Target::Queue(queue) => self.queues.get(queue).map(|queue| &queue.settings),
            Target::Topic(topic) => self.topics.get(topic).map(|topic| &topic.settings),
        }
    }

    /// Returns the number of sessions; 0 for a target without sessions.
    pub(crate) fn session_count(&self, target: Target) -> u32 {
        match target {
            Target::Queue(queue) => self.queues.get(queue).map_or(0, |queue| queue.session_count),
            Target::Topic(topic) => self.topics.get(topic).map_or(0, |topic| topic.session_count),
        }
    }

    /// Returns how many numbers a message to this target needs.
    pub(crate) fn numbers(&self, target: Target) -> u32 {
        match target {
            Target::Queue(_) => 1,
            Target::Topic(topic) => self.topics.get(topic).map_or(1, Topic::numbers),
        }
    }

    /// Returns the number of a message found in a queue: its own, or that of its copy if it was sent to a topic.
    pub(crate) fn number_of(
        &self,
        message: MessageNumber,
        topic: Option<usize>,
        rule: Option<&str>,
        queue: usize,
    ) -> Option<MessageNumber> {
        let Some(topic) = topic else { return Some(message) };
        let copies = self.topics.get(topic)?.copies();
        let is_it = |copy: &topic::Copy<'_>| copy.rule == rule && self.places(copy.queue).contains(&queue);
        Some(topic::copy_number(message, copies.iter().position(is_it)?))
    }

    /// Returns whether a rule that cannot be evaluated dead-letters every message here.
    pub(crate) fn fails_all(&self, queue: usize) -> bool {
        let mut subscriptions = self.topics.iter().flat_map(|topic| &topic.subscriptions);
        subscriptions.any(|subscription| subscription.queue == queue && subscription.fails())
    }

    /// Returns the queue itself, and all queues that its messages and dead letters may be forwarded to.
    pub fn places(&self, queue: usize) -> BTreeSet<usize> {
        places(&self.queues, queue)
    }

    /// Returns whether messages are forwarded at once, so that no client can receive here.
    pub fn forwards(&self, queue: usize, part: Part) -> bool {
        let settings = self.queues.get(queue).map(|queue| &queue.settings);
        settings.is_some_and(|settings| match part {
            Part::Main => settings.forward_to.is_some(),
            Part::DeadLetter => settings.forward_dead_letters_to.is_some(),
        })
    }
}

fn places(queues: &[Queue], queue: usize) -> BTreeSet<usize> {
    let mut places = BTreeSet::from([queue]);
    let mut open = vec![queue];
    while let Some(next) = open.pop() {
        let Some(settings) = queues.get(next).map(|queue| &queue.settings) else { continue };
        let onward = [&settings.forward_to, &settings.forward_dead_letters_to];
        for name in onward.into_iter().flatten() {
            let target = queues.iter().position(|queue| queue.name == name.as_str());
            open.extend(target.filter(|target| places.insert(*target)));
        }
    }
    places
}
