//! A machine as a shard uses it, with every fact also encoded and replayed.

use std::time::Duration;

use peeklock_hubs::{
    Error, Fact, Hubs, Output, Prepared, Producer, ReaderSpec, Run, StartAt, StreamId, StreamSpec,
};
use peeklock_types::{
    BodyRef, CommitGroupNumber, ConsumerGroup, EntityName, HubId, HubSettings, ReceiverId, Timestamp,
};

pub(crate) fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

pub(crate) fn name(text: &str) -> EntityName {
    EntityName::parse(text).unwrap()
}

pub(crate) fn group(text: &str) -> ConsumerGroup {
    ConsumerGroup::parse(text).unwrap()
}

pub(crate) fn settings() -> HubSettings {
    HubSettings { retention: Some(Duration::from_secs(10)), ..HubSettings::default() }
}

pub(crate) fn reader(start: StartAt) -> ReaderSpec {
    ReaderSpec {
        group: ConsumerGroup::default_group(),
        start,
        owner_level: None,
        hub_revision: 1,
        name: None,
    }
}

#[derive(Default)]
pub(crate) struct Shard {
    pub(crate) hubs: Hubs,
    pub(crate) out: Output,
    /// The current commit group.
    pub(crate) log_group: u64,
    offset_bytes: u32,
    cold_bytes: u64,
    /// A second machine that has only replayed the facts.
    replica: Hubs,
    replayed: usize,
}

impl Shard {
    /// Returns a shard with one stream of a hub with these settings.
    pub(crate) fn with_stream(settings: HubSettings) -> (Shard, StreamId) {
        let mut shard = Shard { log_group: 1, ..Shard::default() };
        let stream = shard.open(0, settings);
        (shard, stream)
    }

    pub(crate) fn open(&mut self, partition: u32, settings: HubSettings) -> StreamId {
        let spec = StreamSpec { hub: HubId(7), name: name("meters"), partition, settings };
        self.hubs.open_stream(spec, &mut self.out)
    }

    pub(crate) fn send(&mut self, now: u64, stream: StreamId, count: u32) {
        self.send_by(now, stream, count, None).unwrap();
    }

    /// Sends events of a hundred bytes each. Returns whether they were stored.
    pub(crate) fn send_by(
        &mut self,
        now: u64,
        stream: StreamId,
        count: u32,
        by: Option<Producer>,
    ) -> Result<bool, Error> {
        let Prepared::Store(head) = self.hubs.prepare(at(now), stream, count, by)? else { return Ok(false) };
        let body = BodyRef::in_group(CommitGroupNumber(self.log_group), self.offset_bytes).unwrap();
        self.offset_bytes += count * 104;
        self.hubs.append(stream, head, body, count * 100, by, &mut self.out);
        Ok(true)
    }

    pub(crate) fn next_group(&mut self) {
        self.log_group += 1;
        self.offset_bytes = 0;
    }

    /// Moves the extents of commit groups up to this one out of the log.
    pub(crate) fn gather(&mut self, upto: u64, run_bytes_max: u32) {
        for gather in self.hubs.extents_in(CommitGroupNumber(upto), u64::MAX, run_bytes_max) {
            for run in gather.runs {
                let size_bytes = run.bodies.iter().map(|(_, size_bytes)| size_bytes).sum();
                let body = BodyRef::standalone((1 << 32) | self.cold_bytes).unwrap();
                self.cold_bytes += u64::from(size_bytes).next_multiple_of(8);
                assert!(self.hubs.gathered(gather.stream, &run, body, size_bytes, &mut self.out));
            }
        }
    }

    pub(crate) fn attach(
        &mut self,
        stream: StreamId,
        id: u64,
        spec: ReaderSpec,
    ) -> Result<ReceiverId, Error> {
        let id = ReceiverId(id);
        self.hubs.attach_reader(stream, id, spec, &mut self.out).map(|()| id)
    }

    /// Attaches a reader without limits.
    pub(crate) fn open_reader(&mut self, stream: StreamId, id: u64, start: StartAt) -> ReceiverId {
        let id = self.attach(stream, id, reader(start)).unwrap();
        self.hubs.add_reader_window(id, i64::MAX);
        self.hubs.set_reader_limit(id, u64::MAX);
        id
    }

    pub(crate) fn run(&mut self) -> Option<Run> {
        self.hubs.next_run(1 << 20, &mut self.out)
    }

    /// Returns all available events, as ranges.
    pub(crate) fn read_all(&mut self) -> Vec<(u64, u64, u64)> {
        let mut found = Vec::new();
        while let Some(run) = self.run() {
            found.push((run.reader.0, run.from, run.upto));
            self.hubs.run_done(run.reader);
        }
        found
    }

    pub(crate) fn snapshot(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.hubs.snapshot(&mut bytes);
        bytes
    }

    /// Checks that replay and a restored snapshot give the same durable state.
    pub(crate) fn check(&mut self) {
        let here = CommitGroupNumber(self.log_group);
        for fact in &self.out.facts[self.replayed..] {
            let mut bytes = Vec::new();
            fact.encode(here, &mut bytes);
            let mut rest = bytes.as_slice();
            assert_eq!(Fact::decode(&mut rest, here).as_ref(), Ok(fact));
            assert!(rest.is_empty());
            self.replica.apply(fact).unwrap();
        }
        self.replayed = self.out.facts.len();
        let bytes = self.snapshot();
        let mut replayed = Vec::new();
        self.replica.snapshot(&mut replayed);
        assert_eq!(bytes, replayed);
        let restored = Hubs::restore(&bytes).unwrap();
        let mut again = Vec::new();
        restored.snapshot(&mut again);
        assert_eq!(bytes, again);
        assert_eq!(restored.oldest_log_body(), self.hubs.oldest_log_body());
        assert!(restored.standalone_bodies().eq(self.hubs.standalone_bodies()));
    }
}
