//! Tests of management and monitoring over HTTP, without a socket.
#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

mod atom;
mod common;
mod dotnet;
mod hubs;
mod json;
mod metrics;
mod order;
mod recording;
mod schema;
