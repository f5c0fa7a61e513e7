//! Hostile peers: each is rejected with the reason, no other peer is affected, and no secret reaches the log.
#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

mod endings;
mod floods;
mod log;
mod names;
mod rights;
mod shapes;
mod slow;
mod support;
mod wire;
