//! The handle to a broker.

use std::sync::Arc;

use peeklock_client::{Options, SequenceNumber, Target};

use crate::ReceivedMessage;
use crate::admin::Admin;
use crate::backoff::Backoff;
use crate::connection::{Connection, Dial, Tcp};
use crate::error::Error;
use crate::receiver::ReceiverBuilder;
use crate::sender::Sender;

/// A client of a broker. It is cheap to clone.
#[derive(Clone)]
pub struct Client {
    connection: Connection,
    admin: Admin,
}

/// The settings of a [`Client`], from [`Client::builder`].
#[must_use = "call connect"]
pub struct ClientBuilder {
    target: String,
    dial: Option<Arc<dyn Dial>>,
    options: Options,
    backoff: Backoff,
}

impl Client {
    /// Connects to `amqp://NAME:SECRET@HOST:PORT` (`amqps://` for TLS) or to a connection string of Service Bus. The default settings of
    /// [`Client::builder`] apply.
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

    /// Returns up to `count` messages in order, starting at a sequence number, without locking them.
    pub async fn peek(
        &self,
        entity: &str,
        from: SequenceNumber,
        count: u32,
    ) -> Result<Vec<ReceivedMessage>, Error> {
        Ok(self.connection.live().await?.peek(entity, from, count).await?)
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

    /// Sets the pauses between attempts to reach the broker.
    pub fn retry(self, backoff: Backoff) -> Self {
        ClientBuilder { backoff, ..self }
    }

    /// Connects. The first connection is opened at once, so that a wrong address or key is reported here.
    pub async fn connect(self) -> Result<Client, Error> {
        let backoff = self.backoff;
        let dial = self.into_dial()?;
        let admin = Admin::new(Arc::clone(&dial), backoff);
        Ok(Client { connection: Connection::open(dial, backoff).await?, admin })
    }

    /// Returns the administration alone. It connects with its first request.
    pub async fn admin(self) -> Result<Admin, Error> {
        let backoff = self.backoff;
        Ok(Admin::new(self.into_dial()?, backoff))
    }

    fn into_dial(self) -> Result<Arc<dyn Dial>, Error> {
        Ok(match self.dial {
            Some(dial) => dial,
            None => Arc::new(Tcp::new(
                Target::parse(&self.target).map_err(peeklock_client::ConnectError::from)?,
                self.options,
            )),
        })
    }
}
