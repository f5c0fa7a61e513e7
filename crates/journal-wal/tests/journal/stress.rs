//! Everything in parallel on real threads: appends, settlements, moves, snapshots and trims of several shards, in a log
//! of small segments. Bodies are settled and released while others are copied into the same cold segments.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;
use peeklock_journal::{AppendError, BodyReader, Journal, Log, Move, ReadError, StoredBody};
use peeklock_journal_wal::{WalConfig, WalJournal, WalLog};
use peeklock_types::{BodyRef, CommitGroupNumber, ShardId};
use tokio::task::JoinHandle;

use crate::support::{Random, body, stored, tiny};

const SHARDS: u16 = 3;
const TIME: Duration = Duration::from_secs(3);
/// A slow machine has more time for the required events.
const TIME_MAX: Duration = Duration::from_secs(60);
/// The events that each owner must have seen.
const MOVED_MIN: u64 = 17;
const FORGOTTEN_MEANWHILE_MIN: u64 = 2;
const GATHERED_MIN: u64 = 7;

fn config() -> WalConfig {
    WalConfig { free_bytes_soft: 0, free_bytes_hard: 0, ..tiny() }
}

struct Owner {
    shard: ShardId,
    log: WalLog,
    live: BTreeMap<u64, BodyRef>,
    next_id: u64,
    moved_count: u64,
    released_meanwhile: u64,
    /// The moved runs, with the ids of their bodies.
    gathered: VecDeque<(Vec<u64>, StoredBody)>,
    gathered_count: u64,
}

/// The number of moved runs that are kept.
const GATHERED_MAX: usize = 12;

type Gathering = JoinHandle<Result<Vec<StoredBody>, ReadError>>;

impl Owner {
    fn has_seen_enough(&self) -> bool {
        self.moved_count >= MOVED_MIN
            && self.released_meanwhile >= FORGOTTEN_MEANWHILE_MIN
            && self.gathered_count >= GATHERED_MIN
    }

    fn new(
        shard: ShardId,
        log: WalLog,
        live: BTreeMap<u64, BodyRef>,
        gathered: VecDeque<(Vec<u64>, StoredBody)>,
    ) -> Self {
        let (moved_count, released_meanwhile, gathered_count) = (0, 0, 0);
        Owner { shard, log, live, next_id: 0, moved_count, released_meanwhile, gathered, gathered_count }
    }

    fn stored(&self, ids: impl Iterator<Item = u64>) -> Vec<StoredBody> {
        ids.map(|id| stored(self.shard, id, self.live[&id])).collect()
    }

    async fn append(&mut self, payload: Bytes) {
        let number = loop {
            match self.log.append(payload.clone().into()) {
                Ok(number) => break number,
                Err(AppendError::Busy) => drop(self.log.durable(self.log.watermark()).await.unwrap()),
                Err(error) => panic!("{error}"),
            }
        };
        let mut seen = self.log.watermark();
        while seen < number {
            seen = self.log.durable(seen).await.unwrap();
        }
    }

    async fn put(&mut self, count: u64) {
        let number = self.log.next_group();
        let mut payload = Vec::new();
        for _ in 0..count {
            self.next_id += 1;
            let place = BodyRef::in_group(number, payload.len().try_into().unwrap()).unwrap();
            payload.extend(body(self.shard, self.next_id));
            payload.resize(payload.len().next_multiple_of(8), 0);
            self.live.insert(self.next_id, place);
        }
        self.append(payload.into()).await;
    }

    /// Settles some bodies. A few of them live long enough to be moved once or twice. Returns how many were standalone.
    fn settle(&mut self, random: &mut Random) -> u64 {
        let next_id = self.next_id;
        let done = |id: &u64| match id % 9 {
            0 => id + 300 < next_id,
            3 | 6 => id + 60 < next_id,
            _ => id + 10 < next_id,
        };
        let settled: Vec<u64> = self.live.keys().copied().filter(done).take(random.index(14)).collect();
        let cold: Vec<u64> = settled.iter().copied().filter(|id| self.live[id].is_standalone()).collect();
        self.log.release(&self.stored(cold.iter().copied()));
        self.live.retain(|id, _| !settled.contains(id));
        cold.len() as u64
    }

    async fn check(&self) {
        let found = self.log.reader().read(self.stored(self.live.keys().copied())).await.unwrap();
        for (id, found) in self.live.keys().zip(found) {
            assert_eq!(found, body(self.shard, *id), "{} body {id}", self.shard);
        }
        let gathered = self.gathered.iter().map(|(_, body)| *body).collect();
        let found = self.log.reader().read(gathered).await.unwrap();
        for ((ids, _), found) in self.gathered.iter().zip(found) {
            let expected: Vec<u8> = ids.iter().flat_map(|id| body(self.shard, *id)).collect();
            assert_eq!(found, expected, "{} bodies {ids:?}", self.shard);
        }
    }

    /// Starts to move a run of bodies that are still in groups.
    fn start_gathering(&mut self, stream: u64) -> (Vec<u64>, Gathering) {
        let in_log = self.live.iter().filter(|(id, place)| *id % 9 == stream && !place.is_standalone());
        let ids: Vec<u64> = in_log.map(|(id, _)| *id).take(5).collect();
        let run = self.stored(ids.iter().copied());
        (ids, tokio::spawn(self.log.move_bodies(Move::Runs { stream, runs: vec![run] })))
    }

