//! The machine of the broker: a disk, a clock, and a process that dies and is restarted.

use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use peeklock_access::{Access, Policy, Right};
use peeklock_broker::{Broker, Clock, Running};
use peeklock_gateway_azure::Gateway;
use peeklock_journal_wal::sim::{Chores, Driver, Fault, Loss, SimDisk, Work};
use peeklock_journal_wal::{WalConfig, WalJournal};
use peeklock_types::Timestamp;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use crate::log::{Event, Log};
use crate::network::Network;
use crate::pipe::Endpoint;

pub(crate) const KEY_NAME: &str = "sim";
pub(crate) const KEY_SECRET: &str = "secret";
/// The clock's value at the start of the world.
pub(crate) const WALL_START_MS: u64 = 1_700_000_000_000;
/// The time that a process has to stop.
const STOP_TIME_MAX: Duration = Duration::from_secs(120);
/// The time that a process has to start.
const START_TIME_MAX: Duration = Duration::from_secs(120);
const TROUBLES_MAX: u32 = 10;
/// The interval of the disk's own maintenance.
const KEEP_EVERY: Duration = Duration::from_millis(500);
const LONG_WORK_ONE_IN: u32 = 8;

/// A fault of the machine.
#[derive(Debug)]
pub(crate) enum Blow {
    /// The process dies; the disk keeps all writes.
    Kill,
    /// The machine loses power; the disk keeps some of the unsynced writes.
    PowerCut,
    /// The process is asked to stop.
    Stop,
    /// A future step of the disk fails.
    Break(Fault, u64),
    /// The space on the disk is limited to this many bytes; `None` ends the limit.
    Fill(Option<u64>),
    Stall(Duration),
    /// The clock of the machine is set forward, or back, by this many milliseconds.
    StepClock(i64),
    /// This many reads of the disk fail.
    FailReads(u64),
    /// All faults end.
    Calm,
}

/// The disk's current behaviour, for the task that drives it.
#[derive(Clone)]
struct Mood {
    state: Arc<Mutex<MoodState>>,
}

struct MoodState {
    rng: Rng,
    commit_ms_max: u64,
    /// The longest time for reading or moving bodies; 0 if that takes no time.
    work_ms_max: u64,
    stalled_until: Instant,
}

impl Mood {
    fn next_wait(&self) -> Duration {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let max = state.commit_ms_max;
        let commit = Duration::from_millis(state.rng.u64(0..=max));
        commit + state.stalled_until.saturating_duration_since(Instant::now())
    }

    /// Returns a duration that is mostly short, and sometimes long enough for other events to happen meanwhile.
    fn next_work(&self) -> Duration {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let max = state.work_ms_max;
        let is_long = state.rng.u32(0..LONG_WORK_ONE_IN) == 0;
        let work = Duration::from_millis(state.rng.u64(0..=if is_long { max } else { max / 20 }));
        work + state.stalled_until.saturating_duration_since(Instant::now())
    }

    fn stall(&self, span: Duration) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).stalled_until = Instant::now() + span;
    }

    fn calm(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.commit_ms_max = 1;
        state.work_ms_max = 0;
        state.stalled_until = Instant::now();
    }
}

/// The wall clock of the machine.
#[derive(Clone)]
struct Wall {
    log: Log,
    offset_ms: Arc<AtomicI64>,
}

impl Wall {
    fn offset_ms(&self) -> i64 {
        self.offset_ms.load(Ordering::Relaxed)
    }

    fn now_ms(&self) -> u64 {
        (WALL_START_MS + self.log.now_ms()).saturating_add_signed(self.offset_ms())
    }

    fn step(&self, by_ms: i64) {
        self.offset_ms.fetch_add(by_ms, Ordering::Relaxed);
    }
}

