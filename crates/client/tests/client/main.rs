//! Tests the client against a scripted broker: the AMQP machine in its server role, on a real socket.

#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

mod admin;
mod losing;
mod receiving;
mod script;
mod sending;
mod sessions;
mod settling;
mod transactions;
