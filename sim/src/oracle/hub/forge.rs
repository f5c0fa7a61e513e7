//! Logs of hubs with a broken broker, to show that each checker finds its violation.

use std::collections::BTreeMap;
use std::time::Duration;

use peeklock_broker::hubs::StartAt;
use peeklock_types::{ExpiredPosition, HubSettings};

use super::chronicle::Chronicle;
use super::{CHECKERS, Checker, events, links, owners, processors, retention};
use crate::log::{
    Answer, Event, EventNumber, Fate, HubEvent, LogLine, Numbered, Owned, ReadEnd, ReadEvent, Refusal, Stage,
};
use crate::scenario::hub::{PLAIN, WORKERS};
use crate::scenario::{Hub, Processors, Scenario};

const WALL_MS: u64 = 1_000_000;
const INTERVAL_MS: u64 = 1_000;
const RETENTION_MS: u64 = 60_000;

struct Forge {
    scenario: Scenario,
    entries: Vec<LogLine>,
    now_ms: u64,
    request: u32,
    etag: u64,
    /// The last record of each partition's owner.
    records: BTreeMap<u32, Owned>,
}

impl Forge {
    fn new() -> Forge {
        let mut scenario = Scenario::draw(1);
        let settings = HubSettings { partition_count: 2, retention: None, ..HubSettings::default() };
        let processors = Processors {
            count: 2,
            interval: Duration::from_millis(INTERVAL_MS),
            expiry: Duration::from_millis(5 * INTERVAL_MS),
            checkpoint_every: 1,
            changes_every_ms: 1000,
            fails_one_in: 0,
            is_wired: false,
        };
        scenario.hub = Some(Hub {
            name: "hub".to_owned(),
            settings,
            publishers: Vec::new(),
            readers: Vec::new(),
            processors: Some(processors),
            partition_count_max: 2,
            has_passing_group: false,
            call_ms_max: 1,
            lost_one_in: 0,
        });
        let mut forge =
            Forge { scenario, entries: Vec::new(), now_ms: 0, request: 0, etag: 0, records: BTreeMap::new() };
        forge.entry(Event::Started { run: 1, wall_ms: WALL_MS });
        forge
    }

    fn with_retention() -> Forge {
        let mut forge = Forge::new();
        forge.hub().settings.retention = Some(Duration::from_millis(RETENTION_MS));
        forge
    }

    fn hub(&mut self) -> &mut Hub {
        self.scenario.hub.as_mut().unwrap()
    }

    fn entry(&mut self, event: Event) {
        self.now_ms += 10;
        self.entries.push(LogLine { at_ms: self.now_ms, party: "party".into(), event });
    }

    fn add(&mut self, event: HubEvent) {
        self.entry(Event::Hub(event));
    }

    fn wait(&mut self, ms: u64) {
        self.now_ms += ms;
    }

    fn next_request(&mut self) -> u32 {
        self.request += 1;
        self.request
    }

    /// Returns the broker's clock.
    fn wall(&self) -> u64 {
        WALL_MS + self.now_ms - 10
    }

    fn publish_as(&mut self, numbers: &[EventNumber], numbered: Option<Numbered>, answer: Answer) {
        let (request, events) = (self.next_request(), numbers.to_vec());
        self.add(HubEvent::Publishing { request, partition: 0, events, numbered, size_bytes: 100, run: 1 });
        self.add(HubEvent::Published { request, answer });
    }

    fn publish(&mut self, numbers: &[EventNumber]) {
        self.publish_as(numbers, None, Answer::Done);
    }

    fn open_as(&mut self, group: usize, start: StartAt, level: Option<i64>) -> u32 {
        let link = self.next_request();
        self.add(HubEvent::Opening { link, group, partition: 0, start, level, run: 1, is_wired: false });
        self.add(HubEvent::Opened { link });
        link
    }

    fn open(&mut self, start: StartAt) -> u32 {
        self.open_as(PLAIN, start, None)
    }

