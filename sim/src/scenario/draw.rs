//! Draws a scenario from a seed, so that many seeds cover many combinations.

use std::time::Duration;

use fastrand::Rng;
use peeklock_journal_wal::WalConfig;
use peeklock_types::{EntityName, PoisonSession, QueueSettings, RetryPolicy};

use super::order::{Scope, order};
use super::topic::{COLORS, LEVELS, SUBJECTS};
use super::{
    Blobs, Consumer, Habits, Hub, MachineFaults, NetworkFaults, Producer, Programs, Queue, Rule, Scenario,
    Subscription, Target, Test, Topic, Weather, strain,
};

/// The longest pause of a crowd's producers, and the work time of its consumers.
const CROWD_PAUSE_MS_MAX: u64 = 500;
const CROWD_WORK_MS: u64 = 1_000;
/// The longest delay with which a consumer abandons a message.
pub(crate) const DELAY_MAX: Duration = Duration::from_secs(20);

pub(super) fn one_in(rng: &mut Rng, count: u32) -> bool {
    rng.u32(0..count) == 0
}

pub(super) fn pick<T: Copy>(rng: &mut Rng, from: &[T], otherwise: T) -> T {
    if from.is_empty() { otherwise } else { from.get(rng.usize(..from.len())).copied().unwrap_or(otherwise) }
}

impl Scenario {
    pub fn draw(seed: u64) -> Self {
        let rng = &mut Rng::with_seed(seed);
        let plain_count = rng.usize(1..=4);
        let mut queues: Vec<_> = (0..plain_count).map(|n| queue(rng, format!("queue-{n}"))).collect();
        for from in 0..plain_count.saturating_sub(1) {
            forward(rng, &mut queues, from);
        }
        let topic_count = pick(rng, &[0, 0, 1, 1, 1, 2], 1);
        let mut topics: Vec<_> = (0..topic_count).map(|n| topic(rng, n, &mut queues)).collect();
        // A random generator of its own keeps the rest of the scenario unchanged.
        let order_rng = &mut Rng::with_seed(seed ^ 0x0dde5);
        for queue in &mut queues {
            if order_rng.u32(0..5) < 3 {
                queue.settings.order = Some(Box::new(order(order_rng, Scope::of(queue))));
            }
        }
        let count = queues.len();
        let mut targets: Vec<_> = (0..plain_count).map(Target::Queue).collect();
        targets.extend((0..topic_count).map(Target::Topic));
        let some_target = |rng: &mut Rng| pick(rng, &targets, Target::Queue(0));
        let mut producers: Vec<_> = targets.iter().map(|target| producer(rng, *target)).collect();
        for _ in 0..rng.usize(0..3) {
            let target = some_target(rng);
            producers.push(producer(rng, target));
        }
        if one_in(rng, 8) {
            add_large(rng, &mut queues, &mut topics, &mut producers);
        }
        let has_no_sessions = |queue: usize| queues.get(queue).is_some_and(|queue| queue.session_count == 0);
        let forwards = |n: usize| queues.get(n).is_some_and(|queue| queue.settings.forward_to.is_some());
        let forwards_dead =
            |n: usize| queues.get(n).is_some_and(|queue| queue.settings.forward_dead_letters_to.is_some());
        let mut consumers = Vec::new();
        for _ in 0..rng.usize(1..=6) + topic_count {
            let queue = rng.usize(..count);
            let target = some_target(rng);
            let mut consumer = consumer(rng, queue, target);
            consumer.from_dead_letters |= forwards(queue);
            if consumer.from_dead_letters && forwards_dead(queue) {
                continue;
            }
            consumer.in_sessions = !has_no_sessions(queue) && !consumer.from_dead_letters;
            consumers.push(consumer);
        }
        let plain: Vec<_> = (0..count).filter(|q| has_no_sessions(*q) && !forwards(*q)).collect();
        let some_plain = |rng: &mut Rng, in_so_many| {
            let chosen = one_in(rng, in_so_many) && !plain.is_empty();
            chosen.then(|| pick(rng, &plain, 0))
        };
        let hub = Hub::draw(seed);
        let programs = Programs::draw(seed, count);
        let mut scenario = Scenario {
            deleters: some_plain(rng, 4).map(|queue| (queue, rng.u32(1..20))).into_iter().collect(),
            idlers: some_plain(rng, 4).into_iter().collect(),
            purged: some_plain(rng, 8).into_iter().collect(),
            peekers: rng.usize(0..2),
            reorders_every_ms: one_in(order_rng, 2)
                .then(|| pick(order_rng, &[2_000, 10_000, 30_000], 10_000)),
            weather: weather(rng),
            network: network(rng),
            machine: machine(rng),
            wal: wal(
                rng,
                &queues,
                &topics,
                &producers,
                beside(hub.as_ref(), programs.as_ref().map(|(p, _)| p)),
            ),
            hub,
            blobs: Blobs::draw(seed),
            programs: None,
            storm: Duration::from_secs(rng.u64(30..=150)),
            queues,
            topics,
            producers,
            consumers,
        };
        if one_in(order_rng, 3) {
            crowd(&mut scenario);
        }
        strain::add(seed, &mut scenario);
        strain::step_clock(seed, &mut scenario);
        strain::fail_reads(seed, &mut scenario);
        if let Some((programs, queues)) = programs {
            programs.join(queues, &mut scenario);
        }
        scenario
    }
}

