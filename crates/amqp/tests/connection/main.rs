//! Guards the connection machine: what unmodified clients depend on, and what a hostile peer may try.

#![allow(clippy::unwrap_used)] // A test that cannot go on says so best by stopping.

mod credit;
mod deliveries;
mod dotnet;
mod handshake;
mod hold;
mod hostile;
mod lifecycle;
mod limits;
mod oversized;
mod parts;
mod parts_out;
mod property;
mod recordings;
mod support;
mod timeouts;
mod traces;