    fn refuse(&mut self, start: StartAt, level: Option<i64>, refusal: Refusal) {
        let link = self.next_request();
        self.add(HubEvent::Opening {
            link,
            group: PLAIN,
            partition: 0,
            start,
            level,
            run: 1,
            is_wired: false,
        });
        self.add(HubEvent::NotOpened { link, refusal: Some(refusal) });
    }

    fn read(&mut self, link: u32, events: &[(u64, EventNumber)]) {
        let enqueued_ms = self.wall();
        let event = |(sequence, number): &(u64, EventNumber)| ReadEvent {
            sequence: *sequence,
            enqueued_ms,
            number: Some(*number),
            is_intact: true,
        };
        let events = events.iter().map(event).collect();
        self.add(HubEvent::Read { link, events });
    }

    /// Reads an event that was enqueued at a time of the broker's clock.
    fn read_at(&mut self, link: u32, (sequence, number): (u64, EventNumber), enqueued_ms: u64) {
        let events = vec![ReadEvent { sequence, enqueued_ms, number: Some(number), is_intact: true }];
        self.add(HubEvent::Read { link, events });
    }

    /// Reads everything at the end.
    fn read_out(&mut self, events: &[(u64, EventNumber)]) {
        let link = self.open_as(PLAIN, StartAt::Earliest, Some(i64::MAX));
        self.read(link, events);
    }

    fn look(&mut self, begin: u64, next: u64, readers: &[Option<i64>]) {
        let request = self.next_request();
        let readers = readers.iter().map(|level| ("$default".to_owned(), *level)).collect();
        self.add(HubEvent::Looking { request, partition: 0, run: 1 });
        self.add(HubEvent::Looked { request, begin, next, readers });
    }

    fn claim(&mut self, partition: u32, owner: &str, expected: Option<u64>, epoch: u64) -> u64 {
        self.etag += 1;
        self.claim_as(partition, owner, expected, epoch, self.etag)
    }

    fn claim_as(&mut self, partition: u32, owner: &str, expected: Option<u64>, epoch: u64, etag: u64) -> u64 {
        let (request, group, owner) = (self.next_request(), WORKERS, owner.to_owned());
        self.add(HubEvent::Claiming { request, group, partition, owner: owner.clone(), expected });
        let owned = Owned { partition, owner, epoch, etag };
        self.records.insert(partition, owned.clone());
        let owned = Some(owned);
        self.add(HubEvent::Claimed { request, answer: Answer::Done, owned });
        etag
    }

    fn checkpoint(&mut self, sequence: u64, owner: Option<(&str, u64)>, answer: Answer) {
        let (request, group) = (self.next_request(), WORKERS);
        let owner = owner.map(|(owner, epoch)| (owner.to_owned(), epoch));
        let sequence = Some(sequence);
        self.add(HubEvent::Checkpointing { request, group, partition: 0, sequence, owner });
        self.add(HubEvent::Checkpointed { request, answer });
    }

    fn list(&mut self, checkpoint: u64) {
        let request = self.next_request();
        self.add(HubEvent::Listing { request, group: WORKERS });
        let owned = self.records.values().cloned().collect();
        self.add(HubEvent::Listed { request, owned, checkpoints: vec![(0, checkpoint)] });
    }

    fn handle(&mut self, instance: &str, partition: u32, first: u64, last: u64) {
        self.add(HubEvent::Handled { instance: instance.to_owned(), partition, first, last });
    }

    fn fate(&mut self, instance: &str, fate: Fate) {
        self.add(HubEvent::Instance { instance: instance.to_owned(), fate });
    }

    fn stage(&mut self, stage: Stage) {
        self.add(HubEvent::Staged(stage));
    }

    /// Creates a log of two instances with one partition each, and returns the etags of both.
    fn shared() -> (Forge, u64, u64) {
        let mut forge = Forge::new();
        forge.stage(Stage::Start { count: 2 });
        forge.fate("worker-1", Fate::Started);
        forge.fate("worker-2", Fate::Started);
        let one = forge.claim(0, "worker-1", None, 1);
        let two = forge.claim(1, "worker-2", None, 1);
        forge.stage(Stage::Stay);
        (forge, one, two)
    }

    fn breaks(&self, check: Checker) -> bool {
        !check(&Chronicle::new(&self.scenario, &self.entries).unwrap()).is_empty()
    }
}

