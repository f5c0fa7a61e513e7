//! Moving runs of streams: each run becomes one body, survives a restart, and is removed when the owner releases it.

use std::pin::Pin;

use bytes::Bytes;
use peeklock_types::{BodyRef, CommitGroupNumber};

use super::{SHARD, append, append_bodies, move_each, open, open_new, read};
use crate::{BodyReader, Journal, Log, Move, RUN_BYTES_MAX, ReadError, StoredBody};

pub(super) async fn run<J, F>(mut store: impl FnMut() -> F)
where
    J: Journal,
    F: FnMut() -> J,
{
    each_run_becomes_one_body(store()).await;
    runs_contain_bodies_of_every_place(store()).await;
    streams_do_not_share_space(store()).await;
    bodies_of_streams_are_never_requested(store()).await;
    bodies_of_streams_survive_a_restart(store()).await;
    only_adopted_bodies_survive_a_restart(store()).await;
    bodies_are_removed_in_any_order_of_release(store()).await;
    a_failed_move_leaves_nothing(store()).await;
    an_earlier_owner_moves_nothing(store()).await;
    many_streams_move_at_the_same_time(store()).await;
    a_failed_move_does_not_affect_others(store()).await;
}

/// Returns bytes that differ from those of every other seed.
fn content(seed: usize, size: usize) -> Vec<u8> {
    (0..size).map(|at| (at * 31 + seed * 7 + at / 251).to_le_bytes()[0]).collect()
}

async fn append_contents(log: &mut impl Log, sizes: &[usize]) -> (Vec<StoredBody>, Vec<Vec<u8>>) {
    let contents: Vec<Vec<u8>> = sizes.iter().enumerate().map(|(seed, size)| content(seed, *size)).collect();
    let slices: Vec<&[u8]> = contents.iter().map(Vec::as_slice).collect();
    (append_bodies(log, &slices).await, contents)
}

async fn move_runs(log: &mut impl Log, stream: u64, runs: &[&[StoredBody]]) -> Vec<StoredBody> {
    let runs_to_move = runs.iter().map(|run| run.to_vec()).collect();
    let moving = log.move_bodies(Move::Runs { stream, runs: runs_to_move });
    let bodies = moving.await.expect("live bodies should be movable");
    assert_eq!(bodies.len(), runs.len());
    for (body, run) in bodies.iter().zip(runs) {
        assert!(body.place.is_standalone());
        assert_eq!(body.size_bytes, run.iter().map(|body| body.size_bytes).sum::<u32>());
    }
    bodies
}

async fn is_gone(log: &impl Log, body: StoredBody) -> bool {
    matches!(log.reader().read(vec![body]).await, Err(ReadError::Gone(_)))
}

async fn each_run_becomes_one_body<J: Journal>(mut start: impl FnMut() -> J) {
    let journal = start();
    let mut log = open_new(&journal, SHARD).await;
    let sizes = [1, 0, 7, 8, 9, 4_096, 50_000];
    let (places, contents) = append_contents(&mut log, &sizes).await;
    let bodies = move_runs(&mut log, 5, &[&places[..3], &places[3..4], &[], &places[3..]]).await;
    let expected =
        [contents[..3].concat(), contents[3].clone(), Vec::new(), contents[3..].concat()].map(Bytes::from);
    assert_eq!(read(&log, &bodies).await, expected);
    let mut backwards = bodies.clone();
    backwards.reverse();
    assert!(read(&log, &backwards).await.iter().eq(expected.iter().rev()));
    assert_eq!(move_runs(&mut log, 5, &[]).await, []);
    let last = bodies[3];
    for range in [0..0, 0..1, 5..9, 4_000..50_000, 54_000..60_000] {
        let found =
            log.reader().read_range(last, range.clone()).await.expect("a live body should be readable");
        let end = (range.end as usize).min(expected[3].len());
        assert_eq!(found, expected[3][range.start as usize..end], "{range:?}");
    }
}

async fn runs_contain_bodies_of_every_place<J: Journal>(mut start: impl FnMut() -> J) {
    let journal = start();
    let mut log = open_new(&journal, SHARD).await;
    let mut all = Vec::new();
    let mut expected = Vec::new();
    // The bodies are in old groups that are not in memory, in new groups, and in copies of earlier moves.
    for round in 0..40 {
        let (places, contents) = append_contents(&mut log, &[3_000 + round, 100]).await;
        let mut body = places[1];
        if round % 8 == 3 {
            body = move_each(&mut log, &[body]).await.remove(0);
        } else if round % 8 == 6 {
            body = move_runs(&mut log, 1, &[&[body]]).await.remove(0);
        }
        all.extend([places[0], body]);
        expected.extend(contents);
    }
    let one = move_runs(&mut log, 2, &[&all]).await;
    assert_eq!(read(&log, &one).await, [expected.concat()]);
    all.reverse();
    expected.reverse();
    let other = move_runs(&mut log, 2, &[&all]).await;
    assert_eq!(read(&log, &other).await, [expected.concat()], "the bodies of a run should keep their order");
}

