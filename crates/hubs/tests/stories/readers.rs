use peeklock_hubs::{Error, ReaderEnd, ReaderSpec, StartAt};
use peeklock_types::{
    CommitGroupNumber, ExpiredPosition, HubId, HubSettings, QueueStatus, ReceiverId, limits,
};

use crate::shard::{Shard, at, group, reader, settings};

fn with_level(level: i64, name: &str) -> ReaderSpec {
    ReaderSpec { owner_level: Some(level), name: Some(name.into()), ..reader(StartAt::Earliest) }
}

#[test]
fn the_owner_level_decides_which_readers_stay() {
    let (mut shard, stream) = Shard::with_stream(settings());
    for id in 0..5 {
        shard.attach(stream, id, reader(StartAt::Earliest)).unwrap();
    }
    let sixth = shard.attach(stream, 5, reader(StartAt::Earliest));
    let sixth = sixth.unwrap_err().to_string();
    assert!(sixth.contains("which is 5. List of connected receivers - nil, nil, nil, nil, nil."), "{sixth}");
    let elsewhere = ReaderSpec { group: group("audit"), ..reader(StartAt::Earliest) };
    shard.attach(stream, 6, elsewhere).unwrap();

    shard.attach(stream, 7, with_level(3, "seven")).unwrap();
    let ended: Vec<_> = shard.out.ended.drain(..).collect();
    assert_eq!(ended.iter().map(|(id, _)| id.0).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    let (by, level) = (Some("seven".to_owned()), 3);
    assert_eq!(ended[0].1, ReaderEnd::Stolen { by, level, name: None, own_level: None });

    let below = shard.attach(stream, 8, with_level(2, "eight")).unwrap_err().to_string();
    assert!(
        below.starts_with(
            "Receiver 'seven' with a higher epoch '3' already exists. Receiver 'eight' with epoch 2"
        ),
        "{below}"
    );
    assert!(below.contains("Received: 2, Current: 3"), "{below}");
    let without = shard.attach(stream, 8, reader(StartAt::Earliest));
    let without = without.unwrap_err().to_string();
    assert!(
        without.contains("with epoch of '3', and so non-epoch receiver is not allowed. Either"),
        "{without}"
    );
    assert!(shard.hubs.has_reader(ReceiverId(7)) && shard.out.ended.is_empty());

    shard.attach(stream, 9, with_level(3, "nine")).unwrap();
    let (by, name) = (Some("nine".to_owned()), Some("seven".to_owned()));
    let stolen = ReaderEnd::Stolen { by, level: 3, name, own_level: Some(3) };
    assert_eq!(shard.out.ended, [(ReceiverId(7), stolen)]);
    assert!(!shard.hubs.has_reader(ReceiverId(7)) && shard.hubs.has_reader(ReceiverId(6)));
    assert!(shard.hubs.detach_reader(ReceiverId(9)));
    shard.attach(stream, 10, reader(StartAt::Earliest)).unwrap();
}

#[test]
fn a_reader_that_cannot_start_displaces_no_other() {
    let (mut shard, stream) = Shard::with_stream(settings());
    shard.attach(stream, 1, reader(StartAt::Earliest)).unwrap();
    let start = StartAt::Sequence { sequence: 9, inclusive: true };
    let beyond = shard.attach(stream, 2, ReaderSpec { start, ..with_level(1, "x") });
    assert!(matches!(beyond, Err(Error::BeyondEnd { .. })));
    let long = "x".repeat(limits::OWNER_CHARS_MAX + 1);
    assert!(matches!(shard.attach(stream, 2, with_level(1, &long)), Err(Error::OwnerName { .. })));
    assert!(shard.hubs.has_reader(ReceiverId(1)) && shard.out.ended.is_empty());
}

#[test]
fn readers_take_turns_and_wait_at_the_end() {
    let (mut shard, stream) = Shard::with_stream(settings());
    shard.open_reader(stream, 1, StartAt::Earliest);
    shard.open_reader(stream, 2, StartAt::Latest);
    assert_eq!(shard.read_all(), []);
    shard.send(1, stream, 3);
    assert_eq!(shard.read_all(), [(1, 0, 3), (2, 0, 3)]);
    shard.send(2, stream, 1);
    let run = shard.run().unwrap();
    assert_eq!(run.newest_group, CommitGroupNumber(1));
    assert_eq!((run.last.sequence, run.last.at), (3, Some(at(2))));
    shard.send(3, stream, 1);
    assert_eq!(shard.read_all(), [(2, 3, 5)], "a reader has one run at a time");
    shard.hubs.run_done(run.reader);
    assert_eq!(shard.read_all(), [(1, 4, 5)]);
    let traffic = shard.hubs.traffic(stream);
    let stored = shard.hubs.stream(stream).unwrap().size_bytes;
    assert_eq!((traffic.read_events, traffic.received_bytes, traffic.read_bytes), (10, stored, 2 * stored));
    shard.send(4, stream, 1);
    let run = shard.run().unwrap();
    shard.hubs.run_failed(&run);
    assert_eq!(shard.hubs.traffic(stream).read_events, 10, "undelivered events do not count");
}

#[test]
fn credit_and_window_limit_deliveries() {
    let (mut shard, stream) = Shard::with_stream(settings());
    (0..4).for_each(|_| shard.send(1, stream, 10));
    let id = shard.attach(stream, 1, reader(StartAt::Earliest)).unwrap();
    shard.hubs.set_reader_limit(id, 15);
    assert_eq!(shard.read_all(), [], "the reader has no window yet");
    shard.hubs.add_reader_window(id, 500);
    let run = shard.run().unwrap();
    assert_eq!((run.from, run.upto, run.window_bytes, run.bodies.len()), (0, 10, 1000, 1));
    shard.hubs.run_done(id);
    assert_eq!(shard.read_all(), []);
    shard.hubs.add_reader_window(id, 5000);
    let run = shard.run().unwrap();
    assert_eq!((run.from, run.upto, run.window_bytes, run.bodies.len()), (10, 15, 500, 1));
    assert!(shard.hubs.is_current(&run), "nothing has moved");
    shard.hubs.run_failed(&run);
    assert_eq!(shard.read_all(), [(1, 10, 15)]);
    shard.hubs.set_reader_limit(id, 100);
    let run = shard.hubs.next_run(1500, &mut shard.out).unwrap();
    assert_eq!((run.from, run.upto), (15, 20), "two extents would exceed the window");
}

#[test]
fn a_reader_of_single_events_holds_few_extents_in_memory() {
    let (mut shard, stream) = Shard::with_stream(settings());
    shard.send(1, stream, 1000);
    let id = shard.attach(stream, 1, reader(StartAt::Earliest)).unwrap();
    shard.hubs.add_reader_window(id, 100_000);
    let mut run_count = 0;
    for limit in 1..1000 {
        shard.hubs.set_reader_limit(id, limit);
        run_count += shard.read_all().len();
    }
    assert_eq!(run_count, 16, "each run uses a sixteenth of an extent with 100,000 bytes");
}

#[test]
fn a_drain_ends_at_the_end_or_at_the_limit() {
    let (mut shard, stream) = Shard::with_stream(settings());
    shard.send(1, stream, 3);
    let id = shard.open_reader(stream, 1, StartAt::Earliest);
    shard.hubs.drain_reader(id, true);
    let run = shard.run().unwrap();
    assert_eq!(shard.hubs.take_drained(), []);
    shard.hubs.run_done(run.reader);
    assert_eq!(shard.hubs.take_drained(), [id]);
    assert_eq!(shard.hubs.take_drained(), []);
    shard.send(2, stream, 3);
    assert_eq!(shard.read_all(), [], "the rest of the limit is used up");
    shard.hubs.set_reader_limit(id, 5);
    assert_eq!(shard.read_all(), [(1, 3, 5)]);
    shard.hubs.drain_reader(id, true);
    assert_eq!(shard.hubs.take_drained(), [id], "the drain ends at the limit");
}

#[test]
fn a_reader_behind_retention_gets_an_error() {
    let (mut shard, stream) = Shard::with_stream(settings());
    shard.send(1000, stream, 3);
    shard.send(2000, stream, 3);
    let slow = shard.attach(stream, 1, reader(StartAt::Earliest)).unwrap();
    shard.open_reader(stream, 2, StartAt::Earliest);
    let run = shard.hubs.next_run(300, &mut shard.out).unwrap();
    assert_eq!((run.reader.0, run.upto), (2, 3));
    shard.hubs.retire(at(11_000), &mut shard.out);
    let expired = ReaderEnd::Expired { next: 0, first: 3 };
    assert_eq!(shard.out.ended, [(slow, expired.clone())]);
    assert!(!shard.hubs.is_current(&run));
    shard.hubs.run_failed(&run);
    assert_eq!(shard.read_all(), []);
    assert_eq!(shard.out.ended[1], (ReceiverId(2), expired));

    shard.open(0, HubSettings { expired_position: ExpiredPosition::Earliest, ..settings() });
    let patient = shard.attach(stream, 3, reader(StartAt::Earliest)).unwrap();
    shard.send(5000, stream, 2);
    shard.hubs.retire(at(12_000), &mut shard.out);
    shard.hubs.set_reader_limit(patient, 100);
    shard.hubs.add_reader_window(patient, 10_000);
    assert_eq!(shard.read_all(), [(3, 6, 8)]);
}

#[test]
fn a_reader_without_credit_gets_the_error_of_retired_events_too() {
    let (mut shard, stream) = Shard::with_stream(settings());
    shard.send(1000, stream, 3);
    let id = shard.open_reader(stream, 1, StartAt::Earliest);
    let run = shard.run().unwrap();
    shard.hubs.set_reader_limit(id, 0);
    shard.hubs.retire(at(11_000), &mut shard.out);
    assert_eq!(shard.out.ended, [], "the reader may have read the events in time");
    shard.hubs.run_failed(&run);
    assert_eq!(shard.read_all(), []);
    assert_eq!(shard.out.ended, [(id, ReaderEnd::Expired { next: 0, first: 3 })]);
}

#[test]
fn readers_end_with_their_hub_or_consumer_group() {
    let (mut shard, stream) = Shard::with_stream(settings());
    let audit = |start| ReaderSpec { group: group("audit"), ..reader(start) };
    shard.attach(stream, 1, audit(StartAt::Earliest)).unwrap();
    shard.attach(stream, 2, reader(StartAt::Earliest)).unwrap();
    shard.hubs.end_group(HubId(7), &group("AUDIT"), 2, &mut shard.out);
    assert_eq!(shard.out.ended, [(ReceiverId(1), ReaderEnd::Deleted)]);
    let late = shard.attach(stream, 1, audit(StartAt::Earliest));
    assert!(
        matches!(late, Err(Error::NoSuchGroup { .. })),
        "it read the hub before the consumer group was deleted"
    );
    let again = ReaderSpec { hub_revision: 3, ..audit(StartAt::Earliest) };
    shard.attach(stream, 1, again).unwrap();
    shard.hubs.detach_reader(ReceiverId(1));
    shard.open(0, HubSettings { status: QueueStatus::ReceiveDisabled, ..settings() });
    assert_eq!(shard.out.ended[1], (ReceiverId(2), ReaderEnd::Disabled));
    let refused = shard.attach(stream, 3, reader(StartAt::Earliest));
    assert!(matches!(refused, Err(Error::Disabled { .. })));
    shard.open(0, settings());
    shard.open_reader(stream, 4, StartAt::Earliest);
    shard.hubs.delete_stream(HubId(7), 0, &mut shard.out);
    assert_eq!(shard.out.ended[2], (ReceiverId(4), ReaderEnd::Deleted));
    assert!(shard.run().is_none());
}
