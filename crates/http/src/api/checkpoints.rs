//! Checkpoints of consumer groups.

use std::collections::BTreeMap;

use peeklock_access::Right;
use peeklock_api::{CheckpointBody, CheckpointInfo, CheckpointSource, Page, checkpoints};
use peeklock_broker::hubs::{CheckpointBy, HubView, Ownership};
use peeklock_spec::show_time;
use peeklock_types::{ConsumerGroup, Timestamp};

use super::call::{Answer, Call};
use super::hubs;
use super::route::{Route, route};
use crate::problem::Problem;
use crate::progress::{Progress, progress};

pub(super) fn routes() -> Vec<Route> {
    vec![
        route(&checkpoints::LIST, Right::Listen, Call::list_checkpoints),
        route(&checkpoints::SHOW, Right::Listen, Call::show_checkpoint),
        route(&checkpoints::PUT, Right::Listen, Call::put_checkpoint),
    ]
}

fn checkpoint_info(progress: &Progress, now: Timestamp) -> CheckpointInfo {
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

impl<Q, B> Call<Q, B> {
    pub(super) async fn owners(
        &self,
        hub: &HubView,
        group: &ConsumerGroup,
    ) -> Result<BTreeMap<u32, Ownership>, Problem> {
        let found = self.namespace.broker.ownerships(hub.name.clone(), group.clone()).await?;
        Ok(found.into_iter().map(|ownership| (ownership.partition, ownership)).collect())
    }

    async fn checkpoint(&self, hub: &HubView, group: &ConsumerGroup) -> Result<CheckpointInfo, Problem> {
        let (broker, partition) = (&self.namespace.broker, self.partition()?);
        let found = broker.checkpoints(hub.name.clone(), group.clone()).await?;
        let checkpoint = found.into_iter().find(|(known, _)| *known == partition).map(|(_, at)| at);
        let lag = broker.partition_lag(hub, partition, checkpoint).await?;
        let mut owners = self.owners(hub, group).await?;
        let owner = owners.remove(&partition).filter(|owner| !owner.owner.is_empty());
        let (epoch, owner) = (owner.as_ref().map(|owner| owner.epoch), owner.map(|owner| owner.owner));
        let progress = Progress { lag, source: CheckpointSource::Broker, owner, epoch };
        Ok(checkpoint_info(&progress, self.namespace.now()))
    }
}

impl Call {
    /// Returns the checkpoints in one page, which has room for all partitions of a hub.
    async fn list_checkpoints(self) -> Result<Answer<Page<CheckpointInfo>>, Problem> {
        let (hub, group) = self.hub_and_group().await?;
        let broker = &self.namespace.broker;
        let stock = broker.stock_checkpoints(&hub.name).await?;
        let found = progress(broker, &hub, &group, &stock).await?;
        let now = self.namespace.now();
        Ok(Answer::ok(Page::whole(found.iter().map(|progress| checkpoint_info(progress, now)))))
    }

    async fn show_checkpoint(self) -> Result<Answer<CheckpointInfo>, Problem> {
        let (hub, group) = self.hub_and_group().await?;
        Ok(Answer::ok(self.checkpoint(&hub, &group).await?))
    }
}

impl Call<(), CheckpointBody> {
    async fn put_checkpoint(self) -> Result<Answer<CheckpointInfo>, Problem> {
        let (call, CheckpointBody { sequence_number, owner, epoch }) = self.split();
        let by = match (owner, epoch) {
            (Some(owner), Some(epoch)) => CheckpointBy::Owner { owner, epoch },
            (None, None) => CheckpointBy::Anyone,
            _ => {
                return Err(Problem::bad("give both owner and epoch, as the ownership has them, or neither"));
            }
        };
        let (hub, group) = call.hub_and_group().await?;
        let (name, partition) = (hub.name.clone(), call.partition()?);
        let sequence = Some(sequence_number);
        call.namespace.broker.checkpoint(name, group.clone(), partition, sequence, by).await?;
        Ok(Answer::ok(call.checkpoint(&hub, &group).await?))
    }
}
