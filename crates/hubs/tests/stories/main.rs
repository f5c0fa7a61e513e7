//! The behaviour of hubs, streams and readers, step by step.

#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

mod damage;
mod owners;
mod positions;
mod readers;
mod shard;
mod streams;
