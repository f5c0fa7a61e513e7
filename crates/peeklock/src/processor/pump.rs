//! The task of a processor: it grants credit, starts handlers, renews locks and hands back what it does not start.

mod control;
mod flow;
mod holding;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{self, AbortHandle, JoinError, JoinHandle, JoinSet};
use tokio::time::{Instant, Sleep, sleep_until};

use super::batch::Batching;
use super::errors::ErrorSource;
use super::handle::Command;
use super::kill_switch::{KillSwitch, Switch};
use super::locks::Renewal;
use super::renewal::{Renew, Schedule, Step};
use super::runner::{Ended, Runner};
use super::slots::Slots;
use super::status::{State, Status, StopReport};
use crate::delivery::Delivery;
use crate::error::Error;
use crate::handler::Work;
use crate::receiver::Receiver;
use crate::session_processor::Callback;

/// The deadline of a stop that nobody requested: the last handle was dropped, or a handler failed fatally.
pub(crate) const STOP_DEADLINE: Duration = Duration::from_secs(30);
/// How long a dropped handler may block its thread before it counts as stuck.
const STUCK_AFTER: Duration = Duration::from_secs(1);
/// How long the broker may take to return credit or to detach a link.
const LINK_TIME_MAX: Duration = Duration::from_secs(10);

/// Attaches the link again after an error.
pub(crate) type Opener = Box<dyn Fn() -> BoxFuture<'static, Result<Receiver, Error>> + Send + Sync>;

/// Takes the next session, if one waits.
pub(crate) type HandOver = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// The settings of a pump.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) max_concurrent: u32,
    pub(crate) prefetch: u32,
    pub(crate) renew: Renew,
    pub(crate) kill_switch: Option<KillSwitch>,
    pub(crate) grace: Duration,
    pub(crate) batching: Option<Batching>,
    /// The limits of the session, if the receiver holds one.
    pub(crate) session: Option<SessionLimits>,
    /// Called before the session is let go.
    pub(crate) on_close: Option<Callback>,
    /// Called before a session that was held for long enough is let go, to take another one first, unless the broker serves sessions in turn:
    /// another one may give the same session again.
    pub(crate) hand_over: Option<HandOver>,
}

/// When a pump lets its session go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionLimits {
    /// The time without a message.
    pub(crate) idle: Duration,
    /// The number of messages after which other sessions get a turn.
    pub(crate) count_max: u64,
    /// The time after which other sessions get a turn.
    pub(crate) time_max: Duration,
}

/// Why a pump has ended.
#[derive(Clone, Debug)]
pub(crate) enum PumpEnd {
    Stopped,
    /// The session was idle, or was held long enough.
    LetGo,
    /// The lock of the session is lost, or its link ended.
    SessionLost,
    Failed,
}

pub(crate) struct Pump {
    receiver: Option<Receiver>,
    opener: Option<Opener>,
    opening: Option<JoinHandle<(Opener, Result<Receiver, Error>)>>,
    failed_opens: u32,
    reopen_at: Option<Instant>,
    runner: Arc<Runner>,
    settings: Settings,
    target: u32,
    slots: Slots,
    phase: Phase,
    buffer: VecDeque<Held>,
    /// The running calls, in the order in which they were started, so that they are also cancelled in a determined order.
    running: BTreeMap<task::Id, Running>,
    /// The number of running calls that are cancelled.
    cancelled_count: usize,
    tasks: JoinSet<Vec<Ended>>,
    releases: JoinSet<()>,
    schedule: Schedule,
    locks: HashMap<u64, (Option<Arc<Work>>, Renewal)>,
    renewals: JoinSet<(u64, Result<Duration, Error>)>,
    next_key: u64,
    switch: Option<Switch>,
    session: SessionClock,
    commands: mpsc::Receiver<Command>,
    has_owner: bool,
    replies: Replies,
    report: StopReport,
    status: Arc<watch::Sender<Status>>,
    counts: (u64, u64),
    /// The numbers that were published last. Session pumps share one status, so each adds its changes only.
    published: Published,
    end: PumpEnd,
    timer: Timer,
}

/// What the pump is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    Paused,
    /// It waits for running handlers, which are cancelled at the deadline.
    Draining {
        deadline: Instant,
        is_cancelling: bool,
    },
}

/// The numbers of a pump in the status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Published {
    running: u32,
    held: u32,
    completed: u64,
    failed: u64,
}

/// The time that a pump has held its session.
#[derive(Clone, Copy, Debug)]
struct SessionClock {
    opened_at: Instant,
    /// The moment since which nothing is running or buffered.
    idle_since: Instant,
    count: u64,
    is_lost: bool,
}

