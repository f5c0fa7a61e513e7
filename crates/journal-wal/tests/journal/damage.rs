//! Cuts, flipped bits and zeroed ends. Recovery returns exactly the intact prefix if only the last commit can be torn,
//! and otherwise an error with the file and the offset. It never returns wrong data, and never omits data that it could
//! have found.
//!
//! This test finds the frames by the layout in `docs/design/wal-format.md`, not with the code under test.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::support::{Broker, DIRECTORY, Oracle, Random, now, tend, tiny, work};
use peeklock_journal::{BodyReader, Journal, Log, OpenError};
use peeklock_journal_wal::sim::SimDisk;
use peeklock_journal_wal::{WalConfig, WalJournal};
use peeklock_types::ShardId;

const BLOCK: usize = 4096;
const FRAME_HEADER: usize = 64;
const SHARDS: u16 = 3;

/// A frame in a segment.
#[derive(Clone, Debug)]
struct Frame {
    range: Range<usize>,
    shard: u16,
    number: u64,
    commit: u64,
    payload: Vec<u8>,
}

/// A used segment.
struct Segment {
    path: PathBuf,
    frames: Vec<Frame>,
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn u32_at(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()).try_into().unwrap()
}

fn frames_of(bytes: &[u8], id: u64) -> Vec<Frame> {
    let mut frames = Vec::new();
    let mut at = BLOCK;
    while at + FRAME_HEADER <= bytes.len() && bytes[at..at + 4] == *b"PLgf" && u64_at(bytes, at + 16) == id {
        let end = at + FRAME_HEADER + u32_at(bytes, at + 8);
        frames.push(Frame {
            range: at..end,
            shard: u16::from_le_bytes(bytes[at + 6..at + 8].try_into().unwrap()),
            number: u64_at(bytes, at + 40),
            commit: u64_at(bytes, at + 24),
            payload: bytes[at + FRAME_HEADER..end].to_vec(),
        });
        at = end.next_multiple_of(if u32_at(bytes, at + 32) > 0 { 8 } else { BLOCK });
    }
    frames
}

fn segments_of(disk: &SimDisk) -> Vec<Segment> {
    let files = disk.files().into_iter().filter(|path| path.extension().is_some_and(|e| e == "wal"));
    files
        .filter_map(|path| {
            let bytes = disk.bytes(&path).unwrap();
            let id = path.file_stem().unwrap().to_str().unwrap().parse().unwrap();
            let used = bytes[..8] == *b"PLwalseg" && u64_at(&bytes, 12) == id;
            used.then(|| Segment { path, frames: frames_of(&bytes, id) })
        })
        .collect()
}

/// A log of many commits in several segments. Nothing is trimmed, and some commits have several groups.
fn filled() -> SimDisk {
    let (disk, mut oracle) = (SimDisk::new(), Oracle::default());
    let mut config = tiny();
    config.ring_bytes = 1 << 30;
    config.snapshot_after_bytes = 1 << 30;
    let mut broker = Broker::open(&disk, &config, &mut oracle, SHARDS).unwrap();
    assert!(work(&mut broker, &mut oracle, &mut Random(5), 25));
    // The last segment has several commits, and the last commit has several groups of each shard.
    for _ in 0..2 {
        let owner = &mut broker.owners[0];
        owner.work(oracle.shards.get_mut(&owner.shard).unwrap(), &mut Random(6)).unwrap();
        broker.commit(&mut oracle);
    }
    for _ in 0..2 {
        for owner in &mut broker.owners {
            owner.work(oracle.shards.get_mut(&owner.shard).unwrap(), &mut Random(6)).unwrap();
        }
    }
    broker.commit(&mut oracle);
    disk
}

type Groups = BTreeMap<u16, Vec<(u64, Vec<u8>)>>;

/// Returns the replayed groups or the error.
fn replay(disk: &SimDisk) -> Result<Groups, OpenError> {
    let (journal, _driver) = WalJournal::open_driven(Arc::new(disk.clone()), Path::new(DIRECTORY), tiny())?;
    let mut found = Groups::new();
    for shard in 0..SHARDS {
        let (_log, recovery) = now(journal.open(ShardId(shard)))?;
        for group in recovery.groups {
            let group = group?;
            found.entry(shard).or_default().push((group.number.0, group.payload.to_vec()));
        }
    }
    Ok(found)
}

fn groups_in<'a>(frames: impl Iterator<Item = &'a Frame>) -> Groups {
    let mut groups = Groups::new();
    for frame in frames {
        groups.entry(frame.shard).or_default().push((frame.number, frame.payload.clone()));
    }
    groups
}

