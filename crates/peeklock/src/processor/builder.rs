//! The settings of a processor.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, watch};
use tower::{BoxError, Layer, Service};

use super::batch::{Batch, Batching, IntoOutcomes};
use super::check::check;
use super::errors::{ErrorContext, OnError, Reporter};
use super::handle::{Processor, Remote};
use super::kill_switch::KillSwitch;
use super::pump::{Opener, Pump, Settings};
use super::renewal::Renew;
use super::runner::Runner;
use super::status::Status;
use crate::error::{Error, Kind};
use crate::handler::{Handler, Job, JobService, Registered, Shared, States, service_of};
use crate::retry::Retry;
use crate::{Client, Outcome};

/// The number of commands that wait for a pump.
const COMMANDS_MAX: usize = 16;
const MAX_CONCURRENT_MAX: u32 = 5_000;
const GRACE: Duration = Duration::from_secs(5);

type Check = fn(&Registered<'_>) -> Result<(), Error>;
type Wrap = Box<dyn FnOnce(JobService) -> JobService + Send>;

/// The settings that all kinds of processors have.
pub(crate) struct Common {
    pub(crate) client: Client,
    pub(crate) entity: Arc<str>,
    name: Option<String>,
    handler: Option<(JobService, Check)>,
    layers: Vec<Wrap>,
    states: States,
    pub(crate) auto_complete: bool,
    renew: Renew,
    pub(crate) retry: Retry,
    kill_switch: Option<KillSwitch>,
    on_error: Option<OnError>,
    grace: Duration,
}

impl Common {
    pub(crate) fn new(client: Client, entity: &str) -> Self {
        Common {
            client,
            entity: entity.into(),
            name: None,
            handler: None,
            layers: Vec::new(),
            states: States::default(),
            auto_complete: true,
            renew: Renew::default(),
            retry: Retry::default(),
            kill_switch: None,
            on_error: None,
            grace: GRACE,
        }
    }

    pub(crate) fn layer<L>(&mut self, layer: L)
    where
        L: Layer<JobService> + Send + 'static,
        L::Service: Service<Job, Response = Outcome> + Send + 'static,
        <L::Service as Service<Job>>::Error: Into<BoxError> + 'static,
        <L::Service as Service<Job>>::Future: Send + 'static,
    {
        let wrap = move |inner| JobService::new(Shared::new(layer.layer(inner)));
        self.layers.push(Box::new(wrap));
    }

    pub(crate) fn settings(&self, max_concurrent: u32) -> Settings {
        Settings {
            max_concurrent,
            prefetch: 0,
            renew: self.renew,
            kill_switch: self.kill_switch,
            grace: self.grace,
            batching: None,
            session: None,
            on_close: None,
            hand_over: None,
        }
    }

    /// Returns the status of the processor, and what its deliveries share.
    pub(crate) fn build(mut self) -> Result<Built, Error> {
        let (handler, check) = self.handler.take().ok_or_else(|| self.no_handler())?;
        check(&Registered(&self.states))?;
        let is_gated = !self.layers.is_empty();
        // The first layer is the outermost.
        let service = self.layers.into_iter().rev().fold(handler, |inner, wrap| wrap(inner));
        let status = Arc::new(watch::channel(Status::default()).0);
        let name: Arc<str> = self.name.map_or_else(|| Arc::clone(&self.entity), Into::into);
        let reporter =
            Reporter::start(Arc::clone(&self.entity), Arc::clone(&name), Arc::clone(&status), self.on_error);
        let runner = Runner {
            entity: self.entity,
            service,
            is_gated,
            states: self.states,
            retry: self.retry,
            auto_complete: self.auto_complete,
            reporter,
        };
        Ok(Built { status, runner: Arc::new(runner), name })
    }

    fn no_handler(&self) -> Error {
        let text =
            format!("The processor of \"{}\" has no handler. Add one with .handler(function).", self.entity);
        Error::new(Kind::Invalid, "E-PROC-06", text)
    }
}

/// The parts of a processor beside its pump.
pub(crate) struct Built {
    pub(crate) status: Arc<watch::Sender<Status>>,
    pub(crate) runner: Arc<Runner>,
    pub(crate) name: Arc<str>,
}

/// Checks a number of concurrent calls or sessions.
pub(crate) fn check_count(name: &str, count: u32) -> Result<(), Error> {
    if (1..=MAX_CONCURRENT_MAX).contains(&count) {
        return Ok(());
    }
    let text = format!("{name} is {count}. Use 1 to {MAX_CONCURRENT_MAX}.");
    Err(Error::new(Kind::Invalid, "E-PROC-07", text))
}

/// The settings of a processor, from [`Client::processor`].
#[must_use = "call start"]
pub struct ProcessorBuilder {
    common: Common,
    max_concurrent: u32,
    prefetch: u32,
    batching: Option<Batching>,
}

/// Adds the setters of [`Common`] to a builder with a field of this name.
macro_rules! common_setters {
    () => {
        /// Sets the handler.
        pub fn handler<A: 'static>(mut self, handler: impl crate::handler::Handler<A>) -> Self {
            self.common.set_handler(handler);
            self
        }

        /// Adds a state for the extractor [`State`](crate::handler::State). A processor has one state of each type.
        pub fn state<S: Send + Sync + 'static>(mut self, state: S) -> Self {
            self.common.add_state(state);
            self
        }

        /// Sets the name, which dead letters and logs contain. The default is the name of the entity.
        pub fn name(mut self, name: impl Into<String>) -> Self {
            self.common.set_name(name.into());
            self
        }

        /// Sets whether the processor settles messages by the result of the handler (the default). Otherwise the handler settles through its
        /// [`Context`](crate::handler::Context).
        pub fn auto_complete(mut self, is_on: bool) -> Self {
            self.common.auto_complete = is_on;
            self
        }

        /// Sets how long locks are renewed while handlers run. The default is 5 minutes.
        pub fn auto_renew(mut self, renew: crate::processor::Renew) -> Self {
            self.common.set_renew(renew);
            self
        }

        /// Sets the retry policy.
        pub fn retry(mut self, retry: crate::Retry) -> Self {
            self.common.retry = retry;
            self
        }

        /// Pauses the processor when too many handlers fail. The default is off.
        pub fn kill_switch(mut self, switch: crate::processor::KillSwitch) -> Self {
            self.common.set_kill_switch(switch);
            self
        }

        /// Adds a layer around the handler, inside the immediate retries. The first layer is the outermost.
        ///
        /// The processor has one service of the layer for all its calls, so a limit of the rate or of the concurrency holds for the processor.
        /// While the service is not ready, the processor requests no messages and holds none. A service whose `poll_ready` fails stops the
        /// processor.
        pub fn layer<L>(mut self, layer: L) -> Self
        where
            L: tower::Layer<crate::handler::JobService> + Send + 'static,
            L::Service: tower::Service<crate::handler::Job, Response = crate::Outcome> + Send + 'static,
            <L::Service as tower::Service<crate::handler::Job>>::Error: Into<tower::BoxError> + 'static,
            <L::Service as tower::Service<crate::handler::Job>>::Future: Send + 'static,
        {
            self.common.layer(layer);
            self
        }

        /// Sets the function that gets every error. It decides nothing: the retry policy does. The default is only the log.
        pub fn on_error<F, Fut>(mut self, on_error: F) -> Self
        where
            F: Fn(crate::processor::ErrorContext) -> Fut + Send + Sync + 'static,
            Fut: Future<Output = ()> + Send + 'static,
        {
            self.common.set_on_error(on_error);
            self
        }

        /// Sets how long a cancelled handler may take to end before it is dropped. The default is 5 s.
        pub fn cancel_grace(mut self, grace: std::time::Duration) -> Self {
            self.common.set_grace(grace);
            self
        }
    };
}
pub(crate) use common_setters;

