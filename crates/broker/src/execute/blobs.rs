//! Containers and blobs.

use peeklock_blobs::{Blobs, Fact, Found, Stamp, StockRecord};
use peeklock_journal::{Log, Space};
use peeklock_types::{EntityName, Timestamp};

use crate::batch::PeerId;
use crate::reply::Error;
use crate::request::blobs::{
    BlobRequest, Blocks, Changed, CreateContainer, DeleteBlob, DeleteContainer, LeaseBlob, ListBlobs,
    ListContainers, ListStock, PutBlob, PutBlock, PutBlockList, SetBlobMetadata, SetContainerMetadata,
    ShowBlob, ShowBlocks, ShowContainer, StockBlob,
};
use crate::request::{Ask, Asked};
use crate::shard::Shard;

/// Whether a request may need more memory than before.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Growth {
    None,
    Some,
}

impl<L: Log> Shard<L> {
    fn answer_blob<R: Ask>(
        &mut self,
        now: Timestamp,
        peer: PeerId,
        asked: Asked<R>,
        growth: Growth,
        decide: impl FnOnce(&mut Blobs, Stamp, R, &mut Vec<Fact>) -> Result<R::Answer, peeklock_blobs::Error>,
    ) {
        self.answer(peer, asked, |shard, request| {
            if growth == Growth::Some && shard.log.space() > Space::Behind {
                return Err(Error::DiskFull);
            }
            let stamp = Stamp { now, size_bytes_max: shard.blob_share.size_bytes_max() };
            let mut facts = Vec::new();
            let answer = decide(&mut shard.state.blobs, stamp, request, &mut facts);
            facts.iter().for_each(|fact| shard.group.put_blob_fact(fact));
            shard.blob_share.note(shard.state.blobs.size_bytes());
            Ok(answer?)
        });
    }

    pub(super) fn execute_blob(&mut self, now: Timestamp, peer: PeerId, request: BlobRequest) {
        match request {
            BlobRequest::CreateContainer(asked) => {
                self.answer_blob(now, peer, asked, Growth::Some, |blobs, stamp, request, out| {
                    let CreateContainer { name, metadata } = request;
                    blobs.create_container(stamp, name, metadata, out)
                });
            }
            BlobRequest::SetContainerMetadata(asked) => {
                self.answer_blob(now, peer, asked, Growth::None, |blobs, stamp, request, out| {
                    let SetContainerMetadata { name, metadata, condition } = request;
                    let (etag, at) = blobs.set_container_metadata(stamp, name, metadata, &condition, out)?;
                    Ok(Changed { etag, at })
                });
            }
            BlobRequest::DeleteContainer(asked) => {
                self.answer_blob(now, peer, asked, Growth::None, |blobs, _, request, out| {
                    let DeleteContainer { name, condition } = request;
                    blobs.delete_container(now, name, &condition, out)?;
                    Ok(())
                });
            }
            BlobRequest::ShowContainer(asked) => {
                self.answer_blob(now, peer, asked, Growth::None, |blobs, _, ShowContainer { name }, _| {
                    blobs.container(&name)
                });
            }
            BlobRequest::ListContainers(asked) => {
                self.answer_blob(now, peer, asked, Growth::None, |blobs, _, ListContainers { page }, _| {
                    Ok(blobs.list_containers(&page))
                });
            }
            BlobRequest::PutBlob(asked) => {
                self.answer_blob(now, peer, asked, Growth::Some, |blobs, stamp, request, out| {
                    let PutBlob { container, blob, new, condition } = request;
                    let (etag, at) = blobs.put(stamp, container, blob, new, &condition, out)?;
                    Ok(Changed { etag, at })
                });
            }
            BlobRequest::PutBlock(asked) => {
                self.answer_blob(now, peer, asked, Growth::Some, |blobs, stamp, request, out| {
                    let PutBlock { container, blob, id, content, lease_id } = request;
                    blobs.stage(stamp, (container, blob), id, content, lease_id, out)?;
                    Ok(())
                });
            }
            BlobRequest::PutBlockList(asked) => {
                self.answer_blob(now, peer, asked, Growth::Some, |blobs, stamp, request, out| {
                    let PutBlockList { container, blob, list, new, condition } = request;
                    let of_blob = (new.metadata, new.headers);
                    let (etag, at) =
                        blobs.commit(stamp, (container, blob), &list, of_blob, &condition, out)?;
                    Ok(Changed { etag, at })
                });
            }
            BlobRequest::ShowBlocks(asked) => {
                self.answer_blob(now, peer, asked, Growth::None, |blobs, _, request, _| {
                    let ShowBlocks { container, blob } = request;
                    let (committed, uncommitted) = blobs.blocks(&container, &blob)?;
                    Ok(Blocks { committed, uncommitted })
                });
            }
            BlobRequest::LeaseBlob(asked) => {
                self.answer_blob(now, peer, asked, Growth::None, |blobs, _, request, out| {
                    let LeaseBlob { container, blob, action, condition } = request;
                    blobs.lease(now, container, blob, action, &condition, out)
                });
            }
            BlobRequest::SetBlobMetadata(asked) => {
                self.answer_blob(now, peer, asked, Growth::None, |blobs, stamp, request, out| {
                    let SetBlobMetadata { container, blob, metadata, condition } = request;
                    let (etag, at) = blobs.set_metadata(stamp, container, blob, metadata, &condition, out)?;
                    Ok(Changed { etag, at })
                });
            }
            BlobRequest::DeleteBlob(asked) => {
                self.answer_blob(now, peer, asked, Growth::None, |blobs, _, request, out| {
                    let DeleteBlob { container, blob, condition } = request;
                    blobs.delete(now, container, blob, &condition, out)?;
                    Ok(())
                });
            }
            BlobRequest::ShowBlob(asked) => {
                self.answer_blob(now, peer, asked, Growth::None, |blobs, _, request, _| {
                    let ShowBlob { container, blob } = request;
                    Ok(blobs.blob(&container, &blob)?.clone())
                });
            }
            BlobRequest::ListBlobs(asked) => {
                self.answer_blob(now, peer, asked, Growth::None, |blobs, _, request, _| {
                    let ListBlobs { container, page } = request;
                    let Found { found, next } = blobs.list(&container, &page)?;
                    let found = found.into_iter().map(|(name, blob)| (name, blob.clone())).collect();
                    Ok(Found { found, next })
                });
            }
            BlobRequest::ListStock(asked) => {
                self.answer_blob(now, peer, asked, Growth::None, |blobs, _, ListStock { hub }, _| {
                    Ok(stock(blobs, &hub))
                });
            }
        }
    }
}

fn stock(blobs: &Blobs, hub: &EntityName) -> Vec<StockBlob> {
    let hub = hub.as_str().to_lowercase();
    let records = blobs.all().filter_map(|(container, name, blob)| {
        let record = StockRecord::parse(name, &blob.metadata).filter(|record| record.hub == hub)?;
        let (container, name) = (container.clone(), name.clone());
        Some(StockBlob { container, name, record, modified_at: blob.modified_at })
    });
    records.collect()
}
