//! The queues of one shard as a pure machine.
//!
//! A command is *decided* into facts, and each fact is applied at once; [`Engine::apply`] after a crash does the same.
//! The machine has no clock, task, socket, disk or random source: time, nonces and places of bodies are arguments.
//!
//! The machine contains the *decided* state. Its driver writes the facts of [`Output`] to a journal and holds every
//! reply and every delivery back until the facts decided so far are durable. So no client sees a state that a crash
//! could undo, and yet commands that wait for the disk are already decided against each other.

mod agenda;
mod bodies;
mod catalog;
mod delivery;
mod engine;
mod error;
mod fact;
mod message;
mod number_map;
mod order;
mod orders;
mod output;
mod outstanding;
mod patch;
mod plan;
mod queue;
mod receipts;
mod receivers;
mod rules;
mod sessions;
mod shared;
mod snapshot;
mod step;
mod topics;
mod transaction;
mod transfers;
mod watch;
mod wire;

pub mod record;

pub use bodies::LiveBody;
pub use catalog::{Counts, QueueView, RuleView};
pub use engine::{Engine, FACTS_PER_CALL_MAX};
pub use error::{Error, ReplayError};
pub use fact::Fact;
pub use message::{
    Attributes, Details, EntityId, Message, MessageState, Metadata, NewMessage, Origin, ReceiveMode,
    ReceiverId, Reserved, SessionWish, Settlement, Transfer, TransferReason,
};
pub use order::{
    ClassView, ExplainedMessage, HISTOGRAM_BOUNDS_MS, Histogram, LaneKey, OrderView, Rank, Ranking,
    TENANTS_SHOWN_MAX, TargetView, TenantView, Window,
};
pub use output::{Accepted, CloseReason, Closed, Delivery, Drained, HeldSession, Output, Received};
pub use outstanding::SettlementPace;
pub use patch::{PATCH_SIZE_BYTES_MAX, Patch, PatchPart};
pub use peeklock_types::wire::DecodeError;
pub use queue::{INTERRUPTIONS_MAX, NewBody};
pub use sessions::Attached;
pub use step::RunningLock;
pub use topics::{Explained, ExplainedRule};
pub use transaction::{NewState, Transaction};
pub use transfers::OutMessage;
pub use watch::{Head, HeadChange};
