//! Tests of the journal on files and on a simulated disk.
#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

mod alone;
mod conformance;
mod crash;
mod damage;
mod directory;
mod gather;
mod large;
mod space;
mod stress;
mod support;
mod threads;
