//! What is gathered for a stream reads back as one body, outlives a restart, and goes with the last of its segment.

use std::pin::Pin;

use bytes::Bytes;
use peeklock_types::{BodyPlace, BodyRef, CommitGroupNumber};

use super::{SHARD, append, append_bodies, evacuate, open, open_new, read};
use crate::{BodyReader, Evacuation, GATHERED_BYTES_MAX, Journal, Log, ReadError, StoredBody};

pub(super) async fn run<J, F>(mut store: impl FnMut() -> F)
where
    J: Journal,
    F: FnMut() -> J,
{
    runs_become_one_body_each(store()).await;
    bodies_from_everywhere_are_gathered(store()).await;
    streams_do_not_share_segments(store()).await;
    a_stream_is_never_asked_to_move(store()).await;
    gathered_bodies_outlive_a_restart(store()).await;
    only_remembered_ones_survive_the_count(store()).await;
    a_segment_goes_with_its_last_body_in_any_order(store()).await;
    a_run_that_cannot_be_gathered_leaves_nothing(store()).await;
    an_older_owner_gathers_nothing(store()).await;
    many_streams_are_gathered_at_once(store()).await;
    one_that_fails_takes_no_other_along(store()).await;
}

/// Bytes that tell which body they are of.
fn content(seed: usize, size: usize) -> Vec<u8> {
    (0..size).map(|at| (at * 31 + seed * 7 + at / 251).to_le_bytes()[0]).collect()
}

async fn append_contents(log: &mut impl Log, sizes: &[usize]) -> (Vec<StoredBody>, Vec<Vec<u8>>) {
    let contents: Vec<Vec<u8>> = sizes.iter().enumerate().map(|(seed, size)| content(seed, *size)).collect();
    let slices: Vec<&[u8]> = contents.iter().map(Vec::as_slice).collect();
    (append_bodies(log, &slices).await, contents)
}

async fn gather(log: &mut impl Log, stream: u64, runs: &[&[StoredBody]]) -> Vec<StoredBody> {
    let gathering = log.gather(stream, runs.iter().map(|run| run.to_vec()).collect());
    let bodies = gathering.await.expect("bodies can be gathered");
    assert_eq!(bodies.len(), runs.len());
    for (body, run) in bodies.iter().zip(runs) {
        assert!(body.place.is_cold());
        assert_eq!(body.size_bytes, run.iter().map(|body| body.size_bytes).sum::<u32>());
    }
    bodies
}

fn segment_of(body: &StoredBody) -> u32 {
    match body.place.place() {
        BodyPlace::Cold { segment, .. } => segment,
        BodyPlace::Log { .. } => panic!("{body:?} is not cold"),
    }
}

async fn is_gone(log: &impl Log, body: StoredBody) -> bool {
    matches!(log.reader().read(vec![body]).await, Err(ReadError::Gone(_)))
}

async fn runs_become_one_body_each<J: Journal>(mut start: impl FnMut() -> J) {
    let journal = start();
    let mut log = open_new(&journal, SHARD).await;
    log.trim(CommitGroupNumber::NONE, CommitGroupNumber::NONE);
    let sizes = [1, 0, 7, 8, 9, 4_096, 50_000];
    let (places, contents) = append_contents(&mut log, &sizes).await;
    let bodies = gather(&mut log, 5, &[&places[..3], &places[3..4], &[], &places[3..]]).await;
    let expected =
        [contents[..3].concat(), contents[3].clone(), Vec::new(), contents[3..].concat()].map(Bytes::from);
    assert_eq!(read(&log, &bodies).await, expected);
    let mut backwards = bodies.clone();
    backwards.reverse();
    assert!(read(&log, &backwards).await.iter().eq(expected.iter().rev()));
    assert_eq!(gather(&mut log, 5, &[]).await, []);
    let last = bodies[3];
    for range in [0..0, 0..1, 5..9, 4_000..50_000, 54_000..60_000] {
        let found = log.reader().read_range(last, range.clone()).await.expect("it lives");
        let end = (range.end as usize).min(expected[3].len());
        assert_eq!(found, expected[3][range.start as usize..end], "{range:?}");
    }
}

