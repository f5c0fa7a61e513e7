//! The promise as tests: one suite that every journal passes.
//!
//! A journal's own tests call [`run`] with a way to make stores. Whatever can be said without knowing the journal is checked here; torn
//! writes, failed syncs and full disks are the journal's own to test.

mod gather;
mod large;

use bytes::Bytes;
use peeklock_types::{BodyRef, CommitGroupNumber, ShardId};

use crate::{AppendError, BodyReader, Journal, Log, ReadError, Recovery, StoredBody, StoredGroup};

/// Runs every check. `store` makes a new, empty store and returns how to open it; opening again after everything was dropped is a restart.
///
/// # Panics
///
/// When the journal breaks the promise.
pub async fn run<J, F>(mut store: impl FnMut() -> F)
where
    J: Journal,
    F: FnMut() -> J,
{
    new_logs_are_empty(store()).await;
    groups_are_numbered_without_gaps(store()).await;
    durable_groups_survive_a_restart(store()).await;
    shards_do_not_mix(store()).await;
    an_older_owner_is_fenced(store()).await;
    replay_starts_after_the_snapshot(store()).await;
    an_older_snapshot_does_not_replace_a_newer_one(store()).await;
    trimming_never_takes_what_is_needed(store()).await;
    bodies_read_back_from_everywhere(store()).await;
    bodies_outlive_a_restart_where_they_were_moved(store()).await;
    forgotten_segments_go_away(store()).await;
    only_remembered_segments_survive_the_count(store()).await;
    a_busy_journal_takes_all_or_nothing(store()).await;
    a_quiet_shard_is_never_busy(store()).await;
    groups_have_a_limit(store()).await;
    empty_and_large_payloads_are_kept(store()).await;
    replay_repeats_itself(store()).await;
    gather::run(&mut store).await;
    large::run(store).await;
}

const SHARD: ShardId = ShardId(3);

async fn open<J: Journal>(journal: &J, shard: ShardId) -> (J::Log, Recovery) {
    journal.open(shard).await.expect("the log opens")
}

/// Opens and expects nothing to replay.
async fn open_new<J: Journal>(journal: &J, shard: ShardId) -> J::Log {
    let (log, recovery) = open(journal, shard).await;
    assert!(recovery.snapshot.is_none() && recovery.groups.count() == 0, "a new log is empty");
    log
}

fn groups(recovery: Recovery) -> Vec<StoredGroup> {
    recovery.groups.map(|group| group.expect("replay succeeds")).collect()
}

fn group(number: u64, payload: &[u8]) -> StoredGroup {
    StoredGroup { number: CommitGroupNumber(number), payload: Bytes::copy_from_slice(payload) }
}

async fn append(log: &mut impl Log, payload: &[u8]) -> CommitGroupNumber {
    let number = log.append(Bytes::copy_from_slice(payload).into()).expect("the log takes a group");
    wait_for(log, number).await;
    number
}

/// Appends without waiting for the group; a journal that is busy is asked again when it has moved on.
async fn hand_over(log: &mut impl Log, payload: Bytes) -> CommitGroupNumber {
    loop {
        match log.append(payload.clone().into()) {
            Ok(number) => return number,
            Err(AppendError::Busy) => drop(log.durable(log.watermark()).await.expect("the log lives")),
            Err(error) => panic!("{error}"),
        }
    }
}

async fn wait_for(log: &mut impl Log, number: CommitGroupNumber) {
    let mut seen = log.watermark();
    while seen < number {
        let now = log.durable(seen).await.expect("the log lives");
        assert!(now > seen, "the watermark rises");
        seen = now;
    }
    assert!(log.watermark() >= number);
}

