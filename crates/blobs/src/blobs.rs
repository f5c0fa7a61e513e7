use std::collections::BTreeMap;
use std::ops::Bound;

use peeklock_types::Timestamp;

use crate::blob::{Blob, Container, ContainerView, Etag, NewBlob, container_cost, cost};
use crate::condition::Condition;
use crate::error::{Error, ReplayError};
use crate::fact::Fact;
use crate::limits::{
    BLOB_COUNT_MAX, CONTAINER_COUNT_MAX, CONTENT_BYTES_MAX, HEADER_BYTES_MAX, PAGE_COUNT_MAX, SIZE_BYTES_MAX,
};
use crate::metadata::Metadata;
use crate::name::{BlobName, ContainerName};

/// The containers of one shard. A container lives in one shard with all its blobs.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Blobs {
    pub(crate) containers: BTreeMap<ContainerName, Container>,
    pub(crate) next_etag: u64,
    blob_count: usize,
    size_bytes: usize,
}

/// Which part of a list: names that begin with `prefix`, from `from` on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    pub prefix: String,
    pub from: String,
    pub count_max: usize,
}

/// A part of a list, and the name that the next part begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found<T> {
    pub found: Vec<T>,
    pub next: Option<String>,
}

impl Blobs {
    pub fn create_container(
        &mut self,
        now: Timestamp,
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
        self.check_room(0, 0, container_cost(name.as_str(), &metadata))?;
        let fact = Fact::ContainerCreated { name: name.clone(), metadata, etag: self.next(), at: now };
        self.decide(fact, out);
        self.container(&name)
    }

    pub fn delete_container(
        &mut self,
        name: ContainerName,
        condition: &Condition,
        out: &mut Vec<Fact>,
    ) -> Result<(), Error> {
        let container = self.find_container(&name)?;
        check(condition, container.etag, container.modified_at)?;
        self.decide(Fact::ContainerDeleted { name }, out);
        Ok(())
    }

    pub fn container(&self, name: &ContainerName) -> Result<ContainerView, Error> {
        self.find_container(name).map(Container::view)
    }

    /// Puts a blob, in place of one that is there.
    pub fn put(
        &mut self,
        now: Timestamp,
        container: ContainerName,
        blob: BlobName,
        new: NewBlob,
        condition: &Condition,
        out: &mut Vec<Fact>,
    ) -> Result<(Etag, Timestamp), Error> {
        check_new(&new)?;
        let current = self.find_container(&container)?.blobs.get(&blob);
        match current {
            Some(_) if condition.is_new_only() => return Err(Error::BlobExists { container, blob }),
            Some(current) => check(condition, current.etag, current.modified_at)?,
            None if condition.if_match.is_some() => return Err(Error::ConditionNotMet { current: None }),
            None => {}
        }
        let freed = current.map_or(0, |current| current.cost(&blob));
        let is_more = usize::from(current.is_none());
        self.check_room(is_more, freed, cost(&blob, &new.metadata, &new.headers, &new.content))?;
        let etag = self.next();
        self.decide(Fact::Put { container, blob, new: Box::new(new), etag, at: now }, out);
        Ok((etag, now))
    }

    pub fn set_metadata(
        &mut self,
        now: Timestamp,
        container: ContainerName,
        blob: BlobName,
        metadata: Metadata,
        condition: &Condition,
        out: &mut Vec<Fact>,
    ) -> Result<(Etag, Timestamp), Error> {
        let current = self.blob(&container, &blob)?;
        check(condition, current.etag, current.modified_at)?;
        let needed = cost(&blob, &metadata, &current.headers, &current.content);
        self.check_room(0, current.cost(&blob), needed)?;
        let etag = self.next();
        self.decide(Fact::MetadataSet { container, blob, metadata, etag, at: now }, out);
        Ok((etag, now))
    }

    pub fn delete(
        &mut self,
        container: ContainerName,
        blob: BlobName,
        condition: &Condition,
        out: &mut Vec<Fact>,
    ) -> Result<(), Error> {
        let current = self.blob(&container, &blob)?;
        check(condition, current.etag, current.modified_at)?;
        self.decide(Fact::Deleted { container, blob }, out);
        Ok(())
    }

    pub fn blob(&self, container: &ContainerName, blob: &BlobName) -> Result<&Blob, Error> {
        let found = self.find_container(container)?.blobs.get(blob);
        found.ok_or_else(|| Error::NoSuchBlob { container: container.clone(), blob: blob.clone() })
    }

