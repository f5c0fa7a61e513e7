//! The asynchronous shell around the engine: shards as tasks, each with its engine and its log.
//!
//! A peer (a connection of any protocol) hands a shard one [`Batch`] of requests for everything that one read produced and gets batches of
//! [`Reply`] back. The broker knows no protocol; it never shows an effect before the facts behind it are durable.

mod alarm;
mod batch;
mod broker;
mod clock;
mod group;
mod housekeeping;
mod outgoing;
mod shard;

pub use alarm::Alarm;
pub use batch::{
    Answer, Batch, Drain, Error, Message, Messages, Peer, PeerId, QueueInfo, Reply, Request, Ticket,
};
pub use broker::{AdminError, Broker, OpenError, Recovered, Running, SHARD_COUNT, ShardHandle, ShardStopped};
pub use clock::Clock;
pub use peeklock_engine as engine;
