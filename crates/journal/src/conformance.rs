//! The conformance suite: tests of the promise that every journal must pass.
//!
//! The tests of a journal call [`run`] with a function that makes stores. The suite checks everything that can be
//! checked without knowledge of the implementation. Tests of torn writes, failed syncs and full disks belong to the
//! implementation.

mod large;
mod moves;
mod streams;

use bytes::Bytes;
use peeklock_types::{BodyRef, CommitGroupNumber, ShardId};

use crate::{AppendError, BodyReader, Journal, Log, Move, Recovery, StoredBody, StoredGroup};

/// Runs all tests. `store` makes a new, empty store and returns a function that opens it. A test drops everything and
/// opens the store again to simulate a restart.
///
/// # Panics
///
/// Panics if the journal breaks the promise.
pub async fn run<J, F>(mut store: impl FnMut() -> F)
where
    J: Journal,
    F: FnMut() -> J,
{
    a_new_log_is_empty(store()).await;
    groups_are_numbered_without_gaps(store()).await;
    durable_groups_survive_a_restart(store()).await;
    shards_are_independent(store()).await;
    an_earlier_owner_is_fenced(store()).await;
    replay_starts_after_the_snapshot(store()).await;
    an_older_snapshot_does_not_replace_a_newer_one(store()).await;
    trimming_keeps_uncovered_groups_and_live_bodies(store()).await;
    a_busy_journal_takes_a_group_completely_or_not_at_all(store()).await;
    a_shard_without_waiting_groups_is_never_busy(store()).await;
    the_size_of_a_group_is_limited(store()).await;
    payloads_of_all_sizes_survive_a_restart(store()).await;
    replay_returns_the_same_groups_every_time(store()).await;
    moves::run(&mut store).await;
    streams::run(&mut store).await;
    large::run(store).await;
}

const SHARD: ShardId = ShardId(3);

async fn open<J: Journal>(journal: &J, shard: ShardId) -> (J::Log, Recovery) {
    journal.open(shard).await.expect("the log should open")
}

/// Opens a log that has nothing to replay, and adopts no body.
async fn open_new<J: Journal>(journal: &J, shard: ShardId) -> J::Log {
    let (mut log, recovery) = open(journal, shard).await;
    assert!(recovery.snapshot.is_none() && recovery.groups.count() == 0, "a new log should be empty");
    log.adopt(&[]);
    log
}

fn groups(recovery: Recovery) -> Vec<StoredGroup> {
    recovery.groups.map(|group| group.expect("replay should succeed")).collect()
}

fn group(number: u64, payload: &[u8]) -> StoredGroup {
    StoredGroup { number: CommitGroupNumber(number), payload: Bytes::copy_from_slice(payload) }
}

async fn append(log: &mut impl Log, payload: &[u8]) -> CommitGroupNumber {
    let number = log.append(Bytes::copy_from_slice(payload).into()).expect("the log should accept the group");
    wait_for(log, number).await;
    number
}

/// Appends without waiting for the group to become durable. Retries when the journal is busy.
async fn append_later(log: &mut impl Log, payload: Bytes) -> CommitGroupNumber {
    loop {
        match log.append(payload.clone().into()) {
            Ok(number) => return number,
            Err(AppendError::Busy) => {
                log.durable(log.watermark()).await.expect("the log should not be poisoned");
            }
            Err(error) => panic!("{error}"),
        }
    }
}

async fn wait_for(log: &mut impl Log, number: CommitGroupNumber) {
    let mut seen = log.watermark();
    while seen < number {
        let now = log.durable(seen).await.expect("the log should not be poisoned");
        assert!(now > seen, "durable() should return a higher watermark");
        seen = now;
    }
    assert!(log.watermark() >= number);
}

/// Builds a payload of bodies, each at an aligned offset, and returns their references.
fn bodies_of(number: CommitGroupNumber, bodies: &[&[u8]]) -> (Vec<u8>, Vec<StoredBody>) {
    let mut payload = Vec::new();
    let mut places = Vec::new();
    for body in bodies {
        payload.resize(payload.len().next_multiple_of(BodyRef::ALIGNMENT), 0);
        let offset = u32::try_from(payload.len()).expect("test payloads are small");
        let place = BodyRef::in_group(number, offset).expect("test payloads are small");
        places.push(StoredBody {
            place,
            size_bytes: u32::try_from(body.len()).expect("test bodies are small"),
        });
        payload.extend_from_slice(body);
    }
    (payload, places)
}

