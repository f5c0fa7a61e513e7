use std::time::Duration;

use peeklock_hubs::{Error, Gather, Output, Prepared, Producer};
use peeklock_types::{CommitGroupNumber, ConsumerGroup, HubId, HubSettings, QueueStatus, limits};

use crate::shard::{Shard, at, group, name, settings};

#[test]
fn hubs_are_created_changed_listed_and_deleted() {
    let mut shard = Shard::default();
    let Shard { hubs, out, .. } = &mut shard;
    for hub in ["b", "a", "c"] {
        let groups = [group("audit"), ConsumerGroup::default_group(), group("AUDIT")];
        let view = hubs.create_hub(at(1), name(hub), HubId(1), settings(), &groups, out).unwrap();
        assert_eq!(view.groups.len(), 2);
    }
    let again = hubs.create_hub(at(1), name("A"), HubId(1), settings(), &[], out);
    assert_eq!(again, Err(Error::HubExists { name: name("A") }));
    let names = |after| hubs.hubs_after(after).map(|hub| hub.name.to_string()).collect::<Vec<_>>();
    assert_eq!(names(None), ["a", "b", "c"]);
    assert_eq!(names(Some(&name("a"))), ["b", "c"]);

    let more = HubSettings { partition_count: 8, ..settings() };
    let revision = hubs.hub(&name("a")).unwrap().revision;
    let changed = hubs.update_hub(at(2), &name("a"), more.clone(), Some(revision), out).unwrap();
    assert_eq!((changed.settings.partition_count, changed.revision), (8, revision + 1));
    let stale = hubs.update_hub(at(3), &name("a"), more, Some(revision), out);
    assert_eq!(stale, Err(Error::Changed { name: name("a") }));
    assert!(matches!(hubs.update_hub(at(3), &name("a"), settings(), None, out), Err(Error::Settings(_))));

    hubs.update_group(at(4), &name("a"), group("audit"), Some("x".into()), out).unwrap();
    let long = Some("x".repeat(limits::USER_METADATA_CHARS_MAX + 1));
    assert!(hubs.update_group(at(4), &name("a"), group("audit"), long, out).is_err());
    let exists = hubs.create_group(at(4), &name("a"), group("audit"), None, out);
    assert!(matches!(exists, Err(Error::GroupExists { .. })));
    let default = ConsumerGroup::default_group();
    assert_eq!(hubs.delete_group(&name("a"), &default, out), Err(Error::DefaultGroup));
    assert_eq!(hubs.delete_group(&name("a"), &group("audit"), out).unwrap().groups.len(), 1);
    assert!(matches!(hubs.delete_group(&name("a"), &group("audit"), out), Err(Error::NoSuchGroup { .. })));
    hubs.delete_hub(&name("a"), None, out).unwrap();
    assert!(!hubs.contains_hub(&name("a")));
    assert!(matches!(hubs.hub(&name("a")), Err(Error::NoSuchHub { .. })));
    shard.check();
}

#[test]
fn events_are_numbered_and_times_never_fall() {
    let (mut shard, stream) = Shard::with_stream(settings());
    shard.send(100, stream, 3);
    shard.send(50, stream, 1);
    let view = shard.hubs.stream(stream).unwrap();
    assert_eq!((view.begin_sequence, view.next_sequence, view.size_bytes), (0, 4, 400));
    assert_eq!(view.last_enqueued_at, Some(at(100)));
    assert_eq!(shard.hubs.prepare(at(9), stream, 0, None), Ok(Prepared::Duplicate));
    shard.check();
}

#[test]
fn the_time_of_an_event_is_known_approximately() {
    let (mut shard, stream) = Shard::with_stream(settings());
    [1000, 2000, 4000].into_iter().for_each(|now| shard.send(now, stream, 2));
    let times = |shard: &Shard| {
        let at = |sequence| shard.hubs.enqueued_at(stream, sequence).map(|at| at.as_millis());
        [0, 1, 2, 5, 6].map(at)
    };
    assert_eq!(times(&shard), [Some(1000), Some(1000), Some(2000), Some(4000), None]);
    shard.gather(1, 1 << 19);
    assert_eq!(times(&shard), [Some(1000), Some(1600), Some(2200), Some(4000), None]);
    shard.send(5000, stream, 1);
    shard.hubs.retire(at(14_000), &mut shard.out);
    assert_eq!(shard.hubs.enqueued_at(stream, 0), Some(at(5000)), "the first existing event");
}

