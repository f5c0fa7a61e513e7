//! Parts of old commit groups that were read recently.
//!
//! A receiver with little credit takes a backlog one message at a time. The bodies of the next messages are in the log
//! behind the body that was read, so each read includes some of them, and the shard finds these without another read.

use std::collections::VecDeque;

use bytes::Bytes;
use peeklock_types::CommitGroupNumber;

/// The size of a read, unless its group ends before.
pub(crate) const WINDOW_BYTES: u64 = 32 * 1024;
/// The number of windows of one shard, for several backlogs at once.
const WINDOWS_MAX: usize = 8;

/// The windows of one shard, the latest last.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    windows: VecDeque<Window>,
}

#[derive(Debug)]
struct Window {
    group: CommitGroupNumber,
    offset_bytes: u32,
    bytes: Bytes,
}

impl Windows {
    /// Returns a copy of the bytes at an offset of the payload of a group.
    pub(crate) fn find(&self, group: CommitGroupNumber, offset_bytes: u32, size_bytes: u32) -> Option<Bytes> {
        let mut windows = self.windows.iter().rev().filter(|window| window.group == group);
        windows.find_map(|window| {
            let start = usize::try_from(offset_bytes.checked_sub(window.offset_bytes)?).ok()?;
            let end = start.checked_add(usize::try_from(size_bytes).ok()?)?;
            window.bytes.get(start..end).map(Bytes::copy_from_slice)
        })
    }

    /// Adds a part of a group that starts at an offset of its payload. The oldest part gives way.
    pub(crate) fn put(&mut self, group: CommitGroupNumber, offset_bytes: u32, bytes: Bytes) {
        if self.windows.len() >= WINDOWS_MAX {
            self.windows.pop_front();
        }
        self.windows.push_back(Window { group, offset_bytes, bytes });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bytes_of_the_same_group_are_found() {
        let (one, two) = (CommitGroupNumber(1), CommitGroupNumber(2));
        let mut windows = Windows::default();
        windows.put(one, 8, Bytes::from_static(b"abcdefgh"));
        assert_eq!(windows.find(one, 8, 8).unwrap(), "abcdefgh");
        assert_eq!(windows.find(one, 10, 2).unwrap(), "cd");
        for (group, offset_bytes, size_bytes) in [(one, 7, 2), (one, 9, 8), (two, 8, 8), (one, u32::MAX, 9)] {
            assert_eq!(windows.find(group, offset_bytes, size_bytes), None);
        }
        for number in 0..WINDOWS_MAX as u64 {
            windows.put(CommitGroupNumber(3 + number), 0, Bytes::new());
        }
        assert_eq!(windows.find(one, 8, 8), None, "the oldest window gave way");
    }
}
