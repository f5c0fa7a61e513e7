//! Guards the connection machine: the behaviour that unmodified clients depend on, and the attempts of a hostile peer.

#![allow(clippy::unwrap_used)] // A test that meets the unexpected fails.

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