impl Common {
    pub(crate) fn set_handler<A: 'static, H: Handler<A>>(&mut self, handler: H) {
        self.handler = Some((service_of(handler), H::check));
    }

    pub(crate) fn add_state<S: Send + Sync + 'static>(&mut self, state: S) {
        self.states.insert(state);
    }

    pub(crate) fn set_name(&mut self, name: String) {
        self.name = Some(name);
    }

    pub(crate) fn set_renew(&mut self, renew: Renew) {
        self.renew = renew;
    }

    pub(crate) fn set_kill_switch(&mut self, switch: KillSwitch) {
        self.kill_switch = Some(switch);
    }

    pub(crate) fn set_grace(&mut self, grace: Duration) {
        self.grace = grace;
    }

    pub(crate) fn set_on_error<F, Fut>(&mut self, on_error: F)
    where
        F: Fn(ErrorContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let boxed = move |context| -> BoxFuture<'static, ()> { Box::pin(on_error(context)) };
        self.on_error = Some(Arc::new(boxed));
    }
}

impl ProcessorBuilder {
    common_setters!();

    pub(crate) fn new(client: Client, entity: &str) -> Self {
        ProcessorBuilder {
            common: Common::new(client, entity),
            max_concurrent: 1,
            prefetch: 0,
            batching: None,
        }
    }

