//! Tests of shards, and of brokers with several shards, over a journal in memory. They are one program, because all
//! code that is generic over the journal is compiled for each program.
#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

mod between;
mod blobs;
mod common;
mod damage;
mod hubs;
mod measure;
mod quotas;
mod sessions;
mod shard;
mod step;
mod topics;
mod unread;
