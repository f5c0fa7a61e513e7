//! Blobs in blocks: uncommitted blocks are stored under the name of their blob until a list of blocks selects from
//! them.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use peeklock_types::{Etag, Timestamp};

use crate::blob::{BlobHeaders, NewBlob};
use crate::blobs::{Blobs, Stamp};
use crate::block::{Block, BlockId, BlockSource, block_cost, staged_base_cost};
use crate::change::check_put;
use crate::condition::Condition;
use crate::error::Error;
use crate::fact::Fact;
use crate::lease::{self, LeaseId};
use crate::limits::{BLOCK_COUNT_MAX, CONTENT_BYTES_MAX, STAGED_COUNT_MAX, STAGED_TIME_MAX_S};
use crate::metadata::Metadata;
use crate::name::{BlobName, ContainerName};

impl Blobs {
    /// Stores an uncommitted block, and replaces one with the same id.
    pub fn stage(
        &mut self,
        stamp: Stamp,
        (container, blob): (ContainerName, BlobName),
        id: BlockId,
        content: Bytes,
        lease_id: Option<LeaseId>,
        out: &mut Vec<Fact>,
    ) -> Result<(), Error> {
        if content.len() > CONTENT_BYTES_MAX {
            return Err(Error::TooLarge { size_bytes: content.len() });
        }
        self.drop_stale(stamp.now, out);
        let known = self.find_container(&container)?;
        let lease = known.blobs.get(&blob).and_then(|blob| blob.lease);
        lease::check_write(lease.as_ref(), stamp.now, lease_id)?;
        let mut needed = block_cost(&id, &content);
        let mut freed = 0;
        match known.staged.get(&blob) {
            None if self.staged_count() >= STAGED_COUNT_MAX => return Err(Error::TooManyBlobs),
            None => needed += staged_base_cost(&blob),
            Some(staged) => {
                let same_length = |other: &BlockId| other.as_str().len() == id.as_str().len();
                if !staged.blocks.keys().next().is_none_or(same_length) {
                    return Err(Error::BlockIdLength);
                }
                let replaced = staged.blocks.get(&id);
                if replaced.is_none() && staged.blocks.len() >= BLOCK_COUNT_MAX {
                    return Err(Error::TooManyBlocks);
                }
                freed = replaced.map_or(0, |content| block_cost(&id, content));
            }
        }
        self.check_room(stamp, 0, freed, needed)?;
        self.decide(Fact::Staged { container, blob, id, content, at: stamp.now }, out);
        Ok(())
    }

    /// Makes a blob of its uncommitted and its current blocks, as the list selects them.
    pub fn commit(
        &mut self,
        stamp: Stamp,
        (container, blob): (ContainerName, BlobName),
        list: &[(BlockSource, BlockId)],
        (metadata, headers): (Metadata, BlobHeaders),
        condition: &Condition,
        out: &mut Vec<Fact>,
    ) -> Result<(Etag, Timestamp), Error> {
        let current = self.find_container(&container)?.blobs.get(&blob);
        check_put(stamp.now, &container, &blob, current, condition)?;
        let (content, blocks) = self.assemble(&container, &blob, list)?;
        self.put(stamp, container, blob, NewBlob { metadata, headers, content, blocks }, condition, out)
    }

    fn assemble(
        &self,
        container: &ContainerName,
        blob: &BlobName,
        list: &[(BlockSource, BlockId)],
    ) -> Result<(Bytes, Vec<Block>), Error> {
        if list.len() > BLOCK_COUNT_MAX {
            return Err(Error::TooManyBlocks);
        }
        let known = self.find_container(container)?;
        let staged = known.staged.get(blob);
        let committed = known.blobs.get(blob);
        let (mut content, mut blocks) = (BytesMut::new(), Vec::with_capacity(list.len()));
        for (source, id) in list {
            let waiting = || staged.and_then(|staged| staged.blocks.get(id).cloned());
            let inside = || committed.and_then(|blob| blob.block(id));
            let found = match source {
                BlockSource::Committed => inside(),
                BlockSource::Uncommitted => waiting(),
                BlockSource::Latest => waiting().or_else(inside),
            };
            let part = found.ok_or(Error::NoSuchBlock)?;
            let size_bytes = content.len() + part.len();
            if size_bytes > CONTENT_BYTES_MAX {
                return Err(Error::TooLarge { size_bytes });
            }
            content.extend_from_slice(&part);
            blocks.push(Block { id: id.clone(), size_bytes: u32::try_from(part.len()).unwrap_or(u32::MAX) });
        }
        Ok((content.freeze(), blocks))
    }

    /// Drops blocks that were uncommitted for a week, as the service does.
    fn drop_stale(&mut self, now: Timestamp, out: &mut Vec<Fact>) {
        let is_stale = |at: Timestamp| at + Duration::from_secs(STAGED_TIME_MAX_S) <= now;
        let stale = self.containers.iter().flat_map(|(container, known)| {
            let stale = known.staged.iter().filter(|(_, staged)| is_stale(staged.at));
            stale.map(|(blob, _)| Fact::Unstaged { container: container.clone(), blob: blob.clone() })
        });
        let stale: Vec<Fact> = stale.collect();
        stale.into_iter().for_each(|fact| self.decide(fact, out));
    }

    fn staged_count(&self) -> usize {
        self.containers.values().map(|container| container.staged.len()).sum()
    }
}
