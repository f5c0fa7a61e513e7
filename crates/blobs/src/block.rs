use std::collections::BTreeMap;

use bytes::Bytes;
use peeklock_types::Timestamp;

use crate::limits::BLOCK_ID_CHARS_MAX;
use crate::name::BlobName;

/// The name of a block within its blob: base64, which nobody decodes here.
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

/// Where a list of blocks takes one of them from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockSource {
    /// The blob as it is.
    Committed,
    Uncommitted,
    /// The uncommitted ones, else the blob.
    Latest,
}

/// Blocks of a blob that wait to be committed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Staged {
    pub(crate) blocks: BTreeMap<BlockId, Bytes>,
    /// When the last of them came.
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

/// What a map's entry costs beside the texts, about.
const OVERHEAD_BYTES: usize = 96;

/// What a block that waits counts for against the limits.
pub(crate) fn block_cost(id: &BlockId, content: &[u8]) -> usize {
    OVERHEAD_BYTES + id.as_str().len() + content.len()
}

/// What the blocks of a blob that wait count for.
pub(crate) fn staged_cost(name: &BlobName, staged: &Staged) -> usize {
    let of_blocks: usize = staged.blocks.iter().map(|(id, content)| block_cost(id, content)).sum();
    staged_base_cost(name) + of_blocks
}

pub(crate) fn staged_base_cost(name: &BlobName) -> usize {
    OVERHEAD_BYTES + name.as_str().len()
}

/// What the list of a blob's blocks counts for.
pub(crate) fn list_cost(blocks: &[Block]) -> usize {
    blocks.iter().map(|block| 32 + block.id.as_str().len()).sum()
}
