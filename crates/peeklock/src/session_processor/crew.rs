//! The task of a session processor: it accepts sessions, and runs a pump for each.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{self, JoinError, JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until};

use super::builder::{Callback, call_back};
use crate::error::{Error, Kind};
use crate::processor::{
    Command, ErrorSource, HandOver, Pump, PumpEnd, Runner, STOP_DEADLINE, Settings, State, Status, StopReport,
};
use crate::receiver::Receiver;
use crate::{Backoff, Client};

/// How long the broker waits for a session with messages before it answers that there is none.
const ACCEPT_WAIT: Duration = Duration::from_secs(30);

/// The number of sessions on their way from a pump to the crew.
const HANDED_MAX: usize = 16;
/// How long a session that was held for long enough is held while another one is looked for.
pub(crate) const HAND_OVER_WAIT: Duration = Duration::from_millis(50);

/// The number of a pump, and its result.
type Ended = (u64, PumpEnd, StopReport);

pub(crate) struct Crew {
    client: Client,
    entity: Arc<str>,
    runner: Arc<Runner>,
    settings: Settings,
    max_sessions: u32,
    status: Arc<watch::Sender<Status>>,
    commands: mpsc::Receiver<Command>,
    has_owner: bool,
    on_open: Option<Callback>,
    pumps: JoinSet<Ended>,
    /// In the order in which they were accepted.
    members: BTreeMap<u64, Member>,
    next_number: u64,
    accepting: Option<JoinHandle<Result<Receiver, Error>>>,
    /// The sessions that pumps have taken in place of their own.
    handed: mpsc::Receiver<Receiver>,
    accept_at: Option<Instant>,
    failed_count: u32,
    phase: State,
    report: StopReport,
    replies: Vec<oneshot::Sender<StopReport>>,
    has_failed: bool,
}

/// The pump of one session.
struct Member {
    commands: mpsc::Sender<Command>,
    task: task::Id,
}

enum Event {
    Command(Option<Command>),
    Ended(Result<Ended, JoinError>),
    Accepted(Option<Result<Receiver, Error>>),
    Handed(Receiver),
    Tick,
}

impl Crew {
    pub(crate) fn new(
        client: Client,
        entity: Arc<str>,
        runner: Arc<Runner>,
        mut settings: Settings,
        max_sessions: u32,
        status: Arc<watch::Sender<Status>>,
        commands: mpsc::Receiver<Command>,
    ) -> Self {
        let (sender, handed) = mpsc::channel(HANDED_MAX);
        settings.hand_over = Some(hand_over(client.clone(), Arc::clone(&entity), sender));
        Crew {
            client,
            entity,
            runner,
            settings,
            max_sessions,
            status,
            commands,
            has_owner: true,
            on_open: None,
            pumps: JoinSet::new(),
            members: BTreeMap::new(),
            next_number: 0,
            accepting: None,
            handed,
            accept_at: None,
            failed_count: 0,
            phase: State::Running,
            report: StopReport::default(),
            replies: Vec::new(),
            has_failed: false,
        }
    }

    pub(crate) fn with_callback(self, on_open: Option<Callback>) -> Self {
        Crew { on_open, ..self }
    }

    /// Runs to the end. `first` is a session that was accepted before.
    pub(crate) async fn run(mut self, first: Option<Receiver>) {
        if let Some(receiver) = first {
            self.hold(receiver);
        }
        loop {
            self.accept_if_free();
            self.publish();
            if self.phase == State::Draining && self.members.is_empty() && self.accepting.is_none() {
                break;
            }
            match self.wait().await {
                Event::Command(Some(command)) => self.obey(command),
                Event::Command(None) => {
                    self.has_owner = false;
                    self.stop_all(STOP_DEADLINE);
                }
                Event::Ended(ended) => self.end(ended),
                Event::Accepted(accepted) => self.accepted(accepted),
                Event::Handed(receiver) => self.hold(receiver),
                Event::Tick => self.accept_at = None,
            }
        }
        self.runner.reporter.close().await;
        let state = if self.has_failed { State::Failed } else { State::Stopped };
        self.status.send_modify(|status| status.state = state);
        for reply in self.replies {
            let _ = reply.send(self.report);
        }
    }

    async fn wait(&mut self) -> Event {
        let Crew { commands, has_owner, pumps, accepting, accept_at, handed, .. } = self;
        let pause_ends = accept_at.unwrap_or_else(Instant::now);
        tokio::select! {
            biased;
            command = commands.recv(), if *has_owner => Event::Command(command),
            Some(receiver) = handed.recv() => Event::Handed(receiver),
            Some(ended) = pumps.join_next() => Event::Ended(ended),
            accepted = joined(accepting), if accepting.is_some() => Event::Accepted(accepted),
            () = sleep_until(pause_ends), if accept_at.is_some() => Event::Tick,
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Pause { drains, reply } => self.pause(drains, reply),
            Command::Resume { reply } => {
                if self.phase == State::Paused {
                    self.phase = State::Running;
                }
                let _ = reply.send(());
            }
            Command::SetMax { max, cancels, reply } => {
                self.max_sessions = max;
                if cancels {
                    let surplus =
                        self.members.len().saturating_sub(usize::try_from(max).unwrap_or(usize::MAX));
                    self.members.values().rev().take(surplus).for_each(|member| member.stop(Duration::ZERO));
                }
                let _ = reply.send(());
            }
            Command::Stop { deadline, reply } => {
                self.replies.push(reply);
                self.stop_all(deadline);
            }
        }
    }

