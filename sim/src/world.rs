//! One run, from its seed to its verdict.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use peeklock_journal_wal::sim::Fault;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::audit;
use crate::client::{self, Party, World, program};
use crate::hub_audit;
use crate::log::{Event, Log, LogLine};
use crate::machine::{Blow, Machine, Office};
use crate::network::Network;
use crate::oracle::{self, Violation};
use crate::program_audit;
use crate::scenario::{Flaw, MachineFaults, NetworkFaults, Scenario, Weather};

/// The time limit for the setup, and again for draining at the end.
const QUIET_TIME_MAX: Duration = Duration::from_secs(4 * 3600);

/// The attempts to read a blob.
const LOOKS_MAX: u32 = 200;

/// The result of a run.
pub struct Report {
    pub seed: u64,
    pub entries: Vec<LogLine>,
    pub violations: Vec<Violation>,
    /// The virtual time from the first to the last moment.
    pub lasted: Duration,
}

impl Report {
    /// Returns the log, one line per entry.
    pub fn log_text(&self) -> String {
        self.entries.iter().map(|entry| format!("{entry}\n")).collect()
    }
}

/// Runs a seed. The same seed gives the same report.
pub fn run(seed: u64) -> Report {
    run_scenario(seed, Scenario::draw(seed))
}

/// Runs a seed whose programs make a mistake. Returns `None` if its world has no programs with the SDK.
pub fn run_with_flaw(seed: u64, flaw: Flaw) -> Option<Report> {
    let mut scenario = Scenario::draw(seed);
    scenario.programs.as_mut()?.flaw = Some(flaw);
    Some(run_scenario(seed, scenario))
}

fn run_scenario(seed: u64, scenario: Scenario) -> Report {
    // The broker, the gateway and the SDK take their random numbers from generators of the thread.
    fastrand::seed(seed);
    peeklock_broker::random::repeat(seed);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime without I/O needs nothing from the system");
    let (entries, lasted) = runtime.block_on(live(seed, scenario.clone()));
    let violations = oracle::judge(&scenario, &entries);
    Report { seed, entries, violations, lasted }
}

async fn live(seed: u64, scenario: Scenario) -> (Vec<LogLine>, Duration) {
    let mut rng = Rng::with_seed(seed ^ 0x5eed);
    let start = tokio::time::Instant::now();
    let log = Log::start();
    let network = Network::new(log.clone(), NetworkFaults::default(), Weather::CALM, rng.fork());
    let (blows, struck) = mpsc::unbounded_channel();
    let office = Office::default();
    let machine = Machine::new(log.clone(), network.clone(), office.clone(), &scenario, rng.fork());
    let machine = tokio::spawn(machine.live(struck));
    let (over, is_over) = watch::channel(false);
    let world = Arc::new(World::new(log.clone(), network.clone(), office, scenario.clone(), is_over));
    let auditor = Party::new(&world, "auditor", rng.fork());
    if set_up(auditor).await {
        network.set_faults(scenario.network, scenario.weather);
        // A random generator of their own keeps the rest of the run unchanged.
        let programs_rng = &mut Rng::with_seed(seed ^ 0x59806);
        let programs = scenario.programs.as_ref();
        let staff = programs.map(|programs| program::hire(&world, programs, programs_rng));
        storm(&world, &blows, &mut rng).await;
        let _ = over.send(true);
        calm(&blows, &mut rng).await;
        if let Some(staff) = staff {
            let auditor = Party::new(&world, "auditor", programs_rng.fork());
            if tokio::time::timeout(QUIET_TIME_MAX, program_audit::settle(auditor, staff)).await.is_err() {
                trouble(&log, "the programs did not come to their end in time");
            }
        }
        if scenario.hub.is_some() {
            let auditor = Party::new(&world, "auditor", rng.fork());
            if tokio::time::timeout(QUIET_TIME_MAX, hub_audit::settle(auditor)).await.is_err() {
                trouble(&log, "the hub could not be read in time");
            }
        }
        look_at_blobs(Party::new(&world, "auditor", rng.clone())).await;
        let auditor = Party::new(&world, "auditor", rng.fork());
        if tokio::time::timeout(QUIET_TIME_MAX, audit::take_out(auditor)).await.is_err() {
            trouble(&log, "the queues could not be emptied in time");
        }
    }
    drop(blows);
    if tokio::time::timeout(QUIET_TIME_MAX, machine).await.is_err() {
        trouble(&log, "the broker did not end");
    }
    (log.take(), start.elapsed())
}

