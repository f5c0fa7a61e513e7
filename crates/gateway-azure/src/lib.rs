//! AMQP as Azure Service Bus speaks it, in front of the broker.
//!
//! Translates and holds no rules of its own: what "complete" means is decided by the engine. Knows both the AMQP engine and the broker;
//! nobody else does. One task owns one connection.

mod address;
mod attach;
mod cbs;
mod conversation;
mod coordinator;
mod delay;
mod driver;
mod error;
mod incoming;
mod link;
mod management;
mod message;
mod outcome;
mod refuse;
mod reply;
mod request;
mod sessions;
mod stream;
mod transaction;
mod upload;

use peeklock_access::Access;
use peeklock_amqp::{AmqpError, condition};
use peeklock_broker::Broker;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

/// Serves connections for one broker.
pub struct Gateway {
    broker: Broker,
    access: Access,
}

impl Gateway {
    pub fn new(broker: Broker, access: Access) -> Self {
        Gateway { broker, access }
    }

    /// Serves one connection until either side ends it, or until `stopping` turns true.
    pub async fn serve<S>(&self, stream: S, stopping: watch::Receiver<bool>) -> std::io::Result<()>
    where
        S: AsyncRead + AsyncWrite + Send,
    {
        driver::run(self, stream, stopping).await
    }

    /// Tells a peer that there are as many connections as there may be.
    pub async fn refuse_for_lack_of_room<S>(stream: S) -> std::io::Result<()>
    where
        S: AsyncRead + AsyncWrite + Send,
    {
        let text = "the broker has as many connections as it allows; close some, or raise the limit";
        let error = AmqpError::new(condition::RESOURCE_LIMIT_EXCEEDED, text);
        refuse::refuse(stream, error).await
    }
}
