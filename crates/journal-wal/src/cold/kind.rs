use std::path::PathBuf;

use peeklock_types::ShardId;

use crate::large;
use crate::layout::{Layout, number_in};

/// The kind of the contents of a segment. The file name contains it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Moved bodies.
    Moved,
    /// One large body.
    Large,
    /// Bodies of one stream.
    Stream,
}

const STREAM_MAGIC: [u8; 8] = *b"PLstream";

impl Kind {
    pub(crate) fn path(self, layout: &Layout, shard: ShardId, number: u32) -> PathBuf {
        match self {
            Kind::Moved => layout.cold(shard, number),
            Kind::Large => layout.large(shard, number),
            Kind::Stream => layout.stream(shard, number),
        }
    }

    pub(super) fn of(name: &str) -> Option<(Kind, u32)> {
        let number = |suffix| number_in(name, suffix).and_then(|number| u32::try_from(number).ok());
        let moved = number(".seg").map(|number| (Kind::Moved, number));
        let large = || number(".body").map(|number| (Kind::Large, number));
        moved.or_else(large).or_else(|| number(".stream").map(|number| (Kind::Stream, number)))
    }

    pub(super) fn magic(self) -> [u8; 8] {
        match self {
            Kind::Moved => super::MAGIC,
            Kind::Large => large::MAGIC,
            Kind::Stream => STREAM_MAGIC,
        }
    }
}
