//! The clients of a run, each with the real client-side engine, and their shared state.

pub(crate) mod blobs;
pub(crate) mod body;
mod consumer;
mod deleter;
pub(crate) mod hub;
mod orderer;
mod peeker;
mod producer;
pub(crate) mod program;
mod purger;
mod session;
mod worker;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use peeklock_client::{Client, Error, ReceivedMessage, Target as Address};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::log::{Answer, Event, Log, MessageNumber, Part, QueueIndex, Seen, SessionNumber};
use crate::machine::{KEY_NAME, KEY_SECRET, Office};
use crate::network::{Dialled, Network};
use crate::pipe::Wire;
use crate::scenario::{Scenario, Target};

pub(crate) use consumer::consume;
pub(crate) use deleter::{delete, idle};
pub(crate) use orderer::reorder;
pub(crate) use peeker::{peek, peeked};
pub(crate) use producer::produce;
pub(crate) use purger::purge;
pub(crate) use session::consume_sessions;

/// The longest time that a client waits for one answer. Then it drops its connection.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE_MS_MAX: u64 = 2_000;

/// The state that all clients share.
pub(crate) struct World {
    pub(crate) log: Log,
    pub(crate) network: Network,
    pub(crate) office: Office,
    pub(crate) scenario: Scenario,
    deferred: Mutex<Vec<Deferred>>,
    is_over: watch::Receiver<bool>,
}

/// A deferred message that any client may request.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Deferred {
    queue: QueueIndex,
    part: Part,
    session: Option<SessionNumber>,
    number: u64,
}

/// One client: its name and its own random generator.
pub(crate) struct Party {
    pub(crate) world: Arc<World>,
    pub(crate) name: Arc<str>,
    pub(crate) rng: Rng,
    connection_count: u32,
    /// The connection that is kept for the next request.
    kept: Option<Connected>,
}

/// A connection to one run of the broker.
pub(crate) struct Connected {
    pub(crate) client: Client,
    pub(crate) run: u32,
    pub(crate) connection: u32,
    wire: Arc<Wire>,
    log: Log,
    name: Arc<str>,
}

impl Drop for Connected {
    /// Cuts the connection. Clients may leave in any way, and this is the most abrupt one: the socket of a process that
    /// dies.
    fn drop(&mut self) {
        self.log.add(&self.name, Event::Broken { connection: self.connection });
        self.wire.cut();
    }
}

impl World {
    pub(crate) fn new(
        log: Log,
        network: Network,
        office: Office,
        scenario: Scenario,
        is_over: watch::Receiver<bool>,
    ) -> Self {
        World { log, network, office, scenario, deferred: Mutex::default(), is_over }
    }

    /// Returns whether the storm is over.
    pub(crate) fn is_over(&self) -> bool {
        *self.is_over.borrow()
    }

    pub(crate) fn queue_name(&self, queue: QueueIndex) -> &str {
        self.scenario.queues.get(queue).map_or("", |queue| &queue.name)
    }

    /// Reserves the numbers for a message to this target. The first one is the message's own.
    pub(crate) fn next_message(&self, target: Target) -> MessageNumber {
        self.log.next_message(self.scenario.numbers(target))
    }

    pub(crate) fn lock_duration(&self, queue: QueueIndex) -> Duration {
        self.scenario.queues.get(queue).map_or(PATIENCE, |queue| queue.settings.lock_duration)
    }

    pub(crate) fn entity(&self, queue: QueueIndex, part: Part) -> String {
        match part {
            Part::Main => self.queue_name(queue).to_owned(),
            Part::DeadLetter => format!("{}/$DeadLetterQueue", self.queue_name(queue)),
        }
    }

    fn note_deferred(&self, deferred: Deferred) {
        self.deferred.lock().unwrap_or_else(PoisonError::into_inner).push(deferred);
    }

    /// Returns some of the deferred messages of a sub-queue; other clients may request them too.
    fn some_deferred(
        &self,
        queue: QueueIndex,
        part: Part,
        session: Option<SessionNumber>,
        rng: &mut Rng,
    ) -> Vec<Deferred> {
        let deferred = self.deferred.lock().unwrap_or_else(PoisonError::into_inner);
        let is_here = |d: &&Deferred| (d.queue, d.part, d.session) == (queue, part, session);
        let mut found: Vec<_> = deferred.iter().filter(is_here).copied().collect();
        rng.shuffle(&mut found);
        found.truncate(rng.usize(1..4));
        found.dedup();
        found
    }

    fn forget_deferred(&self, deferred: Deferred) {
        let mut known = self.deferred.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|known| *known != deferred);
    }
}

impl Party {
    pub(crate) fn new(world: &Arc<World>, name: impl Into<Arc<str>>, rng: Rng) -> Self {
        Party { world: Arc::clone(world), name: name.into(), rng, connection_count: 0, kept: None }
    }

    pub(crate) fn log(&self, event: Event) {
        self.world.log.add(&self.name, event);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.world.is_over()
    }

    pub(crate) async fn pause(&mut self) {
        let span = Duration::from_millis(self.rng.u64(1..=PAUSE_MS_MAX));
        tokio::time::sleep(span).await;
    }

