//! The Rust SDK of Peeklock, and of every broker with the AMQP 1.0 dialect of Azure Service Bus.
//!
//! ```no_run
//! # async fn example() -> Result<(), peeklock::Error> {
//! use peeklock::prelude::*;
//!
//! let client = Client::connect("amqp://RootManageSharedAccessKey:SAS_KEY_VALUE@127.0.0.1:5672").await?;
//! client.sender("orders").await?.send(Message::text("one coffee")).await?;
//! let mut orders = client.receiver("orders").open().await?;
//! if let Some(delivery) = orders.next().await? {
//!     println!("{}", delivery.message().body_text());
//!     delivery.complete().await?;
//! }
//! # Ok(())
//! # }
//! ```

#![warn(missing_docs)]

pub mod admin;
mod backoff;
mod batch;
mod client;
mod connection;
mod delivery;
#[cfg(feature = "embedded")]
pub mod embedded;
mod error;
pub mod handler;
mod lock;
mod message;
pub mod prelude;
pub mod processor;
mod receiver;
mod requests;
mod retry;
mod sender;
mod session;
pub mod session_processor;
#[cfg(feature = "testing")]
pub mod testing;
mod transaction;
pub mod worker_group;

pub use backoff::Backoff;
pub use batch::Batch;
pub use client::{Client, ClientBuilder};
pub use connection::{Dial, DialError};
pub use delivery::Delivery;
pub use error::{CODES, Code, Error, Kind};
pub use message::{Message, Priority};
pub use receiver::{Receiver, ReceiverBuilder};
pub use retry::{Delayed, Retry};
pub use sender::Sender;
pub use session::Session;
pub use transaction::Transaction;

/// The AMQP client below the SDK, which does not reconnect: for pipelines of sends and readers of hubs. Its interface changes without notice.
#[doc(inline)]
pub use peeklock_client as low_level;
pub use peeklock_client::{LockToken, Outcome, ReceiveMode, ReceivedMessage, SequenceNumber, Timestamp};
