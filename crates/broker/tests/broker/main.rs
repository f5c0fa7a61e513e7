//! Shards, and brokers of several, over a journal in memory. One program, because all that is generic in the journal is compiled for each.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod between;
mod blobs;
mod common;
mod damage;
mod hubs;
mod measure;
mod quotas;
mod sessions;
mod shard;
mod topics;
