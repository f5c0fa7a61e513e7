//! Resets the checkpoints of a consumer group: those in the broker, and those in the blobs of a stock checkpoint store.

use std::collections::BTreeMap;

use peeklock_access::Right;
use peeklock_api::{CheckpointMove, CheckpointReset, CheckpointSource, Page, ResetTo, checkpoints};
use peeklock_broker::blob::{BlobName, Condition, ContainerName, Metadata, NewBlob, StockKind, Tag};
use peeklock_broker::hubs::{CheckpointBy, HubView, StartAt};
use peeklock_broker::{Lag, StockBlob};
use peeklock_spec::parse_time;
use peeklock_types::{ConsumerGroup, Timestamp};

use super::call::{Answer, Call};
use super::hubs;
use super::route::{Route, route};
use crate::problem::Problem;

pub(super) fn routes() -> Vec<Route> {
    vec![route(&checkpoints::RESET, Right::Manage, Call::reset_checkpoints)]
}

#[derive(Clone, Copy)]
enum Target {
    Earliest,
    Latest,
    None,
    Sequence(u64),
    Time(Timestamp),
}

/// The checkpoints of a consumer group in one stock checkpoint store: a container, and the common prefix of its blob
/// names.
#[derive(Default)]
struct Store {
    checkpoints: BTreeMap<u32, i64>,
    owners: BTreeMap<u32, String>,
}

type Place = (ContainerName, String);

