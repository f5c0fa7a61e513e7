//! How far consumer groups have come.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::response::Response;
use http::StatusCode;
use peeklock_api::{CheckpointInfo, CheckpointSource};
use peeklock_broker::hubs::{CheckpointBy, HubView, Ownership};
use peeklock_spec::show_time;
use peeklock_types::{ConsumerGroup, Timestamp};
use serde::Deserialize;

use super::{Call, hubs, json, shape};
use crate::problem::Problem;
use crate::progress::{Progress, progress};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct CheckpointBody {
    /// Of the last event that is done with.
    sequence_number: u64,
    /// Both, from the ownership; or none of them, where nobody owns the partition.
    #[serde(default)]
    owner: Option<String>,
    #[serde(default)]
    epoch: Option<u64>,
}

fn tell(progress: &Progress, now: Timestamp) -> CheckpointInfo {
    let Progress { lag, source, owner, epoch } = progress;
    CheckpointInfo {
        partition: lag.partition,
        sequence_number: lag.checkpoint.map(|checkpoint| checkpoint.sequence),
        at: lag.checkpoint.map(|checkpoint| show_time(checkpoint.at)),
        owner: owner.clone(),
        epoch: *epoch,
        source: *source,
        begin_sequence_number: lag.begin_sequence,
        last_sequence_number: hubs::last_sequence(lag.next_sequence),
        lag_events: lag.events,
        lag_seconds: lag.oldest_at.map_or(0.0, |at| now.since(at).as_secs_f64()),
    }
}

impl Call<'_> {
    /// A hub has few enough partitions for one answer.
    pub(super) async fn list_checkpoints(&self) -> Result<Response, Problem> {
        let (hub, group) = self.hub_and_group().await?;
        let broker = &self.namespace.broker;
        let stock = broker.stock_checkpoints(&hub.name).await?;
        let found = progress(broker, &hub, &group, &stock).await?;
        let now = self.namespace.now();
        let items = found.iter().map(|progress| tell(progress, now)).collect();
        json(StatusCode::OK, None, &shape::Page { items, next: None })
    }

    pub(super) async fn owners(
        &self,
        hub: &HubView,
        group: &ConsumerGroup,
    ) -> Result<BTreeMap<u32, Ownership>, Problem> {
        let found = self.namespace.broker.ownerships(hub.name.clone(), group.clone()).await?;
        Ok(found.into_iter().map(|ownership| (ownership.partition, ownership)).collect())
    }

    pub(super) async fn show_checkpoint(&self) -> Result<Response, Problem> {
        let (hub, group) = self.hub_and_group().await?;
        let told = self.checkpoint_info(&hub, &group).await?;
        json(StatusCode::OK, None, &told)
    }

    async fn checkpoint_info(&self, hub: &HubView, group: &ConsumerGroup) -> Result<CheckpointInfo, Problem> {
        let (broker, partition) = (&self.namespace.broker, self.partition()?);
        let found = broker.checkpoints(hub.name.clone(), group.clone()).await?;
        let checkpoint = found.into_iter().find(|(known, _)| *known == partition).map(|(_, at)| at);
        let lag = broker.partition_lag(hub, partition, checkpoint).await?;
        let mut owners = self.owners(hub, group).await?;
        let owner = owners.remove(&partition).filter(|owner| !owner.owner.is_empty());
        let (epoch, owner) = (owner.as_ref().map(|owner| owner.epoch), owner.map(|owner| owner.owner));
        let progress = Progress { lag, source: CheckpointSource::Broker, owner, epoch };
        Ok(tell(&progress, self.namespace.now()))
    }

    pub(super) async fn put_checkpoint(&self, body: Body) -> Result<Response, Problem> {
        let CheckpointBody { sequence_number, owner, epoch } = self.body(body).await?;
        let by = match (owner, epoch) {
            (Some(owner), Some(epoch)) => CheckpointBy::Owner { owner, epoch },
            (None, None) => CheckpointBy::Anyone,
            _ => {
                return Err(Problem::bad("give both owner and epoch, as the ownership has them, or neither"));
            }
        };
        let (hub, group) = self.hub_and_group().await?;
        let (name, partition) = (hub.name.clone(), self.partition()?);
        let sequence = Some(sequence_number);
        self.namespace.broker.checkpoint(name, group.clone(), partition, sequence, by).await?;
        let told = self.checkpoint_info(&hub, &group).await?;
        json(StatusCode::OK, None, &told)
    }
}