async fn append_bodies(log: &mut impl Log, bodies: &[&[u8]]) -> Vec<StoredBody> {
    let (payload, places) = bodies_of(log.next_group(), bodies);
    append(log, &payload).await;
    places
}

async fn read(log: &impl Log, bodies: &[StoredBody]) -> Vec<Bytes> {
    log.reader().read(bodies.to_vec()).await.expect("live bodies should be readable")
}

async fn move_each(log: &mut impl Log, bodies: &[StoredBody]) -> Vec<StoredBody> {
    let moved = log.move_bodies(Move::Each(bodies.to_vec())).await.expect("live bodies should be movable");
    assert!(moved.iter().all(|body| body.place.is_standalone()));
    assert!(moved.iter().map(|body| body.size_bytes).eq(bodies.iter().map(|body| body.size_bytes)));
    moved
}

async fn a_new_log_is_empty<J: Journal>(mut start: impl FnMut() -> J) {
    let mut log = open_new(&start(), SHARD).await;
    assert_eq!(log.next_group(), CommitGroupNumber(1));
    assert_eq!(log.watermark(), CommitGroupNumber::NONE);
    assert_eq!(log.wants_moved(), None);
    assert_eq!(append(&mut log, b"first").await, CommitGroupNumber(1));
}

/// G2: groups are ordered and numbered without gaps.
async fn groups_are_numbered_without_gaps<J: Journal>(mut start: impl FnMut() -> J) {
    let journal = start();
    let mut log = open_new(&journal, SHARD).await;
    for n in 1..=200_u64 {
        assert_eq!(log.next_group(), CommitGroupNumber(n));
        assert_eq!(append_later(&mut log, Bytes::from(n.to_le_bytes().to_vec())).await, CommitGroupNumber(n));
    }
    wait_for(&mut log, CommitGroupNumber(200)).await;
    drop(log);
    let (_log, recovery) = open(&journal, SHARD).await;
    let expected: Vec<_> = (1..=200_u64).map(|n| group(n, &n.to_le_bytes())).collect();
    assert_eq!(groups(recovery), expected);
}

/// G1, G3: replay returns every durable group completely.
async fn durable_groups_survive_a_restart<J: Journal>(mut start: impl FnMut() -> J) {
    let mut expected = Vec::new();
    for round in 0..4_u8 {
        let journal = start();
        let (mut log, recovery) = open(&journal, SHARD).await;
        assert_eq!(groups(recovery), expected);
        for n in 0..5_u8 {
            let payload = vec![round * 16 + n; 300 * usize::from(n) + 1];
            let number = append(&mut log, &payload).await;
            expected.push(group(number.0, &payload));
        }
    }
}

async fn shards_are_independent<J: Journal>(mut start: impl FnMut() -> J) {
    let shards: Vec<ShardId> = (0..8).map(ShardId).collect();
    {
        let journal = start();
        let mut logs = Vec::new();
        for shard in &shards {
            logs.push(open_new(&journal, *shard).await);
        }
        for n in 0..20_u8 {
            for (log, shard) in logs.iter_mut().zip(&shards) {
                append_later(log, Bytes::from(vec![n; usize::from(shard.0) + 1])).await;
            }
        }
        for log in &mut logs {
            wait_for(log, CommitGroupNumber(20)).await;
        }
    }
    let journal = start();
    for shard in &shards {
        let (_log, recovery) = open(&journal, *shard).await;
        let expected: Vec<_> =
            (0..20_u8).map(|n| group(u64::from(n) + 1, &vec![n; usize::from(shard.0) + 1])).collect();
        assert_eq!(groups(recovery), expected);
    }
}

