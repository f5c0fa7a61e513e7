//! The streams with pending work, so that no caller has to visit all of them.

use std::collections::BTreeSet;

use peeklock_types::{CommitGroupNumber, Timestamp};

use crate::stream::StreamId;

#[derive(Debug, Default)]
pub(crate) struct Agenda {
    /// Each stream with extents in the log, by the commit group of its oldest extent there.
    pub(crate) in_log: BTreeSet<(CommitGroupNumber, StreamId)>,
    /// Each stream with extents to retire, by time.
    pub(crate) due: BTreeSet<(Timestamp, StreamId)>,
}

/// The position of a stream in the agenda.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Deadlines {
    pub(crate) oldest_group: Option<CommitGroupNumber>,
    pub(crate) due: Option<Timestamp>,
}

impl Agenda {
    pub(crate) fn change(&mut self, stream: StreamId, old: Deadlines, new: Deadlines) {
        replace(&mut self.in_log, stream, old.oldest_group, new.oldest_group);
        replace(&mut self.due, stream, old.due, new.due);
    }
}

fn replace<T: Ord + Copy>(
    set: &mut BTreeSet<(T, StreamId)>,
    stream: StreamId,
    old: Option<T>,
    new: Option<T>,
) {
    if old == new {
        return;
    }
    if let Some(old) = old {
        set.remove(&(old, stream));
    }
    if let Some(new) = new {
        set.insert((new, stream));
    }
}
