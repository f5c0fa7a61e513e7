//! Containers and blobs: what can be asked, and what a shard does for it.

mod ask;
mod budget;

use bytes::Bytes;
use peeklock_blobs::{
    Blob, BlobName, Block, BlockId, BlockSource, Condition, ContainerName, ContainerView, Etag, Fact, Found,
    LeaseAction, LeaseId, Leased, Metadata, NewBlob, Page, Stamp, StockRecord,
};
use peeklock_journal::{Log, Space};
use peeklock_types::{EntityName, Timestamp};

pub use budget::BLOB_BYTES_MAX;
pub(crate) use budget::{BlobBudget, BlobShare};

use crate::reply::{Answer, Error};
use crate::shard::Shard;

/// For the shard of the container, unless it is about all of them.
#[derive(Debug)]
pub enum BlobRequest {
    CreateContainer {
        name: ContainerName,
        metadata: Metadata,
    },
    SetContainerMetadata {
        name: ContainerName,
        metadata: Metadata,
        condition: Condition,
    },
    DeleteContainer {
        name: ContainerName,
        condition: Condition,
    },
    ShowContainer {
        name: ContainerName,
    },
    /// Of this shard.
    ListContainers {
        page: Page,
    },
    Put {
        container: ContainerName,
        blob: BlobName,
        new: NewBlob,
        condition: Condition,
    },
    PutBlock {
        container: ContainerName,
        blob: BlobName,
        id: BlockId,
        content: Bytes,
        lease_id: Option<LeaseId>,
    },
    /// A blob of blocks; `new` has everything but the content.
    PutBlockList {
        container: ContainerName,
        blob: BlobName,
        list: Vec<(BlockSource, BlockId)>,
        new: NewBlob,
        condition: Condition,
    },
    ShowBlocks {
        container: ContainerName,
        blob: BlobName,
    },
    /// Of a blob, or of the container itself.
    Lease {
        container: ContainerName,
        blob: Option<BlobName>,
        action: LeaseAction,
        condition: Condition,
    },
    SetMetadata {
        container: ContainerName,
        blob: BlobName,
        metadata: Metadata,
        condition: Condition,
    },
    Delete {
        container: ContainerName,
        blob: BlobName,
        condition: Condition,
    },
    Show {
        container: ContainerName,
        blob: BlobName,
    },
    List {
        container: ContainerName,
        page: Page,
    },
    /// What the stock checkpoint stores keep for a hub, in all containers of this shard.
    Stock {
        hub: EntityName,
    },
}

#[derive(Debug)]
pub enum BlobAnswer {
    Done,
    Container(ContainerView),
    Containers(Found<(ContainerName, ContainerView)>),
    Changed { etag: Etag, at: Timestamp },
    Blob(Box<Blob>),
    Blobs(Found<(BlobName, Blob)>),
    Blocks { committed: Vec<Block>, uncommitted: Vec<Block> },
    Leased(Leased),
    Stock(Vec<StockBlob>),
}

/// A blob that a stock checkpoint store keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StockBlob {
    pub container: ContainerName,
    /// As the store wrote it.
    pub name: BlobName,
    pub record: StockRecord,
    pub modified_at: Timestamp,
}

impl BlobRequest {
    /// Returns whether it may take more room than before.
    fn is_growth(&self) -> bool {
        matches!(
            self,
            BlobRequest::Put { .. }
                | BlobRequest::PutBlock { .. }
                | BlobRequest::PutBlockList { .. }
                | BlobRequest::CreateContainer { .. }
        )
    }
}

impl<L: Log> Shard<L> {
    pub(crate) fn execute_blob(&mut self, now: Timestamp, request: BlobRequest) -> Result<Answer, Error> {
        if request.is_growth() && self.log.space() > Space::Behind {
            return Err(Error::DiskFull);
        }
        let mut facts = Vec::new();
        let answer = self.decide_blob(now, request, &mut facts);
        facts.iter().for_each(|fact| self.group.put_blob_fact(fact));
        self.blob_share.note(self.state.blobs.size_bytes());
        Ok(Answer::Blob(Box::new(answer?)))
    }

    fn decide_blob(
        &mut self,
        now: Timestamp,
        request: BlobRequest,
        out: &mut Vec<Fact>,
    ) -> Result<BlobAnswer, peeklock_blobs::Error> {
        let stamp = Stamp { now, size_bytes_max: self.blob_share.size_bytes_max() };
        let blobs = &mut self.state.blobs;
        let changed = |(etag, at)| BlobAnswer::Changed { etag, at };
        Ok(match request {
            BlobRequest::CreateContainer { name, metadata } => {
                BlobAnswer::Container(blobs.create_container(stamp, name, metadata, out)?)
            }
            BlobRequest::SetContainerMetadata { name, metadata, condition } => {
                changed(blobs.set_container_metadata(stamp, name, metadata, &condition, out)?)
            }
            BlobRequest::DeleteContainer { name, condition } => {
                blobs.delete_container(now, name, &condition, out)?;
                BlobAnswer::Done
            }
            BlobRequest::ShowContainer { name } => BlobAnswer::Container(blobs.container(&name)?),
            BlobRequest::ListContainers { page } => BlobAnswer::Containers(blobs.list_containers(&page)),
            BlobRequest::Put { container, blob, new, condition } => {
                changed(blobs.put(stamp, container, blob, new, &condition, out)?)
            }
            BlobRequest::PutBlock { container, blob, id, content, lease_id } => {
                blobs.stage(stamp, (container, blob), id, content, lease_id, out)?;
                BlobAnswer::Done
            }
            BlobRequest::PutBlockList { container, blob, list, new, condition } => {
                let of_blob = (new.metadata, new.headers);
                changed(blobs.commit(stamp, (container, blob), &list, of_blob, &condition, out)?)
            }
            BlobRequest::ShowBlocks { container, blob } => {
                let (committed, uncommitted) = blobs.blocks(&container, &blob)?;
                BlobAnswer::Blocks { committed, uncommitted }
            }
            BlobRequest::Lease { container, blob, action, condition } => {
                BlobAnswer::Leased(blobs.lease(now, container, blob, action, &condition, out)?)
            }
            BlobRequest::SetMetadata { container, blob, metadata, condition } => {
                changed(blobs.set_metadata(stamp, container, blob, metadata, &condition, out)?)
            }
            BlobRequest::Delete { container, blob, condition } => {
                blobs.delete(now, container, blob, &condition, out)?;
                BlobAnswer::Done
            }
            BlobRequest::Show { container, blob } => {
                BlobAnswer::Blob(Box::new(blobs.blob(&container, &blob)?.clone()))
            }
            BlobRequest::List { container, page } => {
                let Found { found, next } = blobs.list(&container, &page)?;
                let found = found.into_iter().map(|(name, blob)| (name, blob.clone())).collect();
                BlobAnswer::Blobs(Found { found, next })
            }
            BlobRequest::Stock { hub } => BlobAnswer::Stock(stock(blobs, &hub)),
        })
    }
}

fn stock(blobs: &peeklock_blobs::Blobs, hub: &EntityName) -> Vec<StockBlob> {
    let hub = hub.as_str().to_lowercase();
    let records = blobs.all().filter_map(|(container, name, blob)| {
        let record = StockRecord::parse(name, &blob.metadata).filter(|record| record.hub == hub)?;
        let (container, name) = (container.clone(), name.clone());
        Some(StockBlob { container, name, record, modified_at: blob.modified_at })
    });
    records.collect()
}
