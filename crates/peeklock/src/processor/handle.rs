//! The handle of a running processor.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};

use super::status::{Status, StopReport};
use crate::error::{Error, Kind};

/// A command to a pump, with the place for its reply.
#[derive(Debug)]
pub(crate) enum Command {
    /// Holds nothing that is not running. With `drains`, waits for the running handlers as well.
    Pause {
        drains: bool,
        reply: oneshot::Sender<()>,
    },
    Resume {
        reply: oneshot::Sender<()>,
    },
    SetMax {
        max: u32,
        cancels: bool,
        reply: oneshot::Sender<()>,
    },
    Stop {
        deadline: Duration,
        reply: oneshot::Sender<StopReport>,
    },
}

/// The sending end of a pump's commands.
#[derive(Clone, Debug)]
pub(crate) struct Remote {
    name: Arc<str>,
    commands: mpsc::Sender<Command>,
    status: watch::Receiver<Status>,
}

impl Remote {
    pub(crate) fn new(
        name: Arc<str>,
        commands: mpsc::Sender<Command>,
        status: watch::Receiver<Status>,
    ) -> Self {
        Remote { name, commands, status }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn status(&self) -> watch::Receiver<Status> {
        self.status.clone()
    }

    pub(crate) async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<T>) -> Command,
    ) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        let closed = |_| {
            let text = format!("The processor \"{}\" has stopped. Start a new one.", self.name);
            Error::new(Kind::Closed, "E-PROC-01", text)
        };
        self.commands.send(command(reply)).await.map_err(|_| closed(()))?;
        answer.await.map_err(|_| closed(()))
    }

    pub(crate) async fn pause(&self, drains: bool) -> Result<(), Error> {
        self.ask(|reply| Command::Pause { drains, reply }).await
    }

    pub(crate) async fn resume(&self) -> Result<(), Error> {
        self.ask(|reply| Command::Resume { reply }).await
    }

    pub(crate) async fn set_max(&self, max: u32, cancels: bool) -> Result<(), Error> {
        self.ask(|reply| Command::SetMax { max, cancels, reply }).await
    }

    pub(crate) async fn stop(&self, deadline: Duration) -> Result<StopReport, Error> {
        self.ask(|reply| Command::Stop { deadline, reply }).await
    }

    pub(crate) async fn ended(&self) -> Status {
        let mut status = self.status.clone();
        // The sender is gone only after the end.
        let ended = status.wait_for(|status| status.state.has_ended()).await.map(|status| status.clone());
        ended.unwrap_or_else(|_| self.status.borrow().clone())
    }
}

/// A running processor. It is cheap to clone. When the last handle is dropped, the processor stops like
/// [`Processor::stop`] with the default deadline.
#[derive(Clone, Debug)]
#[must_use = "the processor stops when its last handle is dropped"]
pub struct Processor {
    pub(crate) remote: Remote,
}

impl Processor {
    /// Returns the name of the processor, which dead letters and logs contain.
    pub fn name(&self) -> &str {
        self.remote.name()
    }

    /// Stops receiving and hands back every message that is not running. Returns when nothing like that is held. Running handlers continue
    /// and keep their locks; the link stays open.
    pub async fn pause(&self) -> Result<(), Error> {
        self.remote.pause(false).await
    }

    /// Pauses, and waits for the running handlers.
    pub async fn pause_and_drain(&self) -> Result<(), Error> {
        self.remote.pause(true).await
    }

    /// Receives again after a pause.
    pub async fn resume(&self) -> Result<(), Error> {
        self.remote.resume().await
    }

    /// Sets how many messages may run at a time. A larger number takes effect at once. A smaller one never cancels: handlers end by
    /// themselves and are not replaced.
    pub async fn set_max_concurrent(&self, max: u32) -> Result<(), Error> {
        self.remote.set_max(max, false).await
    }

    /// Does the same, and cancels the newest handlers if more than `max` run.
    pub async fn set_max_concurrent_now(&self, max: u32) -> Result<(), Error> {
        self.remote.set_max(max, true).await
    }

    /// Stops in two steps. At first it receives nothing more and waits for the running handlers. At the deadline it fires
    /// [`Context::cancelled`](crate::handler::Context::cancelled); handlers that do not end within the grace period are dropped and their
    /// messages are handed back. After that, the processor holds no lock. A second call with a shorter deadline shortens the first.
    pub async fn stop(&self, deadline: Duration) -> Result<StopReport, Error> {
        self.remote.stop(deadline).await
    }

    /// Returns the state and the counts, now and after each change.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.remote.status()
    }

    /// Returns when the processor has stopped or failed.
    pub async fn ended(&self) -> Status {
        self.remote.ended().await
    }
}
