//! The machine and the model side by side, with a journal that forgets unwritten facts.

use std::time::Duration;

use peeklock_hubs::{Fact, Gather, GatherRun, Hubs, Output, Prepared, Producer, StreamId, StreamSpec};
use peeklock_types::{
    BodyRef, CommitGroupNumber, EntityName, ExpiredPosition, HubId, HubSettings, ReceiverId, Timestamp,
};

use crate::model::ModelStream;
use crate::readers::ModelReader;

pub(crate) const HUB: HubId = HubId(5);
const STREAM_COUNT: u32 = 2;

#[derive(Default)]
pub(crate) struct World {
    pub(crate) hubs: Hubs,
    pub(crate) out: Output,
    pub(crate) streams: Vec<ModelStream>,
    pub(crate) readers: Vec<ModelReader>,
    pub(crate) next_reader: u64,
    pub(crate) now: u64,
    /// The current commit group, and the facts of the earlier ones.
    pub(crate) group: u64,
    offset_bytes: u32,
    groups: Vec<Vec<u8>>,
    /// The model as of the last commit group, and a snapshot with the number of its commit groups.
    durable: Vec<ModelStream>,
    snapshot: Option<(Vec<u8>, usize)>,
    cold_bytes: u64,
    gathers: Vec<Gather>,
    /// A second machine that has only replayed the facts.
    replica: Hubs,
    replayed: usize,
}

pub(crate) fn snapshot(hubs: &Hubs) -> Vec<u8> {
    let mut bytes = Vec::new();
    hubs.snapshot(&mut bytes);
    bytes
}

fn settings(stream: &ModelStream) -> HubSettings {
    let earliest = stream.is_moved_on;
    HubSettings {
        retention: stream.retention_ms.map(Duration::from_millis),
        retention_bytes: stream.retention_bytes,
        expired_position: if earliest { ExpiredPosition::Earliest } else { ExpiredPosition::Refuse },
        ..HubSettings::default()
    }
}

impl World {
    pub(crate) fn new() -> World {
        let mut world = World { now: 10_000, group: 1, ..World::default() };
        for partition in 0..STREAM_COUNT {
            world.streams.push(ModelStream::new(StreamId(partition + 1)));
            world.open(partition as usize);
        }
        world.end_group(false);
        world
    }

    fn open(&mut self, stream: usize) {
        let settings = settings(&self.streams[stream]);
        let name = EntityName::parse("meters").unwrap();
        let spec = StreamSpec { hub: HUB, name, partition: u32::try_from(stream).unwrap(), settings };
        let id = self.hubs.open_stream(spec, &mut self.out);
        assert_eq!(id, self.streams[stream].id);
    }

    pub(crate) fn configure(
        &mut self,
        stream: usize,
        age: Option<u64>,
        size: Option<u64>,
        is_moved_on: bool,
    ) {
        let known = &mut self.streams[stream];
        (known.retention_ms, known.retention_bytes, known.is_moved_on) = (age, size, is_moved_on);
        self.open(stream);
        self.expect_overtaken();
    }

    /// Sends events. `by` is the producer, its epoch, and the distance of its number from the right one.
    pub(crate) fn send(&mut self, stream: usize, count: u32, size_bytes: u32, by: Option<(i64, i16, i32)>) {
        let known = &mut self.streams[stream];
        let by = by.map(|(id, epoch, off)| {
            let number = known.last_number(id).unwrap_or(i32::MAX - 5);
            let sequence = number.wrapping_add(1).wrapping_add(off) & i32::MAX;
            Producer { id, epoch, sequence }
        });
        let found = self.hubs.prepare(Timestamp::from_millis(self.now), known.id, count, by);
        match (known.check(by, count), found) {
            (Ok(None), Ok(Prepared::Store(head))) => {
                assert_eq!((head.first_sequence, head.count), (known.next(), count));
                assert_eq!(head.enqueued_at.as_millis(), known.time(self.now));
                let body = BodyRef::in_group(CommitGroupNumber(self.group), self.offset_bytes).unwrap();
                self.offset_bytes += size_bytes.next_multiple_of(8);
                self.hubs.append(known.id, head, body, size_bytes, by, &mut self.out);
                known.append(self.now, count, body, size_bytes, by);
            }
            (Ok(wanted), found) => assert_eq!(wanted, found.ok()),
            (Err(wanted), found) => assert_eq!(Err(wanted), found),
        }
    }

    pub(crate) fn retire(&mut self) {
        let mut freed: Vec<_> = self.streams.iter_mut().flat_map(|stream| stream.retire(self.now)).collect();
        self.hubs.retire(Timestamp::from_millis(self.now), &mut self.out);
        let mut found = std::mem::take(&mut self.out.freed);
        freed.sort_unstable();
        found.sort_unstable();
        assert_eq!(freed, found);
        self.expect_overtaken();
    }

    /// Selects the extents to move out of the log.
    pub(crate) fn start_gather(&mut self, back: u64, bytes_max: u64, run_bytes_max: u32) {
        let upto = CommitGroupNumber(self.group.saturating_sub(back));
        let gathers = self.hubs.extents_in(upto, bytes_max, run_bytes_max);
        let there = |stream: &&ModelStream| stream.in_log().any(|extent| extent.group() <= Some(upto));
        let there_count = self.streams.iter().filter(there).count();
        let share = (bytes_max / (there_count as u64).max(1)).max(run_bytes_max.into());
        let mut total = 0;
        for gather in &gathers {
            assert!(total == 0 || total + u64::from(run_bytes_max) <= bytes_max);
            let stream = self.streams.iter().find(|stream| stream.id == gather.stream).unwrap();
            total += check_runs(stream, &gather.runs, upto, share.min(bytes_max - total), run_bytes_max);
        }
        assert!(total + u64::from(run_bytes_max) > bytes_max || gathers.len() == there_count);
        self.gathers = gathers;
    }

