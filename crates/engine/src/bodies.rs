use peeklock_types::{BodyRef, GroupNumber, SequenceNumber};

use crate::message::EntityId;

/// Which bodies should move so that space can be used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evacuate {
    /// Bodies in groups at or before this one.
    Groups { upto: GroupNumber },
    /// Bodies in this cold segment.
    Cold { segment: u32 },
}

/// A body that a message still needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveBody {
    pub entity: EntityId,
    pub sequence_number: SequenceNumber,
    pub place: BodyRef,
    pub size_bytes: u32,
}