/// The expected result after these bytes of a segment have changed.
enum Verdict {
    Found(Groups),
    Corrupt(PathBuf, usize),
}

fn verdict(segments: &[Segment], at: usize, is_changed: impl Fn(Range<usize>) -> bool) -> Verdict {
    let segment = &segments[at];
    let older = segments[..at].iter().flat_map(|segment| &segment.frames);
    let header_lost = is_changed(0..56);
    let first_lost = segment.frames.iter().position(|frame| is_changed(frame.range.clone()));
    let is_last = at + 1 == segments.len();
    let lost_from = if header_lost { Some(0) } else { first_lost };
    let Some(lost_from) = lost_from else {
        return Verdict::Found(groups_in(segments.iter().flat_map(|segment| &segment.frames)));
    };
    let torn_commit = segment.frames[lost_from].commit;
    let header_of = |frame: &Frame| frame.range.start..frame.range.start + FRAME_HEADER;
    let later = segment.frames.iter().any(|f| f.commit > torn_commit && !is_changed(header_of(f)));
    let offset = if header_lost { 0 } else { segment.frames[lost_from].range.start };
    if !is_last || later {
        return Verdict::Corrupt(segment.path.clone(), offset);
    }
    Verdict::Found(groups_in(older.chain(&segment.frames[..lost_from])))
}

fn check(disk: &SimDisk, expected: &Verdict, what: &str) {
    match (replay(disk), expected) {
        (Ok(found), Verdict::Found(groups)) => {
            assert!(found == *groups, "{what}: unexpected groups")
        }
        (Err(OpenError::Corrupt { file, offset, .. }), Verdict::Corrupt(path, at)) => {
            assert_eq!((Path::new(&file), offset), (path.as_path(), *at as u64), "{what}");
        }
        (Err(error), Verdict::Corrupt(..)) => panic!("{what}: {error}"),
        (Err(error), Verdict::Found(_)) => {
            panic!("{what}: a torn end is not damage, but recovery failed: {error}")
        }
        (Ok(_), Verdict::Corrupt(path, at)) => {
            panic!("{what}: damage of {} at {at} was not detected", path.display())
        }
    }
}

/// Changes a segment and checks the result of recovery, twice.
fn damage(disk: &SimDisk, segments: &[Segment], at: usize, what: &str, change: impl FnOnce(&mut Vec<u8>)) {
    let disk = disk.copy();
    let path = &segments[at].path;
    let before = disk.bytes(path).unwrap();
    disk.damage(path, change);
    let after = disk.bytes(path).unwrap();
    let expected = verdict(segments, at, |range| before[range.clone()] != after[range]);
    let files = disk.files();
    check(&disk, &expected, what);
    if matches!(expected, Verdict::Corrupt(..)) {
        assert_eq!(disk.files(), files, "{what}: no file should be removed");
        assert_eq!(disk.bytes(path).unwrap(), after, "{what}: no file should be changed");
    }
    check(&disk, &expected, what);
}

/// Chooses an offset in a segment, more often near the end of the log.
fn place(segments: &[Segment], random: &mut Random, size: usize) -> (usize, usize) {
    let at = if random.below(2) == 0 { segments.len() - 1 } else { random.index(segments.len()) };
    let frames = &segments[at].frames;
    let last = frames.last().unwrap();
    let offset = match random.below(4) {
        0 => random.index(size),
        1 => last.range.start + random.index(last.range.len()),
        2 => frames.iter().rfind(|f| f.commit < last.commit).map_or(0, |f| f.range.start),
        _ => random.index(last.range.end),
    };
    (at, offset)
}

fn size_of(disk: &SimDisk, segment: &Segment) -> usize {
    disk.bytes(&segment.path).unwrap().len()
}

#[test]
fn the_test_log_has_the_required_frames() {
    let disk = filled();
    let segments = segments_of(&disk);
    let last = segments.last().unwrap();
    assert!(
        segments.len() > 3
            && last.frames.iter().map(|f| f.commit).min() < last.frames.iter().map(|f| f.commit).max()
    );
    let newest = last.frames.last().unwrap().commit;
    assert!(
        last.frames.iter().filter(|f| f.commit == newest).count() >= 6,
        "the last commit has several groups"
    );
    assert!(replay(&disk).unwrap() == groups_in(segments.iter().flat_map(|s| &s.frames)));
}

