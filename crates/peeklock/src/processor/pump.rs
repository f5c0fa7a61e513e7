//! The task of a processor: it grants credit, starts handlers, renews locks and hands back what it does not start.
//!
//! It works in turns. A turn handles what has happened, starts calls while slots are free, sends all settlements together, requests messages for
//! the free slots, and publishes the status once. Then the pump waits for the next event.
//!
//! * `flow.rs`: messages that arrive, and credit.
//! * `calls.rs`: calls of the handler. A quick call begins and ends in the pump; others get a task each.
//! * `settling.rs`: settlements, up to their confirmation. Until then, the slot of the call is not free.
//! * `holding.rs`: locks and their renewal. `control.rs`: the commands of the owner. `link.rs`: the link, when it is lost.
//! * `timing.rs`: the timer. `publishing.rs`: the status.

mod calls;
mod control;
mod flow;
mod holding;
mod link;
mod publishing;
mod settling;
mod timing;

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use peeklock_client::{Settled, Settler};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinError, JoinHandle, JoinSet};
use tokio::time::Instant;
use tower::BoxError;

use super::batch::Batching;
use super::errors::ErrorSource;
use super::gate::Gate;
use super::handle::Command;
use super::kill_switch::{KillSwitch, Switch};
use super::locks::Lock;
use super::pace::Pace;
use super::renewal::{Renew, Schedule};
use super::runner::Runner;
use super::slots::Slots;
use super::status::{State, Status, StopReport};
use crate::delivery::Delivery;
use crate::error::Error;
use crate::handler::{JobService, Work};
use crate::lock::LockEnd;
use crate::receiver::Receiver;
use crate::session_processor::Callback;
use calls::{Done, Running};
use publishing::Published;
use settling::Settling;
use timing::Timer;

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
    /// The service that this pump calls.
    service: JobService,
    gate: Gate,
    pace: Pace,
    settings: Settings,
    /// The time, which is read once for each event and each call.
    now: Instant,
    target: u32,
    slots: Slots,
    phase: Phase,
    buffer: VecDeque<Held>,
    /// The calls in tasks, in the order of their start: by the key of their first message.
    running: BTreeMap<u64, Running>,
    /// The number of running calls that are cancelled.
    cancelled_count: usize,
    tasks: JoinSet<Done>,
    /// The messages whose settlement is not confirmed.
    settling: BTreeMap<u64, Settling>,
    /// The number of those that are handed back and have no slot.
    returning_count: usize,
    settler: Settler,
    /// A buffer that is empty between turns and keeps its capacity.
    settled: Vec<Settled>,
    /// The settlements that take more than one step.
    steps: JoinSet<(u64, Result<(), Error>)>,
    schedule: Schedule,
    /// The locks in the schedule.
    locks: BTreeMap<u64, Lock>,
    renewals: JoinSet<(u64, Result<LockEnd, Error>)>,
    /// The key of the next message.
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

/// The time that a pump has held its session.
#[derive(Clone, Copy, Debug)]
struct SessionClock {
    opened_at: Instant,
    /// The moment since which nothing is running or buffered.
    idle_since: Instant,
    count: u64,
    is_lost: bool,
}

/// A message that has arrived.
struct Held {
    key: u64,
    work: Arc<Work>,
    since: Instant,
    /// Whether its lock is in the schedule.
    is_guarded: bool,
}

/// The callers that wait for a state of the pump.
#[derive(Default)]
struct Replies {
    quiet: Vec<oneshot::Sender<()>>,
    drained: Vec<oneshot::Sender<()>>,
    stopped: Vec<oneshot::Sender<StopReport>>,
}

/// An event moves once, from the wait to its handler, so its size costs less than a box.
#[allow(clippy::large_enum_variant, reason = "an event is never stored")]
enum Event {
    Command(Option<Command>),
    Done(Result<Done, JoinError>),
    /// Results of settlements are in their buffer.
    Settled,
    Stepped(u64, Result<(), Error>),
    Renewed(u64, Result<LockEnd, Error>),
    Ready(Result<(), BoxError>),
    Arrived(Result<Option<Delivery>, Error>),
    Opened((Opener, Result<Receiver, Error>)),
    OpenFailed,
    Timer,
    /// A task has ended without a result.
    Nothing,
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
            service: runner.service.clone(),
            gate: Gate::default(),
            pace: Pace::default(),
            runner,
            settings,
            now,
            slots,
            phase: Phase::Running,
            buffer: VecDeque::new(),
            running: BTreeMap::new(),
            cancelled_count: 0,
            tasks: JoinSet::new(),
            settling: BTreeMap::new(),
            returning_count: 0,
            settler: Settler::default(),
            settled: Vec::new(),
            steps: JoinSet::new(),
            schedule: Schedule::default(),
            locks: BTreeMap::new(),
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
            timer: Timer::new(now),
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
        self.now = Instant::now();
        loop {
            self.turn().await;
            if self.has_ended() {
                break;
            }
            let event = self.wait().await;
            self.now = Instant::now();
            self.handle(event);
            self.take_ready();
        }
        self.close().await;
        (self.end, self.report, self.replies.stopped)
    }

    /// Handles whatever else is ready before credit is granted, so that busy pumps write few frames and publish seldom.
    fn take_ready(&mut self) {
        while let Some(done) = self.tasks.try_join_next() {
            self.finish(done);
        }
        self.take_settled();
        self.take_arrived();
    }

    /// Does everything that is due.
    async fn turn(&mut self) {
        self.tick();
        self.start_ready().await;
        self.settler.send().await;
        self.trim().await;
        self.settler.send().await;
        self.grant().await;
        self.publish();
        self.answer();
    }

    async fn wait(&mut self) -> Event {
        self.arm();
        let is_armed = self.timer.armed.is_some();
        let is_settling = !self.settling.is_empty();
        let is_waiting = self.gate.is_waiting();
        let Pump { commands, has_owner, tasks, settler, settled, steps, renewals, .. } = self;
        let Pump { service, receiver, opening, timer, .. } = self;
        tokio::select! {
            biased;
            command = commands.recv(), if *has_owner => Event::Command(command),
            Some(done) = tasks.join_next() => Event::Done(done),
            () = poll_fn(|cx| settler.poll_settled(cx, settled)), if is_settling => Event::Settled,
            Some(step) = steps.join_next() => step.map_or(Event::Nothing, |(key, result)| Event::Stepped(key, result)),
            Some(Ok((key, result))) = renewals.join_next() => Event::Renewed(key, result),
            ready = poll_fn(|cx| calls::poll_ready(service, cx)), if is_waiting => Event::Ready(ready),
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
            Event::Settled | Event::Nothing => {}
            Event::Stepped(key, result) => self.stepped(key, result),
            Event::Renewed(key, result) => self.renewed(key, result),
            Event::Ready(result) => self.judge_service(result),
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
