//! What one run is made of. Everything is drawn from the seed, so that many seeds cover many combinations.

use std::time::Duration;

use fastrand::Rng;
use peeklock_journal_wal::WalConfig;
use peeklock_types::QueueSettings;

/// How long bytes take.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    pub delay_ms_max: u64,
    /// One write in so many is delayed for long; 0: none is.
    pub storm_one_in: u32,
    pub storm_ms_max: u64,
}

impl Weather {
    pub const CALM: Weather = Weather { delay_ms_max: 2, storm_one_in: 0, storm_ms_max: 0 };
}

/// What happens to connections.
#[derive(Clone, Copy, Debug, Default)]
pub struct NetworkFaults {
    /// Every connection fails at some time up to this after it was made.
    pub fails_within_ms: Option<u64>,
    /// Some do so without a word.
    pub falls_silent: bool,
}

/// What happens to the broker's machine. `None` or 0: it does not.
#[derive(Clone, Copy, Debug, Default)]
pub struct MachineFaults {
    pub kills: bool,
    pub power_cuts: bool,
    pub clean_stops: bool,
    /// On average, time between two of the above.
    pub every_ms: u64,
    /// Steps between the wall clocks of two runs.
    pub clock_step_ms_max: u64,
    /// A step of the disk fails, or the power goes with it.
    pub disk_errors: bool,
    pub disk_fills: bool,
    pub disk_stall_ms_max: u64,
    pub commit_ms_max: u64,
}

/// How a consumer deals with a delivery, as weights.
#[derive(Clone, Copy, Debug, Default)]
pub struct Habits {
    pub complete: u32,
    pub abandon: u32,
    pub defer: u32,
    pub dead_letter: u32,
    pub release: u32,
    pub renew: u32,
    /// Holds it until the lock is over, and says nothing.
    pub forget: u32,
    /// Settles at about the time at which the lock ends.
    pub late: u32,
    pub twice: u32,
}

#[derive(Clone, Debug)]
pub struct Consumer {
    pub queue: usize,
    pub credit: u32,
    pub habits: Habits,
    pub work_ms_max: u64,
    pub from_dead_letters: bool,
    pub fetches_deferred: bool,
}

#[derive(Clone, Debug)]
pub struct Producer {
    pub queue: usize,
    pub pause_ms_max: u64,
    pub batch_max: usize,
    pub burst_max: usize,
    pub body_bytes_max: usize,
}

#[derive(Clone, Debug)]
pub struct Queue {
    pub name: String,
    pub settings: QueueSettings,
}

#[derive(Clone, Debug)]
pub struct Scenario {
    pub queues: Vec<Queue>,
    pub producers: Vec<Producer>,
    pub consumers: Vec<Consumer>,
    /// Queues with a receiver that deletes what it receives, and its credit.
    pub deleters: Vec<(usize, u32)>,
    /// Queues with a receiver that never gives credit.
    pub idlers: Vec<usize>,
    pub peekers: usize,
    pub weather: Weather,
    pub network: NetworkFaults,
    pub machine: MachineFaults,
    pub wal: WalConfig,
    pub storm: Duration,
}

fn one_in(rng: &mut Rng, count: u32) -> bool {
    rng.u32(0..count) == 0
}

fn pick<T: Copy>(rng: &mut Rng, from: &[T], otherwise: T) -> T {
    if from.is_empty() { otherwise } else { from.get(rng.usize(..from.len())).copied().unwrap_or(otherwise) }
}

impl Scenario {
    pub fn draw(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let rng = &mut rng;
        let queues: Vec<_> = (0..rng.usize(1..=4)).map(|n| queue(rng, n)).collect();
        let count = queues.len();
        let mut producers: Vec<_> = (0..count).map(|queue| producer(rng, queue)).collect();
        producers.extend(
            (0..rng.usize(0..3))
                .map(|_| rng.usize(..count))
                .collect::<Vec<_>>()
                .into_iter()
                .map(|queue| producer(rng, queue)),
        );
        let mut consumers = Vec::new();
        for _ in 0..rng.usize(1..=6) {
            let queue = rng.usize(..count);
            consumers.push(consumer(rng, queue));
        }
        let any_queue = |rng: &mut Rng| rng.usize(..count);
        Scenario {
            deleters: if one_in(rng, 4) { vec![(any_queue(rng), rng.u32(1..20))] } else { Vec::new() },
            idlers: if one_in(rng, 4) { vec![any_queue(rng)] } else { Vec::new() },
            peekers: rng.usize(0..2),
            weather: weather(rng),
            network: network(rng),
            machine: machine(rng),
            wal: wal(rng, &producers),
            storm: Duration::from_secs(rng.u64(30..=150)),
            queues,
            producers,
            consumers,
        }
    }