/// Removes faults and sends more than consumers can handle: long waits are the best test of the order.
fn crowd(scenario: &mut Scenario) {
    scenario.network = NetworkFaults::default();
    let MachineFaults { disk_stall_ms_max, commit_ms_max, every_ms, .. } = scenario.machine;
    scenario.machine =
        MachineFaults { disk_stall_ms_max, commit_ms_max, every_ms, ..MachineFaults::default() };
    for producer in &mut scenario.producers {
        producer.pause_ms_max = producer.pause_ms_max.min(CROWD_PAUSE_MS_MAX);
    }
    for consumer in &mut scenario.consumers {
        consumer.work_ms_max = consumer.work_ms_max.max(CROWD_WORK_MS);
    }
}

/// Draws a topic with subscriptions, which are added to the queues.
fn topic(rng: &mut Rng, number: usize, queues: &mut Vec<Queue>) -> Topic {
    let name = format!("topic-{number}");
    let session_count = if one_in(rng, 3) { rng.u32(1..6) } else { 0 };
    let mut subscriptions = Vec::new();
    let first = queues.len();
    for n in 0..rng.usize(1..=4) {
        let mut queue = queue(rng, format!("{name}/Subscriptions/sub-{n}"));
        // Only a topic detects duplicates; and where there are sessions, some subscriptions have none.
        queue.settings.duplicate_window = None;
        queue.settings.requires_session = session_count > 0 && rng.bool();
        queue.session_count = if queue.settings.requires_session { session_count } else { 0 };
        let rules = rules(rng);
        subscriptions.push(Subscription { queue: queues.len(), rules });
        queues.push(queue);
    }
    for at in first..queues.len() {
        let fails = subscriptions.iter().any(|subscription| subscription.queue == at && subscription.fails());
        if !fails {
            forward_apart(rng, queues, at, first);
        }
    }
    let settings = QueueSettings {
        default_time_to_live: one_in(rng, 8).then(|| Duration::from_secs(rng.u64(2..40))),
        duplicate_window: one_in(rng, 5).then(|| Duration::from_secs(rng.u64(30..300))),
        ..QueueSettings::default()
    };
    Topic { name, settings, session_count, subscriptions }
}

