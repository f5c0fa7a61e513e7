//! The asynchronous shell around the engine: shards as tasks, each with its engine and its log.
//!
//! A peer (a connection of any protocol) sends a shard one [`Batch`] with all requests that one read produced, and
//! receives batches of [`Reply`]. The broker contains no protocol code. No effect leaves it before the facts behind it
//! are durable.

mod alarm;
mod batch;
mod body_buffer;
mod broker;
mod clock;
mod execute;
mod hub;
mod large;
mod manage;
mod measure;
pub mod random;
mod reply;
pub mod request;
mod router;
mod shard;
mod shift;

pub use alarm::Alarm;
pub use batch::{Batch, Messages, Peer, PeerId};
pub use broker::{Broker, Describe, OpenError, Recovered, Running, ShardHandle, ShardStopped};
pub use clock::{Clock, Moment};
pub use execute::BLOB_BYTES_MAX;
pub use hub::{Events, Fence, Lag, Partition, PartitionInfo};
pub use large::{BodyHold, FRONT_BYTES, KeptBody, Upload, WHOLE_BODY_BYTES_MAX, Wanted};
pub use manage::{AdminError, Page, PageStart, QuotaError};
pub use measure::{MEASURE_COUNT_MAX, Measure};
pub use peeklock_blobs as blob;
pub use peeklock_engine as engine;
pub use peeklock_filter as filter;
pub use peeklock_hubs as hubs;
pub use peeklock_journal::StoredBody;
pub use reply::{
    BEHIND_RETRY_AFTER, BodyRest, Delivered, DeliveredBody, DeliveryRun, EntityInfo, Error, Message,
    ReaderReply, ReceiverReply, Reply, RuleInfo, Unreadable,
};
pub use request::blobs::StockBlob;
pub use request::entities::{Found, Listing, Named};
pub use request::receiving::{Drain, SessionAsk};
pub use request::sessions::SessionHold;
pub use request::transactions::{TransactionSend, TransactionSettle, TransactionState};
pub use request::{Answer, Answered, Ask, Asked, Request, Ticket};
pub use shard::Damage;
pub use shift::Moves;

#[cfg(feature = "test-clock")]
pub mod test_clock {
    //! Moves the clocks of this process.

    pub use crate::shift::{allow, set};
}
