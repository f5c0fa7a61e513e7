//! The journal's state of one shard, shared by its owner, the writer, the keeper and the readers.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use peeklock_journal::Payload;
use peeklock_types::{BodyRef, CommitGroupNumber, ShardId};
use tokio::sync::watch;

use crate::cold::ColdStore;
use crate::fetch::Sums;
use crate::gather::Gather;
use crate::locked;
use crate::segment::Place;
use crate::warm::Windows;

/// The number of groups that are remembered as checked. Other groups are checked again.
const CHECKED_COUNT_MAX: usize = 64 * 1024;

/// The number of bodies of streams that are remembered as checked: approximately eight gigabytes.
const SOUND_COUNT_MAX: usize = 16 * 1024;

pub(crate) struct Shard {
    pub(crate) id: ShardId,
    pub(crate) progress: watch::Sender<Progress>,
    pub(crate) books: Mutex<Books>,
    pub(crate) cold: ColdStore,
    /// Groups whose checksum was verified while their bodies were copied. They are trimmed when all of their bodies are
    /// copied.
    pub(crate) checked: Mutex<BTreeSet<CommitGroupNumber>>,
    /// Bodies of streams whose checksum was verified. Ranges of them can be read without the rest.
    sound: Mutex<BTreeSet<BodyRef>>,
    /// Parts of old groups that were read recently.
    pub(crate) windows: Mutex<Windows>,
    /// Checksums for reads of parts of groups.
    pub(crate) sums: Mutex<Sums>,
    /// Requests to move runs of streams. A thread takes all of them together.
    pub(crate) gathers: Mutex<VecDeque<Gather>>,
    /// The groups up to this one are covered by a snapshot, as of the last trim.
    covered_upto: AtomicU64,
    /// The groups up to this one have no live body.
    bodies_upto: AtomicU64,
    /// The journal has requested that the groups up to this one are given up.
    asked_upto: AtomicU64,
    /// The newest group of this shard in the oldest segment. The keeper is woken only when this group is given up.
    pinned_at: AtomicU64,
    logged_bytes: AtomicU64,
    snapshot_at_bytes: AtomicU64,
    /// The commit that last woke the owner, so that one commit wakes it once.
    woken_by: AtomicU64,
}

/// The state that the owner waits for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    pub(crate) watermark: CommitGroupNumber,
    pub(crate) epoch: u32,
    pub(crate) stopped: bool,
}

/// The groups of a shard in the log.
pub(crate) struct Books {
    /// The epoch of the latest owner. Earlier owners are fenced.
    pub(crate) epoch: u32,
    /// The newest appended group, and its chain.
    pub(crate) last: CommitGroupNumber,
    pub(crate) chain: u64,
    /// The number of the first group in `places`.
    first: CommitGroupNumber,
    places: VecDeque<Place>,
    /// The newest payloads. The last one belongs to group `last`.
    hot: VecDeque<Payload>,
    pub(crate) snapshot: SnapshotMark,
}

/// The newest durable snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SnapshotMark {
    pub(crate) upto: CommitGroupNumber,
    pub(crate) chain: u64,
}

/// The groups of a shard that recovery has found.
pub(crate) struct Logged {
    pub(crate) first: CommitGroupNumber,
    pub(crate) places: VecDeque<Place>,
    pub(crate) chain: u64,
    pub(crate) epoch: u32,
    pub(crate) bytes: u64,
}

impl Shard {
    pub(crate) fn new(id: ShardId, cold: ColdStore, logged: Option<Logged>) -> Self {
        let logged = logged.unwrap_or(Logged {
            first: CommitGroupNumber::NONE.next(),
            places: VecDeque::new(),
            chain: 0,
            epoch: 0,
            bytes: 0,
        });
        let last = CommitGroupNumber(logged.first.0 + logged.places.len() as u64 - 1);
        let books = Books {
            epoch: logged.epoch,
            last,
            chain: logged.chain,
            first: logged.first,
            places: logged.places,
            hot: VecDeque::new(),
            snapshot: SnapshotMark::default(),
        };
        let progress = Progress { watermark: last, epoch: logged.epoch, stopped: false };
        Shard {
            id,
            progress: watch::Sender::new(progress),
            books: Mutex::new(books),
            cold,
            checked: Mutex::default(),
            sound: Mutex::default(),
            windows: Mutex::default(),
            sums: Mutex::default(),
            gathers: Mutex::default(),
            covered_upto: AtomicU64::new(0),
            bodies_upto: AtomicU64::new(0),
            asked_upto: AtomicU64::new(0),
            pinned_at: AtomicU64::new(u64::MAX),
            logged_bytes: AtomicU64::new(logged.bytes),
            snapshot_at_bytes: AtomicU64::new(0),
            woken_by: AtomicU64::new(0),
        }
    }

    /// Returns the newest group whose space may be reused.
    pub(crate) fn free_upto(&self) -> CommitGroupNumber {
        CommitGroupNumber(
            self.covered_upto.load(Ordering::SeqCst).min(self.bodies_upto.load(Ordering::SeqCst)),
        )
    }

