//! Everything at once on real threads: appends, settlements, moves, snapshots and trims of several shards, in a log of tiny segments. Bodies are
//! settled and forgotten while others are on their way into the same cold segments.

#![allow(clippy::unwrap_used, reason = "tests may unwrap")]

mod support;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use peeklock_journal::{AppendError, Evacuation, Journal, Log, ReadError, Reader, StoredBody};
use peeklock_journal_wal::{WalConfig, WalJournal, WalLog};
use peeklock_types::{BodyPlace, BodyRef, GroupNumber, ShardId};
use support::{Random, body, stored, tiny};

const SHARDS: u16 = 3;
const TIME: Duration = Duration::from_secs(3);

fn config() -> WalConfig {
    WalConfig { free_bytes_soft: 0, free_bytes_hard: 0, ..tiny() }
}

struct Owner {
    shard: ShardId,
    log: WalLog,
    live: BTreeMap<u64, BodyRef>,
    next_id: u64,
    moved_count: u64,
    forgotten_meanwhile: u64,
}

impl Owner {
    fn stored(&self, ids: impl Iterator<Item = u64>) -> Vec<StoredBody> {
        ids.map(|id| stored(self.shard, id, self.live[&id])).collect()
    }

    async fn append(&mut self, payload: Bytes) {
        let number = loop {
            match self.log.append(payload.clone()) {
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
            let place = BodyRef::in_log(number, payload.len().try_into().unwrap()).unwrap();
            payload.extend(body(self.shard, self.next_id));
            payload.resize(payload.len().next_multiple_of(8), 0);
            self.live.insert(self.next_id, place);
        }
        self.append(payload.into()).await;
    }

    /// Settles some bodies, of which a few lived long enough to be moved, once or twice. Returns how many were cold.
    fn settle(&mut self, random: &mut Random) -> u64 {
        let next_id = self.next_id;
        let done = |id: &u64| match id % 9 {
            0 => id + 300 < next_id,
            3 | 6 => id + 60 < next_id,
            _ => id + 10 < next_id,
        };
        let settled: Vec<u64> = self.live.keys().copied().filter(done).take(random.index(14)).collect();
        let cold: Vec<u64> = settled.iter().copied().filter(|id| self.live[id].is_cold()).collect();
        self.log.forget_cold(&self.stored(cold.iter().copied()));
        self.live.retain(|id, _| !settled.contains(id));
        cold.len() as u64
    }

    async fn check(&self) {
        let found = self.log.reader().read(self.stored(self.live.keys().copied())).await.unwrap();
        for (id, found) in self.live.keys().zip(found) {
            assert_eq!(found, body(self.shard, *id), "{} body {id}", self.shard);
        }
    }

    /// Moves what the journal wants moved, and works on meanwhile.
    async fn evacuate(&mut self, random: &mut Random) {
        let Some(wanted) = self.log.wants_evacuation() else { return };
        let is_meant = |place: &BodyRef| match (place.place(), wanted) {
            (BodyPlace::Log { group, .. }, Evacuation::Groups { upto }) => group <= upto,
            (BodyPlace::Cold { segment, .. }, Evacuation::Cold { segment: wanted }) => segment == wanted,
            _ => false,
        };
        let meant = self.live.iter().filter(|(_, place)| is_meant(place)).map(|(id, _)| *id);
        let meant: Vec<u64> = meant.collect();
        let old = self.stored(meant.iter().copied());
        let moving = self.log.evacuate(old.clone());
        for _ in 0..random.below(4) {
            self.forgotten_meanwhile += self.settle(random);
            self.put(random.below(4)).await;
        }
        let places = match moving.await {
            Ok(places) => places,
            Err(ReadError::Gone(place)) => {
                // The last body of its segment was settled meanwhile. The others stay where they are.
                assert!(!self.live.values().any(|live| *live == place), "{place:?} lives");
                return;
            }
            Err(error) => panic!("{error}"),
        };
        self.append(Bytes::from_static(b"moved")).await;
        let mut forgotten = Vec::new();
        for ((id, old), place) in meant.iter().zip(&old).zip(places) {
            let copy = StoredBody { place, ..*old };
            if let Some(now) = self.live.get_mut(id) {
                *now = place;
                forgotten.extend(old.place.is_cold().then_some(*old));
                self.moved_count += 1;
            } else {
                // Settled meanwhile: its old place is forgotten already, its copy is not wanted.
                forgotten.push(copy);
            }
        }
        self.log.forget_cold(&forgotten);
    }

    async fn tend(&mut self, random: &mut Random) {
        self.evacuate(random).await;
        let upto = self.log.watermark();
        if self.log.wants_snapshot() {
            self.log.put_snapshot(upto, Bytes::from_static(b"state")).await.unwrap();
        }
        let groups = self.live.values().filter_map(|place| match place.place() {
            BodyPlace::Log { group, .. } => Some(group.0 - 1),
            BodyPlace::Cold { .. } => None,
        });
        self.log.trim(upto, groups.min().map_or(upto, GroupNumber));
    }
}

async fn live_through(journal: WalJournal, shard: ShardId, until: Instant) -> Owner {
    let (log, _) = journal.open(shard).await.unwrap();
    let mut owner =
        Owner { shard, log, live: BTreeMap::new(), next_id: 0, moved_count: 0, forgotten_meanwhile: 0 };
    let mut random = Random(u64::from(shard.0) + 40);
    while Instant::now() < until {
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
async fn all_at_once_and_a_start_afterwards() {
    let directory = tempfile::tempdir().unwrap();
    let journal = WalJournal::open(directory.path(), config()).unwrap();
    let until = Instant::now() + TIME;
    let tasks: Vec<_> =
        (0..SHARDS).map(|n| tokio::spawn(live_through(journal.clone(), ShardId(n), until))).collect();
    let mut owners = Vec::new();
    for task in tasks {
        owners.push(task.await.unwrap());
    }
    let moved: u64 = owners.iter().map(|owner| owner.moved_count).sum();
    let meanwhile: u64 = owners.iter().map(|owner| owner.forgotten_meanwhile).sum();
    println!("{moved} moved, {meanwhile} forgotten meanwhile, {:?}", journal.stats());
    assert!(moved > 50 && meanwhile > 5, "{moved} moved, {meanwhile} forgotten meanwhile");
    let ends: Vec<_> =
        owners.into_iter().map(|owner| (owner.shard, owner.live, owner.log.watermark())).collect();
    drop(journal);
    let journal = WalJournal::open(directory.path(), config()).unwrap();
    for (shard, live, watermark) in ends {
        let (log, recovery) = journal.open(shard).await.unwrap();
        recovery.groups.for_each(|group| drop(group.unwrap()));
        assert_eq!(log.watermark(), watermark);
        let mut owner = Owner { shard, log, live, next_id: 0, moved_count: 0, forgotten_meanwhile: 0 };
        let cold = owner.live.iter().filter(|(_, place)| place.is_cold()).map(|(id, _)| *id);
        let cold = owner.stored(cold);
        owner.log.remember_cold(&cold);
        owner.log.trim(GroupNumber::NONE, GroupNumber::NONE);
        owner.check().await;
    }
}
