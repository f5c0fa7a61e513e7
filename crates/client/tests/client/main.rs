//! The client against a broker that follows a script: the AMQP machine in its server role, on a real socket.

#![allow(clippy::unwrap_used, reason = "helpers of tests may unwrap like the tests themselves")]

mod admin;
mod losing;
mod receiving;
mod script;
mod sending;
mod transactions;
