//! A small owner of shards that uses a journal like the broker does, and an oracle that tracks the data that must
//! survive.
//!
//! Everything is driven by hand and by a seed, so that a run with the same faults is repeatable.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use peeklock_journal::{
    AppendError, BodyError, BodyReader, Journal, LargeBodies, LargeBody, Log, Move, OpenError, StoredBody,
};
use peeklock_journal_wal::sim::{Driver, SimDisk};
use peeklock_journal_wal::{WalConfig, WalJournal, WalLog};
use peeklock_types::{BodyPlace, BodyRange, BodyRef, CommitGroupNumber, ShardId};

pub(crate) const DIRECTORY: &str = "/data";

/// Segments of a few blocks, so that a short run rolls, recycles and moves bodies.
pub(crate) fn tiny() -> WalConfig {
    WalConfig {
        segment_bytes: 32 * 1024,
        first_segment_bytes: 16 * 1024,
        ring_bytes: 96 * 1024,
        ring_bytes_max: 1024 * 1024,
        hot_cache_bytes: 4 * 1024,
        backlog_bytes_max: 256 * 1024,
        commit_bytes_max: 16 * 1024,
        snapshot_after_bytes: 32 * 1024,
        cold_segment_bytes: 6 * 1024,
        stream_segment_bytes: 4 * 1024,
        free_bytes_soft: 128 * 1024,
        free_bytes_hard: 64 * 1024,
        reserve_bytes: 16 * 1024,
        ..WalConfig::default()
    }
}

/// Runs a future of a driven journal, which never has to wait.
pub(crate) fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("a driven journal should return at once"),
    }
}

pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    pub(crate) fn index(&mut self, limit: usize) -> usize {
        usize::try_from(self.below(limit as u64)).unwrap()
    }
}

/// The live bodies and their places, by the first id in them.
pub(crate) type State = BTreeMap<u64, Extent>;

/// A stored body: one body, or a run of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) last: u64,
    pub(crate) place: BodyRef,
}

impl Extent {
    pub(crate) fn content(self, shard: ShardId, first: u64) -> Vec<u8> {
        (first..=self.last).step_by(IDS_PER_STREAM_EVENT).flat_map(|id| body(shard, id)).collect()
    }

    pub(crate) fn stored(self, shard: ShardId, first: u64) -> StoredBody {
        let size_bytes = self.content(shard, first).len().try_into().unwrap();
        StoredBody { place: self.place, size_bytes }
    }
}

pub(crate) fn body(shard: ShardId, id: u64) -> Vec<u8> {
    let mut random = Random(id << 16 | u64::from(shard.0));
    let size = if id.is_multiple_of(13) { 5000 } else { random.below(600) + 1 };
    (0..size).map(|_| random.next().to_le_bytes()[0]).collect()
}

/// Returns whether the body is written as a large body. Its size does not matter to the journal.
fn is_large(id: u64) -> bool {
    id % 20 == 4
}

/// The interval of ids between two events of a stream.
const IDS_PER_STREAM_EVENT: usize = 10;
/// The largest number of events in a moved run.
const GATHERED_COUNT_MAX: usize = 3;

/// Returns the stream of a body, if it has one.
fn stream_of(id: u64) -> Option<u64> {
    Some(id % IDS_PER_STREAM_EVENT as u64).filter(|rest| matches!(rest, 7 | 8))
}

pub(crate) fn stored(shard: ShardId, id: u64, place: BodyRef) -> StoredBody {
    StoredBody { place, size_bytes: body(shard, id).len().try_into().unwrap() }
}

/// A fact in a group of this owner.
#[derive(Clone, Copy, Debug)]
enum Fact {
    Put(u64),
    Settled(u64),
    Moved(u64, Extent),
    /// All events from the first to the last are in one body.
    Gathered(u64, Extent),
}

const FACT_BYTES: usize = 32;

