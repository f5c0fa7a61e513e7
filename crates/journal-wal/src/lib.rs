//! The journal on a local disk: one log for all shards, cold segments for what outlives it, snapshots, and recovery that never guesses.
//!
//! `docs/design/wal-format.md` has the bytes and the rules. This crate never knows what a group says.

mod cold;
mod config;
pub mod disk;
mod fetch;
mod frame;
mod gather;
mod journal;
mod keeper;
mod large;
mod layout;
mod log;
mod moving;
mod pool;
mod queue;
mod recovery;
mod replay;
mod ring;
mod segment;
mod shard;
mod shared;
pub mod sim;
mod snapshot;
mod writer;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use config::WalConfig;
pub use journal::{Stats, WalJournal};
pub use large::{WalLargeBodies, WalLargeBody};
pub use log::{WalBodyReader, WalLog};

/// A panic while a lock is held stops the journal through the writer's alarm or the owner's end; the state under the lock is still read.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
