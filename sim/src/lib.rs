//! The whole broker in one process on virtual time, disk and network: many clients, one seed, and an oracle that judges what they saw.
//!
//! A run draws a [`Scenario`] from its seed, lets it storm, calms everything, and takes out of the queues what is there. The same seed gives
//! the same log, byte for byte, so whatever it finds can be looked at again. Nothing here sleeps for real, and nothing but the log is judged.

mod audit;
mod client;
mod hub_audit;
mod log;
mod machine;
mod network;
pub mod oracle;
mod pipe;
mod scenario;
mod world;

pub use log::{
    Answer, BlobChange, BlobEvent, Counted, Event, EventNumber, Fate, FoundBlob, HubEvent, LeaseWish,
    LogLine, MessageNumber, Numbered, Owned, Part, Peeked, QueueIndex, ReadEnd, ReadEvent, Refusal, Seen,
    SessionNumber, Stage, Terms,
};
pub use scenario::Scenario;
pub use world::{Report, run};