#[test]
fn a_flipped_bit_is_detected_or_harmless() {
    let disk = filled();
    let segments = segments_of(&disk);
    let mut random = Random(11);
    for n in 0..1000 {
        let (at, offset) = place(&segments, &mut random, size_of(&disk, &segments[0]));
        let bit = random.below(8);
        damage(
            &disk,
            &segments,
            at,
            &format!("flip {n}: bit {bit} of byte {offset} in segment {at}"),
            |bytes| {
                if let Some(byte) = bytes.get_mut(offset) {
                    *byte ^= 1 << bit;
                }
            },
        );
    }
}

#[test]
fn a_zeroed_end_is_detected_or_leaves_the_prefix() {
    let disk = filled();
    let segments = segments_of(&disk);
    let mut random = Random(12);
    for n in 0..800 {
        let (at, offset) = place(&segments, &mut random, size_of(&disk, &segments[0]));
        damage(&disk, &segments, at, &format!("zero {n}: from byte {offset} of segment {at}"), |bytes| {
            let from = offset.min(bytes.len());
            bytes[from..].fill(0);
        });
    }
}

#[test]
fn zeroed_sectors_are_detected_or_leave_the_prefix() {
    let disk = filled();
    let segments = segments_of(&disk);
    let mut random = Random(13);
    for n in 0..400 {
        let (at, offset) = place(&segments, &mut random, size_of(&disk, &segments[0]));
        let start = offset / 512 * 512;
        damage(&disk, &segments, at, &format!("sector {n}: byte {start} of segment {at}"), |bytes| {
            let from = start.min(bytes.len());
            let to = (start + 512).min(bytes.len());
            bytes[from..to].fill(0);
        });
    }
}

/// A segment has its full size before it is used, so a shorter one was cut: even a missing unused end is detected.
#[test]
fn the_error_names_a_cut_file() {
    let disk = filled();
    let segments = segments_of(&disk);
    let mut random = Random(14);
    for n in 0..600 {
        let (at, offset) = place(&segments, &mut random, size_of(&disk, &segments[0]));
        let copy = disk.copy();
        let path = &segments[at].path;
        let cut = offset.min(size_of(&disk, &segments[at]) - 1);
        copy.damage(path, |bytes| bytes.truncate(cut));
        match replay(&copy) {
            Err(OpenError::Corrupt { file, .. }) => assert_eq!(Path::new(&file), path, "cut {n} at {cut}"),
            other => panic!("cut {n} of segment {at} at {cut}: {:?}", other.map(|_| ())),
        }
    }
}

#[test]
fn a_missing_segment_is_detected() {
    let disk = filled();
    let segments = segments_of(&disk);
    for segment in &segments[..segments.len() - 1] {
        let copy = disk.copy();
        peeklock_journal_wal::disk::Disk::remove(&copy, &segment.path).unwrap();
        assert!(
            matches!(replay(&copy), Err(OpenError::Corrupt { .. })),
            "{} is missing",
            segment.path.display()
        );
    }
}

/// The loss of a confirmed commit is detected even if the commit after it is torn, because any frame of the later
/// commit proves that the earlier one existed.
#[test]
fn damage_before_a_torn_commit_is_detected() {
    let disk = filled();
    let segments = segments_of(&disk);
    let frames = &segments.last().unwrap().frames;
    let newest = frames.last().unwrap();
    let acknowledged = frames.iter().rfind(|f| f.commit < newest.commit).unwrap().range.clone();
    let torn = frames.iter().find(|f| f.commit == newest.commit).unwrap().range.start;
    for sectors in 1..=(newest.range.start - torn) / 512 {
        let what = format!("{sectors} sectors of the last commit did not reach the disk");
        damage(&disk, &segments, segments.len() - 1, &what, |bytes| {
            bytes[acknowledged.start + FRAME_HEADER] ^= 1;
            bytes[torn..torn + sectors * 512].fill(0);
        });
    }
}

#[test]
fn a_missing_log_is_detected() {
    let (disk, mut oracle) = (SimDisk::new(), Oracle::default());
    let mut broker = Broker::open(&disk, &tiny(), &mut oracle, SHARDS).unwrap();
    assert!(work(&mut broker, &mut oracle, &mut Random(5), 40));
    drop(broker);
    let is_in = |path: &Path, directory: &str| path.starts_with(Path::new(DIRECTORY).join(directory));
    for evidence in ["snap", "cold"] {
        let copy = disk.copy();
        assert!(copy.files().iter().any(|path| is_in(path, evidence)));
        for path in copy.files() {
            let gone = is_in(&path, "wal") || (is_in(&path, "snap") && evidence == "cold");
            if gone {
                peeklock_journal_wal::disk::Disk::remove(&copy, &path).unwrap();
            }
        }
        let found = replay(&copy);
        assert!(
            matches!(&found, Err(OpenError::Corrupt { file, .. }) if file.ends_with("wal")),
            "with {evidence}: {:?}",
            found.map(|_| ())
        );
    }
}

