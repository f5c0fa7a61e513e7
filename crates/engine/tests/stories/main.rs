//! Each rule of a queue as a short scenario. The test names state the rules.

#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

mod basics;
mod copies;
mod damage;
mod forwarding;
mod limits;
mod receipts;
mod session_turns;
mod sessions;
mod step;
mod story;
mod time;
mod topics;
mod transactions;
mod watching;
