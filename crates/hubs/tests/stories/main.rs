//! What hubs, streams and readers do, told step by step.

mod owners;
mod positions;
mod readers;
mod shard;
mod streams;