async fn streams_do_not_share_space<J: Journal>(mut start: impl FnMut() -> J) {
    let journal = start();
    let mut log = open_new(&journal, SHARD).await;
    let (places, contents) = append_contents(&mut log, &[100, 200, 300, 400]).await;
    let one = move_runs(&mut log, 1, &[&places[..1]]).await;
    let two = move_runs(&mut log, 2, &[&places[1..2]]).await;
    let moved = move_each(&mut log, &places[2..3]).await;
    let more = move_runs(&mut log, 1, &[&places[3..]]).await;
    log.release(&two);
    log.release(&moved);
    assert!(is_gone(&log, two[0]).await && is_gone(&log, moved[0]).await);
    let rest = [one, more].concat();
    assert_eq!(read(&log, &rest).await, [contents[0].clone(), contents[3].clone()]);
}

/// Returns whether the journal wants one of these bodies moved.
fn wants_any(log: &impl Log, bodies: &[StoredBody]) -> bool {
    log.wants_moved().is_some_and(|range| bodies.iter().any(|body| range.contains(body.place)))
}

async fn bodies_of_streams_are_never_requested<J: Journal>(mut start: impl FnMut() -> J) {
    let mut live = Vec::new();
    let mut expected = Vec::new();
    let journal = start();
    let mut log = open_new(&journal, SHARD).await;
    for round in 0..20 {
        let (places, mut contents) = append_contents(&mut log, &[70_000, round + 1]).await;
        let bodies = move_runs(&mut log, 9, &[&places[..1], &places[1..]]).await;
        log.release(&bodies[..1]);
        live.push(bodies[1]);
        expected.extend(contents.pop());
        assert!(!wants_any(&log, &live));
    }
    drop((log, journal));
    let (mut log, _) = open(&start(), SHARD).await;
    log.adopt(&live);
    assert!(!wants_any(&log, &live));
    assert_eq!(read(&log, &live).await, expected);
    // The owner may move the bodies without a request.
    let moved = move_each(&mut log, &live).await;
    assert_eq!(read(&log, &moved).await, expected);
}

async fn bodies_of_streams_survive_a_restart<J: Journal>(mut start: impl FnMut() -> J) {
    let mut all = Vec::new();
    let mut expected = Vec::new();
    for round in 0..4 {
        let (mut log, _) = open(&start(), SHARD).await;
        log.adopt(&all);
        assert_eq!(read(&log, &all).await, expected, "round {round}");
        let (places, contents) = append_contents(&mut log, &[round + 1, 30_000]).await;
        let fresh = move_runs(&mut log, 3, &[&places]).await;
        append(&mut log, b"moved").await;
        all.extend(fresh);
        expected.push(contents.concat());
    }
}

async fn only_adopted_bodies_survive_a_restart<J: Journal>(mut start: impl FnMut() -> J) {
    let (kept, lost) = {
        let mut log = open_new(&start(), SHARD).await;
        let (places, _) = append_contents(&mut log, &[500, 600]).await;
        (move_runs(&mut log, 1, &[&places]).await, move_runs(&mut log, 2, &[&places]).await)
    };
    let (mut log, _) = open(&start(), SHARD).await;
    let whole = [content(0, 500), content(1, 600)].concat();
    assert_eq!(read(&log, &lost).await, [&whole[..]], "nothing should be removed before adopt()");
    // Bodies that are moved before adopt() live without being named.
    let early = move_runs(&mut log, 1, &[&kept, &lost]).await;
    log.adopt(&kept);
    assert!(is_gone(&log, lost[0]).await);
    assert_eq!(read(&log, &[kept[0], early[0], early[1]]).await, [&whole[..]; 3]);
    let next = move_runs(&mut log, 2, &[&kept]).await;
    assert_eq!(read(&log, &next).await, [&whole[..]]);
}

async fn bodies_are_removed_in_any_order_of_release<J: Journal>(mut start: impl FnMut() -> J) {
    let journal = start();
    let mut log = open_new(&journal, SHARD).await;
    let (places, contents) = append_contents(&mut log, &[11, 22, 33]).await;
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let bodies = move_runs(&mut log, 4, &[&places[..1], &places[1..2], &places[2..]]).await;
        for (at, next) in order.iter().enumerate() {
            log.release(&[bodies[*next]]);
            for rest in &order[at + 1..] {
                assert_eq!(read(&log, &[bodies[*rest]]).await, [&contents[*rest][..]]);
            }
        }
        for body in bodies {
            assert!(is_gone(&log, body).await, "{order:?}");
            assert!(matches!(log.reader().read_range(body, 0..5).await, Err(ReadError::Gone(_))));
            assert_eq!(log.reader().try_read(body), None);
        }
    }
}