/// Reads the blobs at the end, which must have their last confirmed values.
async fn look_at_blobs(mut auditor: Party) {
    let count = auditor.world.scenario.blobs.as_ref().map_or(0, |blobs| blobs.count);
    for blob in 0..count {
        let mut tries = 0..LOOKS_MAX;
        while client::blobs::look(&mut auditor, blob).await.is_none() {
            if tries.next().is_none() {
                return trouble(&auditor.world.log, "a blob could not be looked at");
            }
            auditor.pause().await;
        }
    }
}

fn trouble(log: &Log, what: &str) {
    log.add(&"world".into(), Event::Trouble { what: what.to_owned() });
}

async fn set_up(auditor: Party) -> bool {
    let created = tokio::time::timeout(QUIET_TIME_MAX, audit::create_entities(&auditor)).await;
    let done = created.unwrap_or(false);
    if !done {
        auditor.log(Event::Trouble { what: "the entities could not be created".to_owned() });
    }
    done
}

/// Runs all clients at once, for the scenario's duration; then all of them are gone at the same moment.
async fn storm(world: &Arc<World>, blows: &mpsc::UnboundedSender<Blow>, rng: &mut Rng) {
    let scenario = &world.scenario;
    let mut parties = JoinSet::new();
    let mut party = |name: String| Party::new(world, name, rng.fork());
    for (n, spec) in scenario.producers.iter().enumerate() {
        parties.spawn(client::produce(party(format!("producer-{n}")), spec.clone()));
    }
    for (n, spec) in scenario.consumers.iter().enumerate() {
        let party = party(format!("consumer-{n}"));
        if spec.in_sessions {
            parties.spawn(client::consume_sessions(party, spec.clone()));
        } else {
            parties.spawn(client::consume(party, spec.clone()));
        }
    }
    for (n, (queue, credit)) in scenario.deleters.iter().enumerate() {
        parties.spawn(client::delete(party(format!("deleter-{n}")), *queue, *credit));
    }
    for (n, queue) in scenario.idlers.iter().enumerate() {
        parties.spawn(client::idle(party(format!("idler-{n}")), *queue));
    }
    for queue in &scenario.purged {
        parties.spawn(client::purge(party(format!("purger-{queue}")), *queue));
    }
    for n in 0..scenario.peekers {
        parties.spawn(client::peek(party(format!("peeker-{n}"))));
    }
    if let Some(every_ms) = scenario.reorders_every_ms {
        parties.spawn(client::reorder(party("orderer".to_owned()), every_ms));
    }
    if let Some(hub) = &scenario.hub {
        for (n, spec) in hub.publishers.iter().enumerate() {
            let id = i64::try_from(n).unwrap_or(0);
            let party = party(format!("publisher-{n}"));
            if spec.is_wired && spec.is_numbered {
                parties.spawn(client::hub::numbered::publish(party, spec.clone(), id));
            } else if spec.is_wired {
                parties.spawn(client::hub::wire::publish(party, spec.clone()));
            } else {
                parties.spawn(client::hub::publish(party, spec.clone(), id));
            }
        }
        for (n, spec) in hub.readers.iter().enumerate() {
            let party = party(format!("reader-{n}"));
            if spec.is_wired {
                parties.spawn(client::hub::wire::read(party, spec.clone()));
            } else {
                parties.spawn(client::hub::read(party, spec.clone()));
            }
        }
        if let Some(spec) = &hub.processors {
            parties.spawn(client::hub::employ(party("manager".to_owned()), spec.clone()));
        }
        if hub.has_passing_group {
            parties.spawn(client::hub::regroup(party("regrouper".to_owned())));
        }
        parties.spawn(client::hub::grow(party("grower".to_owned())));
        parties.spawn(client::hub::look_on(party("onlooker".to_owned())));
    }
    if let Some(blobs) = &scenario.blobs {
        // A random generator of their own keeps the rest of the run unchanged.
        let rng = &mut Rng::with_seed(u64::from(blobs.count) ^ rng.clone().u64(..));
        for n in 0..blobs.claimant_count {
            let party = Party::new(world, format!("claimant-{n}"), rng.fork());
            parties.spawn(client::blobs::claim(party, n as u64));
        }
    }
    parties.spawn(strike(blows.clone(), scenario.machine, rng.fork()));
    if scenario.machine.failing_reads_max > 0 {
        let rng = Rng::with_seed(rng.clone().u64(..) ^ 0xeead5);
        parties.spawn(fail_reads(blows.clone(), scenario.machine, rng));
    }
    if scenario.machine.steps_in_runs {
        // A random generator of its own, as above.
        let rng = Rng::with_seed(rng.clone().u64(..) ^ 0xc10c);
        parties.spawn(step_clock(blows.clone(), scenario.machine, rng));
    }
    tokio::time::sleep(scenario.storm).await;
    parties.shutdown().await;
}

