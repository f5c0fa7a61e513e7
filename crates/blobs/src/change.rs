//! Changes of containers and blobs: each command is checked as a whole, and then decided into facts.

use std::time::Duration;

use peeklock_types::{Etag, Timestamp};

use crate::blob::{Blob, ContainerView, NewBlob, container_cost, cost};
use crate::blobs::{Blobs, Stamp};
use crate::block::staged_cost;
use crate::condition::Condition;
use crate::error::Error;
use crate::fact::Fact;
use crate::lease::{self, Lease, LeaseAction};
use crate::limits::{CONTAINER_COUNT_MAX, CONTENT_BYTES_MAX, HEADER_BYTES_MAX};
use crate::metadata::Metadata;
use crate::name::{BlobName, ContainerName};

/// A blob or container after an action on its lease, which changes neither its etag nor its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leased {
    pub etag: Etag,
    pub modified_at: Timestamp,
    pub lease: Option<Lease>,
}

impl Blobs {
    pub fn create_container(
        &mut self,
        stamp: Stamp,
        name: ContainerName,
        metadata: Metadata,
        out: &mut Vec<Fact>,
    ) -> Result<ContainerView, Error> {
        if self.containers.contains_key(&name) {
            return Err(Error::ContainerExists { name });
        }
        if self.containers.len() >= CONTAINER_COUNT_MAX {
            return Err(Error::TooManyContainers);
        }
        self.check_room(stamp, 0, 0, container_cost(name.as_str(), &metadata))?;
        let fact = Fact::ContainerCreated { name: name.clone(), metadata, etag: self.next(), at: stamp.now };
        self.decide(fact, out);
        self.container(&name)
    }

    pub fn set_container_metadata(
        &mut self,
        stamp: Stamp,
        name: ContainerName,
        metadata: Metadata,
        condition: &Condition,
        out: &mut Vec<Fact>,
    ) -> Result<(Etag, Timestamp), Error> {
        let container = self.find_container(&name)?;
        check(condition, container.etag, container.modified_at)?;
        lease::check_read(container.lease.as_ref(), stamp.now, condition.lease_id)
            .map_err(Error::of_container)?;
        let freed = container_cost(name.as_str(), &container.metadata);
        self.check_room(stamp, 0, freed, container_cost(name.as_str(), &metadata))?;
        let etag = self.next();
        self.decide(Fact::ContainerMetadataSet { name, metadata, etag, at: stamp.now }, out);
        Ok((etag, stamp.now))
    }

    pub fn delete_container(
        &mut self,
        now: Timestamp,
        name: ContainerName,
        condition: &Condition,
        out: &mut Vec<Fact>,
    ) -> Result<(), Error> {
        let container = self.find_container(&name)?;
        check(condition, container.etag, container.modified_at)?;
        lease::check_write(container.lease.as_ref(), now, condition.lease_id).map_err(Error::of_container)?;
        self.decide(Fact::ContainerDeleted { name }, out);
        Ok(())
    }

    /// Puts a blob, and replaces an existing one. Uncommitted blocks of that name are removed.
    pub fn put(
        &mut self,
        stamp: Stamp,
        container: ContainerName,
        blob: BlobName,
        new: NewBlob,
        condition: &Condition,
        out: &mut Vec<Fact>,
    ) -> Result<(Etag, Timestamp), Error> {
        check_new(&new)?;
        let known = self.find_container(&container)?;
        let current = known.blobs.get(&blob);
        check_put(stamp.now, &container, &blob, current, condition)?;
        let of_staged = known.staged.get(&blob).map_or(0, |staged| staged_cost(&blob, staged));
        let freed = current.map_or(0, |current| current.cost(&blob)) + of_staged;
        let is_more = usize::from(current.is_none());
        let needed = cost(&blob, &new.metadata, &new.headers, &new.content, &new.blocks);
        self.check_room(stamp, is_more, freed, needed)?;
        let (etag, at) = (self.next(), stamp.now);
        self.decide(Fact::Put { container, blob, new: Box::new(new), etag, at }, out);
        Ok((etag, at))
    }

    pub fn set_metadata(
        &mut self,
        stamp: Stamp,
        container: ContainerName,
        blob: BlobName,
        metadata: Metadata,
        condition: &Condition,
        out: &mut Vec<Fact>,
    ) -> Result<(Etag, Timestamp), Error> {
        let current = self.find_to_change(stamp.now, &container, &blob, condition)?;
        let needed = cost(&blob, &metadata, &current.headers, &current.content, &current.blocks);
        self.check_room(stamp, 0, current.cost(&blob), needed)?;
        let (etag, at) = (self.next(), stamp.now);
        self.decide(Fact::MetadataSet { container, blob, metadata, etag, at }, out);
        Ok((etag, at))
    }

