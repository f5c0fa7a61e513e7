//! References to the bodies that a journal stores.

use std::fmt;

use crate::CommitGroupNumber;

/// Refers to the stored bytes of a message or of a run of events, in eight bytes: every waiting message has one.
///
/// A body has one of two kinds of place:
///
/// * **In a commit group.** The owner of a shard writes the body into the payload of a commit group. It determines the
///   number of the group and the offset before it appends the group, so the reference is final at once.
/// * **Standalone.** The journal stores the body outside of commit groups and returns a handle to it. Only the journal
///   that issued a handle can interpret it.
///
/// [`BodyRef::to_raw`] is the stable form in records and snapshots. References are ordered by it: bodies in commit
/// groups come first, ordered by group and offset, then standalone bodies, ordered by handle.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BodyRef(u64);

/// The place that a [`BodyRef`] refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyPlace {
    /// The body starts at `offset_bytes` of the payload of commit group `group`.
    InGroup { group: CommitGroupNumber, offset_bytes: u32 },
    /// The journal stores the body under `handle`.
    Standalone { handle: u64 },
}

impl BodyRef {
    /// Bodies in a commit group start at multiples of this offset. The reference stores the quotient, which leaves more
    /// bits for the number.
    pub const ALIGNMENT: usize = 8;
    /// The largest offset at which a body can start in a commit group.
    pub const GROUP_OFFSET_MAX: u32 = ((1 << Self::OFFSET_BITS) - 1) * 8;
    /// The largest handle that a journal can issue.
    pub const HANDLE_MAX: u64 = Self::NOWHERE_HANDLE - 1;
    /// Replaces the reference to a body that was lost. Never refers to a stored body.
    pub const NOWHERE: BodyRef = BodyRef(Self::STANDALONE | Self::NOWHERE_HANDLE);

    const STANDALONE: u64 = 1 << 63;
    const OFFSET_BITS: u32 = 20;
    const NOWHERE_HANDLE: u64 = 0x7fff_ffff << 32;

    /// Refers to a body in a commit group. `None` if the offset is not aligned or too large, or if the group number is
    /// 2^43 or larger.
    pub fn in_group(group: CommitGroupNumber, offset_bytes: u32) -> Option<Self> {
        let fits =
            offset_bytes.is_multiple_of(8) && offset_bytes <= Self::GROUP_OFFSET_MAX && group.0 < 1 << 43;
        fits.then(|| BodyRef((group.0 << Self::OFFSET_BITS) | u64::from(offset_bytes / 8)))
    }

    /// Refers to a standalone body. `None` if the handle is larger than [`BodyRef::HANDLE_MAX`].
    pub const fn standalone(handle: u64) -> Option<Self> {
        if handle <= Self::HANDLE_MAX { Some(BodyRef(Self::STANDALONE | handle)) } else { None }
    }

    /// Returns the place that this reference encodes.
    #[inline]
    pub fn place(self) -> BodyPlace {
        if self.is_standalone() {
            BodyPlace::Standalone { handle: self.0 & !Self::STANDALONE }
        } else {
            let offset_bytes = (self.0 & ((1 << Self::OFFSET_BITS) - 1)) as u32 * 8;
            BodyPlace::InGroup { group: CommitGroupNumber(self.0 >> Self::OFFSET_BITS), offset_bytes }
        }
    }

    /// Returns the commit group that contains the body, or `None` for a standalone body.
    #[inline]
    pub fn group(self) -> Option<CommitGroupNumber> {
        (!self.is_standalone()).then_some(CommitGroupNumber(self.0 >> Self::OFFSET_BITS))
    }

    /// Returns whether the body is stored outside of commit groups.
    #[inline]
    pub const fn is_standalone(self) -> bool {
        self.0 & Self::STANDALONE != 0
    }

    /// Decodes the form that [`BodyRef::to_raw`] returns. Every value is a valid form.
    pub const fn from_raw(raw: u64) -> Self {
        BodyRef(raw)
    }

    /// Returns the stable form, for records and snapshots.
    pub const fn to_raw(self) -> u64 {
        self.0
    }
}

impl fmt::Debug for BodyRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place() {
            BodyPlace::InGroup { group, offset_bytes } => write!(f, "{group}+{offset_bytes}"),
            BodyPlace::Standalone { handle } => write!(f, "standalone {handle:#x}"),
        }
    }
}