async fn bodies_from_everywhere_are_gathered<J: Journal>(mut start: impl FnMut() -> J) {
    let journal = start();
    let mut log = open_new(&journal, SHARD).await;
    log.trim(CommitGroupNumber::NONE, CommitGroupNumber::NONE);
    let mut all = Vec::new();
    let mut expected = Vec::new();
    // Old groups, of which most are in memory no more, beside new ones; and bodies that were moved or gathered before.
    for round in 0..40 {
        let (places, contents) = append_contents(&mut log, &[3_000 + round, 100]).await;
        let mut body = places[1];
        if round % 8 == 3 {
            body = evacuate(&mut log, &[body]).await.remove(0);
        } else if round % 8 == 6 {
            body = gather(&mut log, 1, &[&[body]]).await.remove(0);
        }
        all.extend([places[0], body]);
        expected.extend(contents);
    }
    let one = gather(&mut log, 2, &[&all]).await;
    assert_eq!(read(&log, &one).await, [expected.concat()]);
    all.reverse();
    expected.reverse();
    let other = gather(&mut log, 2, &[&all]).await;
    assert_eq!(read(&log, &other).await, [expected.concat()], "in the order that was asked for");
}

async fn streams_do_not_share_segments<J: Journal>(mut start: impl FnMut() -> J) {
    let journal = start();
    let mut log = open_new(&journal, SHARD).await;
    log.trim(CommitGroupNumber::NONE, CommitGroupNumber::NONE);
    let (places, contents) = append_contents(&mut log, &[100, 200, 300, 400]).await;
    let one = gather(&mut log, 1, &[&places[..1]]).await;
    let two = gather(&mut log, 2, &[&places[1..2]]).await;
    let moved = evacuate(&mut log, &places[2..3]).await;
    let more = gather(&mut log, 1, &[&places[3..]]).await;
    assert_eq!(segment_of(&one[0]), segment_of(&more[0]), "small bodies of a stream share one");
    let mut segments = [&one[0], &two[0], &moved[0]].map(segment_of).to_vec();
    segments.dedup();
    assert_eq!(segments.len(), 3);
    log.forget_cold(&two);
    log.forget_cold(&moved);
    assert!(is_gone(&log, two[0]).await && is_gone(&log, moved[0]).await);
    let rest = [one, more].concat();
    assert_eq!(read(&log, &rest).await, [contents[0].clone(), contents[3].clone()]);
}

async fn a_stream_is_never_asked_to_move<J: Journal>(mut start: impl FnMut() -> J) {
    let mut live = Vec::new();
    let mut expected = Vec::new();
    let journal = start();
    let mut log = open_new(&journal, SHARD).await;
    log.trim(CommitGroupNumber::NONE, CommitGroupNumber::NONE);
    for round in 0..20 {
        let (places, mut contents) = append_contents(&mut log, &[70_000, round + 1]).await;
        let bodies = gather(&mut log, 9, &[&places[..1], &places[1..]]).await;
        log.forget_cold(&bodies[..1]);
        live.push(bodies[1]);
        expected.extend(contents.pop());
        let wanted = log.wants_evacuation();
        assert!(!matches!(wanted, Some(Evacuation::Cold { .. })), "{wanted:?}");
    }
    drop((log, journal));
    let (mut log, _) = open(&start(), SHARD).await;
    log.remember_cold(&live);
    log.trim(CommitGroupNumber::NONE, CommitGroupNumber::NONE);
    let wanted = log.wants_evacuation();
    assert!(!matches!(wanted, Some(Evacuation::Cold { .. })), "{wanted:?}");
    assert_eq!(read(&log, &live).await, expected);
    // An owner that wants to move them all the same can.
    let moved = evacuate(&mut log, &live).await;
    assert_eq!(read(&log, &moved).await, expected);
}

