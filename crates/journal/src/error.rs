//! The errors of a journal, one type per operation.

use peeklock_types::{BodyRef, ShardId};

/// The reason why a log could not be opened or replayed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Stored data is damaged. Nothing was changed.
    #[error(
        "{file} is damaged at byte {offset}: {what}. Nothing was changed. Restore the data directory from a copy, or ask for help with this file"
    )]
    Corrupt {
        /// The file, or the name of the place in another kind of store.
        file: String,
        /// The position in it.
        offset: u64,
        /// The contradiction that was found.
        what: String,
    },
    /// Another process uses the store.
    #[error(
        "the data directory {directory} is in use by another process; stop that one first, or choose another directory"
    )]
    Locked {
        /// The directory.
        directory: String,
    },
    /// A newer version of the program wrote the data.
    #[error(
        "the data directory {directory} has {what}: it needs version {needs} of the program or a later one, and this is version {this}. Nothing was changed"
    )]
    NewerFormat {
        /// The directory.
        directory: String,
        /// The format or the word that this program does not support.
        what: String,
        /// The first version of the program that can open the directory.
        needs: String,
        /// The version of this program.
        this: String,
    },
    /// A version that was never released wrote the data.
    #[error(
        "the data directory {directory} has format {found}, which was never released; this version reads format {known}. Use an empty data directory"
    )]
    OlderFormat {
        /// The directory.
        directory: String,
        /// The format of the directory.
        found: u32,
        /// The format that this program supports.
        known: u32,
    },
    /// The store failed.
    #[error("{action} {path}: {source}")]
    Io {
        /// The action that failed, as a verb in its -ing form.
        action: &'static str,
        /// The object of the action.
        path: String,
        /// The error of the store.
        source: std::io::Error,
    },
    /// Another call of `open` for the same shard has overtaken this one.
    #[error("{0} is open already")]
    AlreadyOpen(ShardId),
}

/// The reason why a commit group was not taken.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// Too many bytes wait to become durable. Nothing was taken. Retry when the watermark has risen. It does rise,
    /// because a log without waiting groups is never busy.
    #[error("too many bytes wait for the disk")]
    Busy,
    /// The group is larger than the journal can store.
    #[error("a group of {size_bytes} bytes is over the limit of {limit_bytes}")]
    TooLarge {
        /// The size of the payload.
        size_bytes: usize,
        /// The largest payload that the journal takes.
        limit_bytes: usize,
    },
    /// The log has failed.
    #[error(transparent)]
    Poisoned(#[from] Poisoned),
}

/// The log has failed and rejects every call. Open it again to find out which groups survived.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the journal has stopped: {reason}")]
pub struct Poisoned {
    /// The failure, for an operator.
    pub reason: String,
}

/// The reason why bodies could not be read or moved.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A live body is damaged or missing. Another attempt returns the same error.
    #[error("{file} is damaged at byte {offset}: {what}")]
    Corrupt {
        /// The file, or the name of the place in another kind of store.
        file: String,
        /// The position in it.
        offset: u64,
        /// The contradiction that was found.
        what: String,
    },
    /// The owner has given the body up, and the journal has removed it.
    #[error("no body lies at {0:?}; its space was given back")]
    Gone(BodyRef),
    /// The store failed. Another attempt may succeed.
    #[error("reading {path}: {source}")]
    Io {
        /// The file, or the name of the place in another kind of store.
        path: String,
        /// The error of the store.
        source: std::io::Error,
    },
    /// There is no space for the copies.
    #[error("no room for the copy: {0}")]
    NoSpace(String),
    /// A run is larger than [`RUN_BYTES_MAX`](crate::RUN_BYTES_MAX).
    #[error("bodies of {size_bytes} bytes were to be gathered into one, the limit is {limit_bytes}")]
    TooLarge {
        /// The size of the run.
        size_bytes: u64,
        /// The largest size of a run.
        limit_bytes: u32,
    },
    /// The log has failed.
    #[error(transparent)]
    Poisoned(#[from] Poisoned),
}

/// The reason why a large body was not stored.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// There is no space for the body.
    #[error("no room for the body: {0}")]
    NoSpace(String),
    /// The store failed.
    #[error("writing {path}: {source}")]
    Io {
        /// The file, or the name of the place in another kind of store.
        path: String,
        /// The error of the store.
        source: std::io::Error,
    },
    /// The body is larger than the journal can store.
    #[error("a body of more than {limit_bytes} bytes")]
    TooLarge {
        /// The largest body that the journal takes.
        limit_bytes: u32,
    },
    /// An earlier call for this body failed or was cancelled.
    #[error("an earlier write of the body failed")]
    Lost,
    /// The log has failed.
    #[error(transparent)]
    Poisoned(#[from] Poisoned),
}

/// The reason why a snapshot was not stored.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The store failed.
    #[error("writing the snapshot {path}: {source}")]
    Io {
        /// The file, or the name of the place in another kind of store.
        path: String,
        /// The error of the store.
        source: std::io::Error,
    },
    /// The log has failed.
    #[error(transparent)]
    Poisoned(#[from] Poisoned),
}