/// Draws rules. Sometimes there are none, and then nothing matches.
fn rules(rng: &mut Rng) -> Vec<Rule> {
    if one_in(rng, 10) {
        return vec![Rule { name: "broken".to_owned(), test: Test::Failing, marks: false }];
    }
    let rule = |rng: &mut Rng, n| Rule { name: format!("rule-{n}"), test: test(rng), marks: one_in(rng, 4) };
    (0..pick(rng, &[1, 1, 1, 2, 3, 0], 1)).map(|n| rule(rng, n)).collect()
}

fn test(rng: &mut Rng) -> Test {
    let (color, subject, level) = (rng.u32(0..COLORS), rng.u32(0..SUBJECTS), rng.u32(0..LEVELS));
    let tests = [
        Test::All,
        Test::Nothing,
        Test::Color(color),
        Test::Subject(subject),
        Test::Both(color, subject),
        Test::Above(level),
        Test::Either(color, level),
    ];
    pick(rng, &tests, Test::All)
}

/// Forwards to a queue that no other subscription leads to: two copies of a message in one queue could not be
/// distinguished.
fn forward_apart(rng: &mut Rng, queues: &mut [Queue], from: usize, first: usize) {
    let reached = |queues: &[Queue], n: usize| super::places(queues, n);
    let others: Vec<_> =
        (first..queues.len()).filter(|n| *n != from).flat_map(|n| reached(queues, n)).collect();
    let is_apart = |n: &usize| {
        // No client sends to a subscription of another topic.
        let is_plain =
            queues.get(*n).is_some_and(|queue| queue.session_count == 0 && !queue.name.contains('/'));
        // Copies that several actions made of one message share its id: a queue with duplicate detection would drop all
        // but one.
        let drops = |n: usize| queues.get(n).is_none_or(|queue| queue.settings.duplicate_window.is_some());
        is_plain
            && !reached(queues, *n).into_iter().any(drops)
            && reached(queues, *n).iter().all(|place| !others.contains(place))
    };
    let targets: Vec<_> = (0..first).filter(is_apart).collect();
    let (forwards, forwards_dead) = (one_in(rng, 5), one_in(rng, 5));
    let target = pick(rng, &targets, first);
    let target =
        queues.get(target).filter(|_| !targets.is_empty()).and_then(|q| EntityName::parse(&q.name).ok());
    let Some(queue) = queues.get_mut(from) else { return };
    if forwards && queue.session_count == 0 {
        queue.settings.forward_to.clone_from(&target);
    }
    if forwards_dead {
        queue.settings.forward_dead_letters_to = target;
    }
}

fn queue(rng: &mut Rng, name: String) -> Queue {
    let mut settings = settings(rng);
    settings.requires_session = one_in(rng, 4);
    settings.poison_session = pick(
        rng,
        &[PoisonSession::DeadLetter, PoisonSession::Block, PoisonSession::SetAside],
        PoisonSession::Block,
    );
    let session_count = if settings.requires_session { rng.u32(1..6) } else { 0 };
    Queue { name, settings, session_count }
}

fn settings(rng: &mut Rng) -> QueueSettings {
    let seconds = Duration::from_secs;
    QueueSettings {
        lock_duration: seconds(pick(rng, &[2, 5, 15, 30], 60)),
        max_delivery_count: pick(rng, &[1, 2, 3, 5, 10], 10),
        default_time_to_live: one_in(rng, 6).then(|| seconds(rng.u64(2..40))),
        dead_letter_on_expiration: rng.bool(),
        duplicate_window: one_in(rng, 5).then(|| seconds(rng.u64(30..300))),
        retry: if one_in(rng, 3) { retry(rng) } else { RetryPolicy::Immediate },
        ..QueueSettings::default()
    }
}

fn retry(rng: &mut Rng) -> RetryPolicy {
    let (short, long) = (Duration::from_millis(rng.u64(1..3_000)), Duration::from_secs(rng.u64(3..20)));
    match rng.u32(0..3) {
        0 => RetryPolicy::Fixed { delay: short },
        1 => RetryPolicy::Linear { step: short, cap: long },
        _ => RetryPolicy::Exponential { base: short, cap: long, jitter: rng.bool() },
    }
}

