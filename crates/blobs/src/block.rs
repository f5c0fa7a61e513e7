use std::collections::BTreeMap;

use bytes::Bytes;
use peeklock_types::Timestamp;

use crate::limits::BLOCK_ID_CHARS_MAX;
use crate::name::BlobName;

/// The name of a block within its blob: base64 that is not decoded here.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(String);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the id of a block is base64 of at most {BLOCK_ID_CHARS_MAX} characters")]
pub struct BlockIdError;

/// A part of a blob that was put in blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    pub id: BlockId,
    pub size_bytes: u32,
}

/// The source of one block in a list of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockSource {
    /// Only the blocks of the current blob.
    Committed,
    Uncommitted,
    /// The uncommitted blocks, or else the current blob.
    Latest,
}

/// The uncommitted blocks of a blob.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Staged {
    pub(crate) blocks: BTreeMap<BlockId, Bytes>,
    /// The time at which the last block arrived.
    pub(crate) at: Timestamp,
}

impl BlockId {
    pub fn parse(text: &str) -> Result<Self, BlockIdError> {
        let is_known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
        let fits = (1..=BLOCK_ID_CHARS_MAX).contains(&text.len()) && text.bytes().all(is_known);
        if fits { Ok(BlockId(text.to_owned())) } else { Err(BlockIdError) }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Staged {
    pub(crate) fn list(&self) -> Vec<Block> {
        let block = |(id, content): (&BlockId, &Bytes)| Block {
            id: id.clone(),
            size_bytes: u32::try_from(content.len()).unwrap_or(u32::MAX),
        };
        self.blocks.iter().map(block).collect()
    }
}

/// The approximate cost of a map item beside the texts.
const OVERHEAD_BYTES: usize = 96;

/// Returns the cost of an uncommitted block against the limits.
pub(crate) fn block_cost(id: &BlockId, content: &[u8]) -> usize {
    OVERHEAD_BYTES + id.as_str().len() + content.len()
}

/// Returns the cost of the uncommitted blocks of a blob.
pub(crate) fn staged_cost(name: &BlobName, staged: &Staged) -> usize {
    let of_blocks: usize = staged.blocks.iter().map(|(id, content)| block_cost(id, content)).sum();
    staged_base_cost(name) + of_blocks
}

pub(crate) fn staged_base_cost(name: &BlobName) -> usize {
    OVERHEAD_BYTES + name.as_str().len()
}

/// Returns the cost of the list of a blob's blocks.
pub(crate) fn list_cost(blocks: &[Block]) -> usize {
    blocks.iter().map(|block| 32 + block.id.as_str().len()).sum()
}