/// A message that has arrived and is not started.
struct Held {
    key: u64,
    work: Arc<Work>,
    since: Instant,
}

/// A call of the handler.
struct Running {
    held: Vec<Held>,
    abort: AbortHandle,
    /// The steps of its cancellation, if it is cancelled.
    cancel: Option<Cancel>,
}

#[derive(Clone, Copy, Debug)]
struct Cancel {
    next: Instant,
    is_aborted: bool,
}

/// The callers that wait for a state of the pump.
#[derive(Default)]
struct Replies {
    quiet: Vec<oneshot::Sender<()>>,
    drained: Vec<oneshot::Sender<()>>,
    stopped: Vec<oneshot::Sender<StopReport>>,
}

/// One timer for everything, which is only reset when it would fire too late.
struct Timer {
    sleep: std::pin::Pin<Box<Sleep>>,
    armed: Option<Instant>,
}

/// An event moves once, from the wait to its handler, so its size costs less than a box.
#[allow(clippy::large_enum_variant, reason = "an event is never stored")]
enum Event {
    Command(Option<Command>),
    Done(Result<(task::Id, Vec<Ended>), JoinError>),
    Released,
    Renewed(u64, Result<Duration, Error>),
    Arrived(Result<Option<Delivery>, Error>),
    Opened((Opener, Result<Receiver, Error>)),
    OpenFailed,
    Timer,
}

impl Pump {
    pub(crate) fn new(
        receiver: Receiver,
        opener: Option<Opener>,
        runner: Arc<Runner>,
        settings: Settings,
        commands: mpsc::Receiver<Command>,
        status: Arc<watch::Sender<Status>>,
    ) -> Self {
        let now = Instant::now();
        let slots = Slots { prefetch: settings.prefetch, is_open: true, ..Slots::default() };
        let session = SessionClock { opened_at: now, idle_since: now, count: 0, is_lost: false };
        let mut pump = Pump {
            receiver: Some(receiver),
            opener,
            opening: None,
            failed_opens: 0,
            reopen_at: None,
            target: settings.max_concurrent,
            switch: settings.kill_switch.map(Switch::new),
            runner,
            settings,
            slots,
            phase: Phase::Running,
            buffer: VecDeque::new(),
            running: BTreeMap::new(),
            cancelled_count: 0,
            tasks: JoinSet::new(),
            releases: JoinSet::new(),
            schedule: Schedule::default(),
            locks: HashMap::new(),
            renewals: JoinSet::new(),
            next_key: 1,
            session,
            commands,
            has_owner: true,
            replies: Replies::default(),
            report: StopReport::default(),
            status,
            counts: (0, 0),
            published: Published::default(),
            end: PumpEnd::Stopped,
            timer: Timer { sleep: Box::pin(sleep_until(now)), armed: None },
        };
        pump.hold_session(now);
        pump
    }

    /// Runs the pump of a processor to its end, and publishes the end.
    pub(crate) async fn run_to_end(self) {
        let (runner, status) = (Arc::clone(&self.runner), Arc::clone(&self.status));
        let (end, report, stopped) = self.run().await;
        runner.reporter.close().await;
        let state = if matches!(end, PumpEnd::Failed) { State::Failed } else { State::Stopped };
        status.send_modify(|status| status.state = state);
        tracing::info!(queue = runner.reporter.entity(), processor = runner.reporter.processor(), %state, %report, "processor ended");
        for reply in stopped {
            let _ = reply.send(report);
        }
    }

    /// Runs until the pump is stopped or lets its session go. Returns the callers that wait for the report.
    pub(crate) async fn run(mut self) -> (PumpEnd, StopReport, Vec<oneshot::Sender<StopReport>>) {
        loop {
            self.turn().await;
            if self.has_ended() {
                break;
            }
            let event = self.wait().await;
            self.handle(event);
            // Whatever else is ready is handled before credit is granted, so that busy pumps write few frames and publish seldom.
            while let Some(done) = self.tasks.try_join_next_with_id() {
                self.finish(done);
            }
            self.take_arrived();
        }
        self.close().await;
        (self.end, self.report, self.replies.stopped)
    }

    /// Does everything that is due.
    async fn turn(&mut self) {
        self.tick();
        self.start_ready();
        self.trim().await;
        self.grant().await;
        self.publish();
        self.answer();
    }

