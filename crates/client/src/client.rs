//! The handle to one connection.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use peeklock_amqp::connection::{Config, Connection, Millis, SaslClient};
use peeklock_types::{LockToken, SequenceNumber, Timestamp, limits};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot};

use crate::cbs::TokenKeeper;
use crate::driver::command::{COMMANDS_MAX, Command};
use crate::driver::{Driver, OpenFailure};
use crate::error::{ConnectError, Ending, Error};
use crate::management::Management;
use crate::outcome::Outcome;
use crate::pipeline::Pipeline;
use crate::producer::Producer;
use crate::received::ReceivedMessage;
use crate::receiver::{ReceiveMode, ReceiverBuilder};
use crate::sender::Sender;
use crate::shared::Shared;
use crate::spares::Spares;
use crate::target::{Credentials, Target};
use crate::transaction::Transaction;
use crate::transport;

/// The largest message that a queue can hold, plus the sections that a broker adds. A receiver with a lower limit would reject the message,
/// and a broker moves rejected messages to the dead-letter queue.
const MESSAGE_SIZE_BYTES_MAX: u64 = limits::LARGE_MESSAGE_SIZE_BYTES_MAX as u64 + 1024 * 1024;
/// The highest channel that the broker may use, as in Service Bus: 5,000 links of one connection have a session each. A broker that permits
/// fewer makes links share sessions.
const CHANNEL_MAX: u16 = 4_999;
/// The limit of bytes of incomplete messages on all links together: room for a few of the largest messages.
const INCOMPLETE_BYTES_MAX: usize = 4 * limits::LARGE_MESSAGE_SIZE_BYTES_MAX;

/// A connection to a broker. It is cheap to clone. It closes when the last clone and everything that was opened with it are dropped.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use peeklock_client::{Client, Message};
///
/// let client = Client::connect(
///     "Endpoint=sb://localhost;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true",
/// ).await?;
/// client.sender("orders").await?.send(&Message::data("hello")).await?;
/// let mut receiver = client.receiver("orders").open().await?;
/// if let Some(delivery) = receiver.next().await? {
///     delivery.complete().await?;
/// }
/// client.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

/// Settings of a connection that the target does not contain.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Options {
    /// A PEM file with certificates to trust in addition to those of the machine.
    pub certificates: Option<PathBuf>,
    /// The name of the connection in the broker's log. A random name is the default.
    pub identifier: Option<String>,
}

impl Client {
    /// Connects to a Service Bus connection string, or to `amqp://NAME:SECRET@HOST:PORT` (`amqps://` for TLS).
    pub async fn connect(target: &str) -> Result<Self, ConnectError> {
        Self::connect_with(&Target::parse(target)?, &Options::default()).await
    }

    /// Connects with options.
    pub async fn connect_with(target: &Target, options: &Options) -> Result<Self, ConnectError> {
        let stream = transport::connect(target, options.certificates.as_deref()).await?;
        let identifier = options.identifier.clone().unwrap_or_else(container_id);
        Self::connect_over(stream, target, &identifier).await
    }