/// G4: after `open`, nothing that the earlier owner does becomes durable. A journal may accept its append, but not
/// confirm it.
async fn an_earlier_owner_is_fenced<J: Journal>(mut start: impl FnMut() -> J) {
    let journal = start();
    let mut earlier = open_new(&journal, SHARD).await;
    append(&mut earlier, b"earlier").await;
    let (mut later, recovery) = open(&journal, SHARD).await;
    assert_eq!(groups(recovery), [group(1, b"earlier")]);
    assert!(!matches!(earlier.append(Bytes::from_static(b"late").into()), Err(AppendError::Busy)));
    assert_eq!(append(&mut later, b"later").await, CommitGroupNumber(2));
    assert!(
        earlier.durable(CommitGroupNumber(1)).await.is_err(),
        "the earlier owner should not mistake the later owner's group for its own"
    );
    assert!(matches!(earlier.append(Bytes::from_static(b"late").into()), Err(AppendError::Poisoned(_))));
    assert!(earlier.put_snapshot(CommitGroupNumber(1), Bytes::new().into()).await.is_err());
    drop((earlier, later));
    let (_log, recovery) = open(&journal, SHARD).await;
    assert_eq!(groups(recovery), [group(1, b"earlier"), group(2, b"later")]);
}

async fn replay_starts_after_the_snapshot<J: Journal>(mut start: impl FnMut() -> J) {
    {
        let mut log = open_new(&start(), SHARD).await;
        for n in 1..=6_u8 {
            append(&mut log, &[n]).await;
        }
        log.put_snapshot(CommitGroupNumber(4), Bytes::from_static(b"state at 4").into())
            .await
            .expect("the snapshot should be stored");
        log.trim(CommitGroupNumber(4));
        append(&mut log, &[7]).await;
    }
    let (mut log, recovery) = open(&start(), SHARD).await;
    let snapshot = recovery.snapshot.clone().expect("the snapshot should be returned");
    assert_eq!((snapshot.upto, &snapshot.payload[..]), (CommitGroupNumber(4), &b"state at 4"[..]));
    assert_eq!(groups(recovery), [group(5, &[5]), group(6, &[6]), group(7, &[7])]);
    // The snapshot covers the whole log: the next open has nothing to replay, and the numbers continue.
    log.put_snapshot(CommitGroupNumber(7), Bytes::from_static(b"state at 7").into())
        .await
        .expect("the snapshot should be stored");
    log.trim(CommitGroupNumber(7));
    drop(log);
    let (mut log, recovery) = open(&start(), SHARD).await;
    assert_eq!(recovery.snapshot.as_ref().map(|s| s.upto), Some(CommitGroupNumber(7)));
    assert_eq!(groups(recovery), []);
    assert_eq!(append(&mut log, b"on").await, CommitGroupNumber(8));
}

async fn an_older_snapshot_does_not_replace_a_newer_one<J: Journal>(mut start: impl FnMut() -> J) {
    {
        let mut log = open_new(&start(), SHARD).await;
        for n in 1..=3_u8 {
            append(&mut log, &[n]).await;
        }
        log.put_snapshot(CommitGroupNumber(3), Bytes::from_static(b"new").into())
            .await
            .expect("the snapshot should be stored");
        log.put_snapshot(CommitGroupNumber(2), Bytes::from_static(b"old").into())
            .await
            .expect("an older snapshot should be accepted");
    }
    let (_log, recovery) = open(&start(), SHARD).await;
    assert_eq!(recovery.snapshot.as_ref().map(|s| &s.payload[..]), Some(&b"new"[..]));
    assert_eq!(groups(recovery), []);
}

/// `trim` drops neither groups that no snapshot covers nor bodies in later groups.
async fn trimming_keeps_uncovered_groups_and_live_bodies<J: Journal>(mut start: impl FnMut() -> J) {
    {
        let mut log = open_new(&start(), SHARD).await;
        append(&mut log, b"one").await;
        append(&mut log, b"two").await;
        log.trim(CommitGroupNumber(2));
        log.trim(CommitGroupNumber(0));
    }
    {
        let (mut log, recovery) = open(&start(), SHARD).await;
        assert_eq!(groups(recovery), [group(1, b"one"), group(2, b"two")]);
        let places = append_bodies(&mut log, &[b"another"]).await;
        log.put_snapshot(CommitGroupNumber(3), Bytes::from_static(b"t").into())
            .await
            .expect("the snapshot should be stored");
        // Replay needs none of the groups, but a body in the third one lives.
        log.trim(CommitGroupNumber(2));
        assert_eq!(read(&log, &places).await, [&b"another"[..]]);
    }
    let (log, recovery) = open(&start(), SHARD).await;
    assert_eq!(groups(recovery), []);
    let (_, places) = bodies_of(CommitGroupNumber(3), &[b"another"]);
    assert_eq!(
        read(&log, &places).await,
        [&b"another"[..]],
        "a body in a covered group should survive a restart"
    );
}