fn target(to: &ResetTo) -> Result<Target, Problem> {
    match to {
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

impl Call<(), CheckpointReset> {
    /// Resets the checkpoints. All moves are computed before the first one is made.
    async fn reset_checkpoints(self) -> Result<Answer<Page<CheckpointMove>>, Problem> {
        let CheckpointReset { partition, dry_run, .. } = self.body;
        let target = target(&self.body.to)?;
        let (hub, group) = self.hub_and_group().await?;
        let broker = &self.namespace.broker;
        let owners = self.owners(&hub, &group).await?;
        let known: BTreeMap<_, _> =
            broker.checkpoints(hub.name.clone(), group.clone()).await?.into_iter().collect();
        let stores = stores(&broker.stock_checkpoints(&hub.name).await?, &group);
        // A consumer group that uses only blobs gets no checkpoints in the broker, because it would not read them.
        let is_in_broker = stores.is_empty() || !owners.is_empty() || !known.is_empty();
        let mut lags = match partition {
            None => broker.lag_behind(&hub, &known).await?,
            Some(partition) => {
                vec![broker.partition_lag(&hub, partition, known.get(&partition).copied()).await?]
            }
        };
        lags.sort_by_key(|lag| lag.partition);
        let mut moves = Vec::new();
        for lag in lags {
            let partition = lag.partition;
            let after = self.reset_position(&hub, &lag, target).await?;
            if is_in_broker {
                let before = lag.checkpoint.map(|checkpoint| checkpoint.sequence.cast_signed());
                let owner = owners.get(&partition).map(|owner| owner.owner.clone());
                let after = after.filter(|after| *after >= 0);
                moves.push((moved(&lag, before, after, owner), None));
            }
            for (place, store) in &stores {
                let before = store.checkpoints.get(&partition).copied();
                let mut moved = moved(&lag, before, after, store.owners.get(&partition).cloned());
                (moved.source, moved.container) = (CheckpointSource::Blob, Some(place.0.to_string()));
                moves.push((moved, Some(place)));
            }
        }
        for (moved, place) in moves.iter().filter(|(moved, _)| !dry_run && moved.before != moved.after) {
            match place {
                Some(place) => self.reset_blob(place, moved.partition, moved.after).await?,
                None => {
                    let (name, after) =
                        (hub.name.clone(), moved.after.and_then(|after| after.try_into().ok()));
                    let by = CheckpointBy::Reset;
                    broker.checkpoint(name, group.clone(), moved.partition, after, by).await?;
                }
            }
        }
        Ok(Answer::ok(Page::whole(moves.into_iter().map(|(moved, _)| moved))))
    }

    /// Returns the checkpoint for the target: -1 for the position before every event, `None` for no checkpoint.
    async fn reset_position(&self, hub: &HubView, lag: &Lag, target: Target) -> Result<Option<i64>, Problem> {
        let before = |next: u64| Some(next.cast_signed() - 1);
        match target {
            Target::None => Ok(None),
            Target::Earliest => Ok(before(lag.begin_sequence)),
            Target::Latest => Ok(before(lag.next_sequence)),
            Target::Sequence(sequence) if sequence < lag.next_sequence => Ok(Some(sequence.cast_signed())),
            Target::Sequence(sequence) => Err(Problem::bad(format!(
                "partition {} has no event {sequence} yet, its last is {}; nothing was changed",
                lag.partition,
                hubs::last_sequence(lag.next_sequence)
            ))),
            Target::Time(at) => {
                let start = StartAt::Time { at, inclusive: true };
                let found = self.namespace.broker.read_events(hub, lag.partition, start, 1).await?;
                Ok(before(found.first().map_or(lag.next_sequence, |event| event.sequence)))
            }
        }
    }

    /// Writes a checkpoint in the format of the store. Fails if the store writes at the same time.
    async fn reset_blob(
        &self,
        (container, prefix): &Place,
        partition: u32,
        after: Option<i64>,
    ) -> Result<(), Problem> {
        let broker = &self.namespace.broker;
        let name = format!("{prefix}/checkpoint/{partition}");
        let name = BlobName::parse(&name).map_err(|error| Problem::bad(error.to_string()))?;
        let current = match broker.blob(container.clone(), name.clone()).await.map_err(Problem::from) {
            Ok(blob) => Some(blob),
            Err(Problem::NotFound(_)) => None,
            Err(problem) => return Err(problem),
        };
        let condition = match &current {
            Some(blob) => Condition { if_match: Some(Tag::Is(blob.etag)), ..Condition::default() },
            None => Condition { if_none_match: Some(Tag::Any), ..Condition::default() },
        };
        let container = container.clone();
        let done = match (after, current) {
            (None, None) => return Ok(()),
            (None, Some(_)) => broker.delete_blob(container, name, condition).await,
            (Some(after), Some(blob)) => {
                let metadata = at(after, &blob.metadata)?;
                broker.set_blob_metadata(container, name, metadata, condition).await.map(|_| ())
            }
            (Some(after), None) => {
                let metadata = at(after, &Metadata::default())?;
                let new = NewBlob { metadata, ..NewBlob::default() };
                broker.put_blob(container, name, new, condition).await.map(|_| ())
            }
        };
        done.map_err(|error| match Problem::from(error) {
            Problem::Precondition(_) | Problem::Exists(_) => Problem::Conflict(format!(
                "a processor wrote its checkpoint for partition {partition} at the same time; stop the processors of the group, and \
                 repeat the reset"
            )),
            problem => problem,
        })
    }
}

/// Returns the metadata of a checkpoint, with the other values of the store.
fn at(sequence: i64, others: &Metadata) -> Result<Metadata, Problem> {
    let mut metadata = Metadata::default();
    let number = sequence.to_string();
    let place = [("offset", number.as_str()), ("sequencenumber", number.as_str())];
    let is_place = |name: &str| place.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
    let others = others.iter().filter(|(name, _)| !is_place(name));
    for (name, value) in others.chain(place) {
        metadata.add(name, value).map_err(|error| Problem::bad(error.to_string()))?;
    }
    Ok(metadata)
}

fn stores(blobs: &[StockBlob], group: &ConsumerGroup) -> BTreeMap<Place, Store> {
    let mut stores: BTreeMap<Place, Store> = BTreeMap::new();
    for StockBlob { container, name, record, .. } in blobs {
        if ConsumerGroup::parse(&record.group).ok().as_ref() != Some(group) {
            continue;
        }
        let Some(prefix) = name.as_str().rsplitn(3, '/').nth(2) else { continue };
        let store = stores.entry((container.clone(), prefix.to_owned())).or_default();
        match &record.kind {
            StockKind::Checkpoint { sequence_number, offset } => {
                let by_offset = || offset.as_ref().and_then(|offset| offset.parse().ok());
                if let Some(sequence) = sequence_number.or_else(by_offset) {
                    store.checkpoints.insert(record.partition, sequence);
                }
            }
            StockKind::Ownership { owner } => {
                store.owners.insert(record.partition, owner.clone());
            }
        }
    }
    stores
}

fn moved(lag: &Lag, before: Option<i64>, after: Option<i64>, owner: Option<String>) -> CheckpointMove {
    // The next event to read among the stored events.
    let next = |checkpoint: Option<i64>| {
        let next = checkpoint.map_or(0, |last| last.saturating_add(1).max(0).cast_unsigned());
        next.clamp(lag.begin_sequence, lag.next_sequence)
    };
    CheckpointMove {
        partition: lag.partition,
        source: CheckpointSource::Broker,
        container: None,
        before,
        after,
        repeated_events: next(before).saturating_sub(next(after)),
        skipped_events: next(after).saturating_sub(next(before)),
        owner: owner.filter(|owner| !owner.is_empty()),
    }
}