    /// Records that the selected extents were copied.
    pub(crate) fn end_gather(&mut self) {
        for gather in std::mem::take(&mut self.gathers) {
            let stream = self.streams.iter_mut().find(|stream| stream.id == gather.stream).unwrap();
            for run in gather.runs {
                let size_bytes = run.bodies.iter().map(|(_, size_bytes)| size_bytes).sum();
                let body = BodyRef::standalone((3 << 32) | self.cold_bytes).unwrap();
                self.cold_bytes += u64::from(size_bytes).next_multiple_of(8);
                let wanted = stream.gathered(&run, body, size_bytes);
                assert_eq!(self.hubs.gathered(stream.id, &run, body, size_bytes, &mut self.out), wanted);
            }
        }
    }

    pub(crate) fn end_group(&mut self, with_snapshot: bool) {
        let mut bytes = Vec::new();
        self.out.facts.iter().for_each(|fact| fact.encode(CommitGroupNumber(self.group), &mut bytes));
        self.replay();
        self.out.facts.clear();
        self.replayed = 0;
        self.groups.push(bytes);
        self.durable = self.streams.clone();
        self.group += 1;
        self.offset_bytes = 0;
        if with_snapshot {
            self.snapshot = Some((snapshot(&self.hubs), self.groups.len()));
        }
    }

    /// Loses all unwritten facts, and all readers.
    pub(crate) fn crash(&mut self) {
        let read = |bytes: &Vec<u8>| Hubs::restore(bytes).unwrap();
        self.hubs = self.snapshot.as_ref().map_or_else(Hubs::default, |(bytes, _)| read(bytes));
        let start = self.snapshot.as_ref().map_or(0, |(_, count)| *count);
        for (number, bytes) in (1..).zip(&self.groups).skip(start) {
            let mut rest = bytes.as_slice();
            while !rest.is_empty() {
                let fact = Fact::decode(&mut rest, CommitGroupNumber(number)).unwrap();
                self.hubs.apply(&fact).unwrap();
            }
        }
        self.replica = read(&snapshot(&self.hubs));
        self.replayed = 0;
        self.out = Output::default();
        self.streams.clone_from(&self.durable);
        self.offset_bytes = 0;
        self.readers.clear();
        self.gathers.clear();
        assert!(self.hubs.next_run(1000, &mut self.out).is_none());
    }

    fn replay(&mut self) {
        let new = self.out.facts.get(self.replayed..).unwrap();
        new.iter().for_each(|fact| self.replica.apply(fact).unwrap());
        self.replayed = self.out.facts.len();
    }

    /// Checks that the machine, its replica and a restored snapshot match the model.
    pub(crate) fn check(&mut self) {
        self.replay();
        let bytes = snapshot(&self.hubs);
        assert_eq!(bytes, snapshot(&self.replica));
        let restored = Hubs::restore(&bytes).unwrap();
        assert_eq!(bytes, snapshot(&restored));
        let oldest =
            self.streams.iter().flat_map(ModelStream::in_log).filter_map(|extent| extent.group()).min();
        let cold =
            self.streams.iter().flat_map(|stream| &stream.extents).filter(|extent| extent.group().is_none());
        let cold: Vec<_> = cold.map(|extent| extent.stored()).collect();
        for hubs in [&self.hubs, &restored] {
            self.streams.iter().for_each(|stream| stream.compare(&hubs.stream(stream.id).unwrap()));
            assert_eq!(hubs.oldest_log_body(), oldest);
            assert_eq!(hubs.standalone_bodies().collect::<Vec<_>>(), cold);
        }
        self.check_readers();
        assert!(self.out.ended.is_empty() && self.out.freed.is_empty());
    }

    pub(crate) fn reader_id(&mut self) -> ReceiverId {
        self.next_reader += 1;
        ReceiverId(self.next_reader)
    }
}

/// Checks the runs of one stream: its first extents in the log, in runs that are as long as permitted. Returns their
/// bytes.
fn check_runs(
    stream: &ModelStream,
    runs: &[GatherRun],
    upto: CommitGroupNumber,
    bytes_max: u64,
    run_bytes_max: u32,
) -> u64 {
    let run_bytes_max = bytes_max.min(run_bytes_max.into());
    let padded = |bodies: &[(BodyRef, u32)]| -> u64 {
        bodies.iter().map(|(_, size_bytes)| u64::from(size_bytes.next_multiple_of(8))).sum()
    };
    let all = || stream.in_log().take_while(|extent| extent.group() <= Some(upto));
    let bodies: Vec<_> = runs.iter().flat_map(|run| run.bodies.clone()).collect();
    assert!(all().take(bodies.len()).map(|extent| extent.stored()).eq(bodies.iter().copied()));
    assert!(runs.iter().all(|run| run.bodies.len() == 1 || padded(&run.bodies) <= run_bytes_max));
    for pair in runs.windows(2) {
        assert!(padded(&pair[0].bodies) + padded(&pair[1].bodies[..1]) > run_bytes_max);
    }
    let total = padded(&bodies);
    let last = runs.last().unwrap();
    assert!(
        total <= bytes_max || last.bodies.len() == 1,
        "only a body that is larger than a run may exceed the limit"
    );
    if let Some(next) = all().nth(bodies.len()) {
        assert!(total + run_bytes_max > bytes_max, "there was room for one more");
        assert!(padded(&last.bodies) + padded(&[next.stored()]) > run_bytes_max, "the last run is not full");
    }
    total
}
