//! The events that readers must get: each one once, in order, within their limits.

use peeklock_hubs::{Error, ReaderEnd, ReaderSpec, Run, StartAt};
use peeklock_types::{CommitGroupNumber, ConsumerGroup, ReceiverId, Timestamp};

use crate::model::ModelStream;
use crate::world::World;

#[derive(Debug)]
pub(crate) struct ModelReader {
    id: ReceiverId,
    stream: usize,
    group: usize,
    level: Option<i64>,
    /// The first event of the reader's next run, and the next event that the reader must see.
    next: u64,
    wanted: u64,
    limit: u64,
    counted: u64,
    window_bytes: i64,
    drain: bool,
    run: Option<Run>,
    /// The number of runs that other readers got while this reader could have had one.
    passed_over: usize,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Start {
    Earliest,
    Latest,
    /// Steps from the end.
    Sequence(u64, bool),
    /// The time of an event, counted from the end, or slightly before or after it.
    Time(usize, i64, bool),
}

fn group_name(group: usize) -> ConsumerGroup {
    ConsumerGroup::parse(["$Default", "audit"][group]).unwrap()
}

impl ModelReader {
    fn credit(&self) -> u64 {
        self.limit.saturating_sub(self.counted)
    }

    fn can_take(&self, stream: &ModelStream) -> bool {
        self.run.is_none() && self.credit() > 0 && self.window_bytes > 0 && self.next < stream.next()
    }
}

impl ModelStream {
    /// Returns the first event of a run, and the first one that the reader must see.
    fn position(&self, start: StartAt) -> Result<(u64, u64), Error> {
        let (begin, next) = (self.begin(), self.next());
        match start {
            StartAt::Earliest => Ok((begin, begin)),
            StartAt::Latest => Ok((next, next)),
            StartAt::Sequence { sequence, inclusive } => {
                let (partition, last) = (self.id.0 - 1, next.cast_signed() - 1);
                let wanted = if inclusive { sequence } else { sequence + 1 };
                if wanted > next {
                    return Err(Error::BeyondEnd { partition, given: sequence, last });
                }
                if wanted < begin && !self.is_moved_on {
                    return Err(Error::Expired { partition, given: wanted, first: begin });
                }
                Ok((wanted.max(begin), wanted.max(begin)))
            }
            StartAt::Time { at, inclusive } => {
                let is_in =
                    |time: u64| if inclusive { time >= at.as_millis() } else { time > at.as_millis() };
                let first = (begin..next).find(|event| is_in(self.times[usize::try_from(*event).unwrap()]));
                let Some(first) = first else { return Ok((next, next)) };
                let extent = self.extents.iter().find(|extent| extent.end() > first).unwrap();
                Ok((extent.first, first))
            }
        }
    }
}

impl World {
    fn start_at(&self, stream: usize, start: Start) -> StartAt {
        match start {
            Start::Earliest => StartAt::Earliest,
            Start::Latest => StartAt::Latest,
            Start::Sequence(back, inclusive) => {
                let sequence = (self.streams[stream].next() + 1).saturating_sub(back);
                StartAt::Sequence { sequence, inclusive }
            }
            Start::Time(back, off_ms, inclusive) => {
                let times = &self.streams[stream].times;
                let time = times.iter().rev().nth(back).map_or(self.now, |time| *time);
                let at = Timestamp::from_millis(time.saturating_add_signed(off_ms));
                StartAt::Time { at, inclusive }
            }
        }
    }

    pub(crate) fn attach(&mut self, stream: usize, group: usize, start: Start, level: Option<i64>) {
        let (id, start) = (self.reader_id(), self.start_at(stream, start));
        let spec =
            ReaderSpec { group: group_name(group), start, owner_level: level, hub_revision: 1, name: None };
        let found = self.hubs.attach_reader(self.streams[stream].id, id, spec, &mut self.out);
        let others = self.readers.iter().filter(|other| (other.stream, other.group) == (stream, group));
        let others: Vec<_> = others.map(|other| (other.id, other.level)).collect();
        let highest = others.iter().filter_map(|(_, level)| *level).max();
        let is_too_low = highest.is_some_and(|highest| level.is_none_or(|level| level < highest));
        if is_too_low {
            let Err(Error::OwnerLevel { current, .. } | Error::NoOwnerLevel { current, .. }) = found else {
                panic!("{found:?}")
            };
            assert_eq!(Some(current), highest);
            return;
        }
        if level.is_none() && others.len() == 5 {
            assert!(matches!(found, Err(Error::TooManyReaders { .. })));
            return;
        }
        match self.streams[stream].position(start) {
            Err(wanted) => assert_eq!(found, Err(wanted)),
            Ok((next, wanted)) => {
                assert_eq!(found, Ok(()));
                let stolen = |own_level, level| ReaderEnd::Stolen { by: None, level, name: None, own_level };
                let ended = level.map(|level| others.iter().map(move |(id, own)| (*id, stolen(*own, level))));
                let ended: Vec<_> = ended.into_iter().flatten().collect();
                assert_eq!(std::mem::take(&mut self.out.ended), ended);
                self.readers.retain(|reader| !ended.iter().any(|(id, _)| *id == reader.id));
                self.readers.push(ModelReader {
                    id,
                    stream,
                    group,
                    level,
                    next,
                    wanted,
                    limit: 0,
                    counted: 0,
                    window_bytes: 0,
                    drain: false,
                    run: None,
                    passed_over: 0,
                });
            }
        }
    }

