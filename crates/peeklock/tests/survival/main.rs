//! The client over a broker in memory, whose connections are cut at any byte.
#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

mod cutting;
mod receiving;
mod reconnecting;
mod rig;
mod sending;
mod sessions;
mod settling;
mod transactions;