    pub(crate) async fn pause_up_to(&mut self, max_ms: u64) {
        tokio::time::sleep(Duration::from_millis(self.rng.u64(0..=max_ms))).await;
    }

    /// Logs that a receiver is about to be opened. Logged before the request, because messages may be in flight before
    /// the answer arrives.
    pub(crate) fn attach(&self, connected: &Connected, queue: QueueIndex, part: Part) -> u32 {
        let link = self.world.log.next_request();
        self.attach_as(link, connected, queue, part);
        link
    }

    pub(crate) fn attach_as(&self, link: u32, connected: &Connected, queue: QueueIndex, part: Part) {
        let (run, connection) = (connected.run, connected.connection);
        self.log(Event::Attaching { link, queue, part, run, connection });
    }

    /// Sends a request over AMQP, on the kept connection or on a new one. `Err(None)` means that the outcome is unknown
    /// and the connection is dropped.
    pub(crate) async fn over_wire<T>(
        &mut self,
        question: impl AsyncFnOnce(&Client) -> Result<T, Error>,
    ) -> Result<T, Option<Error>> {
        let connected = match self.kept.take() {
            Some(connected) => connected,
            None => self.try_connect().await.ok_or(None)?,
        };
        match timeout(PATIENCE, question(&connected.client)).await {
            Ok(Ok(value)) => {
                self.kept = Some(connected);
                Ok(value)
            }
            Ok(Err(why)) if matches!(answer_of(&why), Answer::Refused { .. }) => {
                self.kept = Some(connected);
                Err(Some(why))
            }
            Ok(Err(_)) | Err(_) => Err(None),
        }
    }

    /// Connects, with as many attempts as needed.
    pub(crate) async fn connect(&mut self) -> Connected {
        loop {
            if let Some(connected) = self.try_connect().await {
                return connected;
            }
            self.pause().await;
        }
    }

    async fn try_connect(&mut self) -> Option<Connected> {
        self.connection_count += 1;
        let Dialled { endpoint, wire, run, connection } = self.world.network.dial()?;
        let target = broker_address();
        let container = format!("{}-{}", self.name, self.connection_count);
        let opened = timeout(PATIENCE, Client::connect_over(endpoint, &target, &container)).await;
        match opened {
            Ok(Ok(client)) => {
                let (log, name) = (self.world.log.clone(), Arc::clone(&self.name));
                Some(Connected { client, run, connection, wire, log, name })
            }
            Ok(Err(_)) | Err(_) => {
                wire.cut();
                None
            }
        }
    }
}

/// Returns the address and the key of the broker.
pub(crate) fn broker_address() -> Address {
    let address = Address::parse(&format!("amqp://{KEY_NAME}:{KEY_SECRET}@broker:5672"));
    address.expect("the text has the form of an address")
}

/// Converts a received message into its log form.
pub(crate) fn seen(
    scenario: &Scenario,
    message: &ReceivedMessage,
    queue: QueueIndex,
    part: Part,
    run: u32,
) -> Seen {
    let read = body::read(message);
    let is_intact = read.is_intact;
    Seen {
        queue,
        part,
        message: number_in(scenario, &read, queue),
        sequence_number: message.sequence_number().map_or(0, |number| number.0),
        token: message.lock_token,
        locked_until_ms: message.locked_until().map_or(0, |until| until.as_millis()),
        delivery_count: message.delivery_count(),
        run,
        is_intact,
        dead_letter_reason: message.dead_letter_reason().map(str::to_owned),
        by_number: false,
        session: message.session_id().and_then(session_number),
        hold: None,
        link: None,
        enqueued_ms: message.enqueued_at().map_or(0, |at| at.as_millis()),
        class: message.class().map(str::to_owned),
    }
}

/// Returns the number of a message that was found in a queue.
pub(crate) fn number_in(scenario: &Scenario, read: &body::Read, queue: QueueIndex) -> Option<MessageNumber> {
    scenario.number_of(read.number?, read.topic, read.rule.as_deref(), queue)
}

pub(crate) fn session_id(number: SessionNumber) -> String {
    format!("s{number}")
}

pub(crate) fn session_number(id: &str) -> Option<SessionNumber> {
    id.strip_prefix('s')?.parse().ok()
}

/// Runs an operation with a timeout, and returns how it ended.
pub(crate) async fn ask<T>(operation: impl Future<Output = Result<T, Error>>) -> (Option<T>, Answer) {
    match timeout(PATIENCE, operation).await {
        Ok(Ok(value)) => (Some(value), Answer::Done),
        Ok(Err(error)) => (None, answer_of(&error)),
        Err(_) => (None, Answer::Unknown),
    }
}

fn answer_of(error: &Error) -> Answer {
    let refused = |lock_lost| Answer::Refused { lock_lost, why: error.to_string() };
    match error {
        Error::LockLost { .. } | Error::SessionLockLost { .. } => refused(true),
        Error::Rejected { .. }
        | Error::NotSettled { .. }
        | Error::Refused { .. }
        | Error::RolledBack { .. }
        | Error::Throttled { .. }
        | Error::TooLarge { .. }
        | Error::NotFound { .. } => refused(false),
        _ => Answer::Unknown,
    }
}
