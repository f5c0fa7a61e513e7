//! The AMQP protocol of Azure Service Bus and Event Hubs, in front of the broker.
//!
//! The gateway translates and contains no rules of its own: the engine decides what "complete" means. Only this crate
//! uses both the AMQP engine and the broker. One task owns one connection.

mod access;
mod connection;
mod error;
mod hub;
mod incoming;
mod management;
mod message;
mod namespace;
mod publishing;
mod queue_group;
mod receiving;
mod transaction;

use std::net::SocketAddr;

use peeklock_access::Access;
use peeklock_amqp::{AmqpError, condition};
use peeklock_broker::Broker;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use connection::ending::LogBudget;
pub use connection::limits::Limits;
use connection::{driver, refuse};
pub use namespace::Namespace;
use namespace::Namespaces;

/// Serves connections for one broker or several.
pub struct Gateway {
    namespaces: Namespaces,
    limits: Limits,
    log_budget: LogBudget,
}

impl Gateway {
    /// Creates a gateway with one namespace for all host names.
    pub fn new(broker: Broker, access: Access) -> Self {
        let first = Namespace { name: "default".to_owned(), hosts: Vec::new(), broker, access };
        Gateway::with_namespaces(first, Vec::new())
    }

    /// Creates a gateway with several namespaces. A connection belongs to the namespace whose host it names, else to
    /// the only one that has the name of its key, else to the first. Only entities and keys of that namespace are
    /// visible to it.
    pub fn with_namespaces(first: Namespace, others: Vec<Namespace>) -> Self {
        let log_budget = LogBudget::default();
        Gateway { namespaces: Namespaces { first, others }, limits: Limits::default(), log_budget }
    }

    pub fn with_limits(self, limits: Limits) -> Self {
        Gateway { limits, ..self }
    }

    /// Serves one connection until either side ends it, or until `stopping` becomes true. The log identifies its peer
    /// by `from`.
    pub async fn serve<S>(
        &self,
        stream: S,
        from: Option<SocketAddr>,
        stopping: watch::Receiver<bool>,
    ) -> std::io::Result<()>
    where
        S: AsyncRead + AsyncWrite + Send,
    {
        driver::run(self, stream, from, stopping).await
    }

    /// Rejects a peer because the limit on connections is reached.
    pub async fn refuse_for_lack_of_room<S>(stream: S) -> std::io::Result<()>
    where
        S: AsyncRead + AsyncWrite + Send,
    {
        let text = "the broker has as many connections as it allows; close some, or raise the limit";
        let error = AmqpError::new(condition::RESOURCE_LIMIT_EXCEEDED, text);
        refuse::refuse(stream, error).await
    }
}