fn encode(shard: ShardId, number: CommitGroupNumber, facts: &[Fact]) -> Bytes {
    let mut bodies_at = 8 + facts.len() * FACT_BYTES;
    let mut payload = (facts.len() as u64).to_le_bytes().to_vec();
    let mut bodies = Vec::new();
    for fact in facts {
        let (kind, first, extent) = match *fact {
            Fact::Put(id) => {
                let place = BodyRef::in_group(number, bodies_at.try_into().unwrap()).unwrap();
                let mut bytes = body(shard, id);
                bytes.resize(bytes.len().next_multiple_of(8), 0);
                bodies_at += bytes.len();
                bodies.extend(bytes);
                (0, id, Extent { last: id, place })
            }
            Fact::Settled(id) => (1, id, Extent { last: id, place: BodyRef::from_raw(0) }),
            Fact::Moved(id, extent) => (2, id, extent),
            Fact::Gathered(id, extent) => (3, id, extent),
        };
        for word in [kind, first, extent.last, extent.place.to_raw()] {
            payload.extend_from_slice(&word.to_le_bytes());
        }
    }
    payload.extend(bodies);
    payload.into()
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// Applies a group and returns the places that are no longer used.
fn replay_group(state: &mut State, payload: &[u8]) -> Vec<(u64, Extent)> {
    let count: usize = word(payload, 0).try_into().unwrap();
    let mut old = Vec::new();
    for n in 0..count {
        let at = 8 + n * FACT_BYTES;
        let (first, extent) = (word(payload, at + 8), extent_at(payload, at + 16));
        match word(payload, at) {
            1 => old.extend(state.remove_entry(&first)),
            kind => {
                let is_replaced = |id: &u64, _: &mut Extent| {
                    *id == first || (kind == 3 && stream_of(*id) == stream_of(first))
                };
                old.extend(state.extract_if(first..=extent.last, is_replaced));
                state.insert(first, extent);
            }
        }
    }
    old
}

fn extent_at(bytes: &[u8], at: usize) -> Extent {
    Extent { last: word(bytes, at), place: BodyRef::from_raw(word(bytes, at + 8)) }
}

fn encode_state(state: &State) -> Bytes {
    let words = |(id, extent): (&u64, &Extent)| [*id, extent.last, extent.place.to_raw()];
    state.iter().flat_map(words).flat_map(u64::to_le_bytes).collect()
}

fn decode_state(bytes: &[u8]) -> State {
    bytes.chunks(24).map(|entry| (word(entry, 0), extent_at(entry, 8))).collect()
}

/// The known history of one shard, independent of the disk.
#[derive(Clone, Default)]
pub(crate) struct Known {
    /// The state after each appended group that may be found.
    pub(crate) states: BTreeMap<u64, State>,
    /// All groups up to this one must be found.
    pub(crate) durable: u64,
    pub(crate) next_id: u64,
}

#[derive(Clone, Default)]
pub(crate) struct Oracle {
    pub(crate) shards: BTreeMap<ShardId, Known>,
}

/// An open shard.
pub(crate) struct Owner {
    pub(crate) shard: ShardId,
    pub(crate) log: WalLog,
    pub(crate) state: State,
    /// The newest snapshot.
    covered: CommitGroupNumber,
    /// Standalone bodies to release once the group that settled them is durable.
    forget: Vec<(CommitGroupNumber, StoredBody)>,
    writes_large: bool,
    has_streams: bool,
    pub(crate) large_count: u64,
    pub(crate) gathered_count: u64,
}

/// A running journal with its owners.
pub(crate) struct Broker {
    pub(crate) journal: WalJournal,
    pub(crate) driver: Driver,
    pub(crate) owners: Vec<Owner>,
    pub(crate) done: Done,
}

/// The work of a run, so that a test can check that enough was done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Done {
    pub(crate) snapshots: u64,
    pub(crate) group_moves: u64,
    pub(crate) standalone_moves: u64,
}

impl Broker {
    /// Opens everything, checks it against the oracle, and updates the oracle.
    pub(crate) fn open(
        disk: &SimDisk,
        config: &WalConfig,
        oracle: &mut Oracle,
        shards: u16,
    ) -> Result<Self, OpenError> {
        let (journal, driver) =
            WalJournal::open_driven(Arc::new(disk.clone()), Path::new(DIRECTORY), config.clone())?;
        let mut owners = Vec::new();
        for shard in (0..shards).map(ShardId) {
            owners.push(Owner::open(&journal, shard, oracle.shards.entry(shard).or_default())?);
        }
        Ok(Broker { journal, driver, owners, done: Done::default() })
    }

