//! The hub of a run: its publishers, its readers, and the instances that share its partitions.

use std::time::Duration;

use fastrand::Rng;
use peeklock_types::{ExpiredPosition, HubSettings};

use super::draw::{one_in, pick};

/// The index of a consumer group of the hub in [`GROUPS`].
pub(crate) type GroupIndex = usize;

/// The consumer groups. Readers use the first, processors share the second, and the third exists only sometimes.
pub(crate) const GROUPS: [&str; 3] = ["$Default", "Workers", "passing"];
pub(crate) const PLAIN: GroupIndex = 0;
pub(crate) const WORKERS: GroupIndex = 1;
pub(crate) const PASSING: GroupIndex = 2;

/// The number of readers of one partition in a crowd: three more than the limit.
const CROWD: usize = 8;

#[derive(Clone, Debug)]
pub struct Hub {
    pub name: String,
    pub settings: HubSettings,
    pub publishers: Vec<Publisher>,
    pub readers: Vec<HubReader>,
    pub processors: Option<Processors>,
    /// The number of partitions up to which the hub grows.
    pub partition_count_max: u32,
    /// Whether the third consumer group is created and deleted during the run.
    pub has_passing_group: bool,
    /// The longest delay of an answer.
    pub call_ms_max: u64,
    /// One connection in this many is lost at some time; 0 if connections end only with the broker.
    pub lost_one_in: u32,
}

#[derive(Clone, Debug)]
pub struct Publisher {
    /// The partition of all sends; `None` for any partition.
    pub partition: Option<u32>,
    /// Whether it sends by key, which decides the partition.
    pub is_keyed: bool,
    pub is_numbered: bool,
    /// Whether it uses AMQP; otherwise there is no network between it and the broker.
    pub is_wired: bool,
    pub pause_ms_max: u64,
    pub batch_max: usize,
    pub body_bytes_max: usize,
}

#[derive(Clone, Debug)]
pub struct HubReader {
    pub group: GroupIndex,
    /// The partition of all reads; `None` for any partition.
    pub partition: Option<u32>,
    pub level: Option<i64>,
    pub is_wired: bool,
    pub credit: u32,
    pub window_bytes: i64,
    /// The longest work time for the events of one receive.
    pub work_ms_max: u64,
}

/// Instances that share the partitions through the broker.
#[derive(Clone, Debug)]
pub struct Processors {
    pub count: usize,
    pub interval: Duration,
    pub expiry: Duration,
    /// The number of events between checkpoints.
    pub checkpoint_every: u64,
    /// The average time between two changes of the instances.
    pub changes_every_ms: u64,
    /// One call in this many fails; 0 for none.
    pub fails_one_in: u32,
    /// Whether requests go over AMQP during the storm.
    pub is_wired: bool,
}

impl Hub {
    /// Draws the hub, with a random generator of its own, so that the rest of the scenario is unchanged.
    pub(super) fn draw(seed: u64) -> Option<Hub> {
        let rng = &mut Rng::with_seed(seed ^ 0x4b5e5);
        rng.bool().then(|| {
            let settings = settings(rng);
            let count = settings.partition_count;
            Hub {
                name: "Readings".to_owned(),
                publishers: (0..rng.usize(1..=4)).map(|_| publisher(rng, count)).collect(),
                readers: if seed % 7 == 6 { queue_up(readers(rng, count)) } else { readers(rng, count) },
                processors: (rng.u32(0..3) > 0).then(|| processors(rng)),
                partition_count_max: count + pick(rng, &[0, 0, 1, 3], 0),
                has_passing_group: one_in(rng, 3),
                call_ms_max: pick(rng, &[2, 20, 400], 2),
                lost_one_in: pick(rng, &[0, 2, 4], 4),
                settings,
            }
        })
    }

    /// Returns the bytes that publishers can send at one time.
    pub(super) fn round_bytes(&self) -> usize {
        const ENVELOPE_BYTES: usize = 300;
        let one = |publisher: &Publisher| publisher.batch_max * (publisher.body_bytes_max + ENVELOPE_BYTES);
        // A publisher that has lost its connection may return while its earlier send still waits.
        2 * self.publishers.iter().map(one).sum::<usize>()
    }
}

fn settings(rng: &mut Rng) -> HubSettings {
    HubSettings {
        partition_count: pick(rng, &[1, 2, 4, 7], 2),
        retention: if one_in(rng, 3) { Some(Duration::from_secs(rng.u64(5..90))) } else { None },
        retention_bytes: one_in(rng, 4).then_some(1 << 20),
        expired_position: if one_in(rng, 3) { ExpiredPosition::Earliest } else { ExpiredPosition::Refuse },
        ..HubSettings::default()
    }
}

fn publisher(rng: &mut Rng, partition_count: u32) -> Publisher {
    let batch_max = pick(rng, &[1, 5, 40], 5);
    let round_bytes_max = pick(rng, &[4 << 10, 32 << 10, 64 << 10], 4 << 10);
    let is_numbered = one_in(rng, 2);
    Publisher {
        partition: one_in(rng, 2).then(|| rng.u32(0..partition_count)),
        is_keyed: one_in(rng, 3),
        is_numbered,
        is_wired: !is_numbered,
        pause_ms_max: pick(rng, &[100, 500, 3000], 500),
        batch_max,
        body_bytes_max: pick(rng, &[10, 400, 4000, 30_000], 100).min(round_bytes_max / batch_max),
    }
}

/// Draws readers that use different partitions, or compete for one.
fn readers(rng: &mut Rng, partition_count: u32) -> Vec<HubReader> {
    let rivalry = rng.bool();
    let reader = |rng: &mut Rng, number: usize| HubReader {
        group: if number > 0 && one_in(rng, 4) { PASSING } else { PLAIN },
        partition: if rivalry { Some(0) } else { one_in(rng, 2).then(|| rng.u32(0..partition_count)) },
        level: one_in(rng, 3).then(|| rng.i64(0..3)),
        is_wired: rng.bool(),
        credit: pick(rng, &[1, 7, 50, 300], 50),
        window_bytes: pick(rng, &[1, 10_000, 1 << 20], 10_000),
        work_ms_max: pick(rng, &[0, 50, 1000, 8000], 50),
    };
    (0..rng.usize(1..=8)).map(|number| reader(rng, number)).collect()
}

/// Moves all readers to the same partition, without an owner level, and makes them more than the limit.
fn queue_up(mut readers: Vec<HubReader>) -> Vec<HubReader> {
    for reader in &mut readers {
        (reader.group, reader.partition, reader.level) = (PLAIN, Some(0), None);
    }
    let first = readers.first().cloned();
    readers.resize_with(CROWD, || first.clone().expect("there is at least one reader"));
    readers
}

fn processors(rng: &mut Rng) -> Processors {
    let interval = Duration::from_millis(rng.u64(800..3000));
    Processors {
        count: rng.usize(1..=4),
        interval,
        expiry: interval * rng.u32(4..8),
        checkpoint_every: pick(rng, &[1, 10, 100], 10),
        changes_every_ms: pick(rng, &[3_000, 15_000], 10_000),
        fails_one_in: pick(rng, &[0, 10, 4], 10),
        is_wired: false,
    }
}