/// Adds messages that do not fit one piece, to all queues: those of one queue may be forwarded to another.
fn add_large(rng: &mut Rng, queues: &mut [Queue], topics: &mut [Topic], producers: &mut [Producer]) {
    let topics = topics.iter_mut().map(|topic| &mut topic.settings);
    for settings in queues.iter_mut().map(|queue| &mut queue.settings).chain(topics) {
        settings.max_message_size_bytes = 8 << 20;
    }
    for producer in producers {
        producer.large_one_in = rng.u32(20..200);
        producer.large_bytes_max = rng.usize(300_000..4_000_000);
    }
}

/// Forwards only to later queues without sessions, so that there are no loops and no rejections.
fn forward(rng: &mut Rng, queues: &mut [Queue], from: usize) {
    let targets: Vec<_> = (from + 1..queues.len())
        .filter(|n| queues.get(*n).is_some_and(|queue| queue.session_count == 0))
        .collect();
    if targets.is_empty() {
        return;
    }
    let name_of = |queues: &[Queue], n: usize| queues.get(n).and_then(|q| EntityName::parse(&q.name).ok());
    let (on, dead) = (pick(rng, &targets, from), pick(rng, &targets, from));
    let (on, dead) = (name_of(queues, on), name_of(queues, dead));
    let (forwards, forwards_dead) = (one_in(rng, 4), one_in(rng, 5));
    let Some(queue) = queues.get_mut(from) else { return };
    if forwards && queue.session_count == 0 {
        queue.settings.forward_to = on;
    }
    if forwards_dead {
        queue.settings.forward_dead_letters_to = dead;
    }
}

fn producer(rng: &mut Rng, target: Target) -> Producer {
    let (batch_max, burst_max) = (pick(rng, &[1, 4, 20], 1), pick(rng, &[1, 1, 8], 1));
    let round_bytes_max = pick(rng, &[4 << 10, 16 << 10, 60 << 10], 4 << 10);
    Producer {
        target,
        pause_ms_max: pick(rng, &[300, 1500, 5000], 500),
        batch_max,
        burst_max,
        body_bytes_max: pick(rng, &[10, 200, 2000, 20_000], 100)
            .min(round_bytes_max / (batch_max * burst_max)),
        large_one_in: 0,
        large_bytes_max: 0,
        lives_ms_max: if one_in(rng, 4) { rng.u64(1..30_000) } else { 0 },
        ahead_ms_max: if one_in(rng, 3) { rng.u64(1..30_000) } else { 0 },
    }
}

fn consumer(rng: &mut Rng, queue: usize, target: Target) -> Consumer {
    let some = |rng: &mut Rng, weight| if rng.bool() { rng.u32(0..=weight) } else { 0 };
    let habits = Habits {
        complete: rng.u32(1..=20),
        abandon: some(rng, 6),
        delay: some(rng, 3),
        defer: some(rng, 3),
        dead_letter: some(rng, 3),
        release: some(rng, 4),
        renew: some(rng, 5),
        forget: some(rng, 3),
        late: some(rng, 3),
        twice: some(rng, 3),
        transact: some(rng, 5),
    };
    Consumer {
        queue,
        credit: pick(rng, &[1, 2, 10, 100], 10),
        habits,
        work_ms_max: pick(rng, &[10, 200, 3000], 100),
        from_dead_letters: one_in(rng, 6),
        in_sessions: false,
        fetches_deferred: rng.bool(),
        target,
    }
}

fn weather(rng: &mut Rng) -> Weather {
    let storm_one_in = pick(rng, &[0, 0, 50, 500], 0);
    Weather { delay_ms_max: pick(rng, &[1, 5, 50], 5), storm_one_in, storm_ms_max: rng.u64(100..=8000) }
}

fn network(rng: &mut Rng) -> NetworkFaults {
    let fails_within_ms = rng.bool().then(|| rng.u64(1_000..120_000));
    NetworkFaults { fails_within_ms, falls_silent: one_in(rng, 3) }
}

