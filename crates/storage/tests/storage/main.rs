//! Tests of the storage services over HTTP, without a socket.
#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

mod blob;
mod blocks;
mod common;
mod dotnet;
mod leases;
mod queue;
