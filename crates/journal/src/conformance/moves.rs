//! Reading bodies, moving them, and giving them up.

use bytes::Bytes;
use peeklock_types::{BodyRef, CommitGroupNumber};

use super::{SHARD, append, append_bodies, bodies_of, groups, move_each, open, open_new, read, wait_for};
use crate::{BodyReader, Journal, Log, Move, ReadError, StoredBody};

pub(super) async fn run<J, F>(mut store: impl FnMut() -> F)
where
    J: Journal,
    F: FnMut() -> J,
{
    bodies_are_readable_in_every_place(store()).await;
    moved_bodies_survive_a_restart(store()).await;
    released_bodies_are_removed(store()).await;
    only_adopted_bodies_survive_a_restart(store()).await;
    a_request_to_move_ends_when_the_owner_fulfils_it(store()).await;
}

async fn bodies_are_readable_in_every_place<J: Journal>(mut start: impl FnMut() -> J) {
    let journal = start();
    let mut log = open_new(&journal, SHARD).await;
    let (payload, early) = bodies_of(log.next_group(), &[b"not durable yet"]);
    log.append(payload.into()).expect("the log should accept the group");
    assert_eq!(
        log.reader().try_read(early[0]).as_deref(),
        Some(&b"not durable yet"[..]),
        "a body should be readable from memory at once"
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
    let moved = move_each(&mut log, &small).await;
    assert_eq!(read(&log, &moved).await, [&b"one"[..], &b""[..], &b"three"[..]]);
    let again = move_each(&mut log, &moved).await;
    assert_eq!(read(&log, &again).await, [&b"one"[..], &b""[..], &b"three"[..]]);
    let never =
        StoredBody { place: BodyRef::in_group(CommitGroupNumber(99), 0).expect("in range"), size_bytes: 1 };
    assert!(matches!(log.reader().read(vec![never]).await, Err(ReadError::Gone(_))));
    assert!(log.move_bodies(Move::Each(vec![never])).await.is_err());
    drop((log, journal));
    let (log, recovery) = open(&start(), SHARD).await;
    assert_eq!(groups(recovery).len(), 3);
    assert_eq!(read(&log, &wanted).await, expected, "bodies in groups should survive a restart");
}

async fn moved_bodies_survive_a_restart<J: Journal>(mut start: impl FnMut() -> J) {
    let moved = {
        let mut log = open_new(&start(), SHARD).await;
        let places = append_bodies(&mut log, &[b"stay", b"move"]).await;
        let moved = move_each(&mut log, &places[1..]).await;
        append(&mut log, b"moved").await;
        moved
    };
    for _ in 0..2 {
        let (mut log, _) = open(&start(), SHARD).await;
        log.adopt(&moved);
        assert_eq!(read(&log, &moved).await, [&b"move"[..]]);
    }
}

async fn released_bodies_are_removed<J: Journal>(mut start: impl FnMut() -> J) {
    let journal = start();
    let mut log = open_new(&journal, SHARD).await;
    let places = append_bodies(&mut log, &[b"one", b"two"]).await;
    let moved = move_each(&mut log, &places).await;
    log.release(&moved[..1]);
    assert_eq!(read(&log, &moved[1..]).await, [&b"two"[..]]);
    log.release(&moved[1..]);
    assert!(matches!(log.reader().read(moved).await, Err(ReadError::Gone(_))));
    let again = move_each(&mut log, &places).await;
    assert_eq!(read(&log, &again).await, [&b"one"[..], &b"two"[..]], "new copies should have new places");
}

async fn only_adopted_bodies_survive_a_restart<J: Journal>(mut start: impl FnMut() -> J) {
    let (kept, lost) = {
        let mut log = open_new(&start(), SHARD).await;
        let places = append_bodies(&mut log, &[b"kept"]).await;
        let kept = move_each(&mut log, &places).await;
        drop(log);
        let (mut log, _) = open(&start(), SHARD).await;
        log.adopt(&kept);
        (kept, move_each(&mut log, &places).await)
    };
    let (mut log, _) = open(&start(), SHARD).await;
    assert_eq!(read(&log, &lost).await, [&b"kept"[..]], "nothing should be removed before adopt()");
    log.adopt(&kept);
    assert_eq!(read(&log, &kept).await, [&b"kept"[..]]);
    assert!(matches!(log.reader().read(lost).await, Err(ReadError::Gone(_))));
}

/// The settings of a journal decide whether it requests moves at all. If it does, the request must end when the owner
/// has fulfilled it.
async fn a_request_to_move_ends_when_the_owner_fulfils_it<J: Journal>(mut start: impl FnMut() -> J) {
    const BODY_BYTES: usize = 20_000;
    let journal = start();
    let mut log = open_new(&journal, SHARD).await;
    let mut live = Vec::new();
    for round in 0..10 {
        let contents: Vec<Vec<u8>> = (0..10).map(|n| vec![round * 10 + n; BODY_BYTES]).collect();
        let slices: Vec<&[u8]> = contents.iter().map(Vec::as_slice).collect();
        let places = append_bodies(&mut log, &slices).await;
        let moved = move_each(&mut log, &places).await;
        log.release(&moved[1..]);
        live.push(moved[0]);
    }
    let mut requests = 0;
    while let Some(range) = log.wants_moved() {
        requests += 1;
        assert!(requests < 100, "the journal should not request {range:?} again");
        let in_range = |body: &&mut StoredBody| range.contains(body.place);
        for body in live.iter_mut().filter(in_range) {
            let old = std::mem::replace(body, move_each(&mut log, &[*body]).await[0]);
            log.release(&[old]);
        }
        if let Some(upto) = range.last_group() {
            log.put_snapshot(log.watermark(), Bytes::new().into())
                .await
                .expect("the snapshot should be stored");
            log.trim(upto);
        }
    }
    let found = read(&log, &live).await;
    assert!(found.iter().zip(0..).all(|(body, round)| body[..] == vec![round * 10; BODY_BYTES]));
}
