//! The settings of a session processor.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::mpsc;

use super::crew::{Crew, HAND_OVER_WAIT};
use crate::Client;
use crate::error::{Error, Kind};
use crate::processor::{Built, Common, Processor, Remote, SessionLimits, check, check_count};
use crate::receiver::Receiver;
use crate::session::Session;

const COMMANDS_MAX: usize = 16;

/// A callback about a session.
pub(crate) type Callback = Arc<dyn Fn(Session) -> BoxFuture<'static, ()> + Send + Sync>;

/// Calls a callback. A panic in it is logged.
pub(crate) async fn call_back(callback: &Callback, session: Session) {
    let call = AssertUnwindSafe(async { callback(session).await });
    if call.catch_unwind().await.is_err() {
        tracing::error!("a session callback has panicked");
    }
}

/// The settings of a session processor, from [`Client::session_processor`].
#[must_use = "call start"]
pub struct SessionProcessorBuilder {
    common: Common,
    max_sessions: u32,
    calls_per_session: u32,
    limits: SessionLimits,
    on_open: Option<Callback>,
    on_close: Option<Callback>,
}

impl SessionProcessorBuilder {
    crate::processor::common_setters!();

    pub(crate) fn new(client: Client, entity: &str) -> Self {
        let limits = SessionLimits {
            idle: Duration::from_secs(2),
            count_max: u64::MAX,
            time_max: Duration::from_secs(60),
        };
        let (on_open, on_close) = (None, None);
        let common = Common::new(client, entity);
        SessionProcessorBuilder { common, max_sessions: 8, calls_per_session: 1, limits, on_open, on_close }
    }

    /// Sets how many sessions to hold at a time. The default is 8.
    pub fn max_sessions(mut self, max: u32) -> Self {
        self.max_sessions = max;
        self
    }

    /// Sets how many messages of one session may run at a time. With more than 1, their order is lost. The default is 1.
    pub fn calls_per_session(mut self, calls: u32) -> Self {
        self.calls_per_session = calls;
        self
    }

    /// Sets how long a session without messages is held. The time runs only while nothing of the session is running or buffered. The default
    /// is 2 s.
    pub fn idle(mut self, idle: Duration) -> Self {
        self.limits.idle = idle;
        self
    }

    /// Sets after how many messages a session is released, so that no session starves another. The default is no limit.
    pub fn max_hold_count(mut self, messages: u64) -> Self {
        self.limits.count_max = messages;
        self
    }

    /// Sets after which time a session is released, so that no session starves another. The default is 60 s.
    pub fn max_hold_time(mut self, time: Duration) -> Self {
        self.limits.time_max = time;
        self
    }

    /// Sets a callback for each session before its first message.
    pub fn on_open<F, Fut>(mut self, callback: F) -> Self
    where
        F: Fn(Session) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.on_open = Some(Arc::new(move |session| Box::pin(callback(session))));
        self
    }

    /// Sets a callback for each session after its last message, while the session is still locked. It is not called for a lost session.
    pub fn on_close<F, Fut>(mut self, callback: F) -> Self
    where
        F: Fn(Session) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.on_close = Some(Arc::new(move |session| Box::pin(callback(session))));
        self
    }

    /// Starts the processor. A queue that does not exist or has no sessions is reported here. Its number of concurrent calls, for [`Processor::set_max_concurrent`], is the number of sessions.
    pub async fn start(self) -> Result<Processor, Error> {
        check_count("max_sessions", self.max_sessions)?;
        check_count("calls_per_session", self.calls_per_session)?;
        if self.limits.count_max == 0 {
            let text = "max_hold_count is 0, so no message would be handled. Use 1 or more.";
            return Err(Error::new(Kind::Invalid, "E-PROC-07", text));
        }
        let (client, entity) = (self.common.client.clone(), Arc::clone(&self.common.entity));
        let (first, checked) =
            tokio::join!(next_session(&client, &entity), check(&client, &entity, self.common.retry, 0));
        checked?;
        let first = first?;
        let mut settings = self.common.settings(self.calls_per_session);
        settings.session = Some(self.limits);
        settings.on_close = self.on_close;
        let Built { status, runner, name } = self.common.build()?;
        let (sender, commands) = mpsc::channel(COMMANDS_MAX);
        let remote = Remote::new(name, sender, status.subscribe());
        let crew = Crew::new(client, entity, runner, settings, self.max_sessions, status, commands)
            .with_callback(self.on_open);
        tokio::spawn(crew.run(first));
        Ok(Processor { remote })
    }
}

/// Accepts a session if one waits now.
async fn next_session(client: &Client, entity: &str) -> Result<Option<Receiver>, Error> {
    match client.receiver(entity).next_session(HAND_OVER_WAIT).manual_credit().open().await {
        Ok(receiver) => Ok(Some(receiver)),
        Err(error) if error.kind() == Kind::NoSession => Ok(None),
        Err(error) => Err(error),
    }
}

impl Client {
    /// Returns a builder for a session processor: it locks sessions of a queue or subscription and calls a handler for their messages.
    pub fn session_processor(&self, entity: &str) -> SessionProcessorBuilder {
        SessionProcessorBuilder::new(self.clone(), entity)
    }
}