    /// Writes all waiting groups. From now on they must be found.
    pub(crate) fn commit(&mut self, oracle: &mut Oracle) {
        while self.driver.commit() {}
        for owner in &mut self.owners {
            let known = oracle.shards.get_mut(&owner.shard).unwrap();
            known.durable = known.durable.max(owner.log.watermark().0);
            owner.release_settled();
        }
    }

    /// Makes the owners write some bodies as large bodies.
    pub(crate) fn with_large(mut self) -> Self {
        self.owners.iter_mut().for_each(|owner| owner.writes_large = true);
        self
    }

    /// Makes some bodies belong to streams, which are moved in runs.
    pub(crate) fn with_streams(mut self) -> Self {
        self.owners.iter_mut().for_each(|owner| owner.has_streams = true);
        self
    }
}

impl Owner {
    fn open(journal: &WalJournal, shard: ShardId, known: &mut Known) -> Result<Self, OpenError> {
        let (mut log, recovery) = now(journal.open(shard))?;
        let mut state = State::default();
        let mut last = 0;
        let covered = recovery.snapshot.as_ref().map_or(CommitGroupNumber::NONE, |snapshot| snapshot.upto);
        if let Some(snapshot) = &recovery.snapshot {
            state = decode_state(&snapshot.payload);
            last = snapshot.upto.0;
        }
        for group in recovery.groups {
            let group = group?;
            assert_eq!(group.number.0, last + 1, "{shard}: the groups should have no gap");
            replay_group(&mut state, &group.payload);
            last = group.number.0;
        }
        assert!(
            last >= known.durable,
            "{shard}: group {} was durable, the last one found is {last}",
            known.durable
        );
        assert_eq!(log.next_group(), CommitGroupNumber(last + 1));
        assert_eq!(log.watermark(), CommitGroupNumber(last));
        let expected = known.states.get(&last).cloned().unwrap_or_default();
        assert_eq!(state, expected, "{shard}: the state after group {last}");
        known.states.split_off(&(last + 1));
        known.durable = last;
        let cold = state.iter().filter(|(_, extent)| extent.place.is_standalone());
        let cold: Vec<StoredBody> = cold.map(|(id, extent)| extent.stored(shard, *id)).collect();
        log.adopt(&cold);
        let owner = Owner {
            shard,
            log,
            state,
            covered,
            forget: Vec::new(),
            writes_large: false,
            has_streams: false,
            large_count: 0,
            gathered_count: 0,
        };
        owner.check_bodies();
        Ok(owner)
    }

    pub(crate) fn large_live(&self) -> impl Iterator<Item = u64> {
        self.state.keys().copied().filter(|id| self.writes_large && is_large(*id))
    }

    /// Returns the segments with live bodies of streams.
    pub(crate) fn stream_segments(&self) -> BTreeSet<u64> {
        let gathered = self.state.iter().filter(|(id, _)| self.has_streams && stream_of(**id).is_some());
        gathered
            .filter_map(|(_, extent)| match extent.place.place() {
                BodyPlace::Standalone { handle } => Some(handle >> 32),
                BodyPlace::InGroup { .. } => None,
            })
            .collect()
    }

    /// Checks that every live body is readable, one by one and all together.
    pub(crate) fn check_bodies(&self) {
        let reader = self.log.reader();
        let wanted: Vec<StoredBody> =
            self.state.iter().map(|(id, extent)| extent.stored(self.shard, *id)).collect();
        let found = now(reader.read(wanted)).unwrap_or_else(|error| panic!("{}: {error}", self.shard));
        for ((id, extent), found) in self.state.iter().zip(found) {
            assert_eq!(found, extent.content(self.shard, *id), "{}: body {id}", self.shard);
        }
    }

