use std::collections::BTreeMap;

use bytes::Bytes;
use peeklock_types::{Etag, Timestamp};

use crate::blob::{Blob, Container, NewBlob, container_cost};
use crate::blobs::{Blobs, cost_inside};
use crate::block::{BlockId, block_cost, staged_base_cost, staged_cost};
use crate::error::ReplayError;
use crate::fact::Fact;
use crate::lease::{self, Lease};
use crate::metadata::Metadata;
use crate::name::{BlobName, ContainerName};

impl Blobs {
    /// Applies a fact. Nothing else changes the state, and replay uses the same function.
    pub fn apply(&mut self, fact: &Fact) -> Result<(), ReplayError> {
        match fact {
            Fact::ContainerCreated { name, metadata, etag, at } => {
                self.take_etag(*etag)?;
                let container = Container {
                    metadata: metadata.clone(),
                    etag: *etag,
                    modified_at: *at,
                    lease: None,
                    blobs: BTreeMap::new(),
                    staged: BTreeMap::new(),
                };
                self.size_bytes += container_cost(name.as_str(), metadata);
                match self.containers.insert(name.clone(), container) {
                    None => Ok(()),
                    Some(_) => Err(ReplayError { what: "a container is created that exists" }),
                }
            }
            Fact::ContainerDeleted { name } => {
                let what = "a container is deleted that does not exist";
                let container = self.containers.remove(name).ok_or(ReplayError { what })?;
                self.blob_count -= container.blobs.len();
                self.size_bytes -=
                    container_cost(name.as_str(), &container.metadata) + cost_inside(&container);
                Ok(())
            }
            Fact::ContainerMetadataSet { name, metadata, etag, at } => {
                self.take_etag(*etag)?;
                let container = self.known(name)?;
                let before = container_cost(name.as_str(), &container.metadata);
                metadata.clone_into(&mut container.metadata);
                (container.etag, container.modified_at) = (*etag, *at);
                self.size_bytes = self.size_bytes - before + container_cost(name.as_str(), metadata);
                Ok(())
            }
            Fact::Put { container, blob, new, etag, at } => {
                self.take_etag(*etag)?;
                self.apply_put(container, blob, new, *etag, *at)
            }
            Fact::MetadataSet { container, blob, metadata, etag, at } => {
                self.take_etag(*etag)?;
                self.apply_metadata(container, blob, metadata, *etag, *at)
            }
            Fact::Leased { container, blob, lease } => self.apply_lease(container, blob.as_ref(), *lease),
            Fact::Deleted { container, blob } => {
                let blobs = &mut self.known(container)?.blobs;
                let what = "a blob is deleted that does not exist";
                let gone = blobs.remove(blob).ok_or(ReplayError { what })?;
                self.blob_count -= 1;
                self.size_bytes -= gone.cost(blob);
                self.unstage(container, blob)
            }
            Fact::Staged { container, blob, id, content, at } => {
                self.apply_staged(container, blob, id, content, *at)
            }
            Fact::Unstaged { container, blob } => self.unstage(container, blob),
        }
    }

    fn apply_put(
        &mut self,
        container: &ContainerName,
        name: &BlobName,
        new: &NewBlob,
        etag: Etag,
        at: Timestamp,
    ) -> Result<(), ReplayError> {
        let NewBlob { metadata, headers, content, blocks } = new.clone();
        self.unstage(container, name)?;
        let blobs = &mut self.known(container)?.blobs;
        let lease = lease::after_change(blobs.get(name).and_then(|replaced| replaced.lease), at);
        let blob = Blob { metadata, headers, content, blocks, etag, created_at: at, modified_at: at, lease };
        let added = blob.cost(name);
        let replaced = blobs.insert(name.clone(), blob);
        match &replaced {
            Some(replaced) => self.size_bytes -= replaced.cost(name),
            None => self.blob_count += 1,
        }
        self.size_bytes += added;
        Ok(())
    }

    fn apply_metadata(
        &mut self,
        container: &ContainerName,
        name: &BlobName,
        metadata: &Metadata,
        etag: Etag,
        at: Timestamp,
    ) -> Result<(), ReplayError> {
        let blobs = &mut self.known(container)?.blobs;
        let what = "a blob gets metadata that does not exist";
        let blob = blobs.get_mut(name).ok_or(ReplayError { what })?;
        let before = blob.cost(name);
        metadata.clone_into(&mut blob.metadata);
        (blob.etag, blob.modified_at) = (etag, at);
        blob.lease = lease::after_change(blob.lease, at);
        let after = blob.cost(name);
        self.size_bytes = self.size_bytes - before + after;
        Ok(())
    }

    fn apply_staged(
        &mut self,
        container: &ContainerName,
        name: &BlobName,
        id: &BlockId,
        content: &Bytes,
        at: Timestamp,
    ) -> Result<(), ReplayError> {
        let all = &mut self.known(container)?.staged;
        let mut added = block_cost(id, content);
        if !all.contains_key(name) {
            added += staged_base_cost(name);
        }
        let staged = all.entry(name.clone()).or_default();
        staged.at = at;
        let replaced = staged.blocks.insert(id.clone(), content.clone());
        let freed = replaced.map_or(0, |replaced| block_cost(id, &replaced));
        self.size_bytes = self.size_bytes - freed + added;
        Ok(())
    }

    /// Removes the staged blocks of a blob, if there are any.
    fn unstage(&mut self, container: &ContainerName, name: &BlobName) -> Result<(), ReplayError> {
        if let Some(staged) = self.known(container)?.staged.remove(name) {
            self.size_bytes -= staged_cost(name, &staged);
        }
        Ok(())
    }

    fn apply_lease(
        &mut self,
        container: &ContainerName,
        blob: Option<&BlobName>,
        lease: Option<Lease>,
    ) -> Result<(), ReplayError> {
        let container = self.known(container)?;
        let place = match blob {
            None => &mut container.lease,
            Some(blob) => {
                let what = "a blob is leased that does not exist";
                &mut container.blobs.get_mut(blob).ok_or(ReplayError { what })?.lease
            }
        };
        *place = lease;
        Ok(())
    }

    /// Checks that etags only rise: no etag is reused, even if its blob is gone.
    fn take_etag(&mut self, etag: Etag) -> Result<(), ReplayError> {
        let next = etag.0.checked_add(1).filter(|_| etag.0 >= self.next_etag);
        self.next_etag = next.ok_or(ReplayError { what: "an etag comes back" })?;
        Ok(())
    }

    fn known(&mut self, name: &ContainerName) -> Result<&mut Container, ReplayError> {
        self.containers.get_mut(name).ok_or(ReplayError { what: "a container is named that does not exist" })
    }
}
