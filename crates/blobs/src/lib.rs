//! Containers and small blobs of one shard as a pure machine: what checkpoint stores keep, and little else.
//!
//! As in the queue engine, a command is decided into facts, each fact is applied at once, and replay is the same [`Blobs::apply`]. The machine
//! has no clock, task, socket, disk or random source. Everything is in memory: blobs of checkpoint stores are empty, all they say is in their
//! metadata. Names, sizes and counts have limits.

mod blob;
mod blobs;
mod condition;
mod error;
mod fact;
mod metadata;
mod name;
mod record;
mod snapshot;
mod stock;
mod wire;

pub mod limits;

pub use blob::{Blob, BlobHeaders, Container, ContainerView, Etag, NewBlob};
pub use blobs::{Blobs, Found, Page};
pub use condition::{Condition, Tag};
pub use error::{Error, ReplayError};
pub use fact::Fact;
pub use metadata::{Metadata, MetadataError};
pub use name::{BlobName, ContainerName, NameError};
pub use stock::{StockKind, StockRecord};