fn refused() -> Answer {
    Answer::Refused { lock_lost: true, why: "no".to_owned() }
}

const NUMBERED: Option<Numbered> = Some(Numbered { id: 1, epoch: 0, first: 0 });
const FROM_ONE: StartAt = StartAt::Sequence { sequence: 1, inclusive: true };

/// Creates a log without violations, to which a test adds some.
fn sound() -> Forge {
    let mut forge = Forge::new();
    forge.publish(&[1, 2]);
    forge.publish_as(&[3], NUMBERED, Answer::Unknown);
    forge.publish_as(&[3], NUMBERED, Answer::Done);
    let link = forge.open(StartAt::Earliest);
    forge.read(link, &[(0, 1), (1, 2), (2, 3)]);
    forge
}

#[test]
fn a_sound_log_breaks_no_promise() {
    let mut forge = sound();
    let link = forge.open(StartAt::Sequence { sequence: 2, inclusive: false });
    forge.publish(&[4]);
    forge.read(link, &[(3, 4)]);
    forge.add(HubEvent::ReadEnded { link, how: ReadEnd::Left });
    let etag = forge.claim(0, "one", None, 1);
    forge.checkpoint(2, Some(("one", 1)), Answer::Done);
    forge.handle("one", 0, 0, 3);
    forge.claim(0, "two", Some(etag), 2);
    forge.checkpoint(3, Some(("one", 1)), refused());
    forge.list(2);
    forge.checkpoint(0, None, Answer::Done);
    forge.list(0);
    for check in CHECKERS {
        let found = check(&Chronicle::new(&forge.scenario, &forge.entries).unwrap());
        assert!(found.is_empty(), "{found:?}");
    }
}

#[test]
fn an_invented_event_is_found() {
    let mut forge = sound();
    let link = forge.open(StartAt::Latest);
    forge.read(link, &[(3, 99)]);
    assert!(forge.breaks(events::nothing_is_invented));
    let mut forge = sound();
    forge.publish_as(&[4], None, refused());
    forge.read(1, &[(3, 4)]);
    let link = forge.open(StartAt::Latest);
    forge.read(link, &[(3, 4)]);
    assert!(forge.breaks(events::nothing_is_invented), "it was rejected");
}

#[test]
fn another_event_at_the_same_place_is_found() {
    let mut forge = sound();
    forge.publish(&[4]);
    let link = forge.open(FROM_ONE);
    forge.read(link, &[(1, 4)]);
    assert!(forge.breaks(events::one_place_one_event));
}

#[test]
fn a_second_copy_is_found() {
    let mut forge = sound();
    let link = forge.open(StartAt::Latest);
    forge.read(link, &[(3, 3)]);
    assert!(forge.breaks(events::nothing_is_stored_twice), "it was numbered");
    let mut forge = sound();
    let link = forge.open(StartAt::Latest);
    forge.read(link, &[(3, 1)]);
    assert!(forge.breaks(events::nothing_is_stored_twice), "it was sent once");
}

#[test]
fn a_batch_in_pieces_is_found() {
    let mut forge = sound();
    forge.publish(&[5, 6]);
    forge.publish(&[7]);
    let link = forge.open(StartAt::Latest);
    forge.read(link, &[(3, 5), (4, 7), (5, 6)]);
    assert!(forge.breaks(events::batches_stay_together));
}

#[test]
fn a_wrong_order_is_found() {
    let mut forge = sound();
    forge.publish(&[5]);
    forge.publish(&[6]);
    let link = forge.open(StartAt::Sequence { sequence: 3, inclusive: true });
    forge.read(link, &[(3, 6), (4, 5)]);
    assert!(forge.breaks(events::events_follow_the_sends));
}

#[test]
fn wrong_times_are_found() {
    let mut forge = sound();
    forge.publish(&[5]);
    let link = forge.open(StartAt::Sequence { sequence: 3, inclusive: true });
    let wall = forge.wall();
    forge.read_at(link, (3, 5), wall - 100);
    assert!(forge.breaks(events::times_never_fall), "earlier than its predecessor");
    let mut forge = sound();
    forge.publish(&[5]);
    let link = forge.open(StartAt::Sequence { sequence: 3, inclusive: true });
    forge.read_at(link, (3, 5), wall + 5_000);
    assert!(forge.breaks(events::times_never_fall), "later than the clock");
}

