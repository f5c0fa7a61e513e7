//! Segments of streams on a damaged, full or failing disk. The journal never returns wrong bytes, leaves nothing
//! behind, and removes dead segments.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::support::{DIRECTORY, now, tiny};
use bytes::Bytes;
use peeklock_journal::{BodyReader, Journal, Log, Move, ReadError, StoredBody};
use peeklock_journal_wal::sim::{Driver, Fault, Loss, SimDisk};
use peeklock_journal_wal::{WalConfig, WalJournal, WalLog};
use peeklock_types::{BodyRef, ShardId};

struct Bench {
    disk: SimDisk,
    journal: WalJournal,
    driver: Driver,
    log: WalLog,
}

fn bench(config: WalConfig) -> Bench {
    open(SimDisk::new(), config, &[])
}

fn open(disk: SimDisk, config: WalConfig, live: &[StoredBody]) -> Bench {
    let (journal, mut driver) =
        WalJournal::open_driven(Arc::new(disk.clone()), Path::new(DIRECTORY), config).unwrap();
    let (mut log, _) = now(journal.open(ShardId(0))).unwrap();
    log.adopt(live);
    driver.keep();
    Bench { disk, journal, driver, log }
}

impl Bench {
    /// Appends a group with one body.
    fn append(&mut self, size: usize) -> StoredBody {
        let number = self.log.append(vec![7; size].into()).unwrap();
        while self.driver.commit() {}
        self.driver.keep();
        StoredBody { place: BodyRef::in_group(number, 0).unwrap(), size_bytes: size.try_into().unwrap() }
    }

    fn gather(&mut self, stream: u64, runs: &[&[StoredBody]]) -> Result<Vec<StoredBody>, ReadError> {
        let runs = runs.iter().map(|run| run.to_vec()).collect();
        now(self.log.move_bodies(Move::Runs { stream, runs }))
    }

    fn read(&self, body: StoredBody) -> Result<Bytes, ReadError> {
        now(self.log.reader().read(vec![body])).map(|mut found| found.remove(0))
    }

    fn stream_files(&self) -> Vec<PathBuf> {
        let is_stream = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "stream");
        self.disk.files().into_iter().filter(is_stream).collect()
    }

    /// Checks that the counted usage equals the size of the files.
    fn check_usage(&self) {
        let size = |path: &PathBuf| self.disk.bytes(path).unwrap().len() as u64;
        let used: u64 = self.stream_files().iter().map(size).sum();
        assert_eq!(self.journal.stats().cold_bytes, used);
    }
}

#[test]
fn damage_affects_only_the_damaged_body() {
    let mut bench = bench(WalConfig { stream_segment_bytes: 1 << 20, ..tiny() });
    let bodies = [bench.append(3_000), bench.append(5_000)];
    let gathered = bench.gather(1, &[&bodies, &bodies]).unwrap();
    let file = bench.stream_files().remove(0);
    assert_eq!(bench.disk.bytes(&file).unwrap().len(), 24 + 2 * 8_008);
    for at in [24, 28, 32, 5_000, 24 + 8_007] {
        bench.disk.damage(&file, |bytes| bytes[at] ^= 1);
        assert!(matches!(bench.read(gathered[0]), Err(ReadError::Corrupt { .. })), "byte {at}");
        assert_eq!(bench.read(gathered[1]).unwrap().len(), 8_000, "byte {at}");
        let moved = bench.gather(2, &[&gathered[..1]]);
        assert!(matches!(moved, Err(ReadError::Corrupt { .. })), "a copy should not hide the damage");
        bench.disk.damage(&file, |bytes| bytes[at] ^= 1);
    }
    bench.disk.damage(&file, |bytes| bytes.truncate(10_000));
    assert!(matches!(bench.read(gathered[1]), Err(ReadError::Corrupt { .. })));
    assert_eq!(bench.read(gathered[0]).unwrap().len(), 8_000);
}

