//! The gateway as a client sees it: our AMQP engine as the client, a pipe, the gateway, and a broker in memory. Time is
//! virtual, so a wait of minutes takes no time.
#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

mod access;
mod clock;
mod dotnet;
mod early;
mod hubs;
mod hubs_manage;
mod large;
mod messages;
mod namespaces;
mod orders;
mod queue_groups;
mod queues;
mod sessions;
mod support;
mod topics;
mod transactions;