#[test]
fn a_rejected_repeat_is_found() {
    let mut forge = sound();
    forge.publish_as(&[9], NUMBERED, refused());
    assert!(forge.breaks(events::numbers_are_taken));
}

#[test]
fn a_lost_event_is_found() {
    let mut forge = sound();
    forge.look(0, 2, &[]);
    forge.read_out(&[(0, 1), (1, 2)]);
    forge.look(0, 2, &[]);
    assert!(forge.breaks(retention::nothing_confirmed_is_lost));
    assert!(forge.breaks(retention::what_was_seen_stays));
    let mut forge = sound();
    forge.look(0, 4, &[]);
    forge.read_out(&[(0, 1), (1, 2), (2, 3)]);
    forge.look(0, 4, &[]);
    assert!(forge.breaks(retention::nothing_confirmed_is_lost), "the end was not read");
}

#[test]
fn only_expired_events_may_be_retired() {
    let go_after = |ms| {
        let mut forge = Forge::with_retention();
        forge.publish(&[1]);
        let link = forge.open(StartAt::Earliest);
        forge.read(link, &[(0, 1)]);
        forge.wait(ms);
        forge.look(1, 1, &[]);
        forge.read_out(&[]);
        forge.look(1, 1, &[]);
        forge
    };
    let late = go_after(RETENTION_MS);
    assert!(
        !late.breaks(retention::nothing_goes_early) && !late.breaks(retention::nothing_confirmed_is_lost)
    );
    let early = go_after(RETENTION_MS / 2);
    assert!(
        early.breaks(retention::nothing_goes_early) && early.breaks(retention::nothing_confirmed_is_lost)
    );
}

#[test]
fn gaps_and_repeats_are_found() {
    for wrong in [[(0, 1), (2, 3)], [(1, 2), (1, 2)]] {
        let mut forge = sound();
        let link = forge.open(StartAt::Earliest);
        forge.read(link, &wrong);
        assert!(forge.breaks(links::links_have_no_gaps));
        forge.hub().settings.expired_position = ExpiredPosition::Earliest;
        assert!(forge.breaks(links::links_have_no_gaps), "no event had expired");
    }
}

#[test]
fn a_wrong_start_is_found() {
    let at = |ms| StartAt::Time { at: peeklock_types::Timestamp::from_millis(ms), inclusive: true };
    let wall = sound().wall();
    let wrong = [
        (StartAt::Earliest, (1, 2)),
        (StartAt::Latest, (2, 3)),
        (StartAt::Sequence { sequence: 0, inclusive: false }, (0, 1)),
        (StartAt::Sequence { sequence: 0, inclusive: false }, (2, 3)),
        (at(0), (1, 2)),
        (at(wall + 1_000_000), (2, 3)),
    ];
    for (start, first) in wrong {
        let mut forge = sound();
        let link = forge.open(start);
        forge.read(link, &[first]);
        assert!(forge.breaks(links::readers_start_where_they_asked), "{start:?} at {first:?}");
    }
}

#[test]
fn wrong_rejections_are_found() {
    let wrong = [
        (FROM_ONE, None, Refusal::BeyondEnd { last: 0 }),
        (FROM_ONE, None, Refusal::Expired { first: 2 }),
        (StartAt::Earliest, Some(3), Refusal::OwnerLevel { current: 2 }),
        (StartAt::Earliest, Some(3), Refusal::TooMany),
        (StartAt::Earliest, None, Refusal::Missing),
    ];
    for (start, level, refusal) in wrong {
        let mut forge = sound();
        forge.refuse(start, level, refusal.clone());
        assert!(forge.breaks(links::refusals_are_right), "{refusal:?}");
    }
    let ends = [ReadEnd::Stolen, ReadEnd::Deleted, ReadEnd::Expired { next: 0, first: 2 }];
    for how in ends {
        let mut forge = sound();
        let link = forge.open(StartAt::Earliest);
        forge.add(HubEvent::ReadEnded { link, how: how.clone() });
        assert!(forge.breaks(links::refusals_are_right), "{how:?}");
    }
}