    /// After this time every lock of the storm is over.
    pub fn rest(&self) -> Duration {
        let longest = self.queues.iter().map(|queue| queue.settings.lock_duration).max();
        // Each restart may have set the clock back while a lock was held.
        longest.unwrap_or_default()
            + Duration::from_millis(10 * self.machine.clock_step_ms_max)
            + Duration::from_secs(5)
    }
}

fn queue(rng: &mut Rng, number: usize) -> Queue {
    let mut queue = Queue { name: format!("queue-{number}"), settings: QueueSettings::default() };
    queue.settings.lock_duration = Duration::from_secs(pick(rng, &[2, 5, 15, 30], 60));
    queue.settings.max_delivery_count = pick(rng, &[1, 2, 3, 5, 10], 10);
    queue
}

fn producer(rng: &mut Rng, queue: usize) -> Producer {
    let (batch_max, burst_max) = (pick(rng, &[1, 4, 20], 1), pick(rng, &[1, 1, 8], 1));
    let round_bytes_max = pick(rng, &[4 << 10, 16 << 10, 60 << 10], 4 << 10);
    Producer {
        queue,
        pause_ms_max: pick(rng, &[300, 1500, 5000], 500),
        batch_max,
        burst_max,
        body_bytes_max: pick(rng, &[10, 200, 2000, 20_000], 100)
            .min(round_bytes_max / (batch_max * burst_max)),
    }
}

fn consumer(rng: &mut Rng, queue: usize) -> Consumer {
    let some = |rng: &mut Rng, weight| if rng.bool() { rng.u32(0..=weight) } else { 0 };
    let habits = Habits {
        complete: rng.u32(1..=20),
        abandon: some(rng, 6),
        defer: some(rng, 3),
        dead_letter: some(rng, 3),
        release: some(rng, 4),
        renew: some(rng, 5),
        forget: some(rng, 3),
        late: some(rng, 3),
        twice: some(rng, 3),
    };
    Consumer {
        queue,
        credit: pick(rng, &[1, 2, 10, 100], 10),
        habits,
        work_ms_max: pick(rng, &[10, 200, 3000], 100),
        from_dead_letters: one_in(rng, 6),
        fetches_deferred: rng.bool(),
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
        every_ms: pick(rng, &[3_000, 15_000, 60_000], 30_000),
        clock_step_ms_max: pick(rng, &[0, 0, 500, 20_000], 0),
        disk_errors: one_in(rng, 3),
        disk_fills: one_in(rng, 4),
        disk_stall_ms_max: pick(rng, &[0, 0, 500, 10_000], 0),
        commit_ms_max: pick(rng, &[1, 3, 20, 100], 3),
    }
}

/// Segments as small as can be, so that a short run rolls, recycles, snapshots and evacuates. A group must fit into one, and a round of a
/// shard may find everything that all producers can send at one time.
fn wal(rng: &mut Rng, producers: &[Producer]) -> WalConfig {
    const FACTS_BYTES: u64 = 128 << 10;
    const ENVELOPE_BYTES: usize = 200;
    let round_bytes = producers
        .iter()
        .map(|p| p.batch_max * p.burst_max * (p.body_bytes_max + ENVELOPE_BYTES))
        .sum::<usize>();
    let segment_bytes = round_bytes as u64 + FACTS_BYTES + pick(rng, &[0, 128 << 10], 0);
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
        free_bytes_soft: 4 * segment_bytes,
        free_bytes_hard: 2 * segment_bytes,
        reserve_bytes: segment_bytes,
        ..WalConfig::default()
    }
}
