//! The progress of consumer groups, from checkpoints in the broker or in the blobs of a stock checkpoint store.

use std::collections::BTreeMap;

use peeklock_api::CheckpointSource;
use peeklock_broker::blob::{StockKind, StockRecord};
use peeklock_broker::hubs::{Checkpoint, HubView};
use peeklock_broker::{AdminError, Broker, Lag, StockBlob};
use peeklock_types::{ConsumerGroup, Timestamp};

/// The progress of a consumer group in one partition. If both sources have a checkpoint, there are two.
pub(crate) struct Progress {
    pub(crate) lag: Lag,
    pub(crate) source: CheckpointSource,
    pub(crate) owner: Option<String>,
    /// Absent for blobs.
    pub(crate) epoch: Option<u64>,
}

/// The checkpoints of one consumer group in stock checkpoint stores.
#[derive(Default)]
struct Stock {
    checkpoints: BTreeMap<u32, Checkpoint>,
    owners: BTreeMap<u32, (String, Timestamp)>,
}

impl Stock {
    /// Collects the checkpoints of a consumer group. If several containers have one for a partition, the newest counts.
    fn of(blobs: &[StockBlob], group: &ConsumerGroup) -> Self {
        let mut stock = Stock::default();
        for StockBlob { record, modified_at, .. } in blobs {
            let StockRecord { group: name, partition, kind, .. } = record;
            if ConsumerGroup::parse(name).ok().as_ref() != Some(group) {
                continue;
            }
            match kind {
                StockKind::Checkpoint { sequence_number, offset } => {
                    // Some stores omit the offset or the sequence number; in this broker they are equal.
                    let by_offset = || offset.as_ref().and_then(|offset| offset.parse().ok());
                    let sequence = sequence_number.and_then(|number| u64::try_from(number).ok());
                    let Some(sequence) = sequence.or_else(by_offset) else { continue };
                    let found = Checkpoint { sequence, at: *modified_at };
                    let known = stock.checkpoints.entry(*partition).or_insert(found);
                    if known.at < found.at {
                        *known = found;
                    }
                }
                StockKind::Ownership { owner } => {
                    let found = (owner.clone(), *modified_at);
                    let known = stock.owners.entry(*partition).or_insert_with(|| found.clone());
                    if known.1 < found.1 {
                        *known = found;
                    }
                }
            }
        }
        stock
    }

    fn owner(&self, partition: u32) -> Option<String> {
        self.owners.get(&partition).map(|(owner, _)| owner.clone()).filter(|owner| !owner.is_empty())
    }
}

/// Returns the progress of a consumer group. `stock` are the blobs of stock checkpoint stores for the hub.
pub(crate) async fn progress(
    broker: &Broker,
    hub: &HubView,
    group: &ConsumerGroup,
    stock: &[StockBlob],
) -> Result<Vec<Progress>, AdminError> {
    let stock = Stock::of(stock, group);
    let owners = broker.ownerships(hub.name.clone(), group.clone()).await?;
    let owners: BTreeMap<_, _> = owners.into_iter().map(|owner| (owner.partition, owner)).collect();
    let mut of_blobs = BTreeMap::new();
    if !stock.checkpoints.is_empty() {
        let lags = broker.lag_behind(hub, &stock.checkpoints).await?;
        of_blobs.extend(lags.into_iter().map(|lag| (lag.partition, lag)));
    }
    let mut found = Vec::new();
    for lag in broker.lag(hub.name.clone(), group.clone()).await? {
        let partition = lag.partition;
        let of_blob = of_blobs.remove(&partition).filter(|lag| lag.checkpoint.is_some());
        let is_known = lag.checkpoint.is_some();
        let owner = owners.get(&partition).filter(|owner| !owner.owner.is_empty());
        if is_known || of_blob.is_none() {
            found.push(Progress {
                lag,
                source: CheckpointSource::Broker,
                owner: owner.map(|owner| owner.owner.clone()).or_else(|| stock.owner(partition)),
                epoch: owner.map(|owner| owner.epoch),
            });
        }
        if let Some(lag) = of_blob {
            let owner = stock.owner(partition);
            found.push(Progress { lag, source: CheckpointSource::Blob, owner, epoch: None });
        }
    }
    Ok(found)
}