#[test]
fn readers_beside_an_owner_are_found() {
    for (older, newer) in [(None, Some(0)), (Some(1), Some(1)), (Some(0), None)] {
        let mut forge = sound();
        let old = forge.open_as(PLAIN, StartAt::Earliest, older);
        forge.open_as(PLAIN, StartAt::Earliest, newer);
        assert!(!forge.breaks(links::nobody_reads_beside_an_owner));
        forge.read(old, &[(0, 1)]);
        assert!(forge.breaks(links::nobody_reads_beside_an_owner));
    }
}

#[test]
fn too_many_readers_are_found() {
    for (readers, is_wrong) in [
        (vec![None; 5], false),
        (vec![None; 6], true),
        (vec![Some(1)], false),
        (vec![Some(1), None], true),
        (vec![Some(1), Some(1)], true),
    ] {
        let mut forge = sound();
        forge.look(0, 3, &readers);
        assert_eq!(forge.breaks(links::readers_are_few), is_wrong, "{readers:?}");
    }
}

#[test]
fn too_many_readers_are_found_by_their_events() {
    for (count, is_wrong) in [(5, false), (6, true)] {
        let mut forge = sound();
        let links: Vec<_> = (0..count).map(|_| forge.open(StartAt::Latest)).collect();
        forge.publish(&[4]);
        links.iter().for_each(|link| forge.read(*link, &[(3, 4)]));
        assert_eq!(forge.breaks(links::readers_are_few), is_wrong, "{count}");
        // A reader that has left makes room, and only a later event shows that a reader is still attached.
        let mut forge = sound();
        for number in 4..4 + count {
            let link = forge.open(StartAt::Latest);
            forge.publish(&[number]);
            forge.read(link, &[(u64::from(number) - 1, number)]);
        }
        assert!(!forge.breaks(links::readers_are_few));
    }
}

#[test]
fn two_successful_claims_are_found() {
    let mut forge = Forge::new();
    forge.claim(0, "one", None, 1);
    forge.claim(0, "two", None, 1);
    assert!(forge.breaks(owners::one_claim_wins));
    let mut forge = Forge::new();
    let etag = forge.claim(0, "one", None, 1);
    forge.claim_as(0, "two", Some(etag), 2, etag);
    assert!(forge.breaks(owners::one_claim_wins), "one etag, two records");
}

#[test]
fn wrong_epochs_are_found() {
    for (owner, epoch, is_wrong) in
        [("two", 1, true), ("two", 2, false), ("one", 2, true), ("one", 1, false), ("", 1, false)]
    {
        let mut forge = Forge::new();
        let etag = forge.claim(0, "one", None, 1);
        forge.claim(0, owner, Some(etag), epoch);
        assert_eq!(forge.breaks(owners::epochs_grow), is_wrong, "{owner} {epoch}");
    }
    let mut forge = Forge::new();
    forge.claim(0, "one", None, 1);
    forge.records.clear();
    forge.list(0);
    assert!(forge.breaks(owners::epochs_grow), "the record is lost");
}

#[test]
fn a_falling_checkpoint_is_found() {
    let mut forge = Forge::new();
    forge.checkpoint(7, Some(("one", 1)), Answer::Done);
    forge.list(6);
    assert!(forge.breaks(owners::checkpoints_never_fall));
    let mut forge = Forge::new();
    forge.checkpoint(7, Some(("one", 1)), Answer::Done);
    forge.checkpoint(6, Some(("one", 1)), Answer::Done);
    assert!(forge.breaks(owners::checkpoints_never_fall));
    let mut forge = Forge::new();
    forge.checkpoint(7, Some(("one", 1)), Answer::Done);
    forge.checkpoint(2, None, Answer::Done);
    forge.list(2);
    assert!(!forge.breaks(owners::checkpoints_never_fall), "it was reset");
}