/// A busy journal takes nothing of a group: the numbers have no gap, and every group that was taken becomes durable.
async fn a_busy_journal_takes_a_group_completely_or_not_at_all<J: Journal>(mut start: impl FnMut() -> J) {
    const GROUP_COUNT: u64 = 400;
    let payload = |n: u64| Bytes::from(vec![u8::try_from(n % 251).expect("below 256"); 32 * 1024]);
    let journal = start();
    let mut log = open_new(&journal, SHARD).await;
    for n in 1..=GROUP_COUNT {
        let number = loop {
            match log.append(payload(n).into()) {
                Ok(number) => break number,
                Err(AppendError::Busy) => {
                    let seen = log.watermark();
                    assert!(seen < CommitGroupNumber(n - 1), "a log should be busy only while groups wait");
                    log.durable(seen).await.expect("the log should not be poisoned");
                }
                Err(error) => panic!("unexpected: {error}"),
            }
        };
        assert_eq!(number, CommitGroupNumber(n));
    }
    wait_for(&mut log, CommitGroupNumber(GROUP_COUNT)).await;
    drop((log, journal));
    let (_log, recovery) = open(&start(), SHARD).await;
    let mut count = 0;
    for (group, n) in groups(recovery).into_iter().zip(1..) {
        assert_eq!((group.number, group.payload), (CommitGroupNumber(n), payload(n)));
        count = n;
    }
    assert_eq!(count, GROUP_COUNT);
}

/// An owner whose append was rejected waits for its watermark, so at least one of its groups must be on the way.
async fn a_shard_without_waiting_groups_is_never_busy<J: Journal>(mut start: impl FnMut() -> J) {
    let journal = start();
    let mut noisy = open_new(&journal, SHARD).await;
    let mut quiet = open_new(&journal, ShardId(4)).await;
    let payload = Bytes::from(vec![1; 32 * 1024]);
    let mut busy_count = 0;
    for _ in 0..200 {
        match noisy.append(payload.clone().into()) {
            Ok(_) => continue,
            Err(AppendError::Busy) => busy_count += 1,
            Err(error) => panic!("unexpected: {error}"),
        }
        let number = quiet.append(payload.clone().into()).expect("no group of this shard waits");
        wait_for(&mut quiet, number).await;
    }
    assert_eq!(quiet.watermark(), CommitGroupNumber(busy_count));
}

async fn the_size_of_a_group_is_limited<J: Journal>(mut start: impl FnMut() -> J) {
    let mut log = open_new(&start(), SHARD).await;
    let error = log.append(vec![0; 16 << 20].into()).expect_err("16 MiB should be over the limit");
    assert!(matches!(error, AppendError::TooLarge { size_bytes, .. } if size_bytes == 16 << 20));
    assert_eq!(append(&mut log, b"fits").await, CommitGroupNumber(1));
}

async fn payloads_of_all_sizes_survive_a_restart<J: Journal>(mut start: impl FnMut() -> J) {
    let payloads: Vec<Vec<u8>> =
        [0, 1, 7, 8, 63, 64, 4031, 4032, 4033, 4096, 40_000, 0].map(|n| vec![5; n]).to_vec();
    {
        let mut log = open_new(&start(), SHARD).await;
        for payload in &payloads {
            append(&mut log, payload).await;
        }
    }
    let (_log, recovery) = open(&start(), SHARD).await;
    let found: Vec<Vec<u8>> = groups(recovery).into_iter().map(|g| g.payload.to_vec()).collect();
    assert_eq!(found, payloads);
}

/// G6: replay returns the same groups every time.
async fn replay_returns_the_same_groups_every_time<J: Journal>(mut start: impl FnMut() -> J) {
    {
        let mut log = open_new(&start(), SHARD).await;
        for n in 0..10_u8 {
            append_later(&mut log, vec![n; 100].into()).await;
        }
        // The log is dropped without waiting. Groups at the end may be lost, but the next opens must all agree.
    }
    let (log, recovery) = open(&start(), SHARD).await;
    drop(log);
    let first = groups(recovery);
    assert!(
        first.iter().zip(1..).all(|(group, n)| group.number == CommitGroupNumber(n)),
        "replay should return a prefix of the appended groups"
    );
    for _ in 0..3 {
        let (_log, recovery) = open(&start(), SHARD).await;
        assert_eq!(groups(recovery), first);
    }
}