/// A range has no checksum of its own. The whole body is verified first, once; then only the range is read.
#[test]
fn a_range_is_read_alone_after_the_whole_body_was_verified() {
    let mut bench = bench(WalConfig { stream_segment_bytes: 1 << 20, ..tiny() });
    let body = bench.append(3_000);
    let gathered = bench.gather(1, &[&[body; 30]]).unwrap().remove(0);
    assert_eq!(gathered.size_bytes, 90_000);
    let part =
        |bench: &Bench, range: std::ops::Range<u32>| now(bench.log.reader().read_range(gathered, range));
    let file = bench.stream_files().remove(0);
    let flip = |bench: &Bench| bench.disk.damage(&file, |bytes| bytes[60_000] ^= 1);
    flip(&bench);
    assert!(
        matches!(part(&bench, 0..100), Err(ReadError::Corrupt { .. })),
        "the damage is outside of the range, but in the same body"
    );
    flip(&bench);
    assert_eq!(part(&bench, 0..100).unwrap(), vec![7; 100]);
    flip(&bench);
    assert_eq!(part(&bench, 70_001..80_000).unwrap(), vec![7; 9_999], "only the range should be read");
    assert_eq!(part(&bench, 89_990..100_000).unwrap().len(), 10);
    assert!(matches!(bench.read(gathered), Err(ReadError::Corrupt { .. })));
    bench.disk.damage(&file, |bytes| bytes.truncate(80_000));
    assert!(matches!(part(&bench, 79_000..90_000), Err(ReadError::Corrupt { .. })));
}

#[test]
fn a_range_of_a_body_in_a_group_is_readable() {
    let mut bench = bench(WalConfig { hot_cache_bytes: 0, ..tiny() });
    let content: Vec<u8> = (0..3_000_u16).map(|byte| byte.to_le_bytes()[0]).collect();
    let number = bench.log.append(content.clone().into()).unwrap();
    while bench.driver.commit() {}
    let body = StoredBody { place: BodyRef::in_group(number, 8).unwrap(), size_bytes: 2_000 };
    for range in [0..2_000, 0..1, 3..17, 8..9, 1_999..5_000, 3_000..4_000] {
        let wanted = &content[8 + range.start.min(2_000) as usize..8 + range.end.min(2_000) as usize];
        assert_eq!(now(bench.log.reader().read_range(body, range.clone())).unwrap(), wanted, "{range:?}");
    }
}

/// Appends a group of 40 bodies of 2 KiB, which is far larger than one read.
fn large_group(bench: &mut Bench) -> Vec<StoredBody> {
    let payload: Vec<u8> = (0..80 * 1024).map(byte_at).collect();
    let number = bench.log.append(payload.into()).unwrap();
    while bench.driver.commit() {}
    bench.driver.keep();
    let body =
        |at: u32| StoredBody { place: BodyRef::in_group(number, at * 2048).unwrap(), size_bytes: 2048 };
    (0..40).map(body).collect()
}

fn roomy() -> WalConfig {
    let bytes = 256 * 1024;
    WalConfig {
        hot_cache_bytes: 0,
        segment_bytes: bytes,
        first_segment_bytes: bytes,
        commit_bytes_max: 128 * 1024,
        ring_bytes: 4 * bytes,
        ..tiny()
    }
}

/// Returns the content of a large group at an offset. No part of it is like another one.
fn byte_at(at: u32) -> u8 {
    at.wrapping_mul(0x9e37_79b1).rotate_left(13).wrapping_mul(0x85eb_ca6b).to_be_bytes()[0]
}

fn content(at: usize) -> Vec<u8> {
    let start = u32::try_from(at).unwrap() * 2048;
    (start..start + 2048).map(byte_at).collect()
}

/// Flips a bit of a body in the log.
fn flip(bench: &Bench, at: usize) {
    let wanted = content(at);
    let is_log = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "wal");
    for path in bench.disk.files().into_iter().filter(is_log) {
        let bytes = bench.disk.bytes(&path).unwrap();
        if let Some(start) = bytes.windows(64).position(|window| window == &wanted[..64]) {
            bench.disk.damage(&path, |bytes| bytes[start + 1000] ^= 1);
        }
    }
}