async fn a_failed_move_leaves_nothing<J: Journal>(mut start: impl FnMut() -> J) {
    let journal = start();
    let mut log = open_new(&journal, SHARD).await;
    let (places, contents) = append_contents(&mut log, &[900, 100_000]).await;
    let never =
        StoredBody { place: BodyRef::in_group(CommitGroupNumber(99), 0).expect("in range"), size_bytes: 1 };
    let failed = log.move_bodies(Move::Runs { stream: 6, runs: vec![vec![places[0]], vec![never]] }).await;
    assert!(matches!(failed, Err(ReadError::Gone(_))), "{failed:?}");
    let limit = RUN_BYTES_MAX as usize / 100_000;
    let failed = log.move_bodies(Move::Runs { stream: 6, runs: vec![vec![places[1]; limit + 1]] }).await;
    assert!(matches!(failed, Err(ReadError::TooLarge { .. })), "{failed:?}");
    let most = move_runs(&mut log, 6, &[&vec![places[1]; limit]]).await;
    assert_eq!(read(&log, &most).await, [contents[1].repeat(limit)]);
    let fine = move_runs(&mut log, 6, &[&places[..1]]).await;
    assert_eq!(read(&log, &fine).await, [&contents[0][..]]);
}

async fn an_earlier_owner_moves_nothing<J: Journal>(mut start: impl FnMut() -> J) {
    let journal = start();
    let mut earlier = open_new(&journal, SHARD).await;
    let (places, contents) = append_contents(&mut earlier, &[100, 200]).await;
    let early = move_runs(&mut earlier, 1, &[&places]).await;
    let (mut later, _) = open(&journal, SHARD).await;
    assert!(matches!(
        earlier.move_bodies(Move::Runs { stream: 1, runs: vec![places.clone()] }).await,
        Err(ReadError::Poisoned(_))
    ));
    later.adopt(&early);
    earlier.release(&early);
    let late = move_runs(&mut later, 1, &[&places]).await;
    assert_eq!(read(&later, &[early[0], late[0]]).await, [contents.concat(), contents.concat()]);
}

type Moving = Pin<Box<dyn Future<Output = Result<Vec<StoredBody>, ReadError>> + Send>>;

/// Uses more streams than a journal may keep resources for. Some of them end in between.
async fn many_streams_move_at_the_same_time<J: Journal>(mut start: impl FnMut() -> J) {
    const STREAMS: usize = 100;
    let journal = start();
    let mut log = open_new(&journal, SHARD).await;
    let mut all: Vec<Vec<StoredBody>> = vec![Vec::new(); STREAMS];
    let mut expected: Vec<Vec<Vec<u8>>> = vec![Vec::new(); STREAMS];
    for round in 0..3 {
        let sizes: Vec<usize> = (0..STREAMS).map(|stream| 40 + stream + round).collect();
        let (places, contents) = append_contents(&mut log, &sizes).await;
        let mut moving: Vec<Moving> = Vec::new();
        for (stream, place) in (0..).zip(&places) {
            moving.push(Box::pin(log.move_bodies(Move::Runs { stream, runs: vec![vec![*place]] })));
        }
        for (stream, moved) in moving.into_iter().enumerate() {
            all[stream].extend(moved.await.expect("live bodies should be movable"));
            expected[stream].push(contents[stream].clone());
        }
        for stream in (round..STREAMS).step_by(7) {
            log.release(&std::mem::take(&mut all[stream]));
            expected[stream].clear();
        }
    }
    for (bodies, expected) in all.iter().zip(&expected) {
        assert_eq!(read(&log, bodies).await, *expected);
    }
    drop((log, journal));
    let (mut log, _) = open(&start(), SHARD).await;
    log.adopt(&all.concat());
    assert_eq!(read(&log, &all.concat()).await, expected.concat());
}

async fn a_failed_move_does_not_affect_others<J: Journal>(mut start: impl FnMut() -> J) {
    let journal = start();
    let mut log = open_new(&journal, SHARD).await;
    let (places, contents) = append_contents(&mut log, &[5_000; 12]).await;
    let never =
        StoredBody { place: BodyRef::in_group(CommitGroupNumber(99), 0).expect("in range"), size_bytes: 1 };
    let mut moving: Vec<Moving> = Vec::new();
    for (stream, place) in (0..).zip(&places) {
        let second = if stream % 4 == 2 { never } else { *place };
        moving.push(Box::pin(log.move_bodies(Move::Runs { stream, runs: vec![vec![*place], vec![second]] })));
    }
    for (stream, moved) in moving.into_iter().enumerate() {
        match moved.await {
            Ok(bodies) => assert_eq!(read(&log, &bodies).await, [&contents[stream][..]; 2]),
            Err(error) => assert!(stream % 4 == 2 && matches!(error, ReadError::Gone(_)), "{error}"),
        }
    }
}
