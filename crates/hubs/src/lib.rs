//! Event hubs of one shard as a pure machine: hubs with their consumer groups, ownerships and checkpoints, and the
//! partitions of this shard, which are *streams*, with their readers.
//!
//! As in the queue engine, a command is decided into facts, each fact is applied at once, and replay is the same
//! [`Hubs::apply`]. The machine has no clock, task, socket, disk or random source.
//!
//! A stream is a list of *extents*; an extent is a body in the journal that contains one or more [blocks](block), which
//! are the events of one send.

mod agenda;
mod apply;
pub mod block;
mod checkpoint;
mod error;
pub mod excerpt;
mod extents;
mod fact;
mod gather;
mod hub;
mod lost;
mod producers;
mod reader;
mod readers;
mod record;
mod retention;
mod runs;
mod snapshot;
mod stream;
mod view;
mod wire;

pub use checkpoint::{Checkpoint, CheckpointBy, Ownership};
pub use error::{Error, ReplayError};
pub use fact::Fact;
pub use hub::Hubs;
pub use reader::{ReaderEnd, ReaderSpec, Run, StartAt};
pub use stream::{Extent, Gather, GatherRun, Prepared, Producer, StreamId, StreamSpec};
pub use view::{GroupView, HubView, LastEnqueued, ReaderView, StreamView, Traffic};

/// The output of commands. Facts go to the journal in order; the rest takes effect when all facts so far are durable.
#[derive(Debug, Default)]
pub struct Output {
    pub facts: Vec<Fact>,
    /// Readers that the machine has detached, and why.
    pub ended: Vec<(peeklock_types::ReceiverId, ReaderEnd)>,
    /// Extents in cold storage that no stream needs any more: place and size.
    pub freed: Vec<(peeklock_types::BodyRef, u32)>,
}
