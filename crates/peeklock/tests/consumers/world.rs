//! A broker that can be reached over one transport, and what the tests do with it again and again.

use std::net::SocketAddr;
use std::time::Duration;

use peeklock::admin::{Counts, Queue};
use peeklock::embedded::Broker;
use peeklock::processor::{Processor, Status};
use peeklock::testing::TestBroker;
use peeklock::{Client, Delivery, Message, Receiver};

/// The shortest lock that a queue can have.
pub(crate) const SHORT_LOCK: Duration = Duration::from_secs(1);

/// A broker and a client of it.
pub(crate) struct World {
    pub(crate) client: Client,
    place: Place,
}

enum Place {
    /// The broker is on virtual time.
    Memory(TestBroker),
    Directory(Broker, #[expect(dead_code, reason = "it is removed when the test ends")] tempfile::TempDir),
    Loopback(#[expect(dead_code, reason = "the broker ends with its last handle")] Broker, SocketAddr),
}

impl Place {
    async fn client(&self) -> Client {
        match self {
            Place::Memory(broker) => broker.client().await,
            Place::Directory(broker, _) => broker.client().await.unwrap(),
            Place::Loopback(_, address) => {
                let target = format!("amqp://RootManageSharedAccessKey:SAS_KEY_VALUE@{address}");
                Client::connect(&target).await.unwrap()
            }
        }
    }
}

impl World {
    pub(crate) async fn in_memory() -> Self {
        Self::of(Place::Memory(TestBroker::start().await)).await
    }

    pub(crate) async fn in_a_directory() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let broker = Broker::open(directory.path()).await.unwrap();
        Self::of(Place::Directory(broker, directory)).await
    }

    pub(crate) async fn over_amqp() -> Self {
        let broker = Broker::in_memory().await.unwrap();
        let address = broker.serve("127.0.0.1:0").await.unwrap();
        Self::of(Place::Loopback(broker, address)).await
    }

    async fn of(place: Place) -> Self {
        World { client: place.client().await, place }
    }

    /// Returns another client, with a connection of its own.
    pub(crate) async fn other_client(&self) -> Client {
        self.place.client().await
    }

    pub(crate) async fn queue(&self, name: &str, queue: Queue) {
        self.client.admin().create_queue(name, queue).await.unwrap();
    }

    /// Creates a queue with these messages, whose ids are their texts.
    pub(crate) async fn queue_with(&self, name: &str, queue: Queue, texts: &[&str]) {
        self.queue(name, queue).await;
        self.send(name, texts).await;
    }

    pub(crate) async fn send(&self, name: &str, texts: &[&str]) {
        let sender = self.client.sender(name).await.unwrap();
        for text in texts {
            sender.send(Message::text(*text).message_id((*text).to_owned())).await.unwrap();
        }
    }

    pub(crate) async fn send_to_session(&self, name: &str, session: &str, texts: &[&str]) {
        let sender = self.client.sender(name).await.unwrap();
        for text in texts {
            sender.send(Message::text(*text).session_id(session.to_owned())).await.unwrap();
        }
    }

    /// Opens a receiver that gets only the messages that the test requests.
    pub(crate) async fn receiver(&self, name: &str) -> Receiver {
        self.client.receiver(name).manual_credit().open().await.unwrap()
    }

    pub(crate) async fn dead_letters(&self, name: &str) -> Receiver {
        self.client.receiver(name).dead_letter().manual_credit().open().await.unwrap()
    }

    pub(crate) async fn counts(&self, name: &str) -> Counts {
        self.client.admin().queue(name).await.unwrap().counts
    }

    /// Asserts that the broker has neither a message nor a lock.
    pub(crate) async fn assert_empty(&self, name: &str) {
        let counts = self.counts(name).await;
        assert_eq!((counts.message_count, counts.locked_count), (0, 0), "{counts:?}");
    }
}

/// Requests one message and waits for it.
pub(crate) async fn take(receiver: &mut Receiver) -> Delivery {
    receiver.add_credit(1).await.unwrap();
    receiver.next().await.unwrap().unwrap()
}

/// Requests so many messages and waits for them.
pub(crate) async fn take_many(receiver: &mut Receiver, count: usize) -> Vec<Delivery> {
    receiver.add_credit(u32::try_from(count).unwrap()).await.unwrap();
    let mut deliveries = Vec::new();
    while deliveries.len() < count {
        deliveries.push(receiver.next().await.unwrap().unwrap());
    }
    deliveries
}

pub(crate) fn text(delivery: &Delivery) -> String {
    delivery.message().body_text().into_owned()
}

/// Waits until the status of a processor fits.
pub(crate) async fn until(processor: &Processor, fits: impl Fn(&Status) -> bool) -> Status {
    let mut status = processor.status();
    status.wait_for(|status| fits(status)).await.unwrap().clone()
}
