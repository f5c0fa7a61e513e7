//! How far consumer groups have come.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::response::Response;
use http::StatusCode;
use peeklock_broker::Lag;
use peeklock_broker::hubs::{CheckpointBy, HubView, Ownership, StartAt};
use peeklock_spec::{CheckpointInfo, CheckpointSource, parse_time, show_time};
use peeklock_types::{ConsumerGroup, Timestamp};
use serde::{Deserialize, Serialize};

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

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ResetBody {
    to: ResetTo,
    /// All, unless said.
    #[serde(default)]
    partition: Option<u32>,
    /// Only tells what would be.
    #[serde(default)]
    dry_run: bool,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ResetTo {
    /// Of the last event that counts as done with.
    Sequence(u64),
    /// `earliest`, `latest`, `none`, or a time.
    Text(String),
}

#[derive(Clone, Copy)]
enum Target {
    Earliest,
    Latest,
    None,
    Sequence(u64),
    Time(Timestamp),
}

/// What a reset does to one partition.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Moved {
    partition: u32,
    /// The checkpoint before, and after; absent: there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<u64>,
    /// Events that will be read once more, or never by this group.
    repeated_events: u64,
    skipped_events: u64,
    /// Reads the partition now, maybe: it goes on where it is until it starts anew.
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
}

impl ResetTo {
    fn target(&self) -> Result<Target, Problem> {
        match self {
            ResetTo::Sequence(sequence) => Ok(Target::Sequence(*sequence)),
            ResetTo::Text(text) => match text.as_str() {
                "earliest" => Ok(Target::Earliest),
                "latest" => Ok(Target::Latest),
                "none" => Ok(Target::None),
                text => parse_time(text).map(Target::Time).map_err(|error| {
                    Problem::bad(format!("{error}, or earliest, latest, none, or a sequence number"))
                }),
            },
        }
    }
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

    async fn owners(
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

    /// All of it is looked at before any of it is done.
    pub(super) async fn reset_checkpoints(&self, body: Body) -> Result<Response, Problem> {
        let ResetBody { to, partition, dry_run } = self.body(body).await?;
        let target = to.target()?;
        let (hub, group) = self.hub_and_group().await?;
        let owners = self.owners(&hub, &group).await?;
        let broker = &self.namespace.broker;
        let mut lags = match partition {
            None => broker.lag(hub.name.clone(), group.clone()).await?,
            Some(partition) => {
                let found = broker.checkpoints(hub.name.clone(), group.clone()).await?;
                let checkpoint = found.into_iter().find(|(known, _)| *known == partition).map(|(_, at)| at);
                vec![broker.partition_lag(&hub, partition, checkpoint).await?]
            }
        };
        lags.sort_by_key(|lag| lag.partition);
        let mut moves = Vec::with_capacity(lags.len());
        for lag in &lags {
            let after = self.reset_position(&hub, lag, target).await?;
            moves.push(moved(lag, after, owners.get(&lag.partition)));
        }
        for moved in moves.iter().filter(|moved| !dry_run && moved.before != moved.after) {
            let (name, group) = (hub.name.clone(), group.clone());
            broker.checkpoint(name, group, moved.partition, moved.after, CheckpointBy::Reset).await?;
        }
        json(StatusCode::OK, None, &shape::Page { items: moves, next: None })
    }

    /// The checkpoint that leads there; `None`: none.
    async fn reset_position(&self, hub: &HubView, lag: &Lag, target: Target) -> Result<Option<u64>, Problem> {
        match target {
            Target::None => Ok(None),
            // Where nothing was dropped yet, no event lies before the first.
            Target::Earliest => Ok(lag.begin_sequence.checked_sub(1)),
            Target::Latest => Ok(lag.next_sequence.checked_sub(1)),
            Target::Sequence(sequence) if sequence < lag.next_sequence => Ok(Some(sequence)),
            Target::Sequence(sequence) => Err(Problem::bad(format!(
                "partition {} has no event {sequence} yet, its last is {}; nothing was changed",
                lag.partition,
                hubs::last_sequence(lag.next_sequence)
            ))),
            Target::Time(at) => {
                let start = StartAt::Time { at, inclusive: true };
                let found = self.namespace.broker.read_events(hub, lag.partition, start, 1).await?;
                let next = found.first().map_or(lag.next_sequence, |event| event.sequence);
                Ok(next.checked_sub(1))
            }
        }
    }
}

fn moved(lag: &Lag, after: Option<u64>, owner: Option<&Ownership>) -> Moved {
    let before = lag.checkpoint.map(|checkpoint| checkpoint.sequence);
    // The next event to be read, of those that are there.
    let next = |checkpoint: Option<u64>| {
        checkpoint.map_or(0, |last| last.saturating_add(1)).clamp(lag.begin_sequence, lag.next_sequence)
    };
    Moved {
        partition: lag.partition,
        before,
        after,
        repeated_events: next(before).saturating_sub(next(after)),
        skipped_events: next(after).saturating_sub(next(before)),
        owner: owner.map(|owner| owner.owner.clone()).filter(|owner| !owner.is_empty()),
    }
}
