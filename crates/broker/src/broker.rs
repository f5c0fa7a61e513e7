use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use peeklock_engine::Patch;
use peeklock_filter::Cost;
use peeklock_journal::{Journal, Log, Recovery};
use peeklock_types::{CommitGroupNumber, EntityName, Placement, QueueGroups, ShardId, Tier};
use tokio::sync::{Mutex, Semaphore, mpsc};
use tokio::task::{AbortHandle, JoinSet};

use crate::batch::{Batch, Peer, PeerId};
use crate::clock::Clock;
use crate::execute::BlobBudget;
use crate::large::LargeStore;
use crate::reply::Reply;
use crate::router::Router;
use crate::shard::damage::DamageCounts;
use crate::shard::state::State;
use crate::shard::{Envelope, Failure, RecoveredShard, Shard};

/// The maximum number of batches that wait for one shard. Beyond it, peers wait.
const SHARD_QUEUE_MAX: usize = 64;
/// The maximum number of waiting batches with very many messages. The attributes of a message take far more memory than
/// the bytes of a small message.
const CROWDED_BATCHES_MAX: usize = 4;

/// All shards of one journal. It is cheap to clone; the shards stop when the last clone is gone.
#[derive(Clone)]
pub struct Broker {
    shards: Arc<[ShardHandle]>,
    placement: Placement,
    clock: Clock,
    /// The id of the next peer. The counter belongs to the broker, not to the process, so a run gives the same ids
    /// regardless of earlier runs in the process.
    next_peer: Arc<AtomicU64>,
    /// The queue groups of the namespace, which receivers use like queues.
    queue_groups: Arc<QueueGroups>,
    /// The mutex is locked while a hub is changed.
    pub(crate) hub_changes: Arc<Mutex<()>>,
    pub(crate) damage: Arc<DamageCounts>,
    /// The mutex is locked while an entity is created under the quotas of the emulators. `None`: these quotas do not
    /// apply.
    pub(crate) quotas: Option<Arc<Mutex<()>>>,
    /// The tier of the namespace, which determines its features.
    tier: Tier,
}

/// Makes the view of a stored message, for the filters of a topic to which the message is forwarded; see
/// [`peeklock_filter`]. The broker itself does not interpret the bytes of a message. For a large message, `stored`
/// contains only the first bytes. The result is `None` if the properties cannot be read; rules that use them then fail.
pub type Describe = fn(stored: &[u8], patch: &Patch) -> Option<Bytes>;

/// A handle to one shard.
#[derive(Clone)]
pub struct ShardHandle {
    pub(crate) incoming: mpsc::Sender<Envelope>,
    pub(crate) large: LargeStore,
    /// Permits for batches with very many messages.
    crowded: Arc<Semaphore>,
}

#[derive(Debug, thiserror::Error)]
#[error(
    "this part of the broker has stopped after a failure of its journal; its log says why. Restart the broker"
)]
pub struct ShardStopped;

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Journal(#[from] peeklock_journal::OpenError),
    #[error("{shard}, {group}: {what}. Nothing was changed")]
    Replay { shard: ShardId, group: CommitGroupNumber, what: String },
}

/// Counts of the state that was recovered on opening.
#[derive(Clone, Copy, Debug, Default)]
pub struct Recovered {
    pub queue_count: u64,
    pub message_count: u64,
    pub hub_count: u64,
}

/// The running shards.
pub struct Running {
    tasks: JoinSet<Result<(), Failure>>,
    handles: Vec<AbortHandle>,
}

impl Running {
    /// Returns whether no shard has stopped or failed yet.
    pub fn is_whole(&self) -> bool {
        self.handles.iter().all(|shard| !shard.is_finished())
    }

    /// Waits until every shard has stopped or one has failed. If a shard has failed, its reason is returned at once.
    pub async fn stopped(&mut self) -> Result<(), String> {
        while let Some(ended) = self.tasks.join_next().await {
            match ended {
                Ok(Ok(())) => {}
                Ok(Err(failure)) => return Err(failure.to_string()),
                Err(panic) => return Err(panic.to_string()),
            }
        }
        Ok(())
    }
}

impl Broker {
    /// Recovers every shard and starts to serve requests.
    pub async fn open<J: Journal>(
        journal: &J,
        describe: Describe,
    ) -> Result<(Broker, Running, Recovered), OpenError> {
        Self::open_at(journal, Clock::start(), describe).await
    }

    /// Like [`Broker::open`], with the caller's clock.
    pub async fn open_at<J: Journal>(
        journal: &J,
        clock: Clock,
        describe: Describe,
    ) -> Result<(Broker, Running, Recovered), OpenError> {
        Self::open_with(journal, clock, describe, Cost::default()).await
    }