    /// Connects over an open stream, such as a tunnel or an in-memory pipe. `container_id` identifies the connection in the broker's log.
    pub async fn connect_over<S>(stream: S, target: &Target, container_id: &str) -> Result<Self, ConnectError>
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        let mut config = Config::client(container_id.to_owned(), target.host.clone());
        config.channel_max = CHANNEL_MAX;
        config.limits.message_size_bytes_max = MESSAGE_SIZE_BYTES_MAX;
        config.limits.incomplete_bytes_max = INCOMPLETE_BYTES_MAX;
        let connection = Connection::client(config, Some(sasl(&target.credentials)), Millis(0));
        let (commands, incoming) = mpsc::channel(COMMANDS_MAX);
        let (opening, opened) = oneshot::channel();
        let ending = Ending::default();
        let spares = Arc::<Spares>::default();
        let address = target.address().into();
        let driver =
            Driver::new(address, connection, incoming, Arc::clone(&spares), Arc::clone(&ending), opening);
        tokio::spawn(driver.run(stream));
        match opened.await {
            Ok(Ok(())) => {}
            Ok(Err(failure)) => return Err(open_error(target, failure)),
            Err(_) => return Err(open_error(target, OpenFailure::Other("it went away".to_owned()))),
        }
        let tokens = TokenKeeper::start(&target.credentials, &commands);
        Ok(Self { shared: Arc::new(Shared { commands, ending, tokens, spares }) })
    }

    /// Returns the reason why the connection has ended, or `None` while it is open.
    pub fn ended(&self) -> Option<Error> {
        self.shared.ending.get().cloned()
    }

    /// Opens a link to send to a queue. Each send waits for its confirmation.
    pub async fn sender(&self, entity: &str) -> Result<Sender, Error> {
        Sender::open(Arc::clone(&self.shared), entity, None).await
    }

    /// Opens a link to a partition of a hub for a producer that numbers its events ([`Producer::number`]). The broker confirms an event
    /// that is sent again after a lost connection, without storing it twice.
    pub async fn producer(&self, partition: &str, producer: Producer) -> Result<Sender, Error> {
        Sender::open(Arc::clone(&self.shared), partition, Some(producer)).await
    }

    /// Opens a link to send to a queue without waiting for each confirmation. At most `unconfirmed_max` messages are in flight.
    pub async fn pipeline(&self, entity: &str, unconfirmed_max: u32) -> Result<Pipeline, Error> {
        Pipeline::open(Arc::clone(&self.shared), entity, unconfirmed_max).await
    }

    /// Returns a builder for a receiver of a queue.
    pub fn receiver(&self, entity: &str) -> ReceiverBuilder {
        ReceiverBuilder::new(Arc::clone(&self.shared), entity)
    }

    /// Returns up to `count` messages in order, starting at a sequence number, without locking them.
    pub async fn peek(
        &self,
        entity: &str,
        from: SequenceNumber,
        count: u32,
    ) -> Result<Vec<ReceivedMessage>, Error> {
        self.management(entity).await?.peek(from, count, None).await
    }

    /// Returns messages of one session without locking the messages or the session.
    pub async fn peek_session(
        &self,
        entity: &str,
        session: &str,
        from: SequenceNumber,
        count: u32,
    ) -> Result<Vec<ReceivedMessage>, Error> {
        self.management(entity).await?.peek(from, count, Some(session)).await
    }

    /// Returns the ids of all sessions that have messages. With a time, returns the sessions whose state was set since then.
    pub async fn list_sessions(
        &self,
        entity: &str,
        updated_since: Option<Timestamp>,
    ) -> Result<Vec<String>, Error> {
        const PAGE_COUNT_MAX: i32 = 1000;
        let management = self.management(entity).await?;
        let mut sessions = Vec::new();
        loop {
            let page = management.sessions(updated_since, sessions.len(), PAGE_COUNT_MAX).await?;
            if page.is_empty() {
                return Ok(sessions);
            }
            sessions.extend(page);
        }
    }

    /// Starts a transaction.
    pub async fn transaction(&self) -> Result<Transaction, Error> {
        Transaction::declare(Arc::clone(&self.shared)).await
    }

    /// Extends locks. Returns the new expiry times in the order of the tokens.
    pub async fn renew(&self, entity: &str, tokens: &[LockToken]) -> Result<Vec<Timestamp>, Error> {
        self.management(entity).await?.renew(tokens).await
    }

    /// Fetches deferred messages by their sequence numbers. In peek-lock mode, settle them with [`Client::settle`].
    pub async fn receive_deferred(
        &self,
        entity: &str,
        numbers: &[SequenceNumber],
        mode: ReceiveMode,
    ) -> Result<Vec<ReceivedMessage>, Error> {
        self.management(entity).await?.receive_deferred(numbers, mode, None).await
    }

    /// Settles messages by their lock tokens, for messages that were not received over a link.
    pub async fn settle(&self, entity: &str, tokens: &[LockToken], outcome: Outcome) -> Result<(), Error> {
        self.management(entity).await?.settle(tokens, outcome).await
    }

    /// Settles messages of a session by their lock tokens. Fails with [`Error::SessionLockLost`] unless a receiver of this connection holds the
    /// session.
    pub async fn settle_in_session(
        &self,
        entity: &str,
        session: &str,
        tokens: &[LockToken],
        outcome: Outcome,
    ) -> Result<(), Error> {
        self.management(entity).await?.in_session(session).settle(tokens, outcome).await
    }

    /// Removes all messages of a queue, subscription or sub-queue (`orders/$DeadLetterQueue`), or those that were enqueued before a time.
    /// Locked and scheduled messages stay. Returns the number of removed messages. Requires only the Listen right.
    pub async fn purge(&self, entity: &str, before: Option<Timestamp>) -> Result<u64, Error> {
        self.management(entity).await?.purge(before).await
    }

    /// Closes the connection for this handle, its clones and everything that was opened with them.
    pub async fn close(self) {
        let (reply, closed) = oneshot::channel();
        if self.shared.commands.send(Command::Close { reply }).await.is_ok() {
            // An error means that the driver has ended already.
            let _ = closed.await;
        }
    }

    pub(crate) async fn management(&self, entity: &str) -> Result<Management<'_>, Error> {
        Management::open(&self.shared, entity).await
    }
}

fn sasl(credentials: &Credentials) -> SaslClient {
    match credentials {
        Credentials::Plain { user, secret } => SaslClient::plain(user, secret),
        // The credentials follow through `$cbs`.
        Credentials::Anonymous | Credentials::Key { .. } | Credentials::Token { .. } => {
            SaslClient::anonymous()
        }
    }
}

fn open_error(target: &Target, failure: OpenFailure) -> ConnectError {
    let address = target.address();
    match (failure, &target.credentials) {
        (OpenFailure::Credentials, Credentials::Plain { user, .. }) => {
            ConnectError::Credentials { address, name: user.clone() }
        }
        (OpenFailure::Credentials, _) => ConnectError::Credentials { address, name: "anonymous".to_owned() },
        (OpenFailure::Other(reason), _) => ConnectError::Protocol { address, reason },
    }
}

/// Returns a name that identifies this connection in a broker's log.
fn container_id() -> String {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let count = COUNTER.fetch_add(1, Ordering::Relaxed);
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().subsec_nanos();
    format!("peeklock-{}-{nanos:x}-{count}", std::process::id())
}