    /// Sets how many messages may run at a time. The default is 1.
    pub fn max_concurrent(mut self, max: u32) -> Self {
        self.max_concurrent = max;
        self
    }

    /// Sets how many messages to receive in advance, beyond those that can start at once. Their locks are renewed as well. The default is 0.
    pub fn prefetch(mut self, count: u32) -> Self {
        self.prefetch = count;
        self
    }

    /// Sets a handler for up to `count_max` messages at a time, in place of [`ProcessorBuilder::handler`]. A smaller batch starts when its
    /// first message has waited for `wait`. `max_concurrent` is then the number of batches. Layers and immediate retries do not apply.
    pub fn batch<F, Fut>(mut self, count_max: u32, wait: Duration, handler: F) -> Self
    where
        F: Fn(Batch) -> Fut + Send + Sync + 'static,
        Fut: Future + Send + 'static,
        Fut::Output: IntoOutcomes,
    {
        self.batching = Some(Batching::new(count_max, wait, handler));
        // The single handler is never called.
        self.common.set_handler(|| async {});
        self
    }

    /// Attaches the link and starts the processor.
    pub async fn start(self) -> Result<Processor, Error> {
        check_count("max_concurrent", self.max_concurrent)?;
        self.batching.as_ref().map_or(Ok(()), Batching::check)?;
        let (client, entity) = (self.common.client.clone(), Arc::clone(&self.common.entity));
        let (checking, checked_entity) = (client.clone(), Arc::clone(&entity));
        let (retry, prefetch) = (self.common.retry, self.prefetch);
        let mut settings = self.common.settings(self.max_concurrent);
        settings.prefetch = self.prefetch;
        settings.batching = self.batching;
        let Built { status, runner, name } = self.common.build()?;
        let opener: Opener = Box::new(move || {
            let builder = client.receiver(&entity).manual_credit();
            Box::pin(builder.open())
        });
        let (opened, checked) = tokio::join!(opener(), check(&checking, &checked_entity, retry, prefetch));
        checked?;
        let receiver = opened?;
        let (sender, commands) = mpsc::channel(COMMANDS_MAX);
        let remote = Remote::new(name, sender, status.subscribe());
        let pump = Pump::new(receiver, Some(opener), runner, settings, commands, status);
        tokio::spawn(pump.run_to_end());
        Ok(Processor { remote })
    }
}

impl Client {
    /// Returns a builder for a processor: it receives from a queue or subscription and calls a handler for each message.
    pub fn processor(&self, entity: &str) -> ProcessorBuilder {
        ProcessorBuilder::new(self.clone(), entity)
    }
}
