//! What whoever has no connection can ask about containers and blobs.

use bytes::Bytes;
use peeklock_blobs::{
    Blob, BlobName, Block, BlockId, BlockSource, Condition, ContainerName, ContainerView, Etag, Found,
    LeaseAction, LeaseId, Leased, Metadata, NewBlob, Page,
};
use peeklock_types::{EntityName, ShardId, Timestamp};

use super::{BlobAnswer, BlobRequest, StockBlob};
use crate::broker::{Broker, ShardStopped};
use crate::manage::AdminError;
use crate::reply::Answer;
use crate::request::Request;

impl Broker {
    pub async fn create_container(
        &self,
        name: ContainerName,
        metadata: Metadata,
    ) -> Result<ContainerView, AdminError> {
        let place = place(&name);
        self.ask_container(place, BlobRequest::CreateContainer { name, metadata }).await
    }

    pub async fn set_container_metadata(
        &self,
        name: ContainerName,
        metadata: Metadata,
        condition: Condition,
    ) -> Result<(Etag, Timestamp), AdminError> {
        let place = place(&name);
        self.ask_changed(place, BlobRequest::SetContainerMetadata { name, metadata, condition }).await
    }

    /// With all its blobs.
    pub async fn delete_container(
        &self,
        name: ContainerName,
        condition: Condition,
    ) -> Result<(), AdminError> {
        let place = place(&name);
        self.ask_blobs(place, BlobRequest::DeleteContainer { name, condition }).await.map(|_| ())
    }

    pub async fn container(&self, name: ContainerName) -> Result<ContainerView, AdminError> {
        let place = place(&name);
        self.ask_container(place, BlobRequest::ShowContainer { name }).await
    }

    /// Containers of all shards by name.
    pub async fn containers(&self, page: Page) -> Result<Found<(ContainerName, ContainerView)>, AdminError> {
        let (mut all, mut nexts) = (Vec::new(), Vec::new());
        for shard in 0..self.shard_count() {
            let request = BlobRequest::ListContainers { page: page.clone() };
            if let BlobAnswer::Containers(found) = self.ask_blobs(shard, request).await? {
                all.extend(found.found);
                nexts.extend(found.next);
            }
        }
        all.sort_by(|(left, _), (right, _)| left.cmp(right));
        let beyond = all.split_off(all.len().min(page.count_max));
        // The first name that is not told, whether it was cut off here or in its shard.
        let next = beyond.into_iter().map(|(name, _)| name.as_str().to_owned()).chain(nexts).min();
        Ok(Found { found: all, next })
    }

    pub async fn put_blob(
        &self,
        container: ContainerName,
        blob: BlobName,
        new: NewBlob,
        condition: Condition,
    ) -> Result<(Etag, Timestamp), AdminError> {
        let place = place(&container);
        self.ask_changed(place, BlobRequest::Put { container, blob, new, condition }).await
    }

    /// Keeps a block until a list of blocks names it.
    pub async fn put_block(
        &self,
        container: ContainerName,
        blob: BlobName,
        id: BlockId,
        content: Bytes,
        lease_id: Option<LeaseId>,
    ) -> Result<(), AdminError> {
        let place = place(&container);
        let request = BlobRequest::PutBlock { container, blob, id, content, lease_id };
        self.ask_blobs(place, request).await.map(|_| ())
    }

    /// Makes a blob of blocks; `new` has everything but the content.
    pub async fn put_block_list(
        &self,
        container: ContainerName,
        blob: BlobName,
        list: Vec<(BlockSource, BlockId)>,
        new: NewBlob,
        condition: Condition,
    ) -> Result<(Etag, Timestamp), AdminError> {
        let place = place(&container);
        self.ask_changed(place, BlobRequest::PutBlockList { container, blob, list, new, condition }).await
    }

