use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What the blobs of a broker may take in memory, all shards together. A snapshot of a shard holds its part of it once more.
pub const BLOB_BYTES_MAX: usize = 256 * 1024 * 1024;

/// What the blobs of all shards take. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct BlobBudget(Arc<AtomicUsize>);

/// The part of one shard.
#[derive(Debug)]
pub(crate) struct BlobShare {
    all: BlobBudget,
    own_bytes: usize,
}

impl BlobBudget {
    pub(crate) fn share(&self, own_bytes: usize) -> BlobShare {
        let mut share = BlobShare { all: self.clone(), own_bytes: 0 };
        share.note(own_bytes);
        share
    }
}

impl BlobShare {
    /// Returns how much this shard may hold while the others hold what they do. Shards that grow at the same moment do not see each other, so that
    /// the whole may exceed the budget by a blob for each of them.
    pub(crate) fn size_bytes_max(&self) -> usize {
        let others = self.all.0.load(Ordering::Relaxed).saturating_sub(self.own_bytes);
        BLOB_BYTES_MAX.saturating_sub(others)
    }

    /// Notes what this shard holds now.
    pub(crate) fn note(&mut self, own_bytes: usize) {
        self.all.0.fetch_add(own_bytes, Ordering::Relaxed);
        self.all.0.fetch_sub(self.own_bytes, Ordering::Relaxed);
        self.own_bytes = own_bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_shard_takes_the_others_have_not() {
        let budget = BlobBudget::default();
        let (mut one, mut two) = (budget.share(1000), budget.share(0));
        assert_eq!((one.size_bytes_max(), two.size_bytes_max()), (BLOB_BYTES_MAX, BLOB_BYTES_MAX - 1000));
        two.note(500);
        one.note(10);
        assert_eq!((one.size_bytes_max(), two.size_bytes_max()), (BLOB_BYTES_MAX - 500, BLOB_BYTES_MAX - 10));
    }
}
