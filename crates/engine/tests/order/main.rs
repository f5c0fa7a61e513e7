//! The order of a queue, tested with a simulated shop of workers in virtual time: which message goes first, and the
//! longest wait.
//!
//! Each test states one guarantee as a limit or against a naive reference. No test inspects the inside of the engine;
//! it uses only what a receive and a peek return.

#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]
#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the numbers in these tests are small"
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
