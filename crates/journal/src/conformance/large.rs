//! Large bodies, which are written beside the log, and ranges of bodies of every kind.

use bytes::Bytes;
use peeklock_types::CommitGroupNumber;

use super::{SHARD, append, append_bodies, evacuate, open, open_new, read};
use crate::{BodyError, BodyReader, Journal, LargeBodies, LargeBody, Log, ReadError, StoredBody};

pub(super) async fn run<J, F>(mut store: impl FnMut() -> F)
where
    J: Journal,
    F: FnMut() -> J,
{
    bodies_of_any_size_come_back(store()).await;
    ranges_of_every_kind_of_body_come_back(store()).await;
    only_journaled_ones_outlive_a_restart(store()).await;
    forgotten_ones_go_away(store()).await;
    an_older_owner_keeps_none(store()).await;
    several_are_written_at_once_beside_the_log(store()).await;
}

fn content(seed: usize, size: usize) -> Bytes {
    (0..size).map(|n| u8::try_from((n * 31 + n / 253 + seed) % 251).expect("below 251")).collect()
}

async fn write(log: &impl Log, content: &Bytes, piece_bytes: usize) -> StoredBody {
    let mut body = log.large_bodies().start().await.expect("there is room");
    let mut rest = content.clone();
    while !rest.is_empty() {
        let mut pieces = Vec::new();
        for _ in 0..3 {
            pieces.push(rest.split_to(rest.len().min(piece_bytes)));
        }
        body.write(pieces).await.expect("there is room");
    }
    let stored = body.finish().await.expect("the body is kept");
    assert!(stored.place.is_cold() && stored.size_bytes as usize == content.len());
    stored
}

async fn bodies_of_any_size_come_back<J: Journal>(mut start: impl FnMut() -> J) {
    let journal = start();
    let mut log = open_new(&journal, SHARD).await;
    log.trim(CommitGroupNumber::NONE, CommitGroupNumber::NONE);
    let sizes = [0, 1, 7, 65_527, 65_528, 65_529, 131_056, 131_057, 1_000_003];
    let mut bodies = Vec::new();
    for (seed, size) in sizes.into_iter().enumerate() {
        bodies.push(write(&log, &content(seed, size), 40_000 + seed).await);
    }
    let all = |found: Vec<Bytes>| found.iter().zip(sizes).enumerate().all(|(n, (b, s))| *b == content(n, s));
    assert!(all(read(&log, &bodies).await));
    assert_eq!(log.wants_evacuation(), None, "there is nothing to gain by moving them");
    let mut moved = evacuate(&mut log, &bodies).await;
    assert!(all(read(&log, &moved).await), "they can be moved all the same");
    moved.truncate(3);
    log.forget_cold(&bodies);
    assert!(matches!(log.reader().read(bodies).await, Err(ReadError::Gone(_))));
    assert_eq!(read(&log, &moved).await.len(), 3);
}

async fn ranges_of_every_kind_of_body_come_back<J: Journal>(mut start: impl FnMut() -> J) {
    let journal = start();
    let mut log = open_new(&journal, SHARD).await;
    let whole = content(5, 200_000);
    let in_log = append_bodies(&mut log, &[b"before", &whole]).await.remove(1);
    let in_cold = evacuate(&mut log, &[in_log]).await.remove(0);
    let large = write(&log, &whole, 9_999).await;
    for body in [in_log, in_cold, large] {
        for range in [0..0, 0..1, 0..65_528, 65_528..65_529, 65_000..131_100, 199_999..200_000, 0..200_000] {
            let found = log.reader().read_range(body, range.clone()).await.expect("it lives");
            assert!(found == whole[range.start as usize..range.end as usize], "{body:?} {range:?}");
        }
        let found = log.reader().read_range(body, 199_990..u32::MAX).await.expect("it lives");
        assert_eq!(found, whole[199_990..], "what lies behind the end is left out");
        let found = log.reader().read_range(body, 300_000..400_000).await.expect("it lives");
        assert!(found.is_empty());
    }
    log.forget_cold(&[large]);
    log.trim(CommitGroupNumber::NONE, CommitGroupNumber::NONE);
    assert!(matches!(log.reader().read_range(large, 0..1).await, Err(ReadError::Gone(_))));
}