    /// Appends a group with new bodies that settles some old ones.
    pub(crate) fn work(&mut self, known: &mut Known, random: &mut Random) -> Result<(), AppendError> {
        let mut facts = Vec::new();
        for _ in 0..=random.below(5) {
            known.next_id += 1;
            let id = known.next_id;
            if !self.writes_large || !is_large(id) {
                facts.push(Fact::Put(id));
            } else if let Ok(body) = self.put_large(id) {
                facts.push(Fact::Moved(id, Extent { last: id, place: body.place }));
            }
        }
        // Most bodies are settled soon; some after they were moved, and a few after they were moved twice.
        let is_done = |id: &u64| match id % 15 {
            0 => id + 200 < known.next_id,
            5 | 10 => id + 30 < known.next_id,
            _ => id + 6 < known.next_id,
        };
        // Events expire after a while, and the events of a run expire together.
        let is_expired = |last: u64| last + 120 < known.next_id;
        let is_over = |(id, extent): &(&u64, &Extent)| match stream_of(**id).filter(|_| self.has_streams) {
            Some(_) => is_expired(extent.last),
            None => is_done(id),
        };
        facts.extend(self.state.iter().filter(is_over).take(6).map(|(id, _)| Fact::Settled(*id)));
        self.append(known, &facts).inspect_err(|_| self.release_placed(&facts))
    }

    /// Writes a large body. It may fail: nothing refers to it yet.
    fn put_large(&mut self, id: u64) -> Result<StoredBody, BodyError> {
        let bodies = self.log.large_bodies();
        if id.is_multiple_of(3) {
            // A body that its sender gives up.
            let mut given_up = now(bodies.start())?;
            now(given_up.write(vec![vec![1; 10_000].into()]))?;
        }
        let content = Bytes::from(body(self.shard, id));
        let mut large = now(bodies.start())?;
        now(large.write(content.chunks(3_000).map(Bytes::copy_from_slice).collect()))?;
        let written = now(large.finish())?;
        assert_eq!(written, stored(self.shard, id, written.place));
        self.large_count += 1;
        Ok(written)
    }

    /// Releases bodies to which nothing will refer.
    fn release_placed(&mut self, facts: &[Fact]) {
        for fact in facts {
            if let Fact::Moved(id, extent) | Fact::Gathered(id, extent) = *fact {
                self.log.release(&[extent.stored(self.shard, id)]);
            }
        }
    }

    fn append(&mut self, known: &mut Known, facts: &[Fact]) -> Result<(), AppendError> {
        let number = self.log.next_group();
        let payload = encode(self.shard, number, facts);
        self.log.append(payload.clone().into())?;
        for (id, old) in replay_group(&mut self.state, &payload) {
            if old.place.is_standalone() {
                self.forget.push((number, old.stored(self.shard, id)));
            }
        }
        known.states.insert(number.0, self.state.clone());
        Ok(())
    }

    fn release_settled(&mut self) {
        let watermark = self.log.watermark();
        let (durable, waiting) = self.forget.drain(..).partition(|(number, _)| *number <= watermark);
        self.forget = waiting;
        let durable: Vec<(CommitGroupNumber, StoredBody)> = durable;
        self.log.release(&durable.into_iter().map(|(_, body)| body).collect::<Vec<_>>());
    }

    /// Puts a snapshot and trims. It may fail: the log is complete without it.
    pub(crate) fn snapshot(&mut self, known: &Known) -> bool {
        let upto = self.log.watermark();
        let Some(state) = known.states.get(&upto.0) else { return false };
        if now(self.log.put_snapshot(upto, encode_state(state).into())).is_err() {
            return false;
        }
        self.covered = upto;
        self.trim(known);
        true
    }

    fn trim(&mut self, known: &Known) {
        let Some(state) = known.states.get(&self.log.watermark().0) else { return };
        let oldest = state.values().filter_map(|extent| Some(extent.place.group()?.0 - 1));
        let bodies_upto = oldest.min().unwrap_or_else(|| self.log.watermark().0);
        self.log.trim(CommitGroupNumber(bodies_upto));
    }