#[test]
fn a_stream_with_the_same_settings_produces_no_fact() {
    let (mut shard, stream) = Shard::with_stream(settings());
    let facts = shard.out.facts.len();
    assert_eq!(shard.open(0, settings()), stream);
    assert_eq!(shard.out.facts.len(), facts);
    let odd = HubSettings { retention: Some(Duration::from_micros(2_000_500)), ..settings() };
    assert_eq!(shard.open(0, odd.clone()), stream);
    assert_eq!(shard.open(0, odd), stream);
    assert_eq!(shard.out.facts.len(), facts + 1);
    shard.check();
    let closed = HubSettings { status: QueueStatus::SendDisabled, ..settings() };
    shard.open(0, closed);
    assert!(matches!(shard.send_by(1, stream, 1, None), Err(Error::Disabled { .. })));
}

#[test]
fn a_stream_number_is_never_reused() {
    let (mut shard, stream) = Shard::with_stream(settings());
    assert!(shard.hubs.delete_stream(HubId(7), 0, &mut shard.out));
    assert!(!shard.hubs.delete_stream(HubId(7), 0, &mut shard.out));
    shard.check();
    assert_eq!(shard.hubs.find_stream(HubId(7), 0), Err(Error::NoSuchStream { hub: HubId(7), partition: 0 }));
    let restored = peeklock_hubs::Hubs::restore(&shard.snapshot()).unwrap();
    shard.hubs = restored;
    assert!(shard.open(0, settings()) > stream);
    assert_eq!(shard.hubs.prepare(at(0), stream, 1, None), Err(Error::StreamGone { stream }));
    shard.check();
}

#[test]
fn a_repeated_send_is_not_stored_again() {
    let (mut shard, stream) = Shard::with_stream(settings());
    let by = |sequence| Some(Producer { id: -5, epoch: 3, sequence });
    assert_eq!(shard.send_by(1, stream, 4, by(i32::MAX - 1)), Ok(true));
    assert_eq!(shard.hubs.producer(stream, -5), by(1));
    assert_eq!(shard.send_by(1, stream, 4, by(i32::MAX - 1)), Ok(false));
    let gap = Err(Error::OutOfOrderSequence { last: 1, found: 3 });
    assert_eq!(shard.send_by(1, stream, 1, by(3)), gap);
    assert_eq!(shard.send_by(1, stream, 1, by(2)), Ok(true));
    assert_eq!(shard.hubs.stream(stream).unwrap().next_sequence, 5);
    shard.check();
}

#[test]
fn old_events_are_retired_and_their_bodies_freed() {
    let (mut shard, stream) = Shard::with_stream(settings());
    shard.send(1000, stream, 2);
    shard.send(2000, stream, 2);
    shard.next_group();
    shard.send(3000, stream, 2);
    shard.gather(1, 1 << 19);
    assert_eq!(shard.hubs.oldest_log_body(), Some(CommitGroupNumber(2)));
    let cold: Vec<_> = shard.hubs.standalone_bodies().collect();
    assert_eq!(cold.len(), 1);
    shard.check();
    shard.hubs.retire(at(11_999), &mut shard.out);
    assert_eq!(
        shard.hubs.stream(stream).unwrap().begin_sequence,
        0,
        "the last event of the extent is not old enough"
    );
    shard.hubs.retire(at(12_000), &mut shard.out);
    assert_eq!(shard.hubs.stream(stream).unwrap().begin_sequence, 4);
    assert_eq!(shard.out.freed, cold);
    let facts = shard.out.facts.len();
    shard.hubs.retire(at(12_999), &mut shard.out);
    assert_eq!(shard.out.facts.len(), facts);
    shard.hubs.retire(at(13_000), &mut shard.out);
    let view = shard.hubs.stream(stream).unwrap();
    assert!(view.is_empty() && view.extent_count == 0 && view.size_bytes == 0);
    assert_eq!(view.last_enqueued_at, Some(at(3000)));
    assert_eq!(shard.hubs.oldest_log_body(), None);
    shard.check();
    shard.send(20_000, stream, 1);
    assert_eq!(shard.hubs.stream(stream).unwrap().begin_sequence, 6);
    shard.check();
}