pub(crate) struct Machine {
    log: Log,
    party: Arc<str>,
    network: Network,
    office: Office,
    disk: SimDisk,
    mood: Mood,
    wal: WalConfig,
    rng: Rng,
    clock_step_ms_max: u64,
    /// Whether bodies are read and moved in the background, not at once.
    does_work_take_time: bool,
    wall: Wall,
    run: u32,
    is_calm: bool,
    /// Whether the disk was damaged in a way that may end a process.
    is_disk_harmed: bool,
    trouble_count: u32,
}

/// Direct access to the running broker, for management. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Office {
    state: Arc<Mutex<OfficeState>>,
}

#[derive(Default)]
struct OfficeState {
    broker: Option<(Broker, u32)>,
    /// One sender for each visitor, so that visitors observe the end in the order in which they arrived.
    visitors: Vec<oneshot::Sender<()>>,
}

/// A client that uses one run of the broker without a network in between.
pub(crate) struct Visit {
    pub(crate) broker: Broker,
    pub(crate) run: u32,
    /// Resolves when the run ends.
    pub(crate) ended: oneshot::Receiver<()>,
}

impl Office {
    fn state(&self) -> MutexGuard<'_, OfficeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn broker(&self) -> Option<Broker> {
        self.state().broker.as_ref().map(|(broker, _)| broker.clone())
    }

    pub(crate) fn visit(&self) -> Option<Visit> {
        let mut state = self.state();
        let (broker, run) = state.broker.clone()?;
        let (visitor, ended) = oneshot::channel();
        state.visitors.retain(|visitor| !visitor.is_closed());
        state.visitors.push(visitor);
        Some(Visit { broker, run, ended })
    }

    fn set(&self, broker: Option<(Broker, u32)>) {
        let mut state = self.state();
        state.broker = broker;
        if state.broker.is_none() {
            state.visitors.clear();
        }
    }
}

/// A running broker.
struct Process {
    run: u32,
    journal: WalJournal,
    running: Running,
    stop: watch::Sender<bool>,
    serving: JoinHandle<()>,
    driving: Driving,
}

/// The disk's tasks, for the life of their process.
struct Driving {
    writing: JoinHandle<()>,
    toiling: Option<JoinHandle<()>>,
}

impl Drop for Driving {
    fn drop(&mut self) {
        self.writing.abort();
        self.toiling.iter().for_each(JoinHandle::abort);
    }
}

/// The reason why a run ended.
enum End {
    Kill,
    PowerCut,
    Stop,
    Failed(String),
}

impl Machine {
    pub(crate) fn new(
        log: Log,
        network: Network,
        office: Office,
        scenario: &crate::scenario::Scenario,
        mut rng: Rng,
    ) -> Self {
        let mood = MoodState {
            rng: rng.fork(),
            commit_ms_max: scenario.machine.commit_ms_max,
            work_ms_max: scenario.machine.disk_work_ms_max,
            stalled_until: Instant::now(),
        };
        Machine {
            party: "broker".into(),
            network,
            office,
            disk: SimDisk::new(),
            mood: Mood { state: Arc::new(Mutex::new(mood)) },
            wal: scenario.wal.clone(),
            rng,
            clock_step_ms_max: scenario.machine.clock_step_ms_max,
            does_work_take_time: scenario.machine.disk_work_ms_max > 0,
            wall: Wall { log: log.clone(), offset_ms: Arc::default() },
            log,
            run: 0,
            is_calm: false,
            is_disk_harmed: false,
            trouble_count: 0,
        }
    }

    /// Runs the broker again and again until no more faults can arrive.
    pub(crate) async fn live(mut self, mut blows: mpsc::UnboundedReceiver<Blow>) {
        loop {
            match self.start().await {
                Ok(process) => {
                    if !self.watch(process, &mut blows).await {
                        return;
                    }
                }
                Err(why) => self.note_failed_start(&why),
            }
            // A broker that fails repeatedly is not restarted for ever.
            if (blows.is_closed() && blows.is_empty()) || self.trouble_count > TROUBLES_MAX {
                return;
            }
            self.rest_between_runs(&mut blows).await;
        }
    }