    /// Moves the bodies that the journal wants moved. It may fail: the bodies then stay.
    pub(crate) fn move_wanted(&mut self, known: &mut Known) -> Result<Option<BodyRange>, AppendError> {
        let Some(wanted) = self.log.wants_moved() else { return Ok(None) };
        let is_meant = |place: &BodyRef| wanted.contains(*place);
        let meant = self.state.iter().filter(|(_, extent)| is_meant(&extent.place));
        let meant: Vec<(u64, Extent)> = meant.map(|(id, extent)| (*id, *extent)).collect();
        let (events, others): (Vec<_>, Vec<_>) =
            meant.into_iter().partition(|(id, _)| self.has_streams && stream_of(*id).is_some());
        let bodies = others.iter().map(|(id, extent)| extent.stored(self.shard, *id)).collect();
        let Ok(copies) = now(self.log.move_bodies(Move::Each(bodies))) else { return Ok(None) };
        let moved = others.iter().zip(copies);
        let moved = moved.map(|((id, old), copy)| Fact::Moved(*id, Extent { place: copy.place, ..*old }));
        let mut facts: Vec<Fact> = moved.collect();
        for stream in [7, 8] {
            facts.extend(self.gather(stream, events.iter().filter(|(id, _)| stream_of(*id) == Some(stream))));
        }
        self.append(known, &facts).inspect_err(|_| self.release_placed(&facts))?;
        Ok(Some(wanted))
    }

    /// Moves runs of a stream. It may fail: the events then stay, and the journal repeats its request.
    fn gather<'a>(&mut self, stream: u64, events: impl Iterator<Item = &'a (u64, Extent)>) -> Vec<Fact> {
        let events: Vec<&(u64, Extent)> = events.collect();
        let follows = |a: &&(u64, Extent), b: &&(u64, Extent)| a.1.last + IDS_PER_STREAM_EVENT as u64 == b.0;
        let runs: Vec<&[&(u64, Extent)]> =
            events.chunk_by(follows).flat_map(|run| run.chunks(GATHERED_COUNT_MAX)).collect();
        let stored = |run: &&[&(u64, Extent)]| run.iter().map(|(id, e)| e.stored(self.shard, *id)).collect();
        let runs_to_move = Move::Runs { stream, runs: runs.iter().map(stored).collect() };
        let Ok(bodies) = now(self.log.move_bodies(runs_to_move)) else {
            return Vec::new();
        };
        let mut facts = Vec::new();
        for (run, body) in runs.iter().zip(bodies) {
            let ([(first, _), .., (_, last)] | [(first, last)]) = run else { continue };
            let extent = Extent { last: last.last, place: body.place };
            assert_eq!(body, extent.stored(self.shard, *first));
            self.gathered_count += 1;
            facts.push(Fact::Gathered(*first, extent));
        }
        facts
    }
}

/// Uses all functions of a journal for some rounds. Returns `false` if the journal has stopped.
pub(crate) fn work(broker: &mut Broker, oracle: &mut Oracle, random: &mut Random, rounds: u64) -> bool {
    let owner_count = broker.owners.len();
    for round in 0..rounds {
        for (at, owner) in broker.owners.iter_mut().enumerate() {
            // The last shard is mostly idle. It must neither lose data nor keep old segments from being reused.
            if at + 1 == owner_count && round % 16 != 0 {
                continue;
            }
            let known = oracle.shards.get_mut(&owner.shard).unwrap();
            if matches!(owner.work(known, random), Err(AppendError::Poisoned(_))) {
                return false;
            }
        }
        broker.commit(oracle);
        if round % 3 == 2 && !tend(broker, oracle) {
            return false;
        }
        broker.driver.keep();
    }
    true
}

/// The housekeeping of an owner: moves, snapshots, trims. Returns `false` if the journal has stopped.
pub(crate) fn tend(broker: &mut Broker, oracle: &mut Oracle) -> bool {
    for at in 0..broker.owners.len() {
        let owner = &mut broker.owners[at];
        let shard = owner.shard;
        match owner.move_wanted(oracle.shards.get_mut(&shard).unwrap()) {
            Err(AppendError::Poisoned(_)) => return false,
            Ok(Some(range)) if range.last_group().is_some() => broker.done.group_moves += 1,
            Ok(Some(_)) => broker.done.standalone_moves += 1,
            _ => {}
        }
        broker.commit(oracle);
        let owner = &mut broker.owners[at];
        let known = &oracle.shards[&shard];
        if owner.log.wants_snapshot() {
            broker.done.snapshots += u64::from(owner.snapshot(known));
        } else {
            owner.trim(known);
        }
    }
    true
}
