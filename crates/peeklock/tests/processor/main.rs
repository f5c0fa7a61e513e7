//! Processors on a broker in memory and virtual time. Each test is named after a sentence of the semantics that processors promise.

#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

mod basics;
mod concurrency;
mod copies;
mod group;
mod interruptions;
mod layers;
mod locks;
mod pausing;
mod quick;
mod retries;
mod rig;
mod sessions;
mod stopping;
#[path = "../common/stranger.rs"]
mod stranger;
