//! Guards the connection machine: what unmodified clients depend on, and what a hostile peer may try.

mod credit;
mod deliveries;
mod handshake;
mod lifecycle;
mod limits;
mod property;
mod support;
mod timeouts;
mod traces;