    async fn wait(&mut self) -> Event {
        self.arm();
        let is_armed = self.timer.armed.is_some();
        let Pump { commands, has_owner, tasks, releases, renewals, receiver, opening, timer, .. } = self;
        tokio::select! {
            biased;
            command = commands.recv(), if *has_owner => Event::Command(command),
            Some(done) = tasks.join_next_with_id() => Event::Done(done),
            Some(_) = releases.join_next() => Event::Released,
            Some(Ok((key, result))) = renewals.join_next() => Event::Renewed(key, result),
            arrived = next(receiver), if receiver.is_some() => Event::Arrived(arrived),
            opened = opened(opening), if opening.is_some() => opened.map_or(Event::OpenFailed, Event::Opened),
            () = timer.sleep.as_mut(), if is_armed => Event::Timer,
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Command(Some(command)) => self.obey(command),
            Event::Command(None) => self.lose_owner(),
            Event::Done(done) => self.finish(done),
            Event::Released => {}
            Event::Renewed(key, result) => self.renewed(key, result),
            Event::Arrived(Ok(Some(delivery))) => self.arrived(delivery),
            Event::Arrived(Ok(None)) => self.lose_receiver(None),
            Event::Arrived(Err(error)) => self.fail_to_receive(error),
            Event::Opened((opener, result)) => self.opened(opener, result),
            Event::OpenFailed => {
                self.opening = None;
                self.fail();
            }
            Event::Timer => self.timer.armed = None,
        }
    }

    /// Handles everything whose time has come.
    fn tick(&mut self) {
        let now = Instant::now();
        while let Some(step) = self.schedule.poll(now) {
            match step {
                Step::Renew(key) => self.renew(key),
                Step::Lost(key) => self.lose_lock(key, None),
            }
        }
        if let Some(switch) = &mut self.switch {
            switch.tick(now);
        }
        if self.reopen_at.is_some_and(|at| at <= now) {
            self.reopen_at = None;
            self.reopen();
        }
        self.tick_phase(now);
        self.tick_session(now);
        self.tick_cancellations(now);
    }

    /// Resets the timer if it would fire too late. A timer that fires too early costs one turn.
    fn arm(&mut self) {
        let Some(next) = self.next_moment() else { return };
        if self.timer.armed.is_none_or(|armed| next < armed) {
            self.timer.sleep.as_mut().reset(next);
            self.timer.armed = Some(next);
        }
    }

    fn next_moment(&self) -> Option<Instant> {
        let phase = match self.phase {
            Phase::Draining { deadline, is_cancelling: false } => Some(deadline),
            _ => None,
        };
        let cancelled = self.running.values().filter_map(|running| running.cancel).map(|cancel| cancel.next);
        let switch = self.switch.as_ref().and_then(Switch::next);
        let moments =
            [phase, self.schedule.next(), switch, self.reopen_at, self.batch_due(), self.session_due()];
        let is_cancelling = moments.into_iter().flatten().min();
        if self.has_cancelled() { is_cancelling.into_iter().chain(cancelled).min() } else { is_cancelling }
    }

    fn publish(&mut self) {
        let (completed, failed) = self.counts;
        let running = self.slots.running;
        let held = running.saturating_add(self.slots.buffered);
        let (old, new) = (self.published, Published { running, held, completed, failed });
        self.published = new;
        let state = match self.phase {
            Phase::Running => State::Running,
            Phase::Paused => State::Paused,
            Phase::Draining { .. } => State::Draining,
        };
        let is_alone = self.settings.session.is_none();
        let (target, reporter) = (self.target, &self.runner.reporter);
        let is_tripped = self.switch.as_ref().is_some_and(|switch| switch.limit().is_some());
        self.status.send_if_modified(|status| {
            status.running = status.running.saturating_sub(old.running).saturating_add(new.running);
            status.held = status.held.saturating_sub(old.held).saturating_add(new.held);
            status.completed += new.completed - old.completed;
            status.failed += new.failed - old.failed;
            // The sessions of a processor have one state together, which is not theirs.
            let (state, target) = if is_alone { (state, target) } else { (status.state, status.target) };
            if status.state != state {
                tracing::info!(queue = reporter.entity(), processor = reporter.processor(), %state, "processor state");
            }
            let is_same = (status.state, status.target, status.is_tripped) == (state, target, is_tripped);
            (status.state, status.target, status.is_tripped) = (state, target, is_tripped);
            !is_same || old != new
        });
    }

    fn report(&self, source: ErrorSource, error: Error) {
        self.runner.reporter.report(source, error);
    }
}

/// Returns the next message of a receiver that exists.
async fn next(receiver: &mut Option<Receiver>) -> Result<Option<Delivery>, Error> {
    match receiver {
        Some(receiver) => receiver.next().await,
        None => std::future::pending().await,
    }
}

async fn opened(
    opening: &mut Option<JoinHandle<(Opener, Result<Receiver, Error>)>>,
) -> Option<(Opener, Result<Receiver, Error>)> {
    match opening {
        Some(task) => task.await.ok(),
        None => std::future::pending().await,
    }
}