/// Injects the scenario's machine faults at random times.
async fn strike(blows: mpsc::UnboundedSender<Blow>, faults: MachineFaults, mut rng: Rng) {
    loop {
        tokio::time::sleep(Duration::from_millis(rng.u64(1..=faults.every_ms * 2))).await;
        if let Some(blow) = choose(&faults, &mut rng) {
            let _ = blows.send(blow);
        }
    }
}

/// Lets reads of the disk fail, at random times.
async fn fail_reads(blows: mpsc::UnboundedSender<Blow>, faults: MachineFaults, mut rng: Rng) {
    loop {
        tokio::time::sleep(Duration::from_millis(rng.u64(1..=faults.every_ms))).await;
        let _ = blows.send(Blow::FailReads(rng.u64(1..=faults.failing_reads_max)));
    }
}

/// The steps of the clock during a run are multiples of this, because the broker ignores very small ones.
const CLOCK_STEP_MS: i64 = 500;
/// The shortest time between two steps. An idle broker reads the clock every two seconds, and a step that is undone before
/// may go unnoticed.
const CLOCK_STEP_EVERY_MS: u64 = 5_000;

/// Sets the clock of the machine forward and back, at random times.
async fn step_clock(blows: mpsc::UnboundedSender<Blow>, faults: MachineFaults, mut rng: Rng) {
    let most = i64::try_from(faults.clock_step_ms_max).unwrap_or(0) / CLOCK_STEP_MS;
    loop {
        let pause_ms = CLOCK_STEP_EVERY_MS + rng.u64(1..=faults.every_ms * 2);
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        let _ = blows.send(Blow::StepClock(rng.i64(-most..=most) * CLOCK_STEP_MS));
    }
}

fn choose(faults: &MachineFaults, rng: &mut Rng) -> Option<Blow> {
    let after_steps = rng.u64(0..60);
    let stall_ms = rng.u64(0..=faults.disk_stall_ms_max);
    let blows = [
        (faults.kills, Blow::Kill),
        (faults.power_cuts, Blow::PowerCut),
        (faults.clean_stops, Blow::Stop),
        (faults.power_cuts, Blow::Break(Fault::PowerOff, after_steps)),
        (faults.disk_errors, Blow::Break(Fault::Error, after_steps)),
        (faults.disk_errors, Blow::Break(Fault::NoRoom, after_steps)),
        (faults.disk_fills, Blow::Fill(Some(rng.u64(0..2 << 20)))),
        (faults.disk_fills, Blow::Fill(None)),
        (faults.disk_stall_ms_max > 0, Blow::Stall(Duration::from_millis(stall_ms))),
    ];
    let mut allowed: Vec<_> =
        blows.into_iter().filter(|(allowed, _)| *allowed).map(|(_, blow)| blow).collect();
    (!allowed.is_empty()).then(|| allowed.swap_remove(rng.usize(..allowed.len())))
}

/// Ends every fault, sometimes after a last one, so that the final state has gone through a recovery.
async fn calm(blows: &mpsc::UnboundedSender<Blow>, rng: &mut Rng) {
    let _ = blows.send(Blow::Calm);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let last = match rng.u32(0..4) {
        0 => Some(Blow::Kill),
        1 => Some(Blow::PowerCut),
        2 => Some(Blow::Stop),
        _ => None,
    };
    if let Some(blow) = last {
        let _ = blows.send(blow);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
}
