//! Lost events: a reader that reaches them gets an error, all others continue, and nothing is held up by them.

use peeklock_hubs::{ReaderEnd, StartAt, StreamId};
use peeklock_types::{BodyRef, CommitGroupNumber, ExpiredPosition, HubSettings};

use crate::shard::{Shard, at, settings};

impl Shard {
    /// Damages the extent with this event.
    fn lose(&mut self, stream: StreamId, sequence: u64) -> std::ops::Range<u64> {
        let place = self.place(stream, sequence);
        let lost = self.hubs.lose_extent(stream, sequence, place, &mut self.out).unwrap();
        assert_eq!(
            self.hubs.lose_extent(stream, sequence, place, &mut self.out),
            None,
            "an extent is lost only once"
        );
        self.check();
        lost
    }

    /// Returns the place of the extent with this event.
    fn place(&mut self, stream: StreamId, sequence: u64) -> BodyRef {
        let id = self.open_reader(stream, 99, StartAt::Sequence { sequence, inclusive: true });
        let place = self.run().unwrap().bodies[0].0;
        self.hubs.detach_reader(id);
        place
    }
}

fn forgiving() -> HubSettings {
    HubSettings { expired_position: ExpiredPosition::Earliest, ..settings() }
}

#[test]
fn a_reader_that_reaches_lost_events_is_ended_with_the_next_position() {
    let (mut shard, stream) = Shard::with_stream(settings());
    for _ in 0..4 {
        shard.send(1000, stream, 2);
    }
    assert_eq!(shard.lose(stream, 3), 2..4);
    let id = shard.open_reader(stream, 1, StartAt::Earliest);
    assert_eq!(shard.read_all(), [(1, 0, 2)]);
    assert_eq!(shard.out.ended, [(id, ReaderEnd::Lost { from: 2, upto: 4 })]);
    let again = shard.open_reader(stream, 2, StartAt::Sequence { sequence: 1, inclusive: false });
    assert_eq!(shard.read_all(), []);
    assert_eq!(shard.out.ended[1], (again, ReaderEnd::Lost { from: 2, upto: 4 }));
    shard.open_reader(stream, 3, StartAt::Sequence { sequence: 4, inclusive: true });
    assert_eq!(shard.read_all(), [(3, 4, 8)]);
}

#[test]
fn a_hub_can_let_readers_continue_after_lost_events() {
    let (mut shard, stream) = Shard::with_stream(forgiving());
    for _ in 0..4 {
        shard.send(1000, stream, 2);
    }
    for sequence in [2, 4, 6] {
        shard.lose(stream, sequence);
    }
    shard.open_reader(stream, 1, StartAt::Earliest);
    assert_eq!(shard.read_all(), [(1, 0, 2)]);
    shard.send(1000, stream, 1);
    assert_eq!(shard.read_all(), [(1, 8, 9)], "the reader waits at the end like any other");
    assert_eq!(shard.out.ended, []);
}

#[test]
fn the_earliest_event_is_a_readable_one() {
    let (mut shard, stream) = Shard::with_stream(settings());
    shard.send(1000, stream, 2);
    shard.send(1000, stream, 2);
    shard.lose(stream, 0);
    shard.open_reader(stream, 1, StartAt::Earliest);
    assert_eq!(shard.read_all(), [(1, 2, 4)]);
}

#[test]
fn lost_events_hold_no_commit_group_and_are_not_gathered() {
    let (mut shard, stream) = Shard::with_stream(forgiving());
    for _ in 0..6 {
        shard.send(1000, stream, 2);
        shard.next_group();
    }
    shard.lose(stream, 4);
    assert_eq!(
        shard.hubs.oldest_log_body(),
        Some(CommitGroupNumber(1)),
        "other extents come before the lost ones"
    );
    shard.lose(stream, 0);
    assert_eq!(shard.hubs.oldest_log_body(), Some(CommitGroupNumber(2)));
    shard.gather(4, u32::MAX);
    shard.check();
    assert_eq!(shard.hubs.oldest_log_body(), Some(CommitGroupNumber(5)));
    let view = shard.hubs.stream(stream).unwrap();
    assert_eq!((view.begin_sequence, view.next_sequence, view.size_bytes), (0, 12, 800));
    shard.open_reader(stream, 1, StartAt::Earliest);
    assert_eq!(shard.read_all(), [(1, 2, 4), (1, 6, 12)]);
}

#[test]
fn the_place_of_a_lost_extent_is_freed_once() {
    let (mut shard, stream) = Shard::with_stream(settings());
    shard.send(1000, stream, 2);
    shard.send(1000, stream, 2);
    shard.next_group();
    shard.gather(1, 1);
    let place = shard.place(stream, 0);
    shard.lose(stream, 0);
    assert_eq!(shard.out.freed, [(place, 200)]);
    assert_eq!(shard.hubs.standalone_bodies().count(), 1);
    shard.hubs.retire(at(100_000), &mut shard.out);
    shard.check();
    assert_eq!(shard.out.freed.len(), 2);
    assert!(shard.hubs.stream(stream).unwrap().is_empty());
}

#[test]
fn the_damaged_extent_is_found_by_reading_one_after_the_other() {
    let (mut shard, stream) = Shard::with_stream(settings());
    for _ in 0..4 {
        shard.send(1000, stream, 2);
    }
    shard.open_reader(stream, 1, StartAt::Earliest);
    let all = shard.run().unwrap();
    assert_eq!((all.bodies.len(), shard.hubs.run_damaged(&all)), (4, false));
    let first = shard.run().unwrap();
    assert_eq!((first.bodies.len(), first.from, first.upto), (1, 0, 2));
    shard.hubs.run_done(first.reader);
    let second = shard.run().unwrap();
    assert_eq!((second.bodies.len(), second.from), (1, 2));
    assert!(shard.hubs.run_damaged(&second), "the extent was read again, alone");
    assert_eq!(shard.run().unwrap().from, 2, "nothing is skipped");
}