    pub fn delete(
        &mut self,
        now: Timestamp,
        container: ContainerName,
        blob: BlobName,
        condition: &Condition,
        out: &mut Vec<Fact>,
    ) -> Result<(), Error> {
        self.find_to_change(now, &container, &blob, condition)?;
        self.decide(Fact::Deleted { container, blob }, out);
        Ok(())
    }

    /// Acts on the lease of a blob, or of the container itself.
    pub fn lease(
        &mut self,
        now: Timestamp,
        container: ContainerName,
        blob: Option<BlobName>,
        action: LeaseAction,
        condition: &Condition,
        out: &mut Vec<Fact>,
    ) -> Result<Leased, Error> {
        let (etag, modified_at, current) = match &blob {
            None => {
                let found = self.find_container(&container)?;
                (found.etag, found.modified_at, found.lease)
            }
            Some(blob) => {
                let found = self.find_if(&container, blob, condition)?;
                (found.etag, found.modified_at, found.lease)
            }
        };
        check(condition, etag, modified_at)?;
        let lease = lease::next(current.as_ref(), now, action)?;
        if lease != current {
            self.decide(Fact::Leased { container, blob, lease }, out);
        }
        Ok(Leased { etag, modified_at, lease })
    }

    /// Lets the leases that end after `before` end later by `by`, because the clock has stepped: a lease is promised for a
    /// span.
    pub fn extend_leases(&mut self, before: Timestamp, by: Duration, out: &mut Vec<Fact>) {
        let mut extended = Vec::new();
        for (container, known) in &self.containers {
            let of_blobs = known.blobs.iter().map(|(name, blob)| (Some(name.clone()), blob.lease));
            for (blob, lease) in [(None, known.lease)].into_iter().chain(of_blobs) {
                if let Some(lease) = lease.and_then(|lease| lease.extended(before, by)) {
                    extended.push(Fact::Leased { container: container.clone(), blob, lease: Some(lease) });
                }
            }
        }
        for fact in extended {
            self.decide(fact, out);
        }
    }

    /// Returns a blob for a conditional request. A condition that names a state is not met by a missing blob.
    fn find_if(
        &self,
        container: &ContainerName,
        blob: &BlobName,
        condition: &Condition,
    ) -> Result<&Blob, Error> {
        self.blob(container, blob).map_err(|error| match error {
            Error::NoSuchBlob { .. } if condition.if_match.is_some() => {
                Error::ConditionNotMet { current: None }
            }
            error => error,
        })
    }

    fn find_to_change(
        &self,
        now: Timestamp,
        container: &ContainerName,
        blob: &BlobName,
        condition: &Condition,
    ) -> Result<&Blob, Error> {
        let current = self.find_if(container, blob, condition)?;
        check(condition, current.etag, current.modified_at)?;
        lease::check_write(current.lease.as_ref(), now, condition.lease_id)?;
        Ok(current)
    }

    pub(crate) fn decide(&mut self, fact: Fact, out: &mut Vec<Fact>) {
        self.apply(&fact).expect("a fact fits the state on which it was decided");
        out.push(fact);
    }

    fn next(&self) -> Etag {
        Etag(self.next_etag)
    }
}

/// Checks the state first, then the lease: a client that creates a blob only if it is new gets the error that it
/// exists, whether the blob is leased or not.
pub(crate) fn check_put(
    now: Timestamp,
    container: &ContainerName,
    blob: &BlobName,
    current: Option<&Blob>,
    condition: &Condition,
) -> Result<(), Error> {
    let lease = match current {
        Some(_) if condition.is_new_only() => {
            return Err(Error::BlobExists { container: container.clone(), blob: blob.clone() });
        }
        Some(current) => {
            check(condition, current.etag, current.modified_at)?;
            current.lease
        }
        None if condition.if_match.is_some() => return Err(Error::ConditionNotMet { current: None }),
        None => None,
    };
    Ok(lease::check_write(lease.as_ref(), now, condition.lease_id)?)
}

fn check(condition: &Condition, etag: Etag, modified_at: Timestamp) -> Result<(), Error> {
    if condition.is_met(etag, modified_at) {
        Ok(())
    } else {
        Err(Error::ConditionNotMet { current: Some(etag) })
    }
}

fn check_new(new: &NewBlob) -> Result<(), Error> {
    let size_bytes = new.content.len();
    if size_bytes > CONTENT_BYTES_MAX {
        return Err(Error::TooLarge { size_bytes });
    }
    let is_bad = |text: &str| text.len() > HEADER_BYTES_MAX || text.chars().any(char::is_control);
    if new.headers.all().into_iter().flatten().any(is_bad) {
        return Err(Error::Header);
    }
    Ok(())
}
