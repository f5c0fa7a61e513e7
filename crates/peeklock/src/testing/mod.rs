//! A broker for tests: in memory, on virtual time, with faults and assertions. Needs the feature `testing`.
//!
//! ```
//! use std::time::Duration;
//! use peeklock::Message;
//! use peeklock::admin::Queue;
//! use peeklock::testing::TestBroker;
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let broker = TestBroker::start().await;
//! broker.create_queue("orders", Queue::new().lock_duration(Duration::from_secs(60))).await;
//! let client = broker.client().await;
//! client.sender("orders").await?.send(Message::text("coffee")).await?;
//!
//! let mut orders = client.receiver("orders").manual_credit().open().await?;
//! orders.add_credit(1).await?;
//! let delivery = orders.next().await?.expect("a message waits");
//! assert_eq!(broker.held_locks("orders").await, 1);
//! broker.advance(Duration::from_secs(61)).await;
//! assert_eq!(broker.waiting("orders").await, 1, "the lock has expired");
//! # drop(delivery);
//! # Ok::<(), peeklock::Error>(())
//! # }).unwrap();
//! ```
//!
//! # Time
//! The broker, its clients and the test share the paused clock of the Tokio runtime, as with [`tokio::time::pause`]: time stands still while
//! any task can run, and jumps to the next timer when all tasks wait. [`TestBroker::advance`] passes every timer on its way in order, and
//! returns when all tasks have done what the new time allows, so a test can assert right after it. A lock, a schedule, a retry delay or a
//! time to live of hours takes microseconds.
//!
//! Tests need a runtime with one thread, which is the default of `#[tokio::test]`. A handler that waits for a real socket or another
//! thread would see time jump meanwhile; work in [`tokio::task::spawn_blocking`] does not let time pass.

mod clock;
mod deliver;
mod faults;
mod inspect;
mod ledger;

use std::sync::Arc;
use std::time::Duration;

use crate::admin::{Admin, Queue};
use crate::embedded::Broker;
use crate::{Client, Delivery, Dial, LockToken, Outcome, Timestamp};
use clock::VirtualClock;
pub use deliver::{TestDelivery, deliver};
use faults::Faults;
pub use ledger::HeldMessage;
use ledger::Ledger;

/// A broker in memory on virtual time. It ends when it and its clients are dropped.
///
/// Its methods panic where a test cannot go on, such as for a queue that does not exist.
pub struct TestBroker {
    broker: Broker,
    faults: Arc<Faults>,
    ledger: Arc<Ledger>,
    clock: VirtualClock,
}

impl TestBroker {
    /// Pauses the clock of the runtime and starts a broker without queues. In a test that has paused the clock already, the broker uses it.
    ///
    /// # Panics
    /// If the runtime has several threads.
    pub async fn start() -> Self {
        let clock = VirtualClock::pause();
        let broker = expect("start the broker", Broker::in_memory().await);
        TestBroker { broker, faults: Arc::default(), ledger: Arc::default(), clock }
    }

    /// Connects a client with the default settings.
    pub async fn client(&self) -> Client {
        expect("connect a client", self.dialling().connect().await)
    }

    /// Returns a builder for a client with other settings.
    pub fn dialling(&self) -> crate::ClientBuilder {
        let dial = self.broker.dial().wrapped(self.faults.clone());
        Client::over(Arc::new(dial)).observed(self.ledger.clone())
    }

    /// Returns the embedded broker, for example to serve it to other programs.
    pub fn broker(&self) -> &Broker {
        &self.broker
    }

    /// Lets time pass: all timers of the broker, its clients and the test become due in their order. Returns when all tasks have done what
    /// the new time allows.
    pub async fn advance(&self, span: Duration) {
        self.clock.advance(span).await;
    }

    /// Waits until no task can run, so that all that was started before has had its effect. Passes a few milliseconds of virtual time.
    pub async fn settle(&self) {
        self.clock.settle().await;
    }

    /// Returns the broker's time, for example to schedule a message.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Creates a queue.
    pub async fn create_queue(&self, name: &str, queue: Queue) {
        let created = self.admin().create_queue(name, queue).await;
        expect(&format!("create the queue '{name}'"), created.map(drop));
    }

    /// Returns the administration, for topics, hubs and all else.
    pub fn admin(&self) -> Admin {
        self.broker.admin()
    }

    /// Loses all connections, like a network that fails for a moment. Clients connect again.
    pub fn cut_connections(&self) {
        self.faults.cut();
    }

    /// Sets whether connections are refused. Open connections stay; see [`TestBroker::cut_connections`].
    pub fn refuse_connections(&self, refuses: bool) {
        self.faults.refuse(refuses);
    }

    /// Detaches the links of all clients to a queue, topic or subscription, as a broker does at times. Their connections stay open. Clients
    /// attach again; deliveries that they hold keep their locks.
    pub async fn drop_links(&self, entity: &str) {
        // Nothing may be under way on a link that ends.
        self.settle().await;
        self.faults.drop_links(entity);
        self.settle().await;
    }

    /// Ends the lock on a message as if it had expired. The delivery counts, and the message is available again. Its holder learns it with the
    /// next renewal or settlement. Not for queues with sessions, whose locks belong to the session.
    pub async fn lose_lock(&self, delivery: &Delivery) {
        if let Some(token) = delivery.lock_token() {
            self.end_lock(delivery.entity(), token).await;
        }
    }

    /// Does the same for a message that another part of the program holds, such as a processor: the one with this message id
    /// (`lose_lock_of("orders", "order-7")`) or this [`SequenceNumber`](crate::SequenceNumber).
    ///
    /// # Panics
    /// If no client of this test has received the message, or it is not locked any more.
    pub async fn lose_lock_of<'a>(&self, entity: &str, message: impl Into<HeldMessage<'a>>) {
        let message = message.into();
        let token = self.ledger.token(entity, message);
        let token =
            expect("end a lock", token.ok_or_else(|| format!("no client holds {message} of '{entity}'")));
        self.end_lock(entity, token).await;
    }

    async fn end_lock(&self, entity: &str, token: LockToken) {
        let connection = expect("connect", self.broker.dial().dial().await);
        let lost = connection.settle(entity, &[token], Outcome::Abandon).await;
        expect("end the lock", lost);
        connection.close().await;
    }

    /// Sets the time that a settlement takes from a client to the broker. What the client sends after it on the same connection waits, too.
    /// Applies to settlements over a link; zero ends the fault.
    pub fn delay_settlements(&self, delay: Duration) {
        self.faults.delay_settlements(delay);
    }
}

/// Returns the value, or ends the test with the action and the error.
fn expect<T>(action: &str, result: Result<T, impl std::fmt::Display>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("the test broker cannot {action}: {error}"),
    }
}
