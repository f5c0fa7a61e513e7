use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The limit on the memory of a broker's blobs, over all shards. Each snapshot of a shard contains all blobs of the
/// shard.
pub const BLOB_BYTES_MAX: usize = 256 * 1024 * 1024;

/// The memory that the blobs of all shards take. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct BlobBudget(Arc<AtomicUsize>);

/// The share of one shard.
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
    /// Returns the limit for this shard, given the present use of the others. Shards that grow at the same moment do
    /// not see each other's growth, so the total can exceed the budget by one blob per shard.
    pub(crate) fn size_bytes_max(&self) -> usize {
        let others = self.all.0.load(Ordering::Relaxed).saturating_sub(self.own_bytes);
        BLOB_BYTES_MAX.saturating_sub(others)
    }

    /// Records the present use of this shard.
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
    fn the_use_of_one_shard_reduces_the_limit_of_the_others() {
        let budget = BlobBudget::default();
        let (mut one, mut two) = (budget.share(1000), budget.share(0));
        assert_eq!((one.size_bytes_max(), two.size_bytes_max()), (BLOB_BYTES_MAX, BLOB_BYTES_MAX - 1000));
        two.note(500);
        one.note(10);
        assert_eq!((one.size_bytes_max(), two.size_bytes_max()), (BLOB_BYTES_MAX - 500, BLOB_BYTES_MAX - 10));
    }
}
