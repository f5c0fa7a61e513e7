//! Tests the whole server on real sockets.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod misbehaviour;
mod monitoring;
mod storage;
mod transports;