    /// The blocks of a blob, and those that wait for a list.
    pub async fn blocks(
        &self,
        container: ContainerName,
        blob: BlobName,
    ) -> Result<(Vec<Block>, Vec<Block>), AdminError> {
        let place = place(&container);
        match self.ask_blobs(place, BlobRequest::ShowBlocks { container, blob }).await? {
            BlobAnswer::Blocks { committed, uncommitted } => Ok((committed, uncommitted)),
            _ => Err(ShardStopped.into()),
        }
    }

    /// Acts on the lease of a blob, or without one on that of the container.
    pub async fn lease_blob(
        &self,
        container: ContainerName,
        blob: Option<BlobName>,
        action: LeaseAction,
        condition: Condition,
    ) -> Result<Leased, AdminError> {
        let place = place(&container);
        match self.ask_blobs(place, BlobRequest::Lease { container, blob, action, condition }).await? {
            BlobAnswer::Leased(leased) => Ok(leased),
            _ => Err(ShardStopped.into()),
        }
    }

    pub async fn set_blob_metadata(
        &self,
        container: ContainerName,
        blob: BlobName,
        metadata: Metadata,
        condition: Condition,
    ) -> Result<(Etag, Timestamp), AdminError> {
        let place = place(&container);
        self.ask_changed(place, BlobRequest::SetMetadata { container, blob, metadata, condition }).await
    }

    pub async fn delete_blob(
        &self,
        container: ContainerName,
        blob: BlobName,
        condition: Condition,
    ) -> Result<(), AdminError> {
        let place = place(&container);
        self.ask_blobs(place, BlobRequest::Delete { container, blob, condition }).await.map(|_| ())
    }

    pub async fn blob(&self, container: ContainerName, blob: BlobName) -> Result<Blob, AdminError> {
        let place = place(&container);
        match self.ask_blobs(place, BlobRequest::Show { container, blob }).await? {
            BlobAnswer::Blob(blob) => Ok(*blob),
            _ => Err(ShardStopped.into()),
        }
    }

    /// Blobs of one container by name.
    pub async fn blobs(
        &self,
        container: ContainerName,
        page: Page,
    ) -> Result<Found<(BlobName, Blob)>, AdminError> {
        let place = place(&container);
        match self.ask_blobs(place, BlobRequest::List { container, page }).await? {
            BlobAnswer::Blobs(found) => Ok(found),
            _ => Err(ShardStopped.into()),
        }
    }

    /// What the stock checkpoint stores of the SDKs keep here for a hub: ownerships and checkpoints of its partitions, in any container.
    pub async fn stock_checkpoints(&self, hub: &EntityName) -> Result<Vec<StockBlob>, AdminError> {
        let mut all = Vec::new();
        for shard in 0..self.shard_count() {
            if let BlobAnswer::Stock(found) =
                self.ask_blobs(shard, BlobRequest::Stock { hub: hub.clone() }).await?
            {
                all.extend(found);
            }
        }
        Ok(all)
    }

    async fn ask_container(&self, shard: usize, request: BlobRequest) -> Result<ContainerView, AdminError> {
        match self.ask_blobs(shard, request).await? {
            BlobAnswer::Container(view) => Ok(view),
            _ => Err(ShardStopped.into()),
        }
    }

    async fn ask_changed(&self, shard: usize, request: BlobRequest) -> Result<(Etag, Timestamp), AdminError> {
        match self.ask_blobs(shard, request).await? {
            BlobAnswer::Changed { etag, at } => Ok((etag, at)),
            _ => Err(ShardStopped.into()),
        }
    }

    async fn ask_blobs(&self, shard: usize, request: BlobRequest) -> Result<BlobAnswer, AdminError> {
        let request = Box::new(request);
        match self.ask(shard, |ticket| Request::Blob { ticket, request }).await? {
            Answer::Blob(answer) => Ok(*answer),
            _ => Err(ShardStopped.into()),
        }
    }
}

fn place(container: &ContainerName) -> usize {
    ShardId::of_container(container.as_str()).0.into()
}