#[test]
fn a_body_that_is_read_alone_out_of_a_large_group_is_checked() {
    for (is_known, several) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut bench = bench(roomy());
        let bodies = large_group(&mut bench);
        let read = |bench: &Bench, at: usize| {
            // More than a few bodies are read in another way than one.
            let wanted = if several { vec![bodies[at]; 33] } else { vec![bodies[at]] };
            now(bench.log.reader().read(wanted)).map(|found| found[0].clone())
        };
        if is_known {
            // The whole group was verified before the damage.
            assert_eq!(read(&bench, 39).unwrap(), content(39));
        }
        assert_eq!(read(&bench, 3).unwrap(), content(3));
        flip(&bench, 20);
        let damaged = read(&bench, 20);
        assert!(matches!(damaged, Err(ReadError::Corrupt { .. })), "{is_known}, {several}: {damaged:?}");
        let part = now(bench.log.reader().read_range(bodies[20], 900..1100));
        assert!(matches!(part, Err(ReadError::Corrupt { .. })), "{is_known}, {several}: {part:?}");
        // The group was verified, so its other bodies are good.
        assert_eq!(read(&bench, 39).unwrap(), content(39));
    }
}

#[test]
fn a_body_of_a_group_that_was_damaged_before_the_first_read_is_not_trusted() {
    let mut bench = bench(roomy());
    let bodies = large_group(&mut bench);
    flip(&bench, 20);
    for body in [bodies[3], bodies[20]] {
        assert!(matches!(bench.read(body), Err(ReadError::Corrupt { .. })));
    }
}

/// The log has checksums only for whole groups, so a body next to a damaged one is not trusted either.
#[test]
fn a_damaged_group_is_not_copied() {
    let mut bench = bench(WalConfig { hot_cache_bytes: 0, ..tiny() });
    let body = bench.append(3_000);
    let part = StoredBody { size_bytes: 1_000, ..body };
    let file =
        bench.disk.files().into_iter().find(|path| path.extension().is_some_and(|e| e == "wal")).unwrap();
    bench.disk.damage(&file, |bytes| bytes[4096 + 64 + 2_000] ^= 1);
    assert!(matches!(bench.gather(1, &[&[part]]), Err(ReadError::Corrupt { .. })));
    assert!(bench.stream_files().is_empty());
    bench.disk.damage(&file, |bytes| bytes[4096 + 64 + 2_000] ^= 1);
    assert!(bench.gather(1, &[&[part]]).is_ok());
}

#[test]
fn released_bodies_free_their_space() {
    let mut bench = bench(tiny());
    let body = bench.append(3_000);
    let mut all = Vec::new();
    for stream in 0..5 {
        all.extend(bench.gather(stream, &[&[body], &[body, body]]).unwrap());
    }
    bench.check_usage();
    assert!(bench.stream_files().len() >= 5);
    bench.log.release(&all[2..]);
    bench.driver.keep();
    bench.check_usage();
    assert!(bench.stream_files().len() <= 2, "{:?}", bench.stream_files());
    bench.log.release(&all[..2]);
    bench.driver.keep();
    assert_eq!((bench.journal.stats().cold_bytes, bench.stream_files().len()), (0, 0));
}

/// If the caller never receives the new places, the copies are orphaned and removed.
#[test]
fn copies_without_a_caller_are_removed() {
    let mut bench = bench(tiny());
    let body = bench.append(3_000);
    let kept = bench.gather(1, &[&[body]]).unwrap();
    drop(bench.log.move_bodies(Move::Runs { stream: 1, runs: vec![vec![body, body]] }));
    drop(bench.log.move_bodies(Move::Runs { stream: 2, runs: vec![vec![body]] }));
    drop(bench.log.move_bodies(Move::Each(vec![body])));
    bench.log.release(&kept);
    bench.driver.keep();
    assert_eq!((bench.journal.stats().cold_bytes, bench.stream_files().len()), (0, 0));
}