    fn trouble(&mut self, what: String) {
        self.trouble_count += 1;
        self.log.add(&self.party, Event::Trouble { what });
    }

    /// Logs that the broker could not start. A healthy disk must not keep it from starting; a disk with injected faults
    /// may.
    fn note_failed_start(&mut self, why: &str) {
        let run = self.run;
        if self.is_disk_harmed {
            self.log.add(&self.party, Event::Ended { run, how: format!("could not start: {why}") });
        } else {
            self.trouble(format!("a start on a healthy disk failed: {why}"));
        }
        let lost = (self.disk.is_off() || self.rng.bool()).then(|| self.rng.u64(..));
        self.lose(lost);
    }

    async fn rest_between_runs(&mut self, blows: &mut mpsc::UnboundedReceiver<Blow>) {
        let down = if self.is_calm { 100 } else { self.rng.u64(0..5_000) };
        let back = Instant::now() + Duration::from_millis(down);
        // Faults for a process that does not run have no effect, but `Calm` is permanent.
        while let Ok(Some(blow)) = tokio::time::timeout_at(back, blows.recv()).await {
            if let Blow::Calm = blow {
                self.calm();
            }
        }
        if self.clock_step_ms_max > 0 && !self.is_calm {
            let max = i64::try_from(self.clock_step_ms_max).unwrap_or(0);
            self.wall.step(self.rng.i64(-max..=max));
        }
    }

    async fn start(&mut self) -> Result<Process, String> {
        self.run += 1;
        let run = self.run;
        let disk = Arc::new(self.disk.clone());
        let (path, wal) = (Path::new("/data"), self.wal.clone());
        let opened = if self.does_work_take_time {
            WalJournal::open_idle(disk, path, wal)
                .map(|(journal, driver, work)| (journal, driver, Some(work)))
        } else {
            WalJournal::open_driven(disk, path, wal).map(|(journal, driver)| (journal, driver, None))
        };
        let (journal, driver, chores) = opened.map_err(|error| error.to_string())?;
        let (wall, wall_ms) = (self.wall.clone(), self.wall.now_ms());
        let clock = Clock::following(move || Timestamp::from_millis(wall.now_ms()));
        // From here on the clock of this run counts, and due work happens, though no client is served yet.
        self.log.add(&self.party, Event::Started { run, wall_ms });
        // The disk works from the start: a broker that repairs the results of a crash writes before it serves.
        let writing = tokio::spawn(drive(driver, self.disk.clone(), self.mood.clone()));
        let toiling = chores.map(|chores| tokio::spawn(toil(chores, self.mood.clone())));
        let mut driving = Driving { writing, toiling };
        let opened = tokio::select! {
            biased;
            _ = &mut driving.writing => return Err("the power went off".to_owned()),
            opened = Broker::open_at(&journal, clock, peeklock_message::describe) => opened,
            () = tokio::time::sleep(START_TIME_MAX) => return Err("it took too long".to_owned()),
        };
        let (broker, running, _) = opened.map_err(|error| error.to_string())?;
        let policy = Policy::with_one_key(KEY_NAME, KEY_SECRET, &[Right::Manage]);
        let access = Access::open(None, vec![policy]).map_err(|error| error.to_string())?;
        self.office.set(Some((broker.clone(), run)));
        let gateway = Gateway::new(broker, access);
        let (stop, stopping) = watch::channel(false);
        let incoming = self.network.listen(run);
        let trouble = {
            let (log, party) = (self.log.clone(), Arc::clone(&self.party));
            move |what| log.add(&party, Event::Trouble { what })
        };
        let serving = tokio::spawn(serve(gateway, incoming, stopping, trouble));
        Ok(Process { run, journal, running, stop, serving, driving })
    }