    /// Gives up the bodies in groups up to `upto`. Returns whether the keeper may find work.
    pub(crate) fn trim(&self, upto: CommitGroupNumber) -> bool {
        let mut books = locked(&self.books);
        // Replay needs the groups that no snapshot covers, even if they hold no live body.
        self.covered_upto.fetch_max(books.snapshot.upto.0, Ordering::SeqCst);
        let bodies_upto = upto.min(books.last);
        if self.bodies_upto.fetch_max(bodies_upto.0, Ordering::SeqCst) < bodies_upto.0 {
            let mut checked = locked(&self.checked);
            *checked = checked.split_off(&bodies_upto.next());
        }
        books.prune(self.free_upto());
        drop(books);
        self.free_upto().0 >= self.pinned_at.load(Ordering::SeqCst)
    }

    pub(crate) fn note_checked(&self, group: CommitGroupNumber) {
        let mut checked = locked(&self.checked);
        if checked.len() < CHECKED_COUNT_MAX {
            checked.insert(group);
        }
    }

    pub(crate) fn is_sound(&self, place: BodyRef) -> bool {
        locked(&self.sound).contains(&place)
    }

    pub(crate) fn note_sound(&self, place: BodyRef) {
        let mut sound = locked(&self.sound);
        if sound.len() >= SOUND_COUNT_MAX {
            sound.clear();
        }
        sound.insert(place);
    }

    pub(crate) fn pin(&self, newest_in_oldest: Option<CommitGroupNumber>) {
        self.pinned_at.store(newest_in_oldest.map_or(u64::MAX, |group| group.0), Ordering::SeqCst);
    }

    pub(crate) fn ask(&self, upto: CommitGroupNumber) {
        self.asked_upto.fetch_max(upto.0, Ordering::Relaxed);
    }

    /// Returns the newest group whose bodies the journal wants moved.
    pub(crate) fn asked_groups(&self) -> Option<CommitGroupNumber> {
        let asked = self.asked_upto.load(Ordering::Relaxed);
        (asked > self.bodies_upto.load(Ordering::Relaxed)).then_some(CommitGroupNumber(asked))
    }

    pub(crate) fn wants_snapshot(&self, after_bytes: u64) -> bool {
        let since = self.logged_bytes().saturating_sub(self.snapshot_at_bytes.load(Ordering::Relaxed));
        since > after_bytes
            || self.asked_upto.load(Ordering::Relaxed) > self.covered_upto.load(Ordering::Relaxed)
    }

    pub(crate) fn logged_bytes(&self) -> u64 {
        self.logged_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn add_logged(&self, bytes: u64) {
        self.logged_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn snapshot_taken(&self, mark: SnapshotMark, logged_bytes: u64) {
        let mut books = locked(&self.books);
        if mark.upto >= books.snapshot.upto {
            books.snapshot = mark;
            self.snapshot_at_bytes.fetch_max(logged_bytes, Ordering::Relaxed);
        }
    }

    /// Returns `true` for the first call with this commit.
    pub(crate) fn first_wake(&self, commit: u64) -> bool {
        self.woken_by.swap(commit, Ordering::Relaxed) != commit
    }
}

impl Books {
    /// Adds a group that is not durable yet. It is readable only from memory.
    pub(crate) fn hand_over(&mut self, number: CommitGroupNumber, chain: u64, payload: Payload) {
        self.last = number;
        self.chain = chain;
        self.hot.push_back(payload);
    }

    /// Adds the place of a durable group. From now on its payload may leave memory.
    pub(crate) fn landed(&mut self, place: Place) {
        self.places.push_back(place);
    }

    pub(crate) fn cool_oldest(&mut self) {
        self.hot.pop_front();
    }

    pub(crate) fn hot(&self, number: CommitGroupNumber) -> Option<&Payload> {
        let from_end = self.last.0.checked_sub(number.0)?.checked_add(1)?;
        let at = self.hot.len().checked_sub(usize::try_from(from_end).ok()?)?;
        self.hot.get(at)
    }

    pub(crate) fn place(&self, number: CommitGroupNumber) -> Option<Place> {
        let at = number.0.checked_sub(self.first.0)?;
        self.places.get(usize::try_from(at).ok()?).copied()
    }

    /// Returns the first group in the log, if there is one.
    pub(crate) fn oldest(&self) -> Option<CommitGroupNumber> {
        (!self.places.is_empty()).then_some(self.first)
    }

    pub(crate) fn places_from(&self, number: CommitGroupNumber) -> Vec<Place> {
        let skip = number.0.saturating_sub(self.first.0);
        self.places.iter().skip(usize::try_from(skip).unwrap_or(usize::MAX)).copied().collect()
    }

    /// Makes an empty log continue after the snapshot.
    pub(crate) fn start_after(&mut self, mark: SnapshotMark) {
        self.last = mark.upto;
        self.chain = mark.chain;
        self.first = mark.upto.next();
    }

    fn prune(&mut self, free_upto: CommitGroupNumber) {
        while self.first <= free_upto && self.places.pop_front().is_some() {
            self.first = self.first.next();
        }
    }
}
