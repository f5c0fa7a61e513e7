//! The handle to a broker.

use std::sync::Arc;

use peeklock_client::{ConnectError, Options};

use crate::admin::Admin;
use crate::backoff::Backoff;
use crate::connection::{Connection, Dial, Observer, Tcp};
use crate::error::Error;
use crate::receiver::ReceiverBuilder;
use crate::sender::Sender;

/// The prefix of a target in this process.
const EMBEDDED: &str = "embedded:";

/// A client of a broker. It is cheap to clone.
#[derive(Clone)]
pub struct Client {
    pub(crate) connection: Connection,
    admin: Admin,
}

/// The settings of a [`Client`], from [`Client::builder`].
#[must_use = "call connect"]
pub struct ClientBuilder {
    target: String,
    dial: Option<Arc<dyn Dial>>,
    options: Options,
    backoff: Backoff,
    observer: Option<Arc<dyn Observer>>,
}

impl Client {
    /// Connects to `amqp://NAME:SECRET@HOST:PORT` (`amqps://` for TLS) or to a connection string of Service Bus; with the feature
    /// `embedded` also to a broker in this process: `embedded:./data` (durable) or `embedded:` (in memory, a new broker for each call).
    /// The default settings of [`Client::builder`] apply.
    ///
    /// Several equal brokers are tried in turn: `amqp://NAME:SECRET@h1:5672,h2:5672` or `Endpoint=sb://h1:5672,h2:5672;…`.
    pub async fn connect(target: &str) -> Result<Self, Error> {
        Client::builder(target).connect().await
    }

    /// Returns a builder for a client with other settings.
    pub fn builder(target: &str) -> ClientBuilder {
        ClientBuilder {
            target: target.to_owned(),
            dial: None,
            options: Options::default(),
            backoff: Backoff::default(),
            observer: None,
        }
    }

    /// Returns a builder for a client that connects over another transport.
    pub fn over(dial: Arc<dyn Dial>) -> ClientBuilder {
        ClientBuilder { dial: Some(dial), ..Client::builder("") }
    }

    /// Opens a link to send to a queue or topic.
    pub async fn sender(&self, entity: &str) -> Result<Sender, Error> {
        Sender::open(self.connection.clone(), entity).await
    }

    /// Returns a builder for a receiver of a queue or subscription.
    pub fn receiver(&self, entity: &str) -> ReceiverBuilder {
        ReceiverBuilder::new(self.connection.clone(), entity)
    }

    /// Returns the administration of entities and keys. It uses connections of its own, which are opened with the first request.
    pub fn admin(&self) -> Admin {
        self.admin.clone()
    }

    /// Closes the connection for this handle, its clones and everything that was opened with them.
    pub async fn close(self) {
        self.connection.close().await;
    }
}

impl ClientBuilder {
    /// Trusts the certificates in a PEM file in addition to those of the machine.
    pub fn certificates(mut self, file: impl Into<std::path::PathBuf>) -> Self {
        self.options.certificates = Some(file.into());
        self
    }

    /// Sets the name of the connection in the broker's log. A random name is the default.
    pub fn identifier(mut self, name: impl Into<String>) -> Self {
        self.options.identifier = Some(name.into());
        self
    }

    /// Sets the pauses between attempts to reach the broker, and their limit.
    pub fn retry(self, backoff: Backoff) -> Self {
        ClientBuilder { backoff, ..self }
    }

    /// Lets the test kit see what the client receives and completes.
    #[cfg(feature = "testing")]
    pub(crate) fn observed(self, observer: Arc<dyn Observer>) -> Self {
        ClientBuilder { observer: Some(observer), ..self }
    }

    /// Connects. The first connection is opened at once, so that a wrong address or key is reported here. It is tried at most three times; a lost
    /// connection is dialled again for as long as [`ClientBuilder::retry`] allows.
    pub async fn connect(self) -> Result<Client, Error> {
        let (backoff, observer) = (self.backoff, self.observer.clone());
        let dial = self.into_dial().await?;
        let admin = Admin::new(Arc::clone(&dial), backoff);
        Ok(Client { connection: Connection::open(dial, backoff, observer).await?, admin })
    }

    /// Returns the administration alone. It connects with its first request.
    pub async fn admin(self) -> Result<Admin, Error> {
        let backoff = self.backoff;
        Ok(Admin::new(self.into_dial().await?, backoff))
    }

    async fn into_dial(self) -> Result<Arc<dyn Dial>, Error> {
        Ok(match (self.dial, self.target.strip_prefix(EMBEDDED)) {
            (Some(dial), _) => dial,
            (None, Some(place)) => embedded(place).await?,
            (None, None) => Arc::new(Tcp::new(&self.target, self.options).map_err(ConnectError::from)?),
        })
    }
}

#[cfg(feature = "embedded")]
async fn embedded(place: &str) -> Result<Arc<dyn Dial>, Error> {
    Ok(Arc::new(crate::embedded::dial_for(place).await?))
}

#[cfg(not(feature = "embedded"))]
async fn embedded(place: &str) -> Result<Arc<dyn Dial>, Error> {
    let text = format!(
        "This program was built without the embedded broker, so it cannot open '{EMBEDDED}{place}'. Add the feature `embedded` to the crate \
         `peeklock`, or connect to a broker with amqp://."
    );
    Err(Error::new(crate::error::Kind::Target, "E-EMB-03", text))
}
