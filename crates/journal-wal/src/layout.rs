//! The names of all files and directories in the data directory.

use std::path::{Path, PathBuf};

use peeklock_types::{CommitGroupNumber, ShardId};

#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) root: PathBuf,
}

impl Layout {
    pub(crate) fn new(root: &Path) -> Self {
        Layout { root: root.to_path_buf() }
    }

    pub(crate) fn lock(&self) -> PathBuf {
        self.root.join("LOCK")
    }

    pub(crate) fn format(&self) -> PathBuf {
        self.root.join("FORMAT")
    }

    pub(crate) fn reserve(&self) -> PathBuf {
        self.root.join("RESERVE")
    }

    pub(crate) fn wal_dir(&self) -> PathBuf {
        self.root.join("wal")
    }

    /// Returns the path of a segment of the log. The names sort in the order of the numbers, for people who list the
    /// directory.
    pub(crate) fn segment(&self, id: u64) -> PathBuf {
        self.wal_dir().join(format!("{id:012}.wal"))
    }

    /// Returns the path of a segment that is being prepared. It is not part of the log.
    pub(crate) fn segment_draft(&self) -> PathBuf {
        self.wal_dir().join("draft.tmp")
    }

    pub(crate) fn cold_root(&self) -> PathBuf {
        self.root.join("cold")
    }

    pub(crate) fn cold_dir(&self, shard: ShardId) -> PathBuf {
        self.cold_root().join(shard.0.to_string())
    }

    pub(crate) fn cold(&self, shard: ShardId, segment: u32) -> PathBuf {
        self.cold_dir(shard).join(format!("{segment:010}.seg"))
    }

    /// Returns the path of a cold segment that contains one large body.
    pub(crate) fn large(&self, shard: ShardId, segment: u32) -> PathBuf {
        self.cold_dir(shard).join(format!("{segment:010}.body"))
    }

    /// Returns the path of a cold segment of one stream.
    pub(crate) fn stream(&self, shard: ShardId, segment: u32) -> PathBuf {
        self.cold_dir(shard).join(format!("{segment:010}.stream"))
    }

    pub(crate) fn snapshot_root(&self) -> PathBuf {
        self.root.join("snap")
    }

    pub(crate) fn snapshot_dir(&self, shard: ShardId) -> PathBuf {
        self.snapshot_root().join(shard.0.to_string())
    }

    pub(crate) fn snapshot(&self, shard: ShardId, upto: CommitGroupNumber) -> PathBuf {
        self.snapshot_dir(shard).join(format!("{:020}.snap", upto.0))
    }

    pub(crate) fn snapshot_draft(&self, shard: ShardId) -> PathBuf {
        self.snapshot_dir(shard).join("draft.tmp")
    }
}

/// Returns the number in a name like `000000000012.wal`, or `None` for a file that the journal did not create.
pub(crate) fn number_in(name: &str, suffix: &str) -> Option<u64> {
    let digits = name.strip_suffix(suffix)?;
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten()
}

pub(crate) fn text(path: &Path) -> String {
    path.display().to_string()
}