#[test]
fn a_stream_keeps_approximately_its_byte_limit() {
    let few = HubSettings { retention: None, retention_bytes: Some(1000), ..settings() };
    let (mut shard, stream) = Shard::with_stream(few);
    (0..5).for_each(|now| shard.send(now, stream, 3));
    shard.hubs.retire(at(5), &mut shard.out);
    assert_eq!(shard.hubs.stream(stream).unwrap().begin_sequence, 6);
    assert_eq!(shard.hubs.stream(stream).unwrap().size_bytes, 900);
    shard.send(6, stream, 50);
    shard.hubs.retire(at(6), &mut shard.out);
    assert_eq!(
        shard.hubs.stream(stream).unwrap().extent_count,
        1,
        "the newest extent stays, whatever its size"
    );
    shard.check();
    let facts = shard.out.facts.len();
    shard.open(0, HubSettings { retention_bytes: Some(100), ..settings() });
    shard.hubs.retire(at(1_000_000), &mut shard.out);
    assert_eq!(shard.out.facts.len(), facts + 2);
}

#[test]
fn streams_are_gathered_evenly() {
    let (mut shard, first) = Shard::with_stream(settings());
    let others = [shard.open(1, settings()), shard.open(2, settings())];
    for _ in 0..100 {
        [first].iter().chain(&others).for_each(|stream| shard.send(1, *stream, 1));
    }
    let counts = |bytes_max, run_bytes_max| -> Vec<usize> {
        let gathers = shard.hubs.extents_in(CommitGroupNumber(1), bytes_max, run_bytes_max);
        let count = |gather: &Gather| gather.runs.iter().map(|run| run.bodies.len()).sum();
        gathers.iter().map(count).collect()
    };
    let [one, ..] = counts(1, 1)[..] else { panic!("nothing to gather") };
    assert_eq!(one, 1);
    let even = counts(9000, 1000);
    assert!(even.len() == 3 && even.iter().all(|count| *count == even[0]), "{even:?}");
    let few = counts(3000, 3000);
    assert_eq!(few.len(), 1, "a run of one is worth more than a piece of each");
}

#[test]
fn small_neighbours_become_one_and_a_large_one_stays_alone() {
    let (mut shard, stream) = Shard::with_stream(settings());
    let other = shard.open(1, settings());
    for count in [1, 1, 1, 20, 1, 1] {
        shard.send(1, stream, count);
    }
    shard.send(1, other, 1);
    shard.next_group();
    shard.send(2, stream, 1);
    let gathers = shard.hubs.extents_in(CommitGroupNumber(1), u64::MAX, 1000);
    let sizes: Vec<Vec<_>> =
        gathers.iter().map(|gather| gather.runs.iter().map(|run| run.bodies.len()).collect()).collect();
    assert_eq!(sizes, [vec![3, 1, 2], vec![1]]);
    assert_eq!(gathers[0].runs[1].first_sequence, 3);
    let some = shard.hubs.extents_in(CommitGroupNumber(1), 250, 1000);
    assert_eq!(some.len(), 1, "a call returns no more than requested");
    let runs: Vec<_> = some[0].runs.iter().map(|run| run.bodies.len()).collect();
    assert_eq!(runs, [2]);
    shard.gather(1, 1000);
    let view = shard.hubs.stream(stream).unwrap();
    assert_eq!((view.extent_count, view.next_sequence, view.size_bytes), (4, 26, 2600));
    assert!(shard.hubs.standalone_bodies().all(|(body, _)| body.is_standalone()));
    assert!(!shard.hubs.gathered(
        stream,
        &gathers[0].runs[0],
        gathers[0].runs[0].bodies[0].0,
        1,
        &mut Output::default()
    ));
    shard.check();
    shard.hubs.delete_stream(HubId(7), 0, &mut shard.out);
    assert_eq!(shard.out.freed.len(), 3);
    shard.check();
}
