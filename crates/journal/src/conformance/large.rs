//! Large bodies, and reading ranges of bodies.

use bytes::Bytes;

use super::{SHARD, append, append_bodies, move_each, open, open_new, read};
use crate::{BodyError, BodyReader, Journal, LargeBodies, LargeBody, Log, ReadError, StoredBody};

pub(super) async fn run<J, F>(mut store: impl FnMut() -> F)
where
    J: Journal,
    F: FnMut() -> J,
{
    bodies_of_all_sizes_are_readable(store()).await;
    ranges_of_bodies_in_every_place_are_readable(store()).await;
    only_adopted_bodies_survive_a_restart(store()).await;
    released_bodies_are_removed(store()).await;
    an_earlier_owner_stores_nothing(store()).await;
    several_bodies_are_written_in_parallel_with_appends(store()).await;
}

fn content(seed: usize, size: usize) -> Bytes {
    (0..size).map(|n| u8::try_from((n * 31 + n / 253 + seed) % 251).expect("below 251")).collect()
}

async fn write(log: &impl Log, content: &Bytes, piece_bytes: usize) -> StoredBody {
    let mut body = log.large_bodies().start().await.expect("there should be space");
    let mut rest = content.clone();
    while !rest.is_empty() {
        let mut pieces = Vec::new();
        for _ in 0..3 {
            pieces.push(rest.split_to(rest.len().min(piece_bytes)));
        }
        body.write(pieces).await.expect("there should be space");
    }
    let stored = body.finish().await.expect("the body should be stored");
    assert!(stored.place.is_standalone() && stored.size_bytes as usize == content.len());
    stored
}

async fn bodies_of_all_sizes_are_readable<J: Journal>(mut start: impl FnMut() -> J) {
    let journal = start();
    let mut log = open_new(&journal, SHARD).await;
    let sizes = [0, 1, 7, 65_527, 65_528, 65_529, 131_056, 131_057, 1_000_003];
    let mut bodies = Vec::new();
    for (seed, size) in sizes.into_iter().enumerate() {
        bodies.push(write(&log, &content(seed, size), 40_000 + seed).await);
    }
    let all = |found: Vec<Bytes>| found.iter().zip(sizes).enumerate().all(|(n, (b, s))| *b == content(n, s));
    assert!(all(read(&log, &bodies).await));
    assert_eq!(log.wants_moved(), None, "moving a large body should gain nothing");
    let mut moved = move_each(&mut log, &bodies).await;
    assert!(all(read(&log, &moved).await), "the owner may move the bodies without a request");
    moved.truncate(3);
    log.release(&bodies);
    assert!(matches!(log.reader().read(bodies).await, Err(ReadError::Gone(_))));
    assert_eq!(read(&log, &moved).await.len(), 3);
}

async fn ranges_of_bodies_in_every_place_are_readable<J: Journal>(mut start: impl FnMut() -> J) {
    let journal = start();
    let mut log = open_new(&journal, SHARD).await;
    let whole = content(5, 200_000);
    let in_group = append_bodies(&mut log, &[b"before", &whole]).await.remove(1);
    let moved = move_each(&mut log, &[in_group]).await.remove(0);
    let large = write(&log, &whole, 9_999).await;
    for body in [in_group, moved, large] {
        for range in [0..0, 0..1, 0..65_528, 65_528..65_529, 65_000..131_100, 199_999..200_000, 0..200_000] {
            let found =
                log.reader().read_range(body, range.clone()).await.expect("a live body should be readable");
            assert!(found == whole[range.start as usize..range.end as usize], "{body:?} {range:?}");
        }
        let found =
            log.reader().read_range(body, 199_990..u32::MAX).await.expect("a live body should be readable");
        assert_eq!(found, whole[199_990..], "the part after the end should be ignored");
        let found =
            log.reader().read_range(body, 300_000..400_000).await.expect("a live body should be readable");
        assert!(found.is_empty());
    }
    log.release(&[large]);
    assert!(matches!(log.reader().read_range(large, 0..1).await, Err(ReadError::Gone(_))));
}