async fn gathered_bodies_outlive_a_restart<J: Journal>(mut start: impl FnMut() -> J) {
    let mut all = Vec::new();
    let mut expected = Vec::new();
    for round in 0..4 {
        let (mut log, _) = open(&start(), SHARD).await;
        log.remember_cold(&all);
        log.trim(CommitGroupNumber::NONE, CommitGroupNumber::NONE);
        assert_eq!(read(&log, &all).await, expected, "round {round}");
        let (places, contents) = append_contents(&mut log, &[round + 1, 30_000]).await;
        let fresh = gather(&mut log, 3, &[&places]).await;
        append(&mut log, b"gathered").await;
        all.extend(fresh);
        expected.push(contents.concat());
    }
}

async fn only_remembered_ones_survive_the_count<J: Journal>(mut start: impl FnMut() -> J) {
    let (kept, lost) = {
        let mut log = open_new(&start(), SHARD).await;
        log.trim(CommitGroupNumber::NONE, CommitGroupNumber::NONE);
        let (places, _) = append_contents(&mut log, &[500, 600]).await;
        (gather(&mut log, 1, &[&places]).await, gather(&mut log, 2, &[&places]).await)
    };
    let (mut log, _) = open(&start(), SHARD).await;
    log.remember_cold(&kept);
    let whole = [content(0, 500), content(1, 600)].concat();
    assert_eq!(read(&log, &lost).await, [&whole[..]], "nothing is removed before the count is closed");
    // What is gathered before the count is closed lives, too.
    let early = gather(&mut log, 1, &[&kept, &lost]).await;
    assert_ne!(
        segment_of(&early[0]),
        segment_of(&kept[0]),
        "nothing is written behind what an earlier run wrote"
    );
    log.trim(CommitGroupNumber::NONE, CommitGroupNumber::NONE);
    assert!(is_gone(&log, lost[0]).await);
    assert_eq!(read(&log, &[kept[0], early[0], early[1]]).await, [&whole[..]; 3]);
    let next = gather(&mut log, 2, &[&kept]).await;
    assert_eq!(read(&log, &next).await, [&whole[..]]);
}

