//! The asynchronous shell around the engine: shards as tasks, each with its engine and its log.
//!
//! A peer (a connection of any protocol) hands a shard one [`Batch`] of requests for everything that one read produced and gets batches of
//! [`Reply`] back. The broker knows no protocol; it never shows an effect before the facts behind it are durable.

mod admin;
mod alarm;
mod batch;
mod blobs;
mod broker;
mod clock;
mod damage;
mod events;
mod execute;
mod group;
mod guest;
mod housekeeping;
mod hub;
mod hubs_admin;
mod large;
mod manage;
mod measure;
mod outgoing;
mod patience;
mod quotas;
mod reading;
mod receipts;
mod reply;
mod request;
mod router;
mod shard;
mod shift;
mod state;
mod streams;

pub use alarm::Alarm;
pub use batch::{Batch, Messages, Peer, PeerId, Ticket};
pub use blobs::{BLOB_BYTES_MAX, BlobAnswer, BlobRequest, StockBlob};
pub use broker::{Broker, Describe, OpenError, Recovered, Running, ShardHandle, ShardStopped};
pub use clock::Clock;
pub use damage::Damage;
pub use hub::{Events, Fence, HubAnswer, HubRequest, Lag, Partition, PartitionInfo};
pub use large::{BodyHold, FRONT_BYTES, KeptBody, Upload, WHOLE_BODY_BYTES_MAX, Wanted};
pub use manage::{AdminError, Page, PageStart};
pub use measure::{MEASURE_COUNT_MAX, Measure};
pub use peeklock_blobs as blob;
pub use peeklock_engine as engine;
pub use peeklock_filter as filter;
pub use peeklock_hubs as hubs;
pub use peeklock_journal::StoredBody;
pub use quotas::QuotaError;
pub use receipts::ReceiptRequest;
pub use reply::{
    Answer, BEHIND_RETRY_AFTER, BodyRest, EntityInfo, Error, Found, Message, Reply, RuleInfo, TransferOutcome,
};
pub use request::{
    Brought, Drain, Listing, Request, SessionAsk, SessionHold, TransactionSend, TransactionSettle,
    TransactionState,
};
pub use shift::Moves;

#[cfg(feature = "test-clock")]
pub mod test_clock {
    //! Moves the clocks of this process.

    pub use crate::shift::{allow, set};
}
