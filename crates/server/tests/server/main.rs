//! Tests the whole server on real sockets.
#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

mod misbehaviour;
mod monitoring;
mod storage;
mod transports;
mod web_pages;
