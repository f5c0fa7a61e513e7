//! The journal with all its threads: several owners append, read, move and trim in parallel on a real disk.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{Random, body, stored};
use bytes::Bytes;
use peeklock_journal::{AppendError, BodyReader, Journal, Log, Move, OpenError, Poisoned, StoredBody};
use peeklock_journal_wal::sim::{Fault, SimDisk};
use peeklock_journal_wal::{WalConfig, WalJournal, WalLog};
use peeklock_types::{BodyRef, CommitGroupNumber, ShardId};

const SHARDS: u16 = 4;
const GROUPS: u64 = 250;

fn config() -> WalConfig {
    WalConfig {
        segment_bytes: 64 * 1024,
        first_segment_bytes: 16 * 1024,
        ring_bytes: 256 * 1024,
        hot_cache_bytes: 16 * 1024,
        snapshot_after_bytes: 128 * 1024,
        cold_segment_bytes: 32 * 1024,
        reserve_bytes: 64 * 1024,
        ..WalConfig::default()
    }
}

type Live = BTreeMap<u64, BodyRef>;

struct Owner {
    shard: ShardId,
    log: WalLog,
    live: Live,
    next_id: u64,
    moved_count: u64,
}

impl Owner {
    fn all(&self) -> Vec<StoredBody> {
        self.live.iter().map(|(id, place)| stored(self.shard, *id, *place)).collect()
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

    fn settle(&mut self, random: &mut Random) {
        let next_id = self.next_id;
        let done = |id: &u64| id + 10 < next_id && !id.is_multiple_of(9) || id + 300 < next_id;
        let settled: Vec<u64> = self.live.keys().copied().filter(done).take(random.index(12)).collect();
        for id in settled {
            let place = self.live.remove(&id).unwrap();
            if place.is_standalone() {
                self.log.release(&[stored(self.shard, id, place)]);
            }
        }
    }

    async fn check(&self) {
        let found = self.log.reader().read(self.all()).await.unwrap();
        for (id, found) in self.live.keys().zip(found) {
            assert_eq!(found, body(self.shard, *id), "{} body {id}", self.shard);
        }
    }

    async fn tend(&mut self) {
        if let Some(wanted) = self.log.wants_moved() {
            let is_meant = |place: &BodyRef| wanted.contains(*place);
            let meant = self.live.iter().filter(|(_, place)| is_meant(place));
            let meant: Vec<(u64, BodyRef)> = meant.map(|(id, place)| (*id, *place)).collect();
            let old: Vec<StoredBody> =
                meant.iter().map(|(id, place)| stored(self.shard, *id, *place)).collect();
            let copies = self.log.move_bodies(Move::Each(old.clone())).await.unwrap();
            self.append(Bytes::from_static(b"moved")).await;
            self.live.extend(meant.iter().zip(copies).map(|((id, _), copy)| (*id, copy.place)));
            self.log.release(&old);
            self.moved_count += meant.len() as u64;
        }
        let upto = self.log.watermark();
        if self.log.wants_snapshot() {
            self.log.put_snapshot(upto, Bytes::from_static(b"state").into()).await.unwrap();
        }
        let groups = self.live.values().filter_map(|place| Some(place.group()?.0 - 1));
        let bodies_upto = groups.min().map_or(upto, CommitGroupNumber);
        self.log.trim(bodies_upto);
    }
}

async fn live_through(journal: WalJournal, shard: ShardId) -> (ShardId, Live, u64) {
    let (mut log, _) = journal.open(shard).await.unwrap();
    log.adopt(&[]);
    let mut owner = Owner { shard, log, live: Live::new(), next_id: 0, moved_count: 0 };
    let mut random = Random(u64::from(shard.0));
    for n in 0..GROUPS {
        owner.put(random.below(8)).await;
        owner.settle(&mut random);
        if n % 8 == 7 {
            owner.tend().await;
        }
        if n % 5 == 4 {
            owner.check().await;
        }
    }
    owner.check().await;
    (shard, owner.live, owner.moved_count)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn several_owners_work_in_parallel() {
    let directory = tempfile::tempdir().unwrap();
    let journal = WalJournal::open(directory.path(), config()).unwrap();
    let tasks: Vec<_> =
        (0..SHARDS).map(|n| tokio::spawn(live_through(journal.clone(), ShardId(n)))).collect();
    let mut ends = Vec::new();
    for task in tasks {
        ends.push(task.await.unwrap());
    }
    let stats = journal.stats();
    assert!(stats.segment_count < 30, "old segments should be reused: {stats:?}");
    assert!(ends.iter().map(|(_, _, moved_count)| moved_count).sum::<u64>() > 50, "bodies should be moved");
    drop(journal);
    let journal = WalJournal::open(directory.path(), config()).unwrap();
    for (shard, live, _) in ends {
        let (mut log, recovery) = journal.open(shard).await.unwrap();
        assert!(recovery.snapshot.is_some());
        recovery.groups.for_each(|group| drop(group.unwrap()));
        let cold = live.iter().filter(|(_, place)| place.is_standalone());
        log.adopt(&cold.map(|(id, place)| stored(shard, *id, *place)).collect::<Vec<_>>());
        Owner { shard, log, live, next_id: 0, moved_count: 0 }.check().await;
    }
}

#[tokio::test]
async fn a_closed_journal_rejects_every_call() {
    let directory = tempfile::tempdir().unwrap();
    let journal = WalJournal::open(directory.path(), config()).unwrap();
    let (mut log, _) = journal.open(ShardId(0)).await.unwrap();
    let reader = log.reader();
    log.append(Bytes::from_static(b"written before the end").into()).unwrap();
    journal.close();
    assert_eq!(log.watermark(), CommitGroupNumber(1), "waiting groups should be written");
    assert!(matches!(log.append(Bytes::new().into()), Err(AppendError::Poisoned(Poisoned { .. }))));
    assert!(log.durable(CommitGroupNumber(1)).await.is_err());
    let first = StoredBody { place: BodyRef::in_group(CommitGroupNumber(1), 0).unwrap(), size_bytes: 7 };
    assert!(reader.read(vec![first]).await.is_err());
    assert!(log.move_bodies(Move::Each(vec![first])).await.is_err());
    assert!(journal.open(ShardId(0)).await.is_err());
    WalJournal::open(directory.path(), config()).unwrap();
}

/// If several tasks open one shard at the same time, exactly one of them owns it at the end, and its groups are found.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_of_several_parallel_opens_owns_the_shard() {
    let directory = tempfile::tempdir().unwrap();
    let journal = WalJournal::open(directory.path(), config()).unwrap();
    let mut appended = 0;
    for _ in 0..50 {
        let opens: Vec<_> = (0..4)
            .map(|_| {
                let journal = journal.clone();
                tokio::spawn(async move { journal.open(ShardId(0)).await })
            })
            .collect();
        let mut logs = Vec::new();
        for open in opens {
            match open.await.unwrap() {
                Ok((log, _)) => logs.push(log),
                Err(error) => assert!(matches!(error, OpenError::AlreadyOpen(ShardId(0))), "{error}"),
            }
        }
        let owner_count =
            logs.iter_mut().filter_map(|log| log.append(Bytes::from_static(b"one").into()).ok()).count();
        assert_eq!(owner_count, 1);
        appended += 1;
    }
    let (log, recovery) = journal.open(ShardId(0)).await.unwrap();
    assert_eq!(log.watermark(), CommitGroupNumber(appended));
    assert_eq!(recovery.groups.filter(Result::is_ok).count() as u64, appended);
}

/// A thread that panics stops the journal, and no call waits for the work of that thread.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_in_a_thread_stops_the_journal() {
    let patience = Duration::from_secs(20);
    let disk = SimDisk::new();
    let path = Path::new(crate::support::DIRECTORY);
    let journal = WalJournal::open_on(Arc::new(disk.clone()), path, config()).unwrap();
    let (mut log, _) = journal.open(ShardId(0)).await.unwrap();
    log.append(Bytes::from_static(b"one").into()).unwrap();
    log.durable(CommitGroupNumber::NONE).await.unwrap();
    while journal.stats().spare_count < config().spares_min || journal.stats().commit_count == 0 {
        tokio::task::yield_now().await;
    }
    // The keeper may do a step of its own; one of the next few steps is the mover's.
    (1..9).for_each(|n| disk.fail_at(disk.step_count() + n, Fault::Panic));
    let snapshot =
        tokio::time::timeout(patience, log.put_snapshot(CommitGroupNumber(1), Bytes::new().into()));
    assert!(snapshot.await.expect("the call should return").is_err());
    let later = tokio::time::timeout(patience, log.durable(CommitGroupNumber(1)));
    assert!(later.await.expect("the call should return").is_err());
    assert!(matches!(log.append(Bytes::new().into()), Err(AppendError::Poisoned(_))));
    let body = StoredBody { place: BodyRef::in_group(CommitGroupNumber(1), 0).unwrap(), size_bytes: 3 };
    let moved = tokio::time::timeout(patience, log.move_bodies(Move::Each(vec![body])));
    assert!(moved.await.expect("the call should return").is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_in_the_keeper_stops_the_journal() {
    let (disk, trial) = (SimDisk::new(), SimDisk::new());
    let path = Path::new(crate::support::DIRECTORY);
    drop(WalJournal::open_driven(Arc::new(trial.clone()), path, config()).unwrap());
    disk.fail_at(trial.step_count() + 1, Fault::Panic);
    let journal = WalJournal::open_on(Arc::new(disk), path, config()).unwrap();
    let heard = async {
        while journal.open(ShardId(0)).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), heard).await.expect("the journal should have stopped");
}