    /// Watches a process until it has ended. Returns false when no more faults can arrive.
    async fn watch(&mut self, mut process: Process, blows: &mut mpsc::UnboundedReceiver<Blow>) -> bool {
        let end = loop {
            tokio::select! {
                biased;
                stopped = process.running.stopped() => {
                    break End::Failed(stopped.err().unwrap_or_else(|| "every shard has ended".to_owned()));
                }
                _ = &mut process.driving.writing => break End::PowerCut,
                blow = blows.recv() => match blow {
                    None => break End::Stop,
                    Some(Blow::Kill) => break End::Kill,
                    Some(Blow::PowerCut) => break End::PowerCut,
                    Some(Blow::Stop) => break End::Stop,
                    Some(other) => self.take(other),
                },
            }
        };
        let is_last = blows.is_closed() && blows.is_empty();
        match end {
            End::Kill => self.kill(process, "killed", None),
            End::PowerCut => self.power_cut(process),
            End::Stop => self.stop(process).await,
            End::Failed(why) => self.failed(process, &why),
        }
        !is_last
    }

    /// Applies faults that do not end the process at once.
    fn take(&mut self, blow: Blow) {
        match blow {
            Blow::Break(fault, after) => {
                self.is_disk_harmed = true;
                self.disk.fail_at(self.disk.step_count() + 1 + after, fault);
            }
            Blow::Fill(room) => {
                let used = self.disk.used_bytes();
                self.disk.set_capacity(room.map(|room| used + room));
            }
            Blow::Stall(span) => self.mood.stall(span),
            Blow::StepClock(by_ms) => self.step_clock(by_ms),
            Blow::FailReads(count) => self.disk.fail_reads(if self.is_calm { 0 } else { count }),
            Blow::Calm => self.calm(),
            Blow::Kill | Blow::PowerCut | Blow::Stop => {}
        }
    }

    /// Sets the clock while the broker runs. All steps together stay within the time for which the end of a run waits.
    fn step_clock(&mut self, by_ms: i64) {
        let most = i64::try_from(self.clock_step_ms_max).unwrap_or(0).saturating_mul(5);
        if self.is_calm || (self.wall.offset_ms() + by_ms).abs() > most {
            return;
        }
        self.wall.step(by_ms);
        let wall_ms = self.wall.now_ms();
        self.log.add(&self.party, Event::Stepped { run: self.run, wall_ms });
    }

    fn calm(&mut self) {
        self.is_calm = true;
        self.disk.clear_faults();
        self.disk.set_capacity(None);
        self.mood.calm();
        self.network.calm();
    }

    fn failed(&mut self, process: Process, why: &str) {
        if !self.is_disk_harmed {
            self.trouble(format!("the broker stopped on a healthy disk: {why}"));
        }
        if self.disk.is_off() {
            return self.power_cut(process);
        }
        self.kill(process, &format!("failed: {why}"), None);
    }

    fn power_cut(&mut self, process: Process) {
        let down = Duration::from_millis(self.rng.u64(0..20_000));
        self.network.silence(process.run, down);
        let seed = self.rng.u64(..);
        self.kill(process, "power cut", Some(seed));
    }

    /// Kills the process. Its remaining tasks reach neither the surviving disk nor any client.
    fn kill(&mut self, process: Process, how: &str, lost: Option<u64>) {
        self.office.set(None);
        self.network.unlisten();
        self.network.cut(process.run);
        self.lose(lost);
        process.serving.abort();
        drop(process.driving);
        drop(process.running);
        self.log.add(&self.party, Event::Ended { run: process.run, how: how.to_owned() });
    }

    /// Continues with the disk as a dead process, or a power cut, has left it.
    fn lose(&mut self, lost: Option<u64>) {
        self.disk = self.disk.copy();
        match lost {
            None => self.disk.kill_process(),
            Some(seed) => {
                let loss = match seed % 4 {
                    0 => Loss::All,
                    1 => Loss::None,
                    _ => Loss::Some { seed },
                };
                self.disk.reboot(loss);
            }
        }
        self.is_disk_harmed = false;
    }

