//! The journal on a local disk: one log for all shards, cold segments for standalone bodies, snapshots, and recovery.
//!
//! `docs/design/wal-format.md` describes the bytes and the rules. This crate never interprets the payload of a group.

mod buffers;
mod cold;
mod config;
mod desk;
pub mod disk;
mod fetch;
mod format;
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
mod warm;
mod writer;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use config::WalConfig;
pub use journal::{Stats, WalJournal};
pub use large::{WalLargeBodies, WalLargeBody};
pub use log::{WalBodyReader, WalLog};

/// Locks a mutex, even if a thread has panicked while it held the lock: that panic stops the journal, and other threads
/// may still read the state.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
