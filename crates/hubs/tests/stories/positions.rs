use peeklock_hubs::{Error, StartAt};
use peeklock_types::{ExpiredPosition, HubSettings};

use crate::shard::{Shard, at, reader, settings};

fn after(sequence: u64) -> StartAt {
    StartAt::Sequence { sequence, inclusive: false }
}

fn from(sequence: u64) -> StartAt {
    StartAt::Sequence { sequence, inclusive: true }
}

/// Returns the first event of a reader with this start.
fn place(shard: &mut Shard, start: StartAt) -> Result<u64, Error> {
    let stream = shard.hubs.streams().next().unwrap().0;
    let id = shard.attach(stream, 99, reader(start))?;
    let next = shard.hubs.stream(stream).unwrap().readers[0].next_sequence;
    assert!(shard.hubs.detach_reader(id));
    Ok(next)
}

#[test]
fn a_position_beyond_the_end_is_rejected() {
    let (mut shard, stream) = Shard::with_stream(settings());
    let beyond = |given, last| Err(Error::BeyondEnd { partition: 0, given, last });
    assert_eq!(place(&mut shard, from(0)), Ok(0));
    assert_eq!(place(&mut shard, after(0)), beyond(0, -1));
    shard.send(1, stream, 4);
    assert_eq!(place(&mut shard, StartAt::Latest), Ok(4));
    assert_eq!(place(&mut shard, after(3)), Ok(4));
    assert_eq!(place(&mut shard, from(4)), Ok(4));
    assert_eq!(place(&mut shard, after(4)), beyond(4, 3));
    assert_eq!(place(&mut shard, from(5)), beyond(5, 3));
    assert_eq!(place(&mut shard, after(u64::MAX)), beyond(u64::MAX, 3));
}

#[test]
fn a_position_before_retention_is_rejected_or_becomes_the_earliest() {
    let (mut shard, stream) = Shard::with_stream(settings());
    shard.send(1000, stream, 4);
    shard.send(2000, stream, 4);
    shard.hubs.retire(at(11_000), &mut shard.out);
    let expired = |given| Err(Error::Expired { partition: 0, given, first: 4 });
    assert_eq!(place(&mut shard, StartAt::Earliest), Ok(4));
    assert_eq!(place(&mut shard, after(3)), Ok(4));
    assert_eq!(place(&mut shard, after(2)), expired(3));
    assert_eq!(place(&mut shard, from(3)), expired(3));
    shard.open(0, HubSettings { expired_position: ExpiredPosition::Earliest, ..settings() });
    assert_eq!(place(&mut shard, from(0)), Ok(4));
    shard.hubs.retire(at(20_000), &mut shard.out);
    assert_eq!(place(&mut shard, StartAt::Earliest), Ok(8), "the stream is empty, but not new");
    assert_eq!(place(&mut shard, after(7)), Ok(8));
}

#[test]
fn a_time_is_resolved_to_its_extent() {
    let (mut shard, stream) = Shard::with_stream(settings());
    [1000, 2000, 3000].into_iter().for_each(|now| shard.send(now, stream, 2));
    let time = |millis, inclusive| StartAt::Time { at: at(millis), inclusive };
    for (start, wanted) in [
        (time(0, true), 0),
        (time(1000, true), 0),
        (time(1000, false), 2),
        (time(1999, false), 2),
        (time(3000, true), 4),
        (time(3000, false), 6),
        (time(9000, true), 6),
    ] {
        assert_eq!(place(&mut shard, start), Ok(wanted), "{start:?}");
    }
    shard.gather(1, 1 << 19);
    let id = shard.open_reader(stream, 1, time(1000, false));
    let run = shard.run().unwrap();
    assert_eq!((run.from, run.upto, run.not_before), (0, 6, Some(at(1001))));
    shard.hubs.run_done(id);
    shard.send(4000, stream, 1);
    assert_eq!(shard.run().unwrap().not_before, None);
}
