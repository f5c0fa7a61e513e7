use bytes::Bytes;
use peeklock_types::limits;

/// All that one message may carry in changed properties.
pub const PATCH_SIZE_BYTES_MAX: usize = 64 * 1024;

/// What each part counts beside its bytes, so that a great many tiny parts are bounded too.
const PART_OVERHEAD_BYTES: usize = 16;

/// What settlements have changed in a message's properties. The stored bytes never change, so whoever delivers the message merges the
/// parts into its properties, in order: a later part wins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patch {
    pub parts: Vec<PatchPart>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatchPart {
    /// An encoded map, opaque to the engine.
    Properties(Bytes),
    /// Why the message was dead-lettered. A patch holds at most one such part.
    DeadLetter { reason: Option<String>, description: Option<String> },
}
