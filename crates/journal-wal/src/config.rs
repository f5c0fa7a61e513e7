use peeklock_types::Placement;

/// The settings of the journal. The defaults fit a broker on a common disk, idle or busy.
#[derive(Clone, Debug)]
pub struct WalConfig {
    /// The number of shards of a new directory. An existing directory keeps the number in its file `FORMAT`.
    pub placement: Placement,
    /// The size of a log segment.
    pub segment_bytes: u64,
    /// The size of the first segment. It is written before the first open returns, so it is small.
    pub first_segment_bytes: u64,
    /// The least and the largest number of segments that are prepared ahead. The number grows when segments fill
    /// quickly. Free segments are kept in addition, as long as the log with them is below `ring_bytes`.
    pub spares_min: usize,
    pub spares_max: usize,
    /// Above this size of the log, the journal requests snapshots and moves of bodies from the owners of the oldest
    /// groups.
    pub ring_bytes: u64,
    /// Above this size of the log, new messages are rejected until the owners have fulfilled these requests.
    pub ring_bytes_max: u64,
    /// The size of the newest groups that stay in memory, for all shards together.
    pub hot_cache_bytes: usize,
    /// The number of waiting bytes above which appends are rejected as busy.
    pub backlog_bytes_max: usize,
    /// The size of one commit. A commit is larger only if it consists of one larger group.
    pub commit_bytes_max: usize,
    /// The largest payload of a group.
    pub group_bytes_max: usize,
    /// The journal requests a snapshot from a shard after it has appended this many bytes since the last one.
    pub snapshot_after_bytes: u64,
    /// The size at which a cold segment is sealed.
    pub cold_segment_bytes: u64,
    /// The size at which a cold segment of a stream is sealed. The file grows with its stream, so a small stream takes
    /// little space.
    pub stream_segment_bytes: u64,
    /// The free space on the file system below which new messages are rejected (soft) and below which only requests
    /// that free space are accepted (hard).
    pub free_bytes_soft: u64,
    pub free_bytes_hard: u64,
    /// The size of the reserve file. It is removed when the free space falls below the hard limit, so that snapshots
    /// and moved bodies still fit.
    pub reserve_bytes: u64,
    /// The limit for the whole directory, if it must not use the whole disk.
    pub total_bytes_max: Option<u64>,
}

const MIB: u64 = 1024 * 1024;

impl Default for WalConfig {
    fn default() -> Self {
        WalConfig {
            placement: Placement::default(),
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

/// The unit of writing: the header of a segment takes one block, and every commit starts at a block boundary.
pub(crate) const BLOCK_BYTES: u64 = 4096;
/// The largest segment: a place in the log stores offsets in 24 bits, in units of 8 bytes.
const SEGMENT_BYTES_MAX: u64 = 64 * MIB;

impl WalConfig {
    /// Rounds sizes to blocks and adjusts them to each other.
    pub(crate) fn normalised(mut self) -> Self {
        let block =
            |bytes: u64| bytes.clamp(4 * BLOCK_BYTES, SEGMENT_BYTES_MAX).next_multiple_of(BLOCK_BYTES);
        self.segment_bytes = block(self.segment_bytes);
        self.first_segment_bytes = block(self.first_segment_bytes).min(self.segment_bytes);
        self.spares_min = self.spares_min.max(1);
        self.spares_max = self.spares_max.max(self.spares_min);
        // A commit of one group must fit into one segment, behind the header and rounded up to blocks.
        let room = usize::try_from(self.segment_bytes - 2 * BLOCK_BYTES).unwrap_or(usize::MAX);
        self.group_bytes_max = self.group_bytes_max.min(room);
        self.cold_segment_bytes = self.cold_segment_bytes.clamp(BLOCK_BYTES, 1 << 32);
        self.stream_segment_bytes = self.stream_segment_bytes.clamp(BLOCK_BYTES, 1 << 32);
        self
    }
}
