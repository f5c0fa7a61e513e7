//! The client over a broker in memory, whose connections are cut at any byte.
#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

mod copies;
mod cutting;
mod receiving;
mod reconnecting;
mod rig;
mod sending;
mod sessions;
mod settling;
#[path = "../common/stranger.rs"]
mod stranger;
mod transactions;
