//! Programs with the Rust SDK, on queues that no other client uses.

use std::time::Duration;

use fastrand::Rng;
use peeklock_types::QueueSettings;

use super::draw::{one_in, pick};
use super::{Queue, Scenario};

/// Longer than a run, so that a send that the SDK repeats is stored once.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(86_400);
/// More than the attempts of any retry policy here, because a killed program costs a delivery as well.
const DELIVERY_COUNT_MAX: u32 = 20;
pub(crate) const BATCH_MAX: usize = 6;
pub(crate) const BODY_BYTES_MAX: usize = 200;
const ENVELOPE_BYTES: usize = 200;

#[derive(Clone, Debug)]
pub struct Programs {
    /// Their queues, which are the last ones of the scenario.
    pub queues: Vec<usize>,
    pub senders: Vec<Sender>,
    pub processors: Vec<Processor>,
    /// The largest number of bytes after which a connection is cut; `None` if only the faults of the network cut connections.
    pub cut_within_bytes: Option<usize>,
    /// A mistake of every program, which the oracle must find.
    pub flaw: Option<Flaw>,
}

/// A mistake that shows that the checkers find one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Senders count a send without a confirmation as confirmed.
    CountsUnconfirmed,
    /// Handlers complete their message before they have worked on it.
    SettlesEarly,
    /// Processors are paused at the end of the storm, as if a lost connection had stopped them.
    Stalls,
    /// Programs do not wait until their processors have stopped.
    LeavesLocks,
}

impl Flaw {
    pub const ALL: [(&'static str, Flaw); 4] = [
        ("counts-unconfirmed", Flaw::CountsUnconfirmed),
        ("settles-early", Flaw::SettlesEarly),
        ("stalls", Flaw::Stalls),
        ("leaves-locks", Flaw::LeavesLocks),
    ];
}

#[derive(Clone, Debug)]
pub struct Sender {
    pub queue: usize,
    pub pause_ms_max: u64,
    /// The number of attempts of a send; `None` for the SDK's default.
    pub attempts_max: Option<u32>,
}

#[derive(Clone, Debug)]
pub struct Processor {
    pub queue: usize,
    pub max_concurrent: u32,
    pub prefetch: u32,
    /// The number of retries on the same lock.
    pub immediate_max: u32,
    /// The number of delayed retries.
    pub delayed_count: u32,
    pub delay_ms: u64,
    pub work_ms_max: u64,
    /// One call in this many fails; 0 for none.
    pub fails_one_in: u32,
    /// One call in this many ends only when the processor asks for it; 0 for none.
    pub hangs_one_in: u32,
    /// How it holds sessions, on a queue with sessions; `max_concurrent` is then the number of sessions.
    pub sessions: Option<Holding>,
}

/// When a session processor lets a session go.
#[derive(Clone, Copy, Debug)]
pub struct Holding {
    pub idle_ms: u64,
    pub count_max: u64,
    pub time_ms_max: u64,
}

impl Programs {
    /// Draws programs and their queues, the first of which gets the index `first_queue`. A random generator of its own keeps the rest of the
    /// scenario unchanged.
    pub(super) fn draw(seed: u64, first_queue: usize) -> Option<(Programs, Vec<Queue>)> {
        let rng = &mut Rng::with_seed(seed ^ CHANCE);
        if !one_in(rng, 3) {
            return None;
        }
        let count = rng.usize(1..=2);
        let drawn: Vec<_> = (0..count).map(|n| queue(rng, n)).collect();
        let queues: Vec<_> = (first_queue..first_queue + count).collect();
        // Each queue has a sender and a processor; further ones compete.
        let mut senders: Vec<_> = queues.iter().map(|queue| sender(rng, *queue)).collect();
        let has_sessions =
            |queue: usize| drawn.get(queue - first_queue).is_some_and(|queue| queue.session_count > 0);
        let processor = |rng: &mut Rng, queue| processor(rng, queue, has_sessions(queue));
        let mut processors: Vec<_> = queues.iter().map(|queue| processor(rng, *queue)).collect();
        for _ in 0..rng.usize(0..=2) {
            let queue = pick(rng, &queues, first_queue);
            processors.push(processor(rng, queue));
        }
        if rng.bool() {
            let queue = pick(rng, &queues, first_queue);
            senders.push(sender(rng, queue));
        }
        let cut_within_bytes = rng.bool().then(|| pick(rng, &[3_000, 10_000, 50_000], 10_000));
        Some((Programs { queues, senders, processors, cut_within_bytes, flaw: None }, drawn))
    }

    /// Adds the programs to a scenario.
    pub(super) fn join(self, queues: Vec<Queue>, scenario: &mut Scenario) {
        scenario.queues.extend(queues);
        // The SDK knows the end of a lock by the broker's clock, and relies on it.
        scenario.machine.clock_step_ms_max = 0;
        scenario.programs = Some(self);
    }

    /// Returns the bytes that the programs can send at one time.
    pub(super) fn round_bytes(&self) -> usize {
        self.senders.len() * BATCH_MAX * (BODY_BYTES_MAX + ENVELOPE_BYTES)
    }
}

impl Scenario {
    /// Returns whether only programs with the SDK use this queue.
    pub(crate) fn is_of_programs(&self, queue: usize) -> bool {
        self.programs.as_ref().is_some_and(|programs| programs.queues.contains(&queue))
    }
}

fn queue(rng: &mut Rng, number: usize) -> Queue {
    let session_count = if one_in(rng, 3) { rng.u32(1..=6) } else { 0 };
    let settings = QueueSettings {
        requires_session: session_count > 0,
        lock_duration: Duration::from_secs(pick(rng, &[5, 15, 30], 15)),
        max_delivery_count: DELIVERY_COUNT_MAX,
        duplicate_window: Some(DUPLICATE_WINDOW),
        ..QueueSettings::default()
    };
    Queue { name: format!("program-{number}"), settings, session_count }
}

fn sender(rng: &mut Rng, queue: usize) -> Sender {
    let pause_ms_max = pick(rng, &[200, 1_000, 3_000], 1_000);
    let attempts_max = pick(rng, &[None, Some(1), Some(3)], None);
    Sender { queue, pause_ms_max, attempts_max }
}

fn processor(rng: &mut Rng, queue: usize, has_sessions: bool) -> Processor {
    Processor {
        queue,
        max_concurrent: pick(rng, &[1, 3, 10], 3),
        prefetch: pick(rng, &[0, 0, 5, 20], 0),
        immediate_max: rng.u32(0..=2),
        delayed_count: rng.u32(1..=4),
        delay_ms: pick(rng, &[100, 1_000, 5_000], 1_000),
        work_ms_max: pick(rng, &[10, 200, 2_000], 200),
        fails_one_in: pick(rng, &[0, 5, 20], 20),
        hangs_one_in: pick(rng, &[0, 0, 30], 0),
        sessions: has_sessions.then(|| Holding {
            idle_ms: pick(rng, &[100, 2_000], 2_000),
            count_max: pick(rng, &[1, 5, 1_000], 1_000),
            time_ms_max: pick(rng, &[1_000, 60_000], 60_000),
        }),
    }
}

const CHANCE: u64 = 0x5dc;