    /// Containers by name.
    pub fn list_containers(&self, page: &Page) -> Found<(ContainerName, ContainerView)> {
        let mut found = list(&self.containers, page);
        let page = found.by_ref().take(page.count_max.min(PAGE_COUNT_MAX));
        let page = page.map(|(name, container)| (name.clone(), container.view())).collect();
        Found { found: page, next: found.next().map(|(name, _)| name.as_str().to_owned()) }
    }

    /// Blobs of one container by name, without their content.
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

    /// Every blob of every container.
    pub fn all(&self) -> impl Iterator<Item = (&ContainerName, &BlobName, &Blob)> {
        self.containers.iter().flat_map(|(name, container)| {
            container.blobs.iter().map(move |(blob, state)| (name, blob, state))
        })
    }

    /// The only thing that changes the state; replay is the same.
    pub fn apply(&mut self, fact: &Fact) -> Result<(), ReplayError> {
        match fact {
            Fact::ContainerCreated { name, metadata, etag, at } => {
                self.take_etag(*etag)?;
                let container = Container {
                    metadata: metadata.clone(),
                    etag: *etag,
                    modified_at: *at,
                    blobs: BTreeMap::new(),
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
                let of_blobs: usize = container.blobs.iter().map(|(name, blob)| blob.cost(name)).sum();
                self.blob_count -= container.blobs.len();
                self.size_bytes -= container_cost(name.as_str(), &container.metadata) + of_blobs;
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
            Fact::Deleted { container, blob } => {
                let blobs = &mut self.known(container)?.blobs;
                let what = "a blob is deleted that does not exist";
                let gone = blobs.remove(blob).ok_or(ReplayError { what })?;
                self.blob_count -= 1;
                self.size_bytes -= gone.cost(blob);
                Ok(())
            }
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
        let NewBlob { metadata, headers, content } = new.clone();
        let blob = Blob { metadata, headers, content, etag, created_at: at, modified_at: at };
        let added = blob.cost(name);
        let replaced = self.known(container)?.blobs.insert(name.clone(), blob);
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
        let after = blob.cost(name);
        self.size_bytes = self.size_bytes - before + after;
        Ok(())
    }

    fn decide(&mut self, fact: Fact, out: &mut Vec<Fact>) {
        self.apply(&fact).expect("a fact fits the state that it was decided from");
        out.push(fact);
    }

    fn next(&self) -> Etag {
        Etag(self.next_etag)
    }

    /// Tags only rise: none comes back, even if what it was for is gone.
    fn take_etag(&mut self, etag: Etag) -> Result<(), ReplayError> {
        let next = etag.0.checked_add(1).filter(|_| etag.0 >= self.next_etag);
        self.next_etag = next.ok_or(ReplayError { what: "an etag comes back" })?;
        Ok(())
    }

    fn find_container(&self, name: &ContainerName) -> Result<&Container, Error> {
        self.containers.get(name).ok_or_else(|| Error::NoSuchContainer { name: name.clone() })
    }

    fn known(&mut self, name: &ContainerName) -> Result<&mut Container, ReplayError> {
        self.containers.get_mut(name).ok_or(ReplayError { what: "a container is named that does not exist" })
    }

    fn check_room(&self, more_blobs: usize, freed_bytes: usize, needed_bytes: usize) -> Result<(), Error> {
        // What makes something smaller is always allowed.
        let grows = needed_bytes > freed_bytes;
        let is_full = self.blob_count + more_blobs > BLOB_COUNT_MAX
            || (grows && self.size_bytes - freed_bytes + needed_bytes > SIZE_BYTES_MAX);
        if is_full { Err(Error::Full) } else { Ok(()) }
    }

    /// The counts follow from everything else.
    pub(crate) fn count_all(&mut self) {
        self.blob_count = self.containers.values().map(|container| container.blobs.len()).sum();
        let of_blobs = |container: &Container| -> usize {
            container.blobs.iter().map(|(name, blob)| blob.cost(name)).sum()
        };
        let cost = |(name, container): (&ContainerName, &Container)| {
            container_cost(name.as_str(), &container.metadata) + of_blobs(container)
        };
        self.size_bytes = self.containers.iter().map(cost).sum();
    }
}

impl Blob {
    fn cost(&self, name: &BlobName) -> usize {
        cost(name, &self.metadata, &self.headers, &self.content)
    }
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

/// Names that begin with the prefix, from a name on.
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