async fn only_journaled_ones_outlive_a_restart<J: Journal>(mut start: impl FnMut() -> J) {
    let (kept, lost) = {
        let log = open_new(&start(), SHARD).await;
        // Nothing was ever appended: a body alone must not keep the journal from opening.
        let kept = write(&log, &content(1, 100_000), 30_000).await;
        drop(log);
        let (mut log, _) = open(&start(), SHARD).await;
        log.remember_cold(&[kept]);
        log.trim(CommitGroupNumber::NONE, CommitGroupNumber::NONE);
        append(&mut log, b"kept").await;
        let lost = write(&log, &content(2, 100_000), 30_000).await;
        let mut unfinished = log.large_bodies().start().await.expect("there is room");
        unfinished.write(vec![content(3, 100_000)]).await.expect("there is room");
        (kept, lost)
    };
    let (mut log, _) = open(&start(), SHARD).await;
    log.remember_cold(&[kept]);
    assert_eq!(
        read(&log, &[lost]).await,
        [content(2, 100_000)],
        "nothing is removed before the count is closed"
    );
    let early = write(&log, &content(4, 50), 50).await;
    log.trim(CommitGroupNumber::NONE, CommitGroupNumber::NONE);
    assert_eq!(read(&log, &[kept, early]).await, [content(1, 100_000), content(4, 50)]);
    assert!(matches!(log.reader().read(vec![lost]).await, Err(ReadError::Gone(_))));
    let again = write(&log, &content(5, 70_000), 70_000).await;
    assert_eq!(read(&log, &[again, kept]).await, [content(5, 70_000), content(1, 100_000)]);
}

async fn forgotten_ones_go_away<J: Journal>(mut start: impl FnMut() -> J) {
    let journal = start();
    let mut log = open_new(&journal, SHARD).await;
    log.trim(CommitGroupNumber::NONE, CommitGroupNumber::NONE);
    let small = append_bodies(&mut log, &[b"small"]).await;
    let large = write(&log, &content(1, 100), 10).await;
    let mut open = log.large_bodies().start().await.expect("there is room");
    open.write(vec![content(2, 80_000)]).await.expect("there is room");
    let cold = evacuate(&mut log, &small).await;
    log.forget_cold(&cold);
    log.forget_cold(&[large]);
    assert!(matches!(log.reader().read(vec![large]).await, Err(ReadError::Gone(_))));
    // One in the making has no place that anybody could name.
    open.write(vec![content(3, 10)]).await.expect("there is room");
    let stored = open.finish().await.expect("the body is kept");
    assert_eq!(read(&log, &[stored]).await, [[content(2, 80_000), content(3, 10)].concat()]);
}

/// G4 holds for what is written beside the log, too.
async fn an_older_owner_keeps_none<J: Journal>(mut start: impl FnMut() -> J) {
    let journal = start();
    let older = open_new(&journal, SHARD).await;
    let bodies = older.large_bodies();
    let mut begun = bodies.start().await.expect("there is room");
    begun.write(vec![content(1, 70_000)]).await.expect("there is room");
    let written = bodies.start().await.expect("there is room");
    let (mut newer, _) = open(&journal, SHARD).await;
    assert!(matches!(bodies.start().await.map(drop), Err(BodyError::Poisoned(_))));
    assert!(matches!(begun.write(vec![content(2, 70_000)]).await, Err(BodyError::Poisoned(_))));
    assert!(begun.write(vec![Bytes::new()]).await.is_err(), "a body that failed stays so");
    assert!(begun.finish().await.is_err());
    assert!(matches!(written.finish().await, Err(BodyError::Poisoned(_))));
    newer.trim(CommitGroupNumber::NONE, CommitGroupNumber::NONE);
    let stored = write(&newer, &content(3, 70_000), 70_000).await;
    assert_eq!(read(&newer, &[stored]).await, [content(3, 70_000)]);
}

async fn several_are_written_at_once_beside_the_log<J: Journal>(mut start: impl FnMut() -> J) {
    let journal = start();
    let mut log = open_new(&journal, SHARD).await;
    let handle = log.large_bodies();
    let mut bodies = Vec::new();
    for _ in 0..4 {
        bodies.push(handle.start().await.expect("there is room"));
    }
    for round in 0..10 {
        for (seed, body) in bodies.iter_mut().enumerate() {
            body.write(vec![content(seed + round, 20_000)]).await.expect("there is room");
        }
        append(&mut log, b"beside").await;
    }
    drop(bodies.remove(2));
    let mut stored = Vec::new();
    for body in bodies {
        stored.push(body.finish().await.expect("the body is kept"));
    }
    for (seed, found) in [0, 1, 3].into_iter().zip(read(&log, &stored).await) {
        let expected: Vec<u8> = (0..10).flat_map(|round| content(seed + round, 20_000)).collect();
        assert!(found == expected, "body {seed}");
    }
}
