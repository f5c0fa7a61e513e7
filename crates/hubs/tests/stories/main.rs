//! The behaviour of hubs, streams and readers, step by step.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod damage;
mod owners;
mod positions;
mod readers;
mod shard;
mod streams;