/// A stream with little live data takes little space, although its segments may grow large.
#[test]
fn a_stream_that_is_released_from_its_front_stays_small() {
    let mut bench = bench(WalConfig { stream_segment_bytes: 64 << 20, ..tiny() });
    let body = bench.append(20_000);
    let mut live = VecDeque::new();
    for round in 0..300 {
        live.extend(bench.gather(1, &[&[body; 5]]).unwrap());
        if live.len() > 6 {
            bench.log.release(&[live.pop_front().unwrap()]);
        }
        bench.driver.keep();
        bench.check_usage();
        let used = bench.journal.stats().cold_bytes;
        assert!(used < 3_000_000, "round {round}: {used} bytes for 600,000");
        assert_eq!(bench.log.wants_moved(), None);
    }
    let expected = vec![7; 100_000];
    assert!(live.iter().all(|body| bench.read(*body).unwrap() == expected));
}

#[test]
fn a_move_on_a_full_disk_fails_and_leaves_nothing() {
    let mut bench = bench(tiny());
    let body = bench.append(20_000);
    let kept = bench.gather(1, &[&[body]]).unwrap();
    let used = bench.journal.stats().cold_bytes;
    bench.disk.set_capacity(Some(bench.disk.used_bytes() + 70_000));
    for _ in 0..3 {
        let run = [body; 2];
        assert!(matches!(bench.gather(1, &[&run[..]; 5]), Err(ReadError::NoSpace(_))));
        bench.driver.keep();
        bench.check_usage();
        assert_eq!(bench.journal.stats().cold_bytes, used);
    }
    bench.disk.set_capacity(None);
    bench.driver.keep();
    let more = bench.gather(1, &[&[body; 2]]).unwrap();
    assert_eq!(bench.read(more[0]).unwrap(), vec![7; 40_000]);
    assert_eq!(bench.read(kept[0]).unwrap(), vec![7; 20_000]);
}

#[test]
fn a_failure_at_any_step_leaves_nothing_and_does_not_stop_the_journal() {
    let prepared = || {
        let mut bench = bench(tiny());
        let body = bench.append(3_000);
        // The first copy is appended to this segment, the others go to new segments.
        let older = bench.gather(1, &[&[body]]).unwrap().remove(0);
        (bench, body, older)
    };
    let run = |bench: &mut Bench, body: StoredBody| bench.gather(1, &[&[body], &[body, body], &[body]]);
    let steps = {
        let (mut bench, body, _) = prepared();
        let before = bench.disk.step_count();
        run(&mut bench, body).unwrap();
        bench.disk.step_count() - before
    };
    assert!(steps >= 6, "{steps}");
    for step in 1..=steps {
        let (mut bench, body, older) = prepared();
        bench.disk.fail_at(bench.disk.step_count() + step, Fault::Error);
        assert!(run(&mut bench, body).is_err(), "step {step}");
        bench.disk.clear_faults();
        bench.driver.keep();
        assert_eq!(bench.stream_files().len(), 1, "step {step}");
        let gathered = run(&mut bench, body).unwrap();
        assert!(gathered.iter().all(|new| new.place.place() != older.place.place()), "step {step}");
        assert_eq!(bench.read(gathered[1]).unwrap(), vec![7; 6_000]);
        assert_eq!(bench.read(older).unwrap(), vec![7; 3_000]);
        assert!(bench.log.append(Bytes::from_static(b"on").into()).is_ok());
    }
}

/// Nothing is written behind the bytes that a power failure has left after the last durable body. They are removed with
/// their segment.
#[test]
fn nothing_is_written_behind_a_torn_end() {
    for seed in 0..20 {
        let config = WalConfig { stream_segment_bytes: 1 << 20, ..tiny() };
        let mut bench = bench(config.clone());
        let body = bench.append(3_000);
        let kept = bench.gather(1, &[&[body]]).unwrap();
        bench.disk.fail_at(bench.disk.step_count() + 2, Fault::PowerOff);
        assert!(bench.gather(1, &[&[body, body]]).is_err());
        let disk = bench.disk.clone();
        drop(bench);
        disk.reboot(Loss::Some { seed });
        let mut bench = open(disk, config, &kept);
        let torn = bench.stream_files();
        let next = bench.gather(1, &[&[body]]).unwrap();
        assert_eq!(bench.stream_files().len(), torn.len() + 1);
        assert_eq!(bench.read(next[0]).unwrap(), bench.read(kept[0]).unwrap());
        bench.log.release(&kept);
        bench.driver.keep();
        assert!(torn.iter().all(|path| !bench.stream_files().contains(path)));
        bench.check_usage();
    }
}

