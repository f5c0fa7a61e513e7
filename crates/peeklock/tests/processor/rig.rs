//! A broker in memory, clients over pipes, and handlers that the test controls.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use peeklock::processor::{ErrorContext, Processor, Status};
use peeklock::{Client, Dial, DialError, Message, ReceivedMessage};
use peeklock_access::{Access, Policy, Right};
use peeklock_broker::engine::Counts;
use peeklock_broker::{Broker, Clock, Running};
use peeklock_client::{Admin, Options, Target};
use peeklock_gateway_azure::Gateway;
use peeklock_journal::MemoryJournal;
use peeklock_types::{EntityName, QueueSettings};
use tokio::sync::{Semaphore, watch};

use crate::stranger::Stranger;

pub(crate) const LOCK: Duration = Duration::from_secs(60);

/// A broker with one queue, `q`.
pub(crate) struct Rig {
    broker: Broker,
    wires: Wires,
    pub(crate) client: Client,
    _running: Running,
}

/// Opens connections to the broker.
#[derive(Clone)]
struct Wires {
    gateway: Arc<Gateway>,
    stop: Arc<watch::Sender<bool>>,
    plug: Plug,
    is_stranger: bool,
}

/// The connections of one client.
#[derive(Clone, Default)]
pub(crate) struct Plug {
    is_pulled: Arc<AtomicBool>,
    tasks: Arc<Mutex<Vec<tokio::task::JoinHandle<()>>>>,
}

impl Plug {
    /// Cuts all connections and refuses new ones: to the broker, the process of the client has crashed.
    pub(crate) fn pull(&self) {
        self.is_pulled.store(true, Ordering::SeqCst);
        self.tasks.lock().unwrap().drain(..).for_each(|task| task.abort());
    }
}

impl Dial for Wires {
    fn dial(&self) -> BoxFuture<'_, Result<peeklock_client::Client, DialError>> {
        Box::pin(async {
            let (near, far) = tokio::io::duplex(1 << 20);
            let (gateway, stopping) = (Arc::clone(&self.gateway), self.stop.subscribe());
            if !self.plug.is_pulled.load(Ordering::SeqCst) {
                let serving = tokio::spawn(async move { drop(gateway.serve(far, None, stopping).await) });
                self.plug.tasks.lock().unwrap().push(serving);
            }
            match self.is_stranger {
                true => peeklock_client::Client::connect_over(Stranger(near), &target(), "test").await,
                false => peeklock_client::Client::connect_over(near, &target(), "test").await,
            }
        })
    }

    fn admin(&self) -> Admin {
        Admin::new(&target(), &Options::default())
    }

    fn address(&self) -> String {
        "memory".to_owned()
    }
}

fn target() -> Target {
    // Nothing listens on this port, so requests to the administration fail.
    Target::parse("amqp://all:secret@127.0.0.1:9").unwrap()
}

pub(crate) fn settings() -> QueueSettings {
    QueueSettings { lock_duration: LOCK, ..QueueSettings::default() }
}

impl Rig {
    pub(crate) async fn start() -> Self {
        Self::with(settings()).await
    }

    pub(crate) async fn with(settings: QueueSettings) -> Self {
        Self::with_clock(settings, Clock::start()).await
    }

    /// Starts a broker with a wall clock of its own.
    pub(crate) async fn with_clock(settings: QueueSettings, clock: Clock) -> Self {
        Self::open(settings, clock, false).await
    }

    /// Starts a broker that offers none of Peeklock's capabilities to the client.
    pub(crate) async fn elsewhere(settings: QueueSettings) -> Self {
        Self::open(settings, Clock::start(), true).await
    }

    async fn open(settings: QueueSettings, clock: Clock, is_stranger: bool) -> Self {
        let describe = peeklock_message::describe;
        let (broker, running, _) = Broker::open_at(&MemoryJournal::new(), clock, describe).await.unwrap();
        let policies = vec![Policy::with_one_key("all", "secret", &[Right::Manage])];
        let gateway = Gateway::new(broker.clone(), Access::open(None, policies).unwrap());
        broker.create_queue(name(), settings).await.unwrap();
        let (gateway, stop) = (Arc::new(gateway), Arc::new(watch::channel(false).0));
        let wires = Wires { gateway, stop, plug: Plug::default(), is_stranger };
        let client = Client::over(Arc::new(wires.clone())).connect().await.unwrap();
        Rig { broker, wires, client, _running: running }
    }

