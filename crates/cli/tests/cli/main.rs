//! The `peeklock` binary as users run it: a broker in one process, commands in others.

#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

mod broker;
mod client;
mod config;
mod errors;
mod hubs;
mod init;
mod keys;
mod messages;
mod orders;
mod queues;
mod serve;
mod sessions;
mod tls;
mod topics;
