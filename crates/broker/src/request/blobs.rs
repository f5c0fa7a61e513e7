//! Requests about containers and blobs. They are for the shard of the container, except for lists of all containers.

use bytes::Bytes;
use peeklock_blobs::{
    Blob, BlobName, Block, BlockId, BlockSource, Condition, ContainerName, ContainerView, Found, LeaseAction,
    LeaseId, Leased, Metadata, NewBlob, Page, StockRecord,
};
use peeklock_types::{EntityName, Etag, Timestamp};

use super::requests;

/// The new state of a blob or container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    pub etag: Etag,
    pub at: Timestamp,
}

/// The blocks of a blob.
#[derive(Clone, Debug)]
pub struct Blocks {
    pub committed: Vec<Block>,
    /// Blocks that no block list has committed.
    pub uncommitted: Vec<Block>,
}

/// A blob of a stock checkpoint store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StockBlob {
    pub container: ContainerName,
    /// The name that the store chose.
    pub name: BlobName,
    pub record: StockRecord,
    pub modified_at: Timestamp,
}

requests! {
    BlobRequest, BlobAnswer;

    CreateContainer {
        name: ContainerName,
        metadata: Metadata,
    } -> ContainerView;

    SetContainerMetadata {
        name: ContainerName,
        metadata: Metadata,
        condition: Condition,
    } -> Changed;

    /// Deletes a container with all its blobs.
    DeleteContainer {
        name: ContainerName,
        condition: Condition,
    } -> ();

    ShowContainer {
        name: ContainerName,
    } -> ContainerView;

    /// Lists the containers of this shard.
    ListContainers {
        page: Page,
    } -> Found<(ContainerName, ContainerView)>;

    PutBlob {
        container: ContainerName,
        blob: BlobName,
        new: NewBlob,
        condition: Condition,
    } -> Changed;

    /// Stores a block until a block list names it.
    PutBlock {
        container: ContainerName,
        blob: BlobName,
        id: BlockId,
        content: Bytes,
        lease_id: Option<LeaseId>,
    } -> ();

    /// Commits a blob from blocks. `new` contains everything but the content.
    PutBlockList {
        container: ContainerName,
        blob: BlobName,
        list: Vec<(BlockSource, BlockId)>,
        new: NewBlob,
        condition: Condition,
    } -> Changed;

    ShowBlocks {
        container: ContainerName,
        blob: BlobName,
    } -> Blocks;

    /// Changes the lease of a blob, or of the container if `blob` is `None`.
    LeaseBlob {
        container: ContainerName,
        blob: Option<BlobName>,
        action: LeaseAction,
        condition: Condition,
    } -> Leased;

    SetBlobMetadata {
        container: ContainerName,
        blob: BlobName,
        metadata: Metadata,
        condition: Condition,
    } -> Changed;

    DeleteBlob {
        container: ContainerName,
        blob: BlobName,
        condition: Condition,
    } -> ();

    ShowBlob {
        container: ContainerName,
        blob: BlobName,
    } -> Blob;

    /// Lists the blobs of one container.
    ListBlobs {
        container: ContainerName,
        page: Page,
    } -> Found<(BlobName, Blob)>;

    /// Lists the records of the SDKs' stock checkpoint stores for a hub, in all containers of this shard.
    ListStock {
        hub: EntityName,
    } -> Vec<StockBlob>;
}