    /// Like [`Broker::open_at`], with a limit on the cost of a topic's rules for one message.
    pub async fn open_with<J: Journal>(
        journal: &J,
        clock: Clock,
        describe: Describe,
        filter_cost: Cost,
    ) -> Result<(Broker, Running, Recovered), OpenError> {
        let mut running = Running { tasks: JoinSet::new(), handles: Vec::new() };
        let (mut shards, mut recovered_shards) = (Vec::new(), Vec::new());
        let mut recovered = Recovered::default();
        let damage = Arc::<DamageCounts>::default();
        let blob_budget = BlobBudget::default();
        let placement = journal.placement();
        for id in placement.shards() {
            let (mut state, log, snapshot_upto) = recover(journal, id).await?;
            state.engine.set_filter_cost(filter_cost);
            recovered.hub_count += state.hubs.hubs_after(None).count() as u64;
            for queue in state.engine.queues().filter(|queue| !queue.name.is_internal()) {
                recovered.queue_count += 1;
                let counts = queue.counts;
                recovered.message_count += counts.message_count();
            }
            let (incoming, envelopes) = mpsc::channel(SHARD_QUEUE_MAX);
            let large = LargeStore::new(log.large_bodies(), log.reader());
            let crowded = Arc::new(Semaphore::new(CROWDED_BATCHES_MAX));
            shards.push(ShardHandle { incoming, large, crowded });
            let damage = Arc::clone(&damage);
            let blob_share = blob_budget.share(state.blobs.size_bytes());
            let shard = RecoveredShard { id, state, log, snapshot_upto, damage, blob_share };
            recovered_shards.push((shard, envelopes));
        }
        let next_peer = Arc::new(AtomicU64::new(1));
        let router = Router::new(&shards, Arc::clone(&next_peer), describe);
        for (shard, envelopes) in recovered_shards {
            let shard = Shard::new(shard, clock.clone(), envelopes, router.clone(), describe);
            running.handles.push(running.tasks.spawn(shard.run()));
        }
        let (queue_groups, hub_changes) = Default::default();
        let shards = shards.into();
        let broker = Broker {
            shards,
            placement,
            clock,
            next_peer,
            queue_groups,
            hub_changes,
            damage,
            quotas: None,
            tier: Tier::default(),
        };
        broker.mend_hubs().await;
        Ok((broker, running, recovered))
    }

    /// Returns the broker with these queue groups. Their names are reserved: no entity with such a name can be created.
    #[must_use]
    pub fn with_queue_groups(self, queue_groups: QueueGroups) -> Self {
        Broker { queue_groups: Arc::new(queue_groups), ..self }
    }

    /// Returns the broker with the quotas of the official emulators, which have the standard tier.
    #[must_use]
    pub fn with_emulator_quotas(self) -> Self {
        Broker { quotas: Some(Arc::default()), tier: Tier::Standard, ..self }
    }

    /// Returns the broker as a namespace of this tier. Existing entities keep their maximum message size.
    #[must_use]
    pub fn with_tier(self, tier: Tier) -> Self {
        Broker { tier, ..self }
    }

    pub fn tier(&self) -> Tier {
        self.tier
    }

    pub fn queue_groups(&self) -> &QueueGroups {
        &self.queue_groups
    }

    /// Creates a peer and returns it with the channel on which its replies arrive.
    pub fn peer(&self) -> (Peer, mpsc::UnboundedReceiver<Vec<Reply>>) {
        Peer::new(PeerId(self.next_peer.fetch_add(1, Ordering::Relaxed)))
    }

    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Returns the number of the shard that owns `name`, for [`Broker::shard`].
    pub fn place(&self, name: &EntityName) -> usize {
        self.placement.of(name).0.into()
    }

    /// Returns the number of the shard that owns this partition of the hub `name`.
    pub fn place_partition(&self, name: &EntityName, partition: u32) -> usize {
        self.placement.of_partition(name, partition).0.into()
    }

    /// Returns the number of the shard that owns the container of this name.
    pub(crate) fn place_container(&self, name: &str) -> usize {
        self.placement.of_container(name).0.into()
    }

    pub fn shard(&self, number: usize) -> Option<&ShardHandle> {
        self.shards.get(number)
    }

    pub fn shard_count(&self) -> usize {
        self.shards.len()
    }
}

impl ShardHandle {
    /// Sends a batch to the shard. Waits while too many batches are waiting for it.
    pub async fn send(&self, peer: Peer, batch: Batch) -> Result<(), ShardStopped> {
        let place = if batch.is_crowded() {
            Some(Arc::clone(&self.crowded).acquire_owned().await.map_err(|_| ShardStopped)?)
        } else {
            None
        };
        self.incoming.send(Envelope { peer, batch, place }).await.map_err(|_| ShardStopped)
    }
}

/// Returns the state of a shard, its log, and the commit group up to which a snapshot replaces the log.
async fn recover<J: Journal>(
    journal: &J,
    shard: ShardId,
) -> Result<(State, J::Log, CommitGroupNumber), OpenError> {
    let (mut log, Recovery { snapshot, groups }) = journal.open(shard).await?;
    let placement = journal.placement();
    let damaged = |group, what: String| OpenError::Replay { shard, group, what };
    let (mut state, upto) = match snapshot {
        Some(s) => (State::restore(&s.payload, placement).map_err(|what| damaged(s.upto, what))?, s.upto),
        None => (State::new(placement), CommitGroupNumber::NONE),
    };
    for stored in groups {
        let stored = stored?;
        state.replay(stored.number, &stored.payload).map_err(|what| damaged(stored.number, what))?;
    }
    log.adopt(&state.standalone_bodies());
    log.trim(state.bodies_upto(upto));
    Ok((state, log, upto))
}