#[test]
fn a_checkpoint_of_a_former_owner_is_found() {
    let mut forge = Forge::new();
    let etag = forge.claim(0, "one", None, 1);
    forge.claim(0, "two", Some(etag), 2);
    forge.checkpoint(7, Some(("one", 1)), Answer::Done);
    assert!(forge.breaks(owners::former_owners_note_nothing));
    let mut forge = Forge::new();
    forge.claim(0, "one", None, 1);
    forge.checkpoint(7, Some(("one", 1)), refused());
    assert!(forge.breaks(owners::former_owners_note_nothing), "it is the owner");
}

#[test]
fn an_unhandled_event_is_found() {
    let mut forge = Forge::new();
    forge.handle("one", 0, 0, 3);
    forge.handle("two", 0, 5, 7);
    forge.list(7);
    assert!(forge.breaks(processors::nothing_is_left_out));
    forge.handle("one", 0, 3, 4);
    assert!(!forge.breaks(processors::nothing_is_left_out));
}

#[test]
fn a_needless_move_is_found() {
    let (mut forge, one, two) = Forge::shared();
    assert!(!forge.breaks(processors::nobody_moves_without_need));
    forge.claim(0, "worker-2", Some(one), 2);
    forge.claim(1, "worker-1", Some(two), 2);
    forge.stage(Stage::End);
    assert!(forge.breaks(processors::nobody_moves_without_need));
    assert!(!forge.breaks(processors::partitions_are_shared));
}

#[test]
fn a_replay_after_an_orderly_end_is_found() {
    for (first, is_wrong) in [(3, true), (4, false)] {
        let (mut forge, one, _) = Forge::shared();
        forge.handle("worker-1", 0, 0, 3);
        forge.stage(Stage::Leave);
        forge.fate("worker-1", Fate::Stopping);
        let etag = forge.claim(0, "", Some(one), 1);
        forge.fate("worker-1", Fate::Stopped);
        forge.claim(0, "worker-2", Some(etag), 2);
        forge.handle("worker-2", 0, first, 5);
        forge.stage(Stage::End);
        assert_eq!(forge.breaks(processors::nobody_moves_without_need), is_wrong);
    }
}

#[test]
fn an_instance_that_lost_a_partition_needs_no_checkpoint() {
    let (mut forge, _, two) = Forge::shared();
    forge.handle("worker-1", 1, 0, 3);
    forge.stage(Stage::Leave);
    forge.fate("worker-1", Fate::Stopping);
    forge.fate("worker-1", Fate::Stopped);
    forge.claim(1, "worker-2", Some(two), 2);
    forge.handle("worker-2", 1, 0, 5);
    forge.stage(Stage::End);
    assert!(!forge.breaks(processors::nobody_moves_without_need));
}

#[test]
fn partitions_without_an_owner_are_found() {
    let (mut forge, one, two) = Forge::shared();
    forge.stage(Stage::Crash);
    forge.fate("worker-1", Fate::Crashed);
    forge.wait(60 * INTERVAL_MS);
    forge.stage(Stage::End);
    assert!(forge.breaks(processors::partitions_are_shared), "no instance took it over");

    let after = |ms, reads: bool| {
        let (mut forge, one, _) = Forge::shared();
        forge.stage(Stage::Crash);
        forge.fate("worker-1", Fate::Crashed);
        forge.wait(ms);
        forge.claim(0, "worker-2", Some(one), 2);
        if reads {
            forge.handle("worker-2", 0, 0, 1);
        }
        forge.wait(60 * INTERVAL_MS);
        forge.stage(Stage::End);
        forge.breaks(processors::partitions_are_shared)
    };
    assert!(!after(6 * INTERVAL_MS, true));
    assert!(after(6 * INTERVAL_MS, false), "no instance reads it");
    assert!(after(30 * INTERVAL_MS, true), "too late");

    let (mut forge, ..) = Forge::shared();
    forge.claim(0, "worker-2", Some(one), 2);
    forge.claim(1, "worker-2", Some(two), 1);
    forge.stage(Stage::End);
    assert!(forge.breaks(processors::partitions_are_shared), "one instance has all");
}