    /// Returns another client, on connections of its own.
    pub(crate) async fn other_client(&self) -> (Client, Plug) {
        let plug = Plug::default();
        let wires = Wires { plug: plug.clone(), ..self.wires.clone() };
        (Client::over(Arc::new(wires)).connect().await.unwrap(), plug)
    }

    pub(crate) async fn send(&self, bodies: impl IntoIterator<Item = impl ToString>) {
        let messages = bodies.into_iter().map(|body| Message::text(body.to_string()));
        self.client.sender("q").await.unwrap().send_batch(messages).await.unwrap();
    }

    pub(crate) async fn counts(&self) -> Counts {
        self.broker.show(name()).await.unwrap().counts
    }

    /// Asserts from the broker's side that no lock is left, and that so many messages wait.
    pub(crate) async fn assert_unlocked(&self, waiting: u64) {
        a_moment().await;
        let counts = self.counts().await;
        assert_eq!((counts.locked_count, counts.active_count), (0, waiting), "(locked, waiting)");
    }

    /// Returns the waiting messages without locking them.
    pub(crate) async fn waiting(&self) -> Vec<ReceivedMessage> {
        self.client.peek("q", Default::default(), 1000).await.unwrap()
    }

    /// Asserts that no delivery of a waiting message was counted.
    pub(crate) async fn assert_uncounted(&self) {
        let counted: Vec<_> = self.waiting().await.iter().map(ReceivedMessage::delivery_count).collect();
        assert!(counted.iter().all(|count| *count == 0), "deliveries were counted: {counted:?}");
    }

    pub(crate) async fn dead_letters(&self) -> Vec<ReceivedMessage> {
        self.client.peek("q/$DeadLetterQueue", Default::default(), 1000).await.unwrap()
    }
}

fn name() -> EntityName {
    EntityName::parse("q").unwrap()
}

/// Lets every task do what it can do now. Virtual time passes by a little.
pub(crate) async fn a_moment() {
    tokio::time::sleep(Duration::from_millis(20)).await;
}

/// Waits until the status fits.
pub(crate) async fn until(processor: &Processor, fits: impl Fn(&Status) -> bool) -> Status {
    let mut status = processor.status();
    let waiting = tokio::time::timeout(Duration::from_secs(36_000), status.wait_for(|status| fits(status)));
    waiting.await.expect("the status is reached").unwrap().clone()
}

/// Handlers wait at the gate, and the test lets them through one by one.
#[derive(Clone)]
pub(crate) struct Gate {
    permits: Arc<Semaphore>,
    started: Arc<Mutex<Vec<String>>>,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Gate { permits: Arc::new(Semaphore::new(0)), started: Arc::default() }
    }

    pub(crate) async fn pass(&self, body: String) {
        self.started.lock().unwrap().push(body);
        self.permits.acquire().await.unwrap().forget();
    }

    pub(crate) fn open(&self, count: usize) {
        self.permits.add_permits(count);
    }

    pub(crate) fn started(&self) -> Vec<String> {
        self.started.lock().unwrap().clone()
    }
}

/// The errors that an error handler got.
#[derive(Clone, Default)]
pub(crate) struct Errors {
    seen: Arc<Mutex<Vec<ErrorContext>>>,
}

impl Errors {
    pub(crate) fn handler(&self) -> impl Fn(ErrorContext) -> std::future::Ready<()> + Send + Sync + 'static {
        let seen = Arc::clone(&self.seen);
        move |context| {
            seen.lock().unwrap().push(context);
            std::future::ready(())
        }
    }

    pub(crate) fn seen(&self) -> Vec<ErrorContext> {
        self.seen.lock().unwrap().clone()
    }
}
