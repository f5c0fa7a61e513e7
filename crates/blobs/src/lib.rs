//! Containers and blobs of one shard as a pure machine: the data of checkpoint stores, event processors and message
//! stores.
//!
//! As in the queue engine, a command is decided into facts, each fact is applied at once, and replay is the same
//! [`Blobs::apply`]. The machine has no clock, task, socket, disk or random source. Everything is in memory, including
//! contents; each command carries the limit on bytes. Names, sizes and counts have limits. A lease is stored as it was
//! set; its state follows from the time.

mod apply;
mod blob;
mod blobs;
mod block;
mod change;
mod condition;
mod error;
mod fact;
mod lease;
mod metadata;
mod name;
mod record;
mod snapshot;
mod stage;
mod stock;
mod wire;

pub mod limits;

pub use blob::{Blob, BlobHeaders, Container, ContainerView, NewBlob};
pub use blobs::{Blobs, Found, Page, Stamp};
pub use block::{Block, BlockId, BlockIdError, BlockSource};
pub use change::Leased;
pub use condition::{Condition, Tag};
pub use error::{Error, ReplayError};
pub use fact::Fact;
pub use lease::{
    Lease, LeaseAction, LeaseError, LeaseId, LeaseIdError, LeaseSpan, LeaseState, LeaseTerm, check_read,
};
pub use metadata::{Metadata, MetadataError};
pub use name::{BlobName, ContainerName, NameError};
pub use stock::{StockKind, StockRecord};