async fn only_adopted_bodies_survive_a_restart<J: Journal>(mut start: impl FnMut() -> J) {
    let (kept, lost) = {
        let log = open_new(&start(), SHARD).await;
        // Nothing was ever appended. A store that holds only a body must open.
        let kept = write(&log, &content(1, 100_000), 30_000).await;
        drop(log);
        let (mut log, _) = open(&start(), SHARD).await;
        log.adopt(&[kept]);
        append(&mut log, b"kept").await;
        let lost = write(&log, &content(2, 100_000), 30_000).await;
        let mut unfinished = log.large_bodies().start().await.expect("there should be space");
        unfinished.write(vec![content(3, 100_000)]).await.expect("there should be space");
        (kept, lost)
    };
    let (mut log, _) = open(&start(), SHARD).await;
    assert_eq!(read(&log, &[lost]).await, [content(2, 100_000)], "nothing should be removed before adopt()");
    let early = write(&log, &content(4, 50), 50).await;
    log.adopt(&[kept]);
    assert_eq!(read(&log, &[kept, early]).await, [content(1, 100_000), content(4, 50)]);
    assert!(matches!(log.reader().read(vec![lost]).await, Err(ReadError::Gone(_))));
    let again = write(&log, &content(5, 70_000), 70_000).await;
    assert_eq!(read(&log, &[again, kept]).await, [content(5, 70_000), content(1, 100_000)]);
}

async fn released_bodies_are_removed<J: Journal>(mut start: impl FnMut() -> J) {
    let journal = start();
    let mut log = open_new(&journal, SHARD).await;
    let small = append_bodies(&mut log, &[b"small"]).await;
    let large = write(&log, &content(1, 100), 10).await;
    let mut open = log.large_bodies().start().await.expect("there should be space");
    open.write(vec![content(2, 80_000)]).await.expect("there should be space");
    let moved = move_each(&mut log, &small).await;
    log.release(&moved);
    log.release(&[large]);
    assert!(matches!(log.reader().read(vec![large]).await, Err(ReadError::Gone(_))));
    // An unfinished body has no reference yet, so no release can refer to it.
    open.write(vec![content(3, 10)]).await.expect("there should be space");
    let stored = open.finish().await.expect("the body should be stored");
    assert_eq!(read(&log, &[stored]).await, [[content(2, 80_000), content(3, 10)].concat()]);
}

/// G4 holds for large bodies.
async fn an_earlier_owner_stores_nothing<J: Journal>(mut start: impl FnMut() -> J) {
    let journal = start();
    let earlier = open_new(&journal, SHARD).await;
    let bodies = earlier.large_bodies();
    let mut begun = bodies.start().await.expect("there should be space");
    begun.write(vec![content(1, 70_000)]).await.expect("there should be space");
    let written = bodies.start().await.expect("there should be space");
    let (mut later, _) = open(&journal, SHARD).await;
    assert!(matches!(bodies.start().await.map(drop), Err(BodyError::Poisoned(_))));
    assert!(matches!(begun.write(vec![content(2, 70_000)]).await, Err(BodyError::Poisoned(_))));
    assert!(begun.write(vec![Bytes::new()]).await.is_err(), "a body should stay failed");
    assert!(begun.finish().await.is_err());
    assert!(matches!(written.finish().await, Err(BodyError::Poisoned(_))));
    later.adopt(&[]);
    let stored = write(&later, &content(3, 70_000), 70_000).await;
    assert_eq!(read(&later, &[stored]).await, [content(3, 70_000)]);
}

async fn several_bodies_are_written_in_parallel_with_appends<J: Journal>(mut start: impl FnMut() -> J) {
    let journal = start();
    let mut log = open_new(&journal, SHARD).await;
    let handle = log.large_bodies();
    let mut bodies = Vec::new();
    for _ in 0..4 {
        bodies.push(handle.start().await.expect("there should be space"));
    }
    for round in 0..10 {
        for (seed, body) in bodies.iter_mut().enumerate() {
            body.write(vec![content(seed + round, 20_000)]).await.expect("there should be space");
        }
        append(&mut log, b"group").await;
    }
    drop(bodies.remove(2));
    let mut stored = Vec::new();
    for body in bodies {
        stored.push(body.finish().await.expect("the body should be stored"));
    }
    for (seed, found) in [0, 1, 3].into_iter().zip(read(&log, &stored).await) {
        let expected: Vec<u8> = (0..10).flat_map(|round| content(seed + round, 20_000)).collect();
        assert!(found == expected, "body {seed}");
    }
}
