//! Calls about containers and blobs.

use bytes::Bytes;
use peeklock_blobs::{
    Blob, BlobName, Block, BlockId, BlockSource, Condition, ContainerName, ContainerView, Found, LeaseAction,
    LeaseId, Leased, Metadata, NewBlob, Page,
};
use peeklock_types::{EntityName, Etag, Timestamp};

use super::AdminError;
use crate::broker::Broker;
use crate::request::blobs::{
    Blocks, Changed, CreateContainer, DeleteBlob, DeleteContainer, LeaseBlob, ListBlobs, ListContainers,
    ListStock, PutBlob, PutBlock, PutBlockList, SetBlobMetadata, SetContainerMetadata, ShowBlob, ShowBlocks,
    ShowContainer, StockBlob,
};

impl Broker {
    pub async fn create_container(
        &self,
        name: ContainerName,
        metadata: Metadata,
    ) -> Result<ContainerView, AdminError> {
        let place = self.place_container(name.as_str());
        self.ask(place, CreateContainer { name, metadata }).await
    }

    pub async fn set_container_metadata(
        &self,
        name: ContainerName,
        metadata: Metadata,
        condition: Condition,
    ) -> Result<(Etag, Timestamp), AdminError> {
        let place = self.place_container(name.as_str());
        self.ask(place, SetContainerMetadata { name, metadata, condition }).await.map(changed)
    }

    /// Deletes a container with all its blobs.
    pub async fn delete_container(
        &self,
        name: ContainerName,
        condition: Condition,
    ) -> Result<(), AdminError> {
        let place = self.place_container(name.as_str());
        self.ask(place, DeleteContainer { name, condition }).await
    }

    pub async fn container(&self, name: ContainerName) -> Result<ContainerView, AdminError> {
        let place = self.place_container(name.as_str());
        self.ask(place, ShowContainer { name }).await
    }

    /// Lists containers of all shards by name.
    pub async fn containers(&self, page: Page) -> Result<Found<(ContainerName, ContainerView)>, AdminError> {
        let (mut all, mut nexts) = (Vec::new(), Vec::new());
        for shard in 0..self.shard_count() {
            let found = self.ask(shard, ListContainers { page: page.clone() }).await?;
            all.extend(found.found);
            nexts.extend(found.next);
        }
        all.sort_by(|(left, _), (right, _)| left.cmp(right));
        let beyond = all.split_off(all.len().min(page.count_max));
        // The next page starts with the first name that is not returned, whether it was cut off here or in its shard.
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
        let place = self.place_container(container.as_str());
        self.ask(place, PutBlob { container, blob, new, condition }).await.map(changed)
    }

    /// Stores a block until a block list names it.
    pub async fn put_block(
        &self,
        container: ContainerName,
        blob: BlobName,
        id: BlockId,
        content: Bytes,
        lease_id: Option<LeaseId>,
    ) -> Result<(), AdminError> {
        let place = self.place_container(container.as_str());
        let request = PutBlock { container, blob, id, content, lease_id };
        self.ask(place, request).await
    }

    /// Commits a blob from blocks. `new` contains everything but the content.
    pub async fn put_block_list(
        &self,
        container: ContainerName,
        blob: BlobName,
        list: Vec<(BlockSource, BlockId)>,
        new: NewBlob,
        condition: Condition,
    ) -> Result<(Etag, Timestamp), AdminError> {
        let place = self.place_container(container.as_str());
        self.ask(place, PutBlockList { container, blob, list, new, condition }).await.map(changed)
    }

    /// Returns the committed and the uncommitted blocks of a blob.
    pub async fn blocks(
        &self,
        container: ContainerName,
        blob: BlobName,
    ) -> Result<(Vec<Block>, Vec<Block>), AdminError> {
        let place = self.place_container(container.as_str());
        let Blocks { committed, uncommitted } = self.ask(place, ShowBlocks { container, blob }).await?;
        Ok((committed, uncommitted))
    }

    /// Changes the lease of a blob, or of the container if `blob` is `None`.
    pub async fn lease_blob(
        &self,
        container: ContainerName,
        blob: Option<BlobName>,
        action: LeaseAction,
        condition: Condition,
    ) -> Result<Leased, AdminError> {
        let place = self.place_container(container.as_str());
        self.ask(place, LeaseBlob { container, blob, action, condition }).await
    }

    pub async fn set_blob_metadata(
        &self,
        container: ContainerName,
        blob: BlobName,
        metadata: Metadata,
        condition: Condition,
    ) -> Result<(Etag, Timestamp), AdminError> {
        let place = self.place_container(container.as_str());
        self.ask(place, SetBlobMetadata { container, blob, metadata, condition }).await.map(changed)
    }

    pub async fn delete_blob(
        &self,
        container: ContainerName,
        blob: BlobName,
        condition: Condition,
    ) -> Result<(), AdminError> {
        let place = self.place_container(container.as_str());
        self.ask(place, DeleteBlob { container, blob, condition }).await
    }

    pub async fn blob(&self, container: ContainerName, blob: BlobName) -> Result<Blob, AdminError> {
        let place = self.place_container(container.as_str());
        self.ask(place, ShowBlob { container, blob }).await
    }

    /// Lists blobs of one container by name.
    pub async fn blobs(
        &self,
        container: ContainerName,
        page: Page,
    ) -> Result<Found<(BlobName, Blob)>, AdminError> {
        let place = self.place_container(container.as_str());
        self.ask(place, ListBlobs { container, page }).await
    }

    /// Returns the records of the SDKs' stock checkpoint stores for a hub: ownerships and checkpoints of its
    /// partitions, in any container.
    pub async fn stock_checkpoints(&self, hub: &EntityName) -> Result<Vec<StockBlob>, AdminError> {
        let mut all = Vec::new();
        for shard in 0..self.shard_count() {
            all.extend(self.ask(shard, ListStock { hub: hub.clone() }).await?);
        }
        Ok(all)
    }
}

fn changed(Changed { etag, at }: Changed) -> (Etag, Timestamp) {
    (etag, at)
}