/// Intact frames in the wrong place are rejected.
#[test]
fn swapped_segments_are_detected() {
    let disk = filled();
    let segments = segments_of(&disk);
    for pair in segments.windows(2) {
        let copy = disk.copy();
        let (one, two) = (copy.bytes(&pair[0].path).unwrap(), copy.bytes(&pair[1].path).unwrap());
        copy.damage(&pair[0].path, |bytes| *bytes = two);
        copy.damage(&pair[1].path, |bytes| *bytes = one);
        assert!(matches!(replay(&copy), Err(OpenError::Corrupt { .. })));
    }
}

/// A journal after a long run: most of its log was reused, and its state is in snapshots and cold segments.
fn long_trimmed(config: &WalConfig) -> (SimDisk, Oracle) {
    let (disk, mut oracle) = (SimDisk::new(), Oracle::default());
    let mut broker = Broker::open(&disk, config, &mut oracle, SHARDS).unwrap().with_streams();
    assert!(work(&mut broker, &mut oracle, &mut Random(21), 150));
    assert!(broker.done.standalone_moves > 0 && broker.done.snapshots > 10, "{:?}", broker.done);
    // The last shard is idle from here on: its groups leave the log, and only its snapshots are left.
    let idle = broker.owners.len() - 1;
    let shard = broker.owners[idle].shard;
    assert!(broker.owners[idle].snapshot(&oracle.shards[&shard]));
    for _ in 0..60 {
        for owner in &mut broker.owners[..idle] {
            owner.work(oracle.shards.get_mut(&owner.shard).unwrap(), &mut Random(22)).unwrap();
        }
        broker.commit(&mut oracle);
        assert!(tend(&mut broker, &mut oracle));
        broker.driver.keep();
    }
    drop(broker);
    (disk, oracle)
}

/// Opens all shards and reads all live bodies. The result must be the newest state that the oracle has.
fn read_all(disk: &SimDisk, config: &WalConfig, oracle: &Oracle) -> Result<(), String> {
    let (journal, _driver) =
        WalJournal::open_driven(Arc::new(disk.clone()), Path::new(DIRECTORY), config.clone())
            .map_err(|error| error.to_string())?;
    for (shard, known) in &oracle.shards {
        let (log, recovery) = now(journal.open(*shard)).map_err(|error| error.to_string())?;
        recovery.groups.for_each(|group| drop(group.unwrap()));
        assert_eq!(log.watermark().0, known.durable, "{shard}: not the newest state");
        let state = &known.states[&known.durable];
        let wanted: Vec<_> = state.iter().map(|(id, extent)| extent.stored(*shard, *id)).collect();
        let found = now(log.reader().read(wanted)).map_err(|error| error.to_string())?;
        for ((id, extent), found) in state.iter().zip(found) {
            assert_eq!(found, extent.content(*shard, *id), "{shard}: body {id}");
        }
    }
    Ok(())
}

/// A damaged snapshot or cold segment causes no harm or an error with its name. It never leads to an older state or
/// another body.
#[test]
fn a_damaged_snapshot_or_cold_segment_is_named_or_harmless() {
    let config = tiny();
    let (disk, oracle) = long_trimmed(&config);
    read_all(&disk, &config, &oracle).unwrap();
    let is_in = |path: &Path, directory: &str| path.starts_with(Path::new(DIRECTORY).join(directory));
    let files: Vec<PathBuf> =
        disk.files().into_iter().filter(|path| is_in(path, "snap") || is_in(path, "cold")).collect();
    assert!(files.iter().any(|path| path.extension().is_some_and(|e| e == "stream")));
    let mut random = Random(23);
    let (mut named, mut harmless) = (0, 0);
    for n in 0..600 {
        let copy = disk.copy();
        let path = &files[random.index(files.len())];
        let size = copy.bytes(path).unwrap().len();
        let (at, kind) = (random.index(size), random.below(3));
        copy.damage(path, |bytes| match kind {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at..].fill(0),
            _ => bytes.truncate(at),
        });
        match read_all(&copy, &config, &oracle) {
            Ok(()) => harmless += 1,
            Err(error) => {
                named += 1;
                let directory = path.parent().unwrap().to_str().unwrap();
                assert!(error.contains(directory), "{n}: {} byte {at}: {error}", path.display());
            }
        }
    }
    assert!(named > 100 && harmless > 20, "{named} named, {harmless} harmless");
}
