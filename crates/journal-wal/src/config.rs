/// How the journal uses its directory. The defaults fit a broker that may be idle or busy on a common disk.
#[derive(Clone, Debug)]
pub struct WalConfig {
    /// Size of a log segment.
    pub segment_bytes: u64,
    /// Size of the very first one: it is written before the first open returns.
    pub first_segment_bytes: u64,
    /// How many prepared segments wait at least, and at most when segments fill quickly or were used before.
    pub spares_min: usize,
    pub spares_max: usize,
    /// Above this the owners of the oldest groups are asked to snapshot and evacuate.
    pub ring_bytes: u64,
    /// Above this no new messages are accepted until the owners have done so.
    pub ring_bytes_max: u64,
    /// Newest groups that stay in memory, all shards together.
    pub hot_cache_bytes: usize,
    /// Bytes that may wait for the disk before appends are refused as busy.
    pub backlog_bytes_max: usize,
    /// One commit takes no more than this, unless a single group is larger.
    pub commit_bytes_max: usize,
    /// Largest payload of one group.
    pub group_bytes_max: usize,
    /// A shard is asked for a snapshot when it has appended this much since the last one.
    pub snapshot_after_bytes: u64,
    /// Size at which a cold segment is sealed.
    pub cold_segment_bytes: u64,
    /// Size at which a cold segment of a stream is sealed. It grows with its stream, so a small stream takes little.
    pub stream_segment_bytes: u64,
    /// Free space on the file system below which new messages are rejected, and below which only what frees space goes on.
    pub free_bytes_soft: u64,
    pub free_bytes_hard: u64,
    /// A file of this size is given up when free space falls below the hard limit, so that snapshots and evacuation still fit.
    pub reserve_bytes: u64,
    /// What the whole directory may take, if it must not take all there is.
    pub total_bytes_max: Option<u64>,
}

const MIB: u64 = 1024 * 1024;

impl Default for WalConfig {
    fn default() -> Self {
        WalConfig {
            segment_bytes: 16 * MIB,
            first_segment_bytes: MIB,
            spares_min: 2,
            spares_max: 8,
            ring_bytes: 256 * MIB,
            ring_bytes_max: 4096 * MIB,
            hot_cache_bytes: 16 << 20,
            backlog_bytes_max: 64 << 20,
            commit_bytes_max: 4 << 20,
            group_bytes_max: 15 << 20,
            snapshot_after_bytes: 256 * MIB,
            cold_segment_bytes: 64 * MIB,
            stream_segment_bytes: 64 * MIB,
            free_bytes_soft: 256 * MIB,
            free_bytes_hard: 64 * MIB,
            reserve_bytes: 8 * MIB,
            total_bytes_max: None,
        }
    }
}

/// Blocks that are written as a whole: the header of a segment is one, and every commit starts on one.
pub(crate) const BLOCK_BYTES: u64 = 4096;
/// A place in the log keeps offsets in 24 bits of 8 bytes.
const SEGMENT_BYTES_MAX: u64 = 64 * MIB;

impl WalConfig {
    /// Rounds sizes to blocks and makes them fit each other.
    pub(crate) fn normalised(mut self) -> Self {
        let block =
            |bytes: u64| bytes.clamp(4 * BLOCK_BYTES, SEGMENT_BYTES_MAX).next_multiple_of(BLOCK_BYTES);
        self.segment_bytes = block(self.segment_bytes);
        self.first_segment_bytes = block(self.first_segment_bytes).min(self.segment_bytes);
        self.spares_min = self.spares_min.max(1);
        self.spares_max = self.spares_max.max(self.spares_min);
        // A commit of one group must fit into one segment, after the header and rounded up to blocks.
        let room = usize::try_from(self.segment_bytes - 2 * BLOCK_BYTES).unwrap_or(usize::MAX);
        self.group_bytes_max = self.group_bytes_max.min(room);
        self.cold_segment_bytes = self.cold_segment_bytes.clamp(BLOCK_BYTES, 1 << 32);
        self.stream_segment_bytes = self.stream_segment_bytes.clamp(BLOCK_BYTES, 1 << 32);
        self
    }
}