/// A reference to a body and the body's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredBody {
    /// The place of the body.
    pub place: BodyRef,
    /// The size of the body. A journal needs it to read the body.
    pub size_bytes: u32,
}

/// A range of body references, both ends included. It is either a range of bodies in commit groups or a range of
/// standalone bodies.
///
/// A journal uses it to specify bodies to move. The owner of the bodies only compares references with it, so it does
/// not depend on how the journal stores them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyRange {
    first: BodyRef,
    last: BodyRef,
}

impl BodyRange {
    /// All standalone bodies.
    pub const STANDALONE: BodyRange = BodyRange {
        first: BodyRef(BodyRef::STANDALONE),
        last: BodyRef(BodyRef::STANDALONE | BodyRef::HANDLE_MAX),
    };

    /// Returns the bodies in commit groups up to and including `upto`.
    pub fn groups_upto(upto: CommitGroupNumber) -> BodyRange {
        let last = BodyRef::in_group(upto, BodyRef::GROUP_OFFSET_MAX);
        BodyRange { first: BodyRef(0), last: last.unwrap_or(BodyRef(BodyRef::STANDALONE - 1)) }
    }

    /// Returns the standalone bodies with handles from `first` to `last`, both included. Handles above
    /// [`BodyRef::HANDLE_MAX`] are omitted.
    pub fn handles(first: u64, last: u64) -> BodyRange {
        let body = |handle: u64| BodyRef(BodyRef::STANDALONE | handle.min(BodyRef::HANDLE_MAX));
        BodyRange { first: body(first), last: body(last) }
    }

    /// Returns whether the body is in the range.
    #[inline]
    pub fn contains(self, body: BodyRef) -> bool {
        self.first <= body && body <= self.last
    }

    /// Returns the last commit group of the range, or `None` for a range of standalone bodies.
    pub fn last_group(self) -> Option<CommitGroupNumber> {
        self.last.group()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_encodes_both_kinds_of_place() {
        let (group, offset_bytes) = (CommitGroupNumber((1 << 43) - 1), BodyRef::GROUP_OFFSET_MAX);
        let in_group = BodyRef::in_group(group, offset_bytes).unwrap();
        assert_eq!(in_group.place(), BodyPlace::InGroup { group, offset_bytes });
        assert_eq!(in_group.group(), Some(group));
        let standalone = BodyRef::standalone(BodyRef::HANDLE_MAX).unwrap();
        assert_eq!(standalone.place(), BodyPlace::Standalone { handle: BodyRef::HANDLE_MAX });
        assert_eq!(standalone.group(), None);
        assert_eq!(BodyRef::from_raw(standalone.to_raw()), standalone);
        assert!(BodyRef::in_group(CommitGroupNumber(1), 4).is_none());
        assert!(BodyRef::in_group(CommitGroupNumber(1 << 43), 0).is_none());
        assert!(BodyRef::standalone(BodyRef::HANDLE_MAX + 1).is_none());
    }

    #[test]
    fn a_range_contains_bodies_of_one_kind_only() {
        let in_group = |group, offset| BodyRef::in_group(CommitGroupNumber(group), offset).unwrap();
        let standalone = |handle| BodyRef::standalone(handle).unwrap();
        let groups = BodyRange::groups_upto(CommitGroupNumber(7));
        assert!(groups.contains(in_group(1, 0)) && groups.contains(in_group(7, BodyRef::GROUP_OFFSET_MAX)));
        assert!(!groups.contains(in_group(8, 0)) && !groups.contains(standalone(0)));
        assert_eq!(groups.last_group(), Some(CommitGroupNumber(7)));
        let handles = BodyRange::handles(5, 6);
        assert!(handles.contains(standalone(5)) && handles.contains(standalone(6)));
        assert!(
            !handles.contains(standalone(4))
                && !handles.contains(standalone(7))
                && !handles.contains(in_group(5, 0))
        );
        assert_eq!(handles.last_group(), None);
        let all = BodyRange::STANDALONE;
        assert!(all.contains(standalone(0)) && all.contains(standalone(BodyRef::HANDLE_MAX)));
        assert!(!all.contains(BodyRef::NOWHERE) && !all.contains(in_group(1, 0)));
        assert!(BodyRange::groups_upto(CommitGroupNumber(u64::MAX)).contains(in_group(1 << 42, 8)));
    }
}
