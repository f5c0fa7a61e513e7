//! Containers and blobs: what can be asked, what a shard does for it, and the questions of whoever has no connection.

use peeklock_blobs::{
    Blob, BlobName, Condition, ContainerName, ContainerView, Etag, Fact, Found, Metadata, NewBlob, Page,
    StockRecord,
};
use peeklock_journal::{Log, Space};
use peeklock_types::{EntityName, ShardId, Timestamp};

use crate::broker::{Broker, ShardStopped};
use crate::manage::AdminError;
use crate::reply::{Answer, Error};
use crate::request::Request;
use crate::shard::Shard;

/// For the shard of the container, unless it is about all of them.
#[derive(Debug)]
pub enum BlobRequest {
    CreateContainer {
        name: ContainerName,
        metadata: Metadata,
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
    Blob(Blob),
    Blobs(Found<(BlobName, Blob)>),
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

impl<L: Log> Shard<L> {
    pub(crate) fn execute_blob(&mut self, now: Timestamp, request: BlobRequest) -> Result<Answer, Error> {
        let is_growth = matches!(request, BlobRequest::Put { .. } | BlobRequest::CreateContainer { .. });
        if is_growth && self.log.space() > Space::Behind {
            return Err(Error::DiskFull);
        }
        let mut facts = Vec::new();
        let answer = self.decide_blob(now, request, &mut facts);
        facts.iter().for_each(|fact| self.group.put_blob_fact(fact));
        Ok(Answer::Blob(Box::new(answer?)))
    }

    fn decide_blob(
        &mut self,
        now: Timestamp,
        request: BlobRequest,
        out: &mut Vec<Fact>,
    ) -> Result<BlobAnswer, peeklock_blobs::Error> {
        let blobs = &mut self.state.blobs;
        let changed = |(etag, at)| BlobAnswer::Changed { etag, at };
        Ok(match request {
            BlobRequest::CreateContainer { name, metadata } => {
                BlobAnswer::Container(blobs.create_container(now, name, metadata, out)?)
            }
            BlobRequest::DeleteContainer { name, condition } => {
                blobs.delete_container(name, &condition, out)?;
                BlobAnswer::Done
            }
            BlobRequest::ShowContainer { name } => BlobAnswer::Container(blobs.container(&name)?),
            BlobRequest::ListContainers { page } => BlobAnswer::Containers(blobs.list_containers(&page)),
            BlobRequest::Put { container, blob, new, condition } => {
                changed(blobs.put(now, container, blob, new, &condition, out)?)
            }
            BlobRequest::SetMetadata { container, blob, metadata, condition } => {
                changed(blobs.set_metadata(now, container, blob, metadata, &condition, out)?)
            }
            BlobRequest::Delete { container, blob, condition } => {
                blobs.delete(container, blob, &condition, out)?;
                BlobAnswer::Done
            }
            BlobRequest::Show { container, blob } => BlobAnswer::Blob(blobs.blob(&container, &blob)?.clone()),
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

impl Broker {
    pub async fn create_container(
        &self,
        name: ContainerName,
        metadata: Metadata,
    ) -> Result<ContainerView, AdminError> {
        let place = place(&name);
        self.ask_container(place, BlobRequest::CreateContainer { name, metadata }).await
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
            BlobAnswer::Blob(blob) => Ok(blob),
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