fn machine(rng: &mut Rng) -> MachineFaults {
    MachineFaults {
        kills: rng.bool(),
        power_cuts: rng.bool(),
        clean_stops: one_in(rng, 3),
        every_ms: pick(rng, &[1_000, 5_000, 20_000], 10_000),
        clock_step_ms_max: pick(rng, &[0, 0, 500, 20_000], 0),
        steps_in_runs: false,
        failing_reads_max: 0,
        disk_errors: one_in(rng, 3),
        disk_fills: one_in(rng, 4),
        disk_stall_ms_max: pick(rng, &[0, 0, 500, 10_000], 0),
        commit_ms_max: pick(rng, &[1, 3, 20, 100], 3),
        disk_work_ms_max: 0,
    }
}

/// Returns the bytes that may arrive from another queue at one time.
fn transfer_bytes(queues: &[Queue], producers: &[Producer]) -> u64 {
    const COUNT_MAX: usize = 256;
    const BYTES_MAX: usize = 1 << 20;
    let forwards = |queue: &Queue| {
        queue.settings.forward_to.is_some() || queue.settings.forward_dead_letters_to.is_some()
    };
    let body_bytes = producers.iter().map(|producer| producer.body_bytes_max).max().unwrap_or(0);
    let bytes = if queues.iter().any(forwards) { COUNT_MAX * (body_bytes + 400) } else { COUNT_MAX * 400 };
    bytes.min(BYTES_MAX) as u64
}

/// Returns the bytes that may arrive at one time from the clients beside the producers.
fn beside(hub: Option<&Hub>, programs: Option<&Programs>) -> usize {
    hub.map_or(0, Hub::round_bytes) + programs.map_or(0, Programs::round_bytes)
}

/// Draws the smallest segments, so that a short run rolls, recycles, snapshots and evacuates. A commit group must fit
/// into one, and a round of a shard may contain everything that all producers can send at one time.
fn wal(
    rng: &mut Rng,
    queues: &[Queue],
    topics: &[Topic],
    producers: &[Producer],
    beside_bytes: usize,
) -> WalConfig {
    const FACTS_BYTES: u64 = 128 << 10;
    const ENVELOPE_BYTES: usize = 200;
    let copy_count_max = topics.iter().map(|topic| topic.copies().len()).max().unwrap_or(0).max(1);
    let round_bytes = producers
        .iter()
        .map(|p| p.batch_max * p.burst_max * (p.body_bytes_max + ENVELOPE_BYTES * copy_count_max))
        .sum::<usize>()
        + beside_bytes;
    let is_large = producers.iter().any(|producer| producer.large_one_in > 0);
    // A shard ends a commit group at one mebibyte, and the last body may be as large as a body that is loaded whole.
    let large_bytes = if is_large { 7 << 19 } else { 0 };
    let segment_bytes = round_bytes as u64
        + FACTS_BYTES
        + large_bytes
        + transfer_bytes(queues, producers)
        + pick(rng, &[0, 128 << 10], 0);
    WalConfig {
        segment_bytes,
        first_segment_bytes: 32 << 10,
        ring_bytes: segment_bytes * rng.u64(3..8),
        ring_bytes_max: segment_bytes * 64,
        hot_cache_bytes: pick(rng, &[4 << 10, 64 << 10, 1 << 20], 64 << 10),
        backlog_bytes_max: 1 << 20,
        commit_bytes_max: 64 << 10,
        snapshot_after_bytes: pick(rng, &[32 << 10, 128 << 10, 1 << 20], 128 << 10),
        cold_segment_bytes: pick(rng, &[8 << 10, 64 << 10], 8 << 10),
        stream_segment_bytes: 16 << 10,
        free_bytes_soft: 4 * segment_bytes,
        free_bytes_hard: 2 * segment_bytes,
        reserve_bytes: segment_bytes,
        ..WalConfig::default()
    }
}