    fn pick(&mut self, pick: usize) -> Option<&mut ModelReader> {
        let count = self.readers.len();
        self.readers.get_mut(pick.checked_rem(count)?)
    }

    pub(crate) fn detach(&mut self, pick: usize) {
        let Some(id) = self.pick(pick).map(|reader| reader.id) else { return };
        self.readers.retain(|reader| reader.id != id);
        assert!(self.hubs.detach_reader(id));
        assert!(!self.hubs.detach_reader(id));
    }

    /// Adds or removes credit.
    pub(crate) fn limit(&mut self, pick: usize, more: i64) {
        let Some(reader) = self.pick(pick) else { return };
        reader.limit = reader.counted.saturating_add_signed(more);
        let (id, limit) = (reader.id, reader.limit);
        self.hubs.set_reader_limit(id, limit);
    }

    pub(crate) fn window(&mut self, pick: usize, size_bytes: i64) {
        let Some(reader) = self.pick(pick) else { return };
        reader.window_bytes += size_bytes;
        let id = reader.id;
        self.hubs.add_reader_window(id, size_bytes);
    }

    pub(crate) fn drain(&mut self, pick: usize, drain: bool) {
        let Some(reader) = self.pick(pick) else { return };
        reader.drain = drain;
        let id = reader.id;
        self.hubs.drain_reader(id, drain);
    }

    /// Returns whether there was a run.
    pub(crate) fn next_run(&mut self, bytes_max: u32) -> bool {
        let run = self.hubs.next_run(bytes_max, &mut self.out);
        self.expect_overtaken();
        let streams = &self.streams;
        let Some(run) = run else {
            for reader in self.readers.iter().filter(|reader| reader.run.is_none()) {
                let stream = &streams[reader.stream];
                assert!(!reader.can_take(stream), "the reader is forgotten: {reader:?}");
                assert!(reader.next >= stream.begin(), "the reader got no error: {reader:?}");
            }
            return false;
        };
        let reader_count = self.readers.len();
        for other in &mut self.readers {
            let waits = other.can_take(&streams[other.stream]) && other.id != run.reader;
            other.passed_over = if waits { other.passed_over + 1 } else { 0 };
            assert!(other.passed_over <= reader_count, "the reader is starved: {other:?}");
        }
        let reader = self.readers.iter_mut().find(|reader| reader.id == run.reader).unwrap();
        let stream = &streams[reader.stream];
        assert!(reader.can_take(stream));
        check_run(reader, stream, &run, bytes_max);
        reader.next = run.upto;
        reader.counted += run.upto - run.from;
        reader.window_bytes -= run.window_bytes;
        reader.run = Some(run);
        true
    }

    fn picked_run(&self, pick: usize) -> Option<usize> {
        let places: Vec<_> =
            (0..self.readers.len()).filter(|place| self.readers[*place].run.is_some()).collect();
        places.get(pick.checked_rem(places.len())?).copied()
    }

    pub(crate) fn run_done(&mut self, pick: usize) {
        let Some(place) = self.picked_run(pick) else { return };
        let reader = &mut self.readers[place];
        let stream = &self.streams[reader.stream];
        let run = reader.run.take().unwrap();
        for event in run.from..run.upto {
            let time = stream.times[usize::try_from(event).unwrap()];
            if run.not_before.is_none_or(|before| time >= before.as_millis()) {
                assert_eq!(event, reader.wanted, "a reader gets each event once, in order");
                reader.wanted += 1;
            }
        }
        // Some of the following events may be retired.
        reader.wanted = reader.wanted.max(reader.next);
        self.hubs.run_done(reader.id);
    }