    /// Hands back every message that is not running, and each session when its handlers have ended.
    fn pause(&mut self, drains: bool, reply: oneshot::Sender<()>) {
        if self.phase == State::Running {
            self.phase = State::Paused;
            self.stop_accepting();
        }
        let members: Vec<_> = self.members.values().map(|member| member.commands.clone()).collect();
        tokio::spawn(async move {
            let quiet = members.iter().map(|commands| let_go(commands, drains));
            futures_util::future::join_all(quiet).await;
            let _ = reply.send(());
        });
    }

    fn stop_all(&mut self, deadline: Duration) {
        self.phase = State::Draining;
        self.stop_accepting();
        self.members.values().for_each(|member| member.stop(deadline));
    }

    /// Gives up the wait for a session. The driver of the connection detaches a link that is accepted after that.
    fn stop_accepting(&mut self) {
        self.accept_at = None;
        if let Some(accepting) = self.accepting.take() {
            accepting.abort();
        }
    }

    fn accept_if_free(&mut self) {
        let has_room = self.members.len() < usize::try_from(self.max_sessions).unwrap_or(usize::MAX);
        let is_waiting = self.accepting.is_some() || self.accept_at.is_some();
        if self.phase != State::Running || !has_room || is_waiting {
            return;
        }
        let builder = self.client.receiver(&self.entity).next_session(ACCEPT_WAIT).manual_credit();
        self.accepting = Some(tokio::spawn(builder.open()));
    }

    fn accepted(&mut self, accepted: Option<Result<Receiver, Error>>) {
        self.accepting = None;
        match accepted {
            Some(Ok(receiver)) => {
                self.failed_count = 0;
                self.hold(receiver);
            }
            // No session has messages.
            Some(Err(error)) if error.kind() == Kind::NoSession => {}
            Some(Err(error)) => {
                self.runner.reporter.report(ErrorSource::AcceptSession, error);
                self.failed_count = self.failed_count.saturating_add(1);
                let backoff = Backoff::exponential(Duration::from_millis(500), Duration::from_secs(30));
                let pause = backoff.pause(self.failed_count, Duration::ZERO, fastrand::f64());
                self.accept_at = pause.map(|pause| Instant::now() + pause);
            }
            None => {}
        }
    }

    /// Starts the pump of a session.
    fn hold(&mut self, receiver: Receiver) {
        let number = self.next_number;
        self.next_number += 1;
        if self.phase != State::Running {
            let (commands, _) = mpsc::channel(1);
            let closing = self.pumps.spawn(async move {
                // A failure means that the session is let go already.
                let _ = receiver.close().await;
                (number, PumpEnd::LetGo, StopReport::default())
            });
            self.members.insert(number, Member { commands, task: closing.id() });
            return;
        }
        let (commands, obeyed) = mpsc::channel(4);
        let session = receiver.session().cloned();
        let pump = Pump::new(
            receiver,
            None,
            Arc::clone(&self.runner),
            self.settings.clone(),
            obeyed,
            Arc::clone(&self.status),
        );
        let on_open = self.on_open.clone();
        let running = self.pumps.spawn(async move {
            if let (Some(on_open), Some(session)) = (on_open, session) {
                call_back(&on_open, session).await;
            }
            let (end, report, stopped) = pump.run().await;
            for reply in stopped {
                let _ = reply.send(report);
            }
            (number, end, report)
        });
        self.members.insert(number, Member { commands, task: running.id() });
    }

    fn end(&mut self, ended: Result<Ended, JoinError>) {
        let (number, end, report) = match ended {
            Ok(ended) => ended,
            Err(error) => return self.members.retain(|_, member| member.task != error.id()),
        };
        self.members.remove(&number);
        self.report.add(&report);
        if matches!(end, PumpEnd::Failed) {
            self.has_failed = true;
            self.stop_all(STOP_DEADLINE);
        }
    }

    fn publish(&self) {
        let (state, target, sessions) = (self.phase, self.max_sessions, self.members.len());
        let sessions = u32::try_from(sessions).unwrap_or(u32::MAX);
        self.status.send_if_modified(|status| {
            let is_same = (status.state, status.target, status.sessions) == (state, target, sessions);
            (status.state, status.target, status.sessions) = (state, target, sessions);
            !is_same
        });
    }
}

impl Member {
    /// Stops the pump. A full queue of commands means that it is stopping already.
    fn stop(&self, deadline: Duration) {
        let (reply, _) = oneshot::channel();
        let _ = self.commands.try_send(Command::Stop { deadline, reply });
    }
}

/// Pauses a pump, and lets it end when its handlers have ended. Returns when it is quiet, or with `drains` when it has ended.
async fn let_go(commands: &mpsc::Sender<Command>, drains: bool) {
    let (reply, quiet) = oneshot::channel();
    let _ = commands.send(Command::Pause { drains: false, reply }).await;
    let _ = quiet.await;
    let (reply, stopped) = oneshot::channel();
    let _ = commands.send(Command::Stop { deadline: Duration::MAX, reply }).await;
    if drains {
        let _ = stopped.await;
    }
}

/// Returns what takes the next session, if one waits, and passes it to the crew.
fn hand_over(client: Client, entity: Arc<str>, handed: mpsc::Sender<Receiver>) -> HandOver {
    Arc::new(move || {
        let (builder, handed) = (client.receiver(&entity), handed.clone());
        Box::pin(async move {
            // Without another session, the same one is accepted again.
            if let Ok(receiver) = builder.next_session(HAND_OVER_WAIT).manual_credit().open().await {
                let _ = handed.send(receiver).await;
            }
        })
    })
}

async fn joined(task: &mut Option<JoinHandle<Result<Receiver, Error>>>) -> Option<Result<Receiver, Error>> {
    match task {
        Some(task) => task.await.ok(),
        None => std::future::pending().await,
    }
}
