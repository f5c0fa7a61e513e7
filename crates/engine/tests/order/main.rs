//! The order of a queue, proven on a small shop of workers in virtual time: who goes first, and how long anybody waits at most.
//!
//! Each test states one promise as a bound or against a naive reference. Nothing here looks inside of the engine; it sees what a
//! receiver and a peeker see.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "shares and bounds of small numbers"
)]

mod aging;
mod corners;
mod edges;
mod mixes;
mod places;
mod prefetch;
mod rates;
mod reference;
mod replay;
mod shop;
mod tenants;
mod weighted;
mod world;