    pub(crate) fn run_failed(&mut self, pick: usize) {
        let Some(place) = self.picked_run(pick) else { return };
        let reader = &mut self.readers[place];
        let run = reader.run.take().unwrap();
        reader.next = run.from;
        reader.counted -= run.upto - run.from;
        reader.window_bytes += run.window_bytes;
        reader.move_on(&self.streams[reader.stream]);
        self.hubs.run_failed(&run);
    }

    /// Checks that each reader behind retired events is ended, or continues after them.
    pub(crate) fn expect_overtaken(&mut self) {
        for (id, end) in std::mem::take(&mut self.out.ended) {
            let place = self.readers.iter().position(|reader| reader.id == id).unwrap();
            let reader = self.readers.remove(place);
            let stream = &self.streams[reader.stream];
            assert!(reader.next < stream.begin() && !stream.is_moved_on);
            assert_eq!(end, ReaderEnd::Expired { next: reader.next, first: stream.begin() });
        }
        self.readers.iter_mut().for_each(|reader| reader.move_on(&self.streams[reader.stream]));
    }

    pub(crate) fn check_readers(&mut self) {
        let mut drained = Vec::new();
        for reader in &mut self.readers {
            let is_at_end = reader.next == self.streams[reader.stream].next();
            if reader.drain && reader.run.is_none() && (is_at_end || reader.credit() == 0) {
                drained.push(reader.id);
                (reader.drain, reader.limit) = (false, reader.counted);
            }
        }
        let mut found = self.hubs.take_drained();
        found.sort_unstable();
        assert_eq!(found, drained);
        for (number, stream) in self.streams.iter().enumerate() {
            let views = self.hubs.stream(stream.id).unwrap().readers;
            assert_eq!(views.len(), self.readers.iter().filter(|reader| reader.stream == number).count());
            for view in views {
                let reader = self.readers.iter().find(|reader| reader.id == view.reader).unwrap();
                assert_eq!((view.group, view.owner_level), (group_name(reader.group), reader.level));
                assert_eq!(view.next_sequence, reader.next);
            }
        }
    }

    /// Checks that in the end every reader gets everything.
    pub(crate) fn finish(&mut self) {
        for pick in 0..self.readers.len() {
            self.limit(pick, 1 << 40);
            self.window(pick, 1 << 40);
            while self.picked_run(0).is_some() {
                self.run_done(0);
            }
        }
        while self.next_run(5000) {
            self.run_done(0);
        }
        self.check();
        for reader in &self.readers {
            assert_eq!(reader.wanted, self.streams[reader.stream].next());
        }
    }
}

impl ModelReader {
    /// Continues at the first existing event if the next one is gone.
    fn move_on(&mut self, stream: &ModelStream) {
        if stream.is_moved_on && self.next < stream.begin() {
            self.next = stream.begin();
            if self.run.is_none() {
                self.wanted = self.wanted.max(self.next);
            }
        }
    }
}

/// Checks that the run contains exactly the reader's next events.
fn check_run(reader: &ModelReader, stream: &ModelStream, run: &Run, bytes_max: u32) {
    assert_eq!((run.from, run.stream), (reader.next, stream.id));
    let end = reader.next + reader.credit().min(1 << 40);
    let (mut size_bytes, mut window_bytes, mut upto) = (0, 0, run.from);
    let mut taken = Vec::new();
    for extent in stream.extents.iter().filter(|extent| extent.end() > run.from) {
        size_bytes += extent.size_bytes;
        let is_full = size_bytes > bytes_max || window_bytes >= reader.window_bytes;
        if upto == end || (is_full && !taken.is_empty()) {
            break;
        }
        let events = extent.end().min(end) - upto;
        let size_bytes = u64::from(extent.size_bytes);
        let charged = (size_bytes * events / extent.count).max(size_bytes / 16).max(1);
        window_bytes += charged.cast_signed();
        upto += events;
        taken.push(extent);
    }
    assert_eq!(upto, run.upto);
    assert_eq!(window_bytes, run.window_bytes);
    assert_eq!(run.bodies, taken.iter().map(|extent| extent.stored()).collect::<Vec<_>>());
    let newest = taken.iter().filter_map(|extent| extent.group()).max();
    assert_eq!(run.newest_group, newest.unwrap_or(CommitGroupNumber::NONE));
    assert_eq!(run.last.sequence, stream.next().cast_signed() - 1);
    assert_eq!(run.last.at.map(Timestamp::as_millis), stream.times.last().copied());
}
