//! Several processors in one process, with the signals of the operating system.
//!
//! ```no_run
//! # async fn example(orders: peeklock::processor::Processor, chat: peeklock::processor::Processor) {
//! use peeklock::worker_group::{WorkerGroup, shutdown_signal};
//!
//! let report = WorkerGroup::new().add(orders).add(chat).run_until(shutdown_signal()).await;
//! println!("{report}");
//! # }
//! ```
//!
//! On Unix, SIGTERM and SIGINT stop the group with its deadline, and a second one stops it at once. SIGTSTP (Ctrl-Z) pauses, SIGCONT resumes,
//! and SIGUSR1 writes the state to the log.

mod health;
mod signals;

use std::fmt;
use std::time::Duration;

use futures_util::future::join_all;

use crate::processor::{Processor, STOP_DEADLINE, State, StopReport};

pub use health::{Health, WorkerHealth};
pub use signals::shutdown_signal;
use signals::{Signal, Signals};

/// Processors that start and stop together.
#[derive(Default)]
#[must_use = "call run_until"]
pub struct WorkerGroup {
    workers: Vec<Processor>,
    deadline: Option<Duration>,
    #[cfg(feature = "health")]
    health: Option<std::net::SocketAddr>,
}

/// The end of each processor of a group.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct GroupReport {
    /// The name of each processor with its last state and its report. The report is missing if the processor had ended before.
    pub workers: Vec<(String, State, Option<StopReport>)>,
}

impl GroupReport {
    /// Returns whether a processor has failed.
    pub fn has_failed(&self) -> bool {
        self.workers.iter().any(|(_, state, _)| *state == State::Failed)
    }
}

impl fmt::Display for GroupReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, state, report)) in self.workers.iter().enumerate() {
            let separator = if at == 0 { "" } else { "; " };
            write!(f, "{separator}{name} {state}")?;
            if let Some(report) = report {
                write!(f, ": {report}")?;
            }
        }
        Ok(())
    }
}

impl WorkerGroup {
    /// Returns an empty group.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a running processor.
    #[allow(clippy::should_implement_trait, reason = "a group is built, not summed")]
    pub fn add(mut self, processor: Processor) -> Self {
        self.workers.push(processor);
        self
    }

    /// Sets how long a stop waits for running handlers. The default is 30 s.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Serves [`WorkerGroup::health`] over HTTP while the group runs: `/livez` and `/readyz`.
    #[cfg(feature = "health")]
    pub fn health_listener(mut self, address: std::net::SocketAddr) -> Self {
        self.health = Some(address);
        self
    }

    /// Returns the health of all processors.
    pub fn health(&self) -> Health {
        Health::of(&self.workers)
    }

    /// Runs until the future ends or a processor ends, and then stops all processors. A failed processor stops the others, so that a supervisor
    /// can start the process again.
    pub async fn run_until(self, shutdown: impl Future<Output = ()>) -> GroupReport {
        let mut signals = Signals::listen();
        #[cfg(feature = "health")]
        let _listener = self.health.map(|address| health::Listener::start(address, self.workers.clone()));
        let ended = join_first(&self.workers);
        tokio::pin!(shutdown, ended);
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                () = &mut ended => break,
                signal = signals.next() => match signal {
                    Signal::Stop => break,
                    other => self.obey(other).await,
                },
            }
        }
        self.stop(&mut signals).await
    }

    async fn obey(&self, signal: Signal) {
        match signal {
            Signal::Stop => {}
            Signal::Quiet => drop(join_all(self.workers.iter().map(Processor::pause)).await),
            Signal::Resume => drop(join_all(self.workers.iter().map(Processor::resume)).await),
            Signal::Dump => tracing::info!("{}", self.health()),
        }
    }

    /// Stops with the deadline; a second signal stops at once.
    async fn stop(&self, signals: &mut Signals) -> GroupReport {
        let deadline = self.deadline.unwrap_or(STOP_DEADLINE);
        tracing::info!(?deadline, "the worker group stops; a second signal stops it at once");
        let stops = join_all(self.workers.iter().map(|worker| worker.stop(deadline)));
        tokio::pin!(stops);
        let reports = loop {
            tokio::select! {
                reports = &mut stops => break reports,
                signal = signals.next() => if signal == Signal::Stop {
                    // The first call returns as soon as this one shortens the deadline.
                    let workers = self.workers.clone();
                    tokio::spawn(async move {
                        join_all(workers.iter().map(|worker| worker.stop(Duration::ZERO))).await;
                    });
                },
            }
        };
        let state = |worker: &Processor| worker.status().borrow().state;
        let ends = self.workers.iter().zip(reports);
        let workers =
            ends.map(|(worker, report)| (worker.name().to_owned(), state(worker), report.ok())).collect();
        GroupReport { workers }
    }
}

/// Returns when a processor has ended.
async fn join_first(workers: &[Processor]) {
    let ended = workers.iter().map(|worker| Box::pin(worker.ended()));
    if workers.is_empty() {
        return std::future::pending().await;
    }
    futures_util::future::select_all(ended).await;
}