async fn a_segment_goes_with_its_last_body_in_any_order<J: Journal>(mut start: impl FnMut() -> J) {
    let journal = start();
    let mut log = open_new(&journal, SHARD).await;
    log.trim(CommitGroupNumber::NONE, CommitGroupNumber::NONE);
    let (places, contents) = append_contents(&mut log, &[11, 22, 33]).await;
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let bodies = gather(&mut log, 4, &[&places[..1], &places[1..2], &places[2..]]).await;
        assert!(bodies.iter().all(|body| segment_of(body) == segment_of(&bodies[0])));
        for (at, next) in order.iter().enumerate() {
            log.forget_cold(&[bodies[*next]]);
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

async fn a_run_that_cannot_be_gathered_leaves_nothing<J: Journal>(mut start: impl FnMut() -> J) {
    let journal = start();
    let mut log = open_new(&journal, SHARD).await;
    log.trim(CommitGroupNumber::NONE, CommitGroupNumber::NONE);
    let (places, contents) = append_contents(&mut log, &[900, 100_000]).await;
    let never =
        StoredBody { place: BodyRef::in_log(CommitGroupNumber(99), 0).expect("in range"), size_bytes: 1 };
    let failed = log.gather(6, vec![vec![places[0]], vec![never]]).await;
    assert!(matches!(failed, Err(ReadError::Gone(_))), "{failed:?}");
    let limit = GATHERED_BYTES_MAX as usize / 100_000;
    let failed = log.gather(6, vec![vec![places[1]; limit + 1]]).await;
    assert!(matches!(failed, Err(ReadError::TooLarge { .. })), "{failed:?}");
    let most = gather(&mut log, 6, &[&vec![places[1]; limit]]).await;
    assert_eq!(read(&log, &most).await, [contents[1].repeat(limit)]);
    let fine = gather(&mut log, 6, &[&places[..1]]).await;
    assert_eq!(read(&log, &fine).await, [&contents[0][..]]);
}

async fn an_older_owner_gathers_nothing<J: Journal>(mut start: impl FnMut() -> J) {
    let journal = start();
    let mut older = open_new(&journal, SHARD).await;
    older.trim(CommitGroupNumber::NONE, CommitGroupNumber::NONE);
    let (places, contents) = append_contents(&mut older, &[100, 200]).await;
    let early = gather(&mut older, 1, &[&places]).await;
    let (mut newer, _) = open(&journal, SHARD).await;
    assert!(matches!(older.gather(1, vec![places.clone()]).await, Err(ReadError::Poisoned(_))));
    newer.remember_cold(&early);
    newer.trim(CommitGroupNumber::NONE, CommitGroupNumber::NONE);
    older.forget_cold(&early);
    let late = gather(&mut newer, 1, &[&places]).await;
    assert_eq!(read(&newer, &[early[0], late[0]]).await, [contents.concat(), contents.concat()]);
}

type Gathering = Pin<Box<dyn Future<Output = Result<Vec<StoredBody>, ReadError>> + Send>>;

/// More streams than a journal would keep files open for, some of which end in between.
async fn many_streams_are_gathered_at_once<J: Journal>(mut start: impl FnMut() -> J) {
    const STREAMS: usize = 100;
    let journal = start();
    let mut log = open_new(&journal, SHARD).await;
    log.trim(CommitGroupNumber::NONE, CommitGroupNumber::NONE);
    let mut all: Vec<Vec<StoredBody>> = vec![Vec::new(); STREAMS];
    let mut expected: Vec<Vec<Vec<u8>>> = vec![Vec::new(); STREAMS];
    for round in 0..3 {
        let sizes: Vec<usize> = (0..STREAMS).map(|stream| 40 + stream + round).collect();
        let (places, contents) = append_contents(&mut log, &sizes).await;
        let mut gathering: Vec<Gathering> = Vec::new();
        for (stream, place) in (0..).zip(&places) {
            gathering.push(Box::pin(log.gather(stream, vec![vec![*place]])));
        }
        for (stream, gathered) in gathering.into_iter().enumerate() {
            all[stream].extend(gathered.await.expect("bodies can be gathered"));
            expected[stream].push(contents[stream].clone());
        }
        for stream in (round..STREAMS).step_by(7) {
            log.forget_cold(&std::mem::take(&mut all[stream]));
            expected[stream].clear();
        }
    }
    for (bodies, expected) in all.iter().zip(&expected) {
        assert_eq!(read(&log, bodies).await, *expected);
    }
    drop((log, journal));
    let (mut log, _) = open(&start(), SHARD).await;
    log.remember_cold(&all.concat());
    log.trim(CommitGroupNumber::NONE, CommitGroupNumber::NONE);
    assert_eq!(read(&log, &all.concat()).await, expected.concat());
}

async fn one_that_fails_takes_no_other_along<J: Journal>(mut start: impl FnMut() -> J) {
    let journal = start();
    let mut log = open_new(&journal, SHARD).await;
    log.trim(CommitGroupNumber::NONE, CommitGroupNumber::NONE);
    let (places, contents) = append_contents(&mut log, &[5_000; 12]).await;
    let never =
        StoredBody { place: BodyRef::in_log(CommitGroupNumber(99), 0).expect("in range"), size_bytes: 1 };
    let mut gathering: Vec<Gathering> = Vec::new();
    for (stream, place) in (0..).zip(&places) {
        let second = if stream % 4 == 2 { never } else { *place };
        gathering.push(Box::pin(log.gather(stream, vec![vec![*place], vec![second]])));
    }
    for (stream, gathered) in gathering.into_iter().enumerate() {
        match gathered.await {
            Ok(bodies) => assert_eq!(read(&log, &bodies).await, [&contents[stream][..]; 2]),
            Err(error) => assert!(stream % 4 == 2 && matches!(error, ReadError::Gone(_)), "{error}"),
        }
    }
}