    async fn end_gathering(&mut self, ids: Vec<u64>, gathering: Gathering) {
        let body = gathering.await.unwrap().unwrap().remove(0);
        self.append(Bytes::from_static(b"gathered")).await;
        if !ids.iter().all(|id| self.live.contains_key(id)) {
            // A body was settled in the meantime: the copy is useless.
            self.log.release(&[body]);
            return;
        }
        let old: Vec<u64> = ids.iter().copied().filter(|id| self.live[id].is_standalone()).collect();
        self.log.release(&self.stored(old.into_iter()));
        self.live.retain(|id, _| !ids.contains(id));
        self.gathered.push_back((ids, body));
        self.gathered_count += 1;
        if self.gathered.len() > GATHERED_MAX {
            let (_, oldest) = self.gathered.pop_front().unwrap();
            self.log.release(&[oldest]);
        }
    }

    /// Moves the bodies that the journal wants moved, and does other work in the meantime.
    async fn evacuate(&mut self, random: &mut Random) {
        let Some(wanted) = self.log.wants_moved() else { return };
        let is_meant = |place: &BodyRef| wanted.contains(*place);
        let meant = self.live.iter().filter(|(_, place)| is_meant(place)).map(|(id, _)| *id);
        let meant: Vec<u64> = meant.collect();
        let old = self.stored(meant.iter().copied());
        let moving = self.log.move_bodies(Move::Each(old.clone()));
        for _ in 0..random.below(4) {
            self.released_meanwhile += self.settle(random);
            self.put(random.below(4)).await;
        }
        let copies = match moving.await {
            Ok(copies) => copies,
            Err(ReadError::Gone(place)) => {
                // The last body of its segment was settled in the meantime. The others stay.
                assert!(!self.live.values().any(|live| *live == place), "{place:?} should not be live");
                return;
            }
            Err(error) => panic!("{error}"),
        };
        self.append(Bytes::from_static(b"moved")).await;
        let mut forgotten = Vec::new();
        for ((id, old), copy) in meant.iter().zip(&old).zip(copies) {
            if let Some(now) = self.live.get_mut(id) {
                *now = copy.place;
                forgotten.extend(old.place.is_standalone().then_some(*old));
                self.moved_count += 1;
            } else {
                // Settled in the meantime: its old place is already released, and its copy is useless.
                forgotten.push(copy);
            }
        }
        self.log.release(&forgotten);
    }

    async fn tend(&mut self, random: &mut Random) {
        let gathering = [0, 3].map(|stream| self.start_gathering(stream));
        self.evacuate(random).await;
        for (ids, gathering) in gathering {
            self.end_gathering(ids, gathering).await;
        }
        let upto = self.log.watermark();
        if self.log.wants_snapshot() {
            self.log.put_snapshot(upto, Bytes::from_static(b"state").into()).await.unwrap();
        }
        let groups = self.live.values().filter_map(|place| Some(place.group()?.0 - 1));
        self.log.trim(groups.min().map_or(upto, CommitGroupNumber));
    }
}

async fn live_through(journal: WalJournal, shard: ShardId, from: Instant) -> Owner {
    let (mut log, _) = journal.open(shard).await.unwrap();
    log.adopt(&[]);
    let mut owner = Owner::new(shard, log, BTreeMap::new(), VecDeque::new());
    let mut random = Random(u64::from(shard.0) + 40);
    while from.elapsed() < TIME || (!owner.has_seen_enough() && from.elapsed() < TIME_MAX) {
        owner.put(random.below(8)).await;
        owner.settle(&mut random);
        if random.below(4) == 0 {
            owner.tend(&mut random).await;
        }
        if random.below(8) == 0 {
            owner.check().await;
        }
    }
    owner.check().await;
    owner
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn parallel_work_survives_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let journal = WalJournal::open(directory.path(), config()).unwrap();
    let from = Instant::now();
    let tasks: Vec<_> =
        (0..SHARDS).map(|n| tokio::spawn(live_through(journal.clone(), ShardId(n), from))).collect();
    let mut owners = Vec::new();
    for task in tasks {
        owners.push(task.await.unwrap());
    }
    for Owner { shard, moved_count, released_meanwhile, gathered_count, .. } in &owners {
        println!(
            "{shard}: {moved_count} moved, {released_meanwhile} forgotten meanwhile, {gathered_count} gathered"
        );
    }
    println!("{:?}", journal.stats());
    assert!(owners.iter().all(Owner::has_seen_enough));
    let end = |owner: Owner| (owner.shard, owner.live, owner.gathered, owner.log.watermark());
    let ends: Vec<_> = owners.into_iter().map(end).collect();
    drop(journal);
    let journal = WalJournal::open(directory.path(), config()).unwrap();
    for (shard, live, gathered, watermark) in ends {
        let (log, recovery) = journal.open(shard).await.unwrap();
        recovery.groups.for_each(|group| drop(group.unwrap()));
        assert_eq!(log.watermark(), watermark);
        let mut owner = Owner::new(shard, log, live, gathered);
        let cold = owner.live.iter().filter(|(_, place)| place.is_standalone()).map(|(id, _)| *id);
        let mut live = owner.stored(cold);
        live.extend(owner.gathered.iter().map(|(_, body)| *body));
        owner.log.adopt(&live);
        owner.check().await;
    }
}
