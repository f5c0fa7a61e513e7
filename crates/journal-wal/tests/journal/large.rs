//! Large bodies on a damaged, full or failing disk. The journal never returns wrong bytes and leaves nothing behind.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::support::{DIRECTORY, now, tiny};
use bytes::Bytes;
use peeklock_journal::{
    BodyError, BodyReader, Journal, LargeBodies, LargeBody, Log, ReadError, Space, StoredBody,
};
use peeklock_journal_wal::sim::{Driver, Fault, SimDisk};
use peeklock_journal_wal::{WalConfig, WalJournal, WalLog};
use peeklock_types::ShardId;

struct Bench {
    disk: SimDisk,
    journal: WalJournal,
    driver: Driver,
    log: WalLog,
}

fn bench(config: WalConfig) -> Bench {
    let disk = SimDisk::new();
    let (journal, mut driver) =
        WalJournal::open_driven(Arc::new(disk.clone()), Path::new(DIRECTORY), config).unwrap();
    let (mut log, _) = now(journal.open(ShardId(0))).unwrap();
    log.adopt(&[]);
    driver.keep();
    Bench { disk, journal, driver, log }
}

impl Bench {
    fn write(&self, size: usize) -> Result<StoredBody, BodyError> {
        let mut body = now(self.log.large_bodies().start())?;
        for piece in Bytes::from(vec![7; size]).chunks(50_000) {
            now(body.write(vec![Bytes::copy_from_slice(piece)]))?;
        }
        now(body.finish())
    }

    fn large_files(&self) -> Vec<PathBuf> {
        let is_large = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "body");
        self.disk.files().into_iter().filter(is_large).collect()
    }
}

#[test]
fn damage_affects_only_the_damaged_body() {
    let bench = bench(tiny());
    let body = bench.write(200_000).unwrap();
    let file = bench.large_files().remove(0);
    let reader = bench.log.reader();
    // The damaged bytes are in the data and in both header fields of the second chunk, and in the header of the first
    // chunk.
    for (at, is_in_first) in [(70_000, false), (24 + 65_536, false), (24 + 65_536 + 4, false), (30, true)] {
        bench.disk.damage(&file, |bytes| bytes[at] ^= 1);
        let first = now(reader.read_range(body, 0..1_000));
        assert_eq!(matches!(first, Err(ReadError::Corrupt { .. })), is_in_first, "byte {at}");
        let second = now(reader.read_range(body, 65_000..66_000));
        assert!(matches!(second, Err(ReadError::Corrupt { .. })), "byte {at}");
        assert!(matches!(now(reader.read(vec![body])), Err(ReadError::Corrupt { .. })), "byte {at}");
        assert!(now(reader.read_range(body, 140_000..150_000)).is_ok(), "byte {at}");
        bench.disk.damage(&file, |bytes| bytes[at] ^= 1);
    }
    bench.disk.damage(&file, |bytes| bytes.truncate(100_000));
    assert!(now(reader.read_range(body, 0..1_000)).is_ok());
    assert!(matches!(now(reader.read_range(body, 0..100_000)), Err(ReadError::Corrupt { .. })));
}

#[test]
fn a_reference_with_a_wrong_size_is_detected() {
    let bench = bench(tiny());
    let body = bench.write(70_000).unwrap();
    for size_bytes in [69_999, 70_001, 65_528, 500_000] {
        let wrong = StoredBody { size_bytes, ..body };
        let found = now(bench.log.reader().read_range(wrong, 65_600..66_000));
        assert!(matches!(found, Err(ReadError::Corrupt { .. })) || found.unwrap().is_empty(), "{size_bytes}");
    }
}

#[test]
fn released_and_abandoned_bodies_free_their_space() {
    let mut bench = bench(tiny());
    let kept = bench.write(100_000).unwrap();
    let used = bench.journal.stats().cold_bytes;
    let file_bytes = bench.disk.bytes(&bench.large_files()[0]).unwrap().len() as u64;
    assert_eq!(used, file_bytes);
    let gone = bench.write(50_000).unwrap();
    let mut given_up = now(bench.log.large_bodies().start()).unwrap();
    now(given_up.write(vec![vec![1; 300_000].into()])).unwrap();
    assert!(bench.journal.stats().cold_bytes > used + 250_000);
    drop(given_up);
    bench.log.release(&[gone]);
    bench.driver.keep();
    assert_eq!((bench.journal.stats().cold_bytes, bench.large_files().len()), (used, 1));
    bench.log.release(&[kept]);
    bench.driver.keep();
    assert_eq!((bench.journal.stats().cold_bytes, bench.large_files().len()), (0, 0));
}

#[test]
fn a_full_disk_rejects_the_body_and_the_journal_continues() {
    let mut bench = bench(tiny());
    let used = bench.disk.used_bytes();
    bench.disk.set_capacity(Some(used + 400_000));
    // The body does not fit: a write fails in the middle.
    assert!(matches!(bench.write(1_000_000), Err(BodyError::NoSpace(_))));
    bench.driver.keep();
    assert_eq!((bench.journal.stats().cold_bytes, bench.large_files().len()), (0, 0));
    bench.driver.keep();
    let body = bench.write(100_000).unwrap();
    // Little space is left: the body is rejected before anything is written.
    bench.disk.set_capacity(Some(bench.disk.used_bytes() + 100_000));
    let mut begun = now(bench.log.large_bodies().start()).unwrap();
    bench.driver.keep();
    assert_ne!(bench.log.space(), Space::Enough);
    let steps = bench.disk.step_count();
    assert!(matches!(bench.write(10), Err(BodyError::NoSpace(_))));
    assert!(matches!(now(begun.write(vec![vec![1; 10].into()])), Err(BodyError::NoSpace(_))));
    assert_eq!(bench.disk.step_count(), steps);
    assert!(now(bench.log.reader().read_range(body, 0..10)).is_ok());
}

#[test]
fn a_failure_at_any_step_leaves_nothing_and_does_not_stop_the_journal() {
    let steps = {
        let bench = bench(tiny());
        let before = bench.disk.step_count();
        bench.write(400_000).unwrap();
        bench.disk.step_count() - before
    };
    assert!(steps >= 6);
    for step in 1..=steps {
        let mut bench = bench(tiny());
        bench.disk.fail_at(bench.disk.step_count() + step, Fault::Error);
        assert!(bench.write(400_000).is_err(), "step {step}");
        bench.disk.clear_faults();
        bench.driver.keep();
        assert_eq!((bench.journal.stats().cold_bytes, bench.large_files().len()), (0, 0), "step {step}");
        assert!(bench.write(400_000).is_ok(), "step {step}");
        assert!(bench.log.append(Bytes::from_static(b"on").into()).is_ok());
    }
}

/// The limit of the directory is reached, not the end of the disk.
#[test]
fn large_bodies_count_towards_the_limit_of_the_directory() {
    let config = WalConfig { total_bytes_max: Some(1_500_000), ..tiny() };
    let mut bench = bench(config);
    let mut kept = Vec::new();
    for _ in 0..100 {
        match bench.write(100_000) {
            Ok(body) => kept.push(body),
            Err(BodyError::NoSpace(_)) => break,
            Err(error) => panic!("{error}"),
        }
        bench.driver.keep();
    }
    assert!((5..15).contains(&kept.len()), "{}", kept.len());
    bench.log.release(&kept);
    bench.driver.keep();
    bench.driver.keep();
    assert!(bench.write(100_000).is_ok());
}