/// A payload of bodies, each on its own boundary, and where they are.
fn bodies_of(number: CommitGroupNumber, bodies: &[&[u8]]) -> (Vec<u8>, Vec<StoredBody>) {
    let mut payload = Vec::new();
    let mut places = Vec::new();
    for body in bodies {
        payload.resize(payload.len().next_multiple_of(BodyRef::ALIGNMENT), 0);
        let offset = u32::try_from(payload.len()).expect("test payloads are small");
        let place = BodyRef::in_log(number, offset).expect("test payloads are small");
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
    log.reader().read(bodies.to_vec()).await.expect("live bodies read back")
}

async fn evacuate(log: &mut impl Log, bodies: &[StoredBody]) -> Vec<StoredBody> {
    let places = log.evacuate(bodies.to_vec()).await.expect("bodies can be moved");
    assert_eq!(places.len(), bodies.len());
    places.iter().zip(bodies).map(|(place, body)| StoredBody { place: *place, ..*body }).collect()
}

async fn new_logs_are_empty<J: Journal>(mut start: impl FnMut() -> J) {
    let mut log = open_new(&start(), SHARD).await;
    assert_eq!(log.next_group(), CommitGroupNumber(1));
    assert_eq!(log.watermark(), CommitGroupNumber::NONE);
    log.trim(CommitGroupNumber::NONE, CommitGroupNumber::NONE);
    assert_eq!(append(&mut log, b"first").await, CommitGroupNumber(1));
}

/// G2: order and numbers.
async fn groups_are_numbered_without_gaps<J: Journal>(mut start: impl FnMut() -> J) {
    let journal = start();
    let mut log = open_new(&journal, SHARD).await;
    for n in 1..=200_u64 {
        assert_eq!(log.next_group(), CommitGroupNumber(n));
        assert_eq!(hand_over(&mut log, Bytes::from(n.to_le_bytes().to_vec())).await, CommitGroupNumber(n));
    }
    wait_for(&mut log, CommitGroupNumber(200)).await;
    drop(log);
    let (_log, recovery) = open(&journal, SHARD).await;
    let expected: Vec<_> = (1..=200_u64).map(|n| group(n, &n.to_le_bytes())).collect();
    assert_eq!(groups(recovery), expected);
}

/// G1, G3: what was durable is there after a restart, whole.
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

async fn shards_do_not_mix<J: Journal>(mut start: impl FnMut() -> J) {
    let shards: Vec<ShardId> = (0..8).map(ShardId).collect();
    {
        let journal = start();
        let mut logs = Vec::new();
        for shard in &shards {
            logs.push(open_new(&journal, *shard).await);
        }
        for n in 0..20_u8 {
            for (log, shard) in logs.iter_mut().zip(&shards) {
                hand_over(log, Bytes::from(vec![n; usize::from(shard.0) + 1])).await;
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

/// G4: from `open` on, the older owner changes nothing and waits for nothing.
async fn an_older_owner_is_fenced<J: Journal>(mut start: impl FnMut() -> J) {
    let journal = start();
    let mut older = open_new(&journal, SHARD).await;
    append(&mut older, b"older").await;
    let (mut newer, recovery) = open(&journal, SHARD).await;
    assert_eq!(groups(recovery), [group(1, b"older")]);
    assert!(matches!(older.append(Bytes::from_static(b"late").into()), Err(AppendError::Poisoned(_))));
    assert_eq!(append(&mut newer, b"newer").await, CommitGroupNumber(2));
    assert!(
        older.durable(CommitGroupNumber(1)).await.is_err(),
        "the older owner does not take the newer one's group for its own"
    );
    assert!(matches!(older.append(Bytes::from_static(b"late").into()), Err(AppendError::Poisoned(_))));
    assert!(older.put_snapshot(CommitGroupNumber(1), Bytes::new().into()).await.is_err());
    drop((older, newer));
    let (_log, recovery) = open(&journal, SHARD).await;
    assert_eq!(groups(recovery), [group(1, b"older"), group(2, b"newer")]);
}

async fn replay_starts_after_the_snapshot<J: Journal>(mut start: impl FnMut() -> J) {
    {
        let mut log = open_new(&start(), SHARD).await;
        for n in 1..=6_u8 {
            append(&mut log, &[n]).await;
        }
        log.put_snapshot(CommitGroupNumber(4), Bytes::from_static(b"state at 4").into())
            .await
            .expect("the snapshot is kept");
        log.trim(CommitGroupNumber(4), CommitGroupNumber(4));
        append(&mut log, &[7]).await;
    }
    let (mut log, recovery) = open(&start(), SHARD).await;
    let snapshot = recovery.snapshot.clone().expect("the snapshot is found");
    assert_eq!((snapshot.upto, &snapshot.payload[..]), (CommitGroupNumber(4), &b"state at 4"[..]));
    assert_eq!(groups(recovery), [group(5, &[5]), group(6, &[6]), group(7, &[7])]);
    // All of the log is covered: the next open has nothing to replay, and numbers go on.
    log.put_snapshot(CommitGroupNumber(7), Bytes::from_static(b"state at 7").into())
        .await
        .expect("the snapshot is kept");
    log.trim(CommitGroupNumber(7), CommitGroupNumber(7));
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
            .expect("the snapshot is kept");
        log.put_snapshot(CommitGroupNumber(2), Bytes::from_static(b"old").into())
            .await
            .expect("an older one is no error");
    }
    let (_log, recovery) = open(&start(), SHARD).await;
    assert_eq!(recovery.snapshot.as_ref().map(|s| &s.payload[..]), Some(&b"new"[..]));
    assert_eq!(groups(recovery), []);
}

/// A trim that says too much takes nothing that replay or a body needs.
async fn trimming_never_takes_what_is_needed<J: Journal>(mut start: impl FnMut() -> J) {
    {
        let mut log = open_new(&start(), SHARD).await;
        append(&mut log, b"one").await;
        append(&mut log, b"two").await;
        // No snapshot covers these.
        log.trim(CommitGroupNumber(2), CommitGroupNumber(2));
        log.trim(CommitGroupNumber(0), CommitGroupNumber(0));
    }
    {
        let (mut log, recovery) = open(&start(), SHARD).await;
        assert_eq!(groups(recovery), [group(1, b"one"), group(2, b"two")]);
        let places = append_bodies(&mut log, &[b"another"]).await;
        log.put_snapshot(CommitGroupNumber(3), Bytes::from_static(b"t").into())
            .await
            .expect("the snapshot is kept");
        // Replay needs no group any more, but a body still lies in the third.
        log.trim(CommitGroupNumber(3), CommitGroupNumber(2));
        assert_eq!(read(&log, &places).await, [&b"another"[..]]);
    }
    let (log, recovery) = open(&start(), SHARD).await;
    assert_eq!(groups(recovery), []);
    let (_, places) = bodies_of(CommitGroupNumber(3), &[b"another"]);
    assert_eq!(read(&log, &places).await, [&b"another"[..]], "bodies in covered groups outlive a restart");
}

async fn bodies_read_back_from_everywhere<J: Journal>(mut start: impl FnMut() -> J) {
    let journal = start();
    let mut log = open_new(&journal, SHARD).await;
    let (payload, early) = bodies_of(log.next_group(), &[b"not durable yet"]);
    log.append(payload.into()).expect("room");
    assert_eq!(
        log.reader().try_read(early[0]).as_deref(),
        Some(&b"not durable yet"[..]),
        "from memory at once"
    );
    wait_for(&mut log, CommitGroupNumber(1)).await;
    let small = append_bodies(&mut log, &[b"one", b"", b"three"]).await;
    let large = append_bodies(&mut log, &[&[7; 100_000], &[8; 50_000]]).await;
    let mut wanted = [small.clone(), large, early].concat();
    wanted.reverse();
    let expected: Vec<Bytes> = vec![
        Bytes::from_static(b"not durable yet"),
        vec![8; 50_000].into(),
        vec![7; 100_000].into(),
        Bytes::from_static(b"three"),
        Bytes::new(),
        Bytes::from_static(b"one"),
    ];
    assert_eq!(read(&log, &wanted).await, expected);
    let cold = evacuate(&mut log, &small).await;
    assert!(cold.iter().all(|body| body.place.is_cold()));
    assert_eq!(read(&log, &cold).await, [&b"one"[..], &b""[..], &b"three"[..]]);
    let colder = evacuate(&mut log, &cold).await;
    assert_eq!(read(&log, &colder).await, [&b"one"[..], &b""[..], &b"three"[..]]);
    let never =
        StoredBody { place: BodyRef::in_log(CommitGroupNumber(99), 0).expect("in range"), size_bytes: 1 };
    assert!(matches!(log.reader().read(vec![never]).await, Err(ReadError::Gone(_))));
    assert!(log.evacuate(vec![never]).await.is_err());
    drop((log, journal));
    let (log, recovery) = open(&start(), SHARD).await;
    assert_eq!(groups(recovery).len(), 3);
    assert_eq!(read(&log, &wanted).await, expected, "and after a restart");
}

async fn bodies_outlive_a_restart_where_they_were_moved<J: Journal>(mut start: impl FnMut() -> J) {
    let moved = {
        let mut log = open_new(&start(), SHARD).await;
        log.trim(CommitGroupNumber::NONE, CommitGroupNumber::NONE);
        let places = append_bodies(&mut log, &[b"stay", b"move"]).await;
        let moved = evacuate(&mut log, &places[1..]).await;
        append(&mut log, b"moved").await;
        moved
    };
    for _ in 0..2 {
        let (mut log, _) = open(&start(), SHARD).await;
        log.remember_cold(&moved);
        log.trim(CommitGroupNumber::NONE, CommitGroupNumber::NONE);
        assert_eq!(read(&log, &moved).await, [&b"move"[..]]);
    }
}

async fn forgotten_segments_go_away<J: Journal>(mut start: impl FnMut() -> J) {
    let journal = start();
    let mut log = open_new(&journal, SHARD).await;
    log.trim(CommitGroupNumber::NONE, CommitGroupNumber::NONE);
    let places = append_bodies(&mut log, &[b"one", b"two"]).await;
    let cold = evacuate(&mut log, &places).await;
    log.forget_cold(&cold[..1]);
    assert_eq!(read(&log, &cold[1..]).await, [&b"two"[..]]);
    log.forget_cold(&cold[1..]);
    assert!(matches!(log.reader().read(cold).await, Err(ReadError::Gone(_))));
    // What comes next is not mixed up with what was there.
    let again = evacuate(&mut log, &places).await;
    assert_eq!(read(&log, &again).await, [&b"one"[..], &b"two"[..]]);
}

async fn only_remembered_segments_survive_the_count<J: Journal>(mut start: impl FnMut() -> J) {
    let (kept, lost) = {
        let mut log = open_new(&start(), SHARD).await;
        log.trim(CommitGroupNumber::NONE, CommitGroupNumber::NONE);
        let places = append_bodies(&mut log, &[b"kept"]).await;
        let kept = evacuate(&mut log, &places).await;
        drop(log);
        let (mut log, _) = open(&start(), SHARD).await;
        log.remember_cold(&kept);
        log.trim(CommitGroupNumber::NONE, CommitGroupNumber::NONE);
        (kept, evacuate(&mut log, &places).await)
    };
    let (mut log, _) = open(&start(), SHARD).await;
    log.remember_cold(&kept);
    assert_eq!(read(&log, &lost).await, [&b"kept"[..]], "nothing is removed before the count is closed");
    log.trim(CommitGroupNumber::NONE, CommitGroupNumber::NONE);
    assert_eq!(read(&log, &kept).await, [&b"kept"[..]]);
    assert!(matches!(log.reader().read(lost).await, Err(ReadError::Gone(_))));
}

/// Busy takes nothing: numbers have no gap, and everything that was taken becomes durable.
async fn a_busy_journal_takes_all_or_nothing<J: Journal>(mut start: impl FnMut() -> J) {
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
                    assert!(seen < CommitGroupNumber(n - 1), "busy only while something waits");
                    log.durable(seen).await.expect("the log lives");
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

/// A log that waits for its watermark to move must have something that moves it.
async fn a_quiet_shard_is_never_busy<J: Journal>(mut start: impl FnMut() -> J) {
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
        let number = quiet.append(payload.clone().into()).expect("nothing of this shard waits");
        wait_for(&mut quiet, number).await;
    }
    assert_eq!(quiet.watermark(), CommitGroupNumber(busy_count));
}

async fn groups_have_a_limit<J: Journal>(mut start: impl FnMut() -> J) {
    let mut log = open_new(&start(), SHARD).await;
    let error = log.append(vec![0; 16 << 20].into()).expect_err("sixteen megabytes are too much");
    assert!(matches!(error, AppendError::TooLarge { size_bytes, .. } if size_bytes == 16 << 20));
    assert_eq!(append(&mut log, b"fits").await, CommitGroupNumber(1));
}

async fn empty_and_large_payloads_are_kept<J: Journal>(mut start: impl FnMut() -> J) {
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

/// G6: what replay returned once, it returns always.
async fn replay_repeats_itself<J: Journal>(mut start: impl FnMut() -> J) {
    {
        let mut log = open_new(&start(), SHARD).await;
        for n in 0..10_u8 {
            hand_over(&mut log, vec![n; 100].into()).await;
        }
        // Dropped without waiting: some may be lost, but what is found now stays.
    }
    let (log, recovery) = open(&start(), SHARD).await;
    drop(log);
    let first = groups(recovery);
    assert!(
        first.iter().zip(1..).all(|(group, n)| group.number == CommitGroupNumber(n)),
        "a prefix of what was appended"
    );
    for _ in 0..3 {
        let (_log, recovery) = open(&start(), SHARD).await;
        assert_eq!(groups(recovery), first);
    }
}
