//! The whole broker in one process on virtual time, disk and network: many clients, one seed, and an oracle that judges
//! their observations.
//!
//! A run draws a [`Scenario`] from its seed, runs the storm, ends all faults, and drains the queues. The same seed
//! gives the same log, byte for byte, so every finding can be reproduced. Nothing here sleeps in real time, and only
//! the log is judged.

mod audit;
mod client;
mod hub_audit;
mod log;
mod machine;
mod network;
pub mod oracle;
mod pipe;
mod program_audit;
mod scenario;
mod world;

pub use log::{
    Answer, BlobChange, BlobEvent, Counted, Event, EventNumber, Fate, FoundBlob, HubEvent, LeaseWish,
    LogLine, MessageNumber, Numbered, Owned, Part, Peeked, ProgramEvent, QueueIndex, ReadEnd, ReadEvent,
    Refusal, Seen, SessionNumber, Stage, Terms,
};
pub use scenario::{Flaw, Programs, Scenario};
pub use world::{Report, run, run_with_flaw};