    async fn stop(&mut self, mut process: Process) {
        self.log.add(&self.party, Event::Stopping { run: process.run });
        let _ = process.stop.send(true);
        self.office.set(None);
        self.network.unlisten();
        let ended = async {
            let _ = (&mut process.serving).await;
            process.running.stopped().await
        };
        let how = match tokio::time::timeout(STOP_TIME_MAX, ended).await {
            Ok(Ok(())) => "stopped".to_owned(),
            Ok(Err(why)) if self.is_disk_harmed => format!("failed to stop: {why}"),
            Ok(Err(why)) => {
                self.trouble(format!("the broker failed to stop on a healthy disk: {why}"));
                why
            }
            Err(_) if self.is_disk_harmed => "had to be killed".to_owned(),
            Err(_) => {
                self.trouble("the broker did not stop in time".to_owned());
                "had to be killed".to_owned()
            }
        };
        process.journal.close();
        self.kill(process, &how, None);
    }
}

/// Accepts and serves connections until it is stopped.
async fn serve(
    gateway: Gateway,
    mut incoming: mpsc::UnboundedReceiver<Endpoint>,
    mut stopping: watch::Receiver<bool>,
    trouble: impl Fn(String) + Send + 'static,
) {
    let gateway = Arc::new(gateway);
    let mut connections = JoinSet::new();
    // One sender for each connection, because a watch wakes its receivers in random order.
    let mut stops = Vec::new();
    loop {
        tokio::select! {
            biased;
            Some(ended) = connections.join_next() => note_panic(ended, &trouble),
            _ = stopping.wait_for(|stop| *stop) => break,
            endpoint = incoming.recv() => {
                let Some(endpoint) = endpoint else { break };
                let (stop, stopping) = watch::channel(false);
                stops.push(stop);
                let gateway = Arc::clone(&gateway);
                connections.spawn(async move { gateway.serve(endpoint, None, stopping).await });
            }
        }
    }
    for stop in &stops {
        let _ = stop.send(true);
    }
    while let Some(ended) = connections.join_next().await {
        note_panic(ended, &trouble);
    }
}

fn note_panic(ended: Result<std::io::Result<()>, tokio::task::JoinError>, trouble: &impl Fn(String)) {
    if let Err(error) = ended
        && error.is_panic()
    {
        trouble(format!("a connection's task panicked: {error}"));
    }
}

/// Drives the disk: a commit takes time, and only then is it done. Ends when the power is off.
async fn drive(mut driver: Driver, disk: SimDisk, mood: Mood) {
    let mut keep = tokio::time::interval(KEEP_EVERY);
    keep.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while !disk.is_off() {
        tokio::select! {
            biased;
            _ = keep.tick() => driver.keep(),
            () = driver.group_arrived() => {
                tokio::time::sleep(mood.next_wait()).await;
                if !driver.commit() {
                    driver.keep();
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        }
    }
}

/// Runs the disk's work beside commits: each step takes time, and the journal continues meanwhile.
async fn toil(chores: Chores, mood: Mood) {
    let Chores { reads, moves, gathers } = chores;
    tokio::join!(read_beside(reads, &mood), work_in_turn(moves, &mood), work_in_turn(gathers, &mood));
}

async fn read_beside(mut reads: Work, mood: &Mood) {
    let mut under_way = JoinSet::new();
    while let Some(read) = reads.next().await {
        while under_way.try_join_next().is_some() {}
        let span = mood.next_work();
        under_way.spawn(async move {
            tokio::time::sleep(span).await;
            read();
        });
    }
}

async fn work_in_turn(mut work: Work, mood: &Mood) {
    while let Some(job) = work.next().await {
        tokio::time::sleep(mood.next_work()).await;
        job();
    }
}
