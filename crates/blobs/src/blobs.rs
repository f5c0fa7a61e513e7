use std::collections::BTreeMap;
use std::ops::Bound;

use peeklock_types::Timestamp;

use crate::blob::{Blob, Container, ContainerView, container_cost};
use crate::block::{Block, staged_cost};
use crate::error::Error;
use crate::limits::{BLOB_COUNT_MAX, PAGE_COUNT_MAX};
use crate::name::{BlobName, ContainerName};

/// The containers of one shard. A container and all its blobs belong to one shard.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Blobs {
    pub(crate) containers: BTreeMap<ContainerName, Container>,
    pub(crate) next_etag: u64,
    pub(crate) blob_count: usize,
    pub(crate) size_bytes: usize,
}

/// The inputs of a decision: the time, and the limit on this shard's bytes afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub now: Timestamp,
    pub size_bytes_max: usize,
}

/// A part of a list: names that begin with `prefix`, from `from` on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    pub prefix: String,
    pub from: String,
    pub count_max: usize,
}

/// A part of a list, and the first name of the next part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found<T> {
    pub found: Vec<T>,
    pub next: Option<String>,
}

impl Blobs {
    /// Returns the cost of all blobs, containers and blocks against the limits.
    pub fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    pub fn container(&self, name: &ContainerName) -> Result<ContainerView, Error> {
        self.find_container(name).map(Container::view)
    }

    pub fn blob(&self, container: &ContainerName, blob: &BlobName) -> Result<&Blob, Error> {
        let found = self.find_container(container)?.blobs.get(blob);
        found.ok_or_else(|| Error::NoSuchBlob { container: container.clone(), blob: blob.clone() })
    }

    /// Returns the blocks of a blob, in order, and its uncommitted blocks, by id.
    pub fn blocks(
        &self,
        container: &ContainerName,
        blob: &BlobName,
    ) -> Result<(Vec<Block>, Vec<Block>), Error> {
        let known = self.find_container(container)?;
        let committed = known.blobs.get(blob).map(|blob| blob.blocks.clone());
        let staged = known.staged.get(blob).map(|staged| staged.list());
        if committed.is_none() && staged.is_none() {
            return Err(Error::NoSuchBlob { container: container.clone(), blob: blob.clone() });
        }
        Ok((committed.unwrap_or_default(), staged.unwrap_or_default()))
    }

    /// Returns containers by name.
    pub fn list_containers(&self, page: &Page) -> Found<(ContainerName, ContainerView)> {
        let mut found = list(&self.containers, page);
        let page = found.by_ref().take(page.count_max.min(PAGE_COUNT_MAX));
        let page = page.map(|(name, container)| (name.clone(), container.view())).collect();
        Found { found: page, next: found.next().map(|(name, _)| name.as_str().to_owned()) }
    }

    /// Returns blobs of one container by name, without their content.
    pub fn list<'b>(
        &'b self,
        container: &ContainerName,
        page: &Page,
    ) -> Result<Found<(BlobName, &'b Blob)>, Error> {
        let mut found = list(&self.find_container(container)?.blobs, page);
        let page = found.by_ref().take(page.count_max.min(PAGE_COUNT_MAX));
        let page = page.map(|(name, blob)| (name.clone(), blob)).collect();
        Ok(Found { found: page, next: found.next().map(|(name, _)| name.as_str().to_owned()) })
    }

    /// Returns every blob of every container.
    pub fn all(&self) -> impl Iterator<Item = (&ContainerName, &BlobName, &Blob)> {
        self.containers.iter().flat_map(|(name, container)| {
            container.blobs.iter().map(move |(blob, state)| (name, blob, state))
        })
    }

    pub(crate) fn find_container(&self, name: &ContainerName) -> Result<&Container, Error> {
        self.containers.get(name).ok_or_else(|| Error::NoSuchContainer { name: name.clone() })
    }

    pub(crate) fn check_room(
        &self,
        stamp: Stamp,
        more_blobs: usize,
        freed_bytes: usize,
        needed_bytes: usize,
    ) -> Result<(), Error> {
        if self.blob_count + more_blobs > BLOB_COUNT_MAX {
            return Err(Error::TooManyBlobs);
        }
        // A change that reduces the size is always permitted.
        let grows = needed_bytes > freed_bytes;
        if grows && self.size_bytes - freed_bytes + needed_bytes > stamp.size_bytes_max {
            return Err(Error::Full);
        }
        Ok(())
    }

    /// Computes the counts from the contents.
    pub(crate) fn count_all(&mut self) {
        self.blob_count = self.containers.values().map(|container| container.blobs.len()).sum();
        let cost = |(name, container): (&ContainerName, &Container)| {
            container_cost(name.as_str(), &container.metadata) + cost_inside(container)
        };
        self.size_bytes = self.containers.iter().map(cost).sum();
    }
}

/// Returns the cost of the blobs and blocks of a container.
pub(crate) fn cost_inside(container: &Container) -> usize {
    let of_blobs: usize = container.blobs.iter().map(|(name, blob)| blob.cost(name)).sum();
    let of_staged: usize = container.staged.iter().map(|(name, staged)| staged_cost(name, staged)).sum();
    of_blobs + of_staged
}

/// Returns the names that begin with the prefix, from a name on.
fn list<'m, 'p, K, V>(
    map: &'m BTreeMap<K, V>,
    page: &'p Page,
) -> impl Iterator<Item = (&'m K, &'m V)> + use<'m, 'p, K, V>
where
    K: Ord + std::borrow::Borrow<str>,
{
    let from = page.prefix.as_str().max(page.from.as_str());
    let range = map.range::<str, _>((Bound::Included(from), Bound::Unbounded));
    range.take_while(|(name, _)| (*name).borrow().starts_with(page.prefix.as_str()))
}