/// The log is missing if a file exists that was made from it.
#[test]
fn a_segment_of_a_stream_proves_that_there_was_a_log() {
    let mut bench = bench(tiny());
    let body = bench.append(3_000);
    bench.gather(1, &[&[body]]).unwrap();
    let disk = bench.disk.clone();
    drop(bench);
    for path in disk.files().into_iter().filter(|path| path.extension().is_some_and(|e| e == "wal")) {
        peeklock_journal_wal::disk::Disk::remove(&disk, &path).unwrap();
    }
    let opened = WalJournal::open_driven(Arc::new(disk), Path::new(DIRECTORY), tiny());
    let error = opened.map(drop).unwrap_err().to_string();
    assert!(error.contains("the log is missing") && error.contains(".stream"), "{error}");
}

/// A reader that is overtaken by retention gets the right bytes or [`ReadError::Gone`].
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_never_gets_wrong_bytes_while_segments_are_removed() {
    let directory = tempfile::tempdir().unwrap();
    let config = WalConfig { free_bytes_soft: 0, free_bytes_hard: 0, ..tiny() };
    let journal = WalJournal::open(directory.path(), config).unwrap();
    let (mut log, _) = journal.open(ShardId(0)).await.unwrap();
    log.adopt(&[]);
    let (sender, receiver) = tokio::sync::watch::channel(None::<(StoredBody, u8)>);
    let reader = log.reader();
    let reading = tokio::spawn(async move {
        let (mut read_count, mut gone_count) = (0, 0);
        while receiver.has_changed().is_ok() {
            let Some((body, content)) = *receiver.borrow() else { continue };
            match reader.read(vec![body]).await {
                Ok(found) => {
                    assert_eq!(found, [vec![content; 6_000]]);
                    read_count += 1;
                }
                Err(ReadError::Gone(_)) => gone_count += 1,
                Err(error) => panic!("{error}"),
            }
        }
        (read_count, gone_count)
    });
    let mut live = VecDeque::new();
    for round in 0..150_u8 {
        let number = log.append(vec![round; 3_000].into()).unwrap();
        while log.watermark() < number {
            log.durable(log.watermark()).await.unwrap();
        }
        let body = StoredBody { place: BodyRef::in_group(number, 0).unwrap(), size_bytes: 3_000 };
        let gathered =
            log.move_bodies(Move::Runs { stream: 1, runs: vec![vec![body; 2]] }).await.unwrap().remove(0);
        live.push_back((gathered, round));
        // The body is released in the next round, while it may be read.
        sender.send_replace(live.get(1).copied());
        if live.len() > 2 {
            let (oldest, _) = live.pop_front().unwrap();
            log.release(&[oldest]);
        }
    }
    drop(sender);
    let (read_count, gone_count) = reading.await.unwrap();
    println!("{read_count} read, {gone_count} gone");
    assert!(read_count > 0);
}

/// A slow reader must not keep a whole group in memory because of a small part of it.
#[test]
fn a_body_that_is_held_for_long_does_not_keep_its_group_in_memory() {
    let mut bench = bench(WalConfig { hot_cache_bytes: 1 << 20, ..tiny() });
    let whole = bench.append(20_000);
    let part = StoredBody { size_bytes: 500, ..whole };
    let reader = bench.log.reader();
    let (slice, copy) = (reader.try_read(part).unwrap(), reader.try_read_apart(part).unwrap());
    let again = now(reader.read(vec![part])).unwrap().remove(0);
    assert!(slice == copy && slice == again);
    assert_eq!(slice.as_ptr(), reader.try_read(whole).unwrap().as_ptr());
    assert!(slice.as_ptr() != copy.as_ptr() && slice.as_ptr() != again.as_ptr());
    assert_eq!(
        slice.as_ptr(),
        reader.try_read_apart(whole).unwrap().as_ptr(),
        "a body that is most of its group should not be copied"
    );
}
