//! Faults of a data directory, and the errors for the user.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::{Broker, DIRECTORY, Oracle, Random, now, tiny, work};
use bytes::Bytes;
use peeklock_journal::{Journal, Log, OpenError};
use peeklock_journal_wal::sim::SimDisk;
use peeklock_journal_wal::{WalConfig, WalJournal, WalLog};
use peeklock_types::{CommitGroupNumber, Placement, ShardId};

fn open(directory: &Path) -> Result<WalJournal, OpenError> {
    WalJournal::open(directory, WalConfig::default())
}

fn bytes_under(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    entries
        .map(|e| if e.path().is_dir() { bytes_under(&e.path()) } else { e.metadata().unwrap().len() })
        .sum()
}

#[tokio::test]
async fn an_empty_broker_needs_little_space() {
    let directory = tempfile::tempdir().unwrap();
    let journal = open(directory.path()).unwrap();
    let (mut log, _) = journal.open(ShardId(0)).await.unwrap();
    log.append(Bytes::from_static(b"hello").into()).unwrap();
    log.durable(CommitGroupNumber::NONE).await.unwrap();
    // The spares are made in the background, so the test waits for the largest size.
    let patience = Instant::now() + Duration::from_secs(20);
    while journal.stats().spare_count < WalConfig::default().spares_min && Instant::now() < patience {
        std::thread::yield_now();
    }
    drop((log, journal));
    let bytes = bytes_under(directory.path());
    assert!(bytes <= 64 << 20, "{bytes} bytes");
    assert!(bytes >= 32 << 20, "the spares should exist: {bytes} bytes");
}

#[test]
fn a_directory_has_one_owner() {
    let directory = tempfile::tempdir().unwrap();
    let journal = open(directory.path()).unwrap();
    let error = open(directory.path()).err().unwrap();
    assert!(matches!(error, OpenError::Locked { .. }));
    assert!(error.to_string().contains("in use by another process"), "{error}");
    let pid = std::fs::read_to_string(directory.path().join("LOCK")).unwrap();
    assert_eq!(pid.trim(), std::process::id().to_string());
    assert!(ask_other_process(directory.path()).contains("LOCKED"));
    drop(journal);
    assert!(ask_other_process(directory.path()).contains("OPENED"));
    open(directory.path()).unwrap();
}

const OTHER: &str = "PEEKLOCK_TEST_OTHER_DIRECTORY";

/// Runs [`another_process_opens`] in another process.
fn ask_other_process(directory: &Path) -> String {
    let program = std::env::current_exe().unwrap();
    let output = Command::new(program)
        .args(["--exact", "directory::another_process_opens", "--nocapture"])
        .env(OTHER, directory)
        .output();
    String::from_utf8_lossy(&output.unwrap().stdout).into_owned()
}

#[test]
fn another_process_opens() {
    let own = tempfile::tempdir().unwrap();
    let directory = std::env::var_os(OTHER).map_or_else(|| own.path().to_path_buf(), Into::into);
    match open(&directory) {
        Ok(_) => println!("OPENED"),
        Err(OpenError::Locked { .. }) => println!("LOCKED"),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_newer_format_is_rejected_without_changes() {
    let directory = tempfile::tempdir().unwrap();
    drop(open(directory.path()).unwrap());
    let file = directory.path().join("FORMAT");
    for (words, what) in [
        ("peeklock journal 7\nneeds 9.8.7\n", "has format 7: it needs version 9.8.7 of the program"),
        ("peeklock journal 7\n", "has format 7: it needs version that created it of the program"),
        (
            "peeklock journal 3\nneeds 9.8.7\nstripes 4\n",
            "word 'stripes' in its file FORMAT: it needs version 9.8.7",
        ),
    ] {
        std::fs::write(&file, words).unwrap();
        let error = open(directory.path()).err().unwrap();
        assert!(matches!(error, OpenError::NewerFormat { .. }), "{error}");
        assert!(error.to_string().contains(what), "{error}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), words);
    }
}

#[test]
fn an_unreleased_format_is_rejected() {
    let directory = tempfile::tempdir().unwrap();
    drop(open(directory.path()).unwrap());
    std::fs::write(directory.path().join("FORMAT"), "peeklock journal 2\n").unwrap();
    let error = open(directory.path()).err().unwrap();
    assert!(matches!(error, OpenError::OlderFormat { found: 2, known: 3, .. }), "{error}");
    assert!(error.to_string().contains("Use an empty data directory"), "{error}");
}

#[test]
fn a_directory_keeps_its_number_of_shards() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("FORMAT");
    let of = |count| WalConfig { placement: Placement::new(count).unwrap(), ..WalConfig::default() };
    let opened = |count| WalJournal::open(directory.path(), of(count)).map(|journal| journal.placement());
    assert_eq!(opened(3).unwrap().shard_count(), 3);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "peeklock journal 3\nneeds 0.1.0\nshards 3\n");
    assert_eq!(opened(5).unwrap().shard_count(), 3);
    std::fs::write(&file, "peeklock journal 3\n").unwrap();
    assert_eq!(opened(5).unwrap().shard_count(), 8);
    for wrong in ["0", "257", "many"] {
        std::fs::write(&file, format!("peeklock journal 3\nshards {wrong}\n")).unwrap();
        assert!(matches!(opened(8), Err(OpenError::Corrupt { .. })));
    }
}

#[test]
fn an_unknown_or_missing_format_is_reported_as_damage() {
    let directory = tempfile::tempdir().unwrap();
    drop(open(directory.path()).unwrap());
    std::fs::write(directory.path().join("FORMAT"), "something else").unwrap();
    assert!(
        matches!(open(directory.path()), Err(OpenError::Corrupt { file, .. }) if file.ends_with("FORMAT"))
    );
    std::fs::remove_file(directory.path().join("FORMAT")).unwrap();
    assert!(
        matches!(open(directory.path()), Err(OpenError::Corrupt { file, .. }) if file.ends_with("FORMAT"))
    );
}

#[test]
fn the_error_names_an_unusable_directory() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "not a directory").unwrap();
    let error = open(&file.join("data")).err().unwrap();
    assert!(matches!(error, OpenError::Io { .. }));
    assert!(error.to_string().contains("file/data"), "{error}");
}

#[test]
fn foreign_files_are_not_changed() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("notes.txt"), "mine").unwrap();
    drop(open(directory.path()).unwrap());
    std::fs::write(directory.path().join("wal").join("notes.txt"), "mine too").unwrap();
    std::fs::write(directory.path().join("wal").join("x12.wal"), "and this").unwrap();
    drop(open(directory.path()).unwrap());
    assert!(directory.path().join("notes.txt").exists());
    assert!(directory.path().join("wal").join("notes.txt").exists());
    assert!(directory.path().join("wal").join("x12.wal").exists());
}

/// Returns the files of the newest and the older snapshot of shard 0.
fn snapshots(disk: &SimDisk) -> Vec<std::path::PathBuf> {
    let mut files: Vec<_> =
        disk.files().into_iter().filter(|path| path.starts_with("/data/snap/0")).collect();
    files.reverse();
    files
}

#[test]
fn a_damaged_snapshot_is_replaced_by_the_one_before_as_long_as_the_log_covers_it() {
    let (disk, mut oracle) = (SimDisk::new(), Oracle::default());
    let mut broker = Broker::open(&disk, &tiny(), &mut oracle, 1).unwrap();
    for _ in 0..2 {
        assert!(work(&mut broker, &mut oracle, &mut Random(3), 2));
        assert!(broker.owners[0].snapshot(&oracle.shards[&ShardId(0)]));
    }
    drop(broker);
    let [newest, older] = &snapshots(&disk)[..] else { panic!("there should be two snapshots") };
    disk.damage(newest, |bytes| bytes[60] ^= 1);
    let mut broker = Broker::open(&disk, &tiny(), &mut oracle, 1).unwrap();
    assert!(work(&mut broker, &mut oracle, &mut Random(4), 3));
    assert!(broker.owners[0].snapshot(&oracle.shards[&ShardId(0)]));
    assert!(!disk.files().contains(newest), "a newer snapshot should replace the damaged one");
    assert!(disk.files().contains(older), "the last readable snapshot should stay");
}

#[test]
fn a_damaged_snapshot_without_a_log_is_an_error() {
    let (disk, mut oracle) = (SimDisk::new(), Oracle::default());
    let mut broker = Broker::open(&disk, &tiny(), &mut oracle, 2).unwrap();
    assert!(work(&mut broker, &mut oracle, &mut Random(3), 40));
    drop(broker);
    let files = snapshots(&disk);
    assert_eq!(files.len(), 2);
    for file in &files {
        disk.damage(file, |bytes| bytes.truncate(30));
    }
    let error = Broker::open(&disk, &tiny(), &mut oracle, 2).err().unwrap();
    assert!(matches!(&error, OpenError::Corrupt { file, .. } if Path::new(file) == files[0]), "{error}");
}

/// Other shards reuse the log of an idle shard. If its newest snapshot is then damaged, the one before is an older
/// state, which must not pass for the newest.
#[test]
fn a_damaged_snapshot_of_an_idle_shard_does_not_restore_an_older_state() {
    let (disk, config) = (SimDisk::new(), tiny());
    let open =
        || WalJournal::open_driven(Arc::new(disk.clone()), Path::new(DIRECTORY), config.clone()).unwrap();
    let (journal, mut driver) = open();
    let (mut idle, _) = now(journal.open(ShardId(0))).unwrap();
    let (mut busy, _) = now(journal.open(ShardId(1))).unwrap();
    let mut step = |log: &mut WalLog| {
        log.append(vec![7; 3000].into()).unwrap();
        while driver.commit() {}
        let upto = log.watermark();
        now(log.put_snapshot(upto, Bytes::from_static(b"state").into())).unwrap();
        log.trim(upto);
        driver.keep();
    };
    (0..4).for_each(|_| step(&mut idle));
    (0..60).for_each(|_| step(&mut busy));
    drop((idle, busy, journal, driver));
    let newest = snapshots(&disk)[0].clone();
    disk.damage(&newest, |bytes| bytes[60] ^= 1);
    for _ in 0..2 {
        let (journal, _driver) = open();
        now(journal.open(ShardId(1))).unwrap();
        for _ in 0..2 {
            let error = now(journal.open(ShardId(0))).err().unwrap();
            assert!(
                matches!(&error, OpenError::Corrupt { file, .. } if Path::new(file) == newest),
                "{error}"
            );
        }
    }
}

#[test]
fn an_existing_snapshot_is_not_overwritten() {
    let (disk, mut oracle) = (SimDisk::new(), Oracle::default());
    let mut broker = Broker::open(&disk, &tiny(), &mut oracle, 1).unwrap();
    let known = |oracle: &Oracle| oracle.shards[&ShardId(0)].clone();
    now(broker.owners[0].log.put_snapshot(CommitGroupNumber::NONE, Bytes::new().into())).unwrap();
    assert!(snapshots(&disk).is_empty(), "there should be no snapshot without groups");
    for _ in 0..2 {
        assert!(work(&mut broker, &mut oracle, &mut Random(3), 2));
        assert!(broker.owners[0].snapshot(&known(&oracle)));
    }
    let (files, steps) = (snapshots(&disk), disk.step_count());
    assert!(broker.owners[0].snapshot(&known(&oracle)));
    assert_eq!((snapshots(&disk), disk.step_count()), (files.clone(), steps));
    assert_eq!(files.len(), 2);
    assert!(!broker.owners[0].log.wants_snapshot());
    let on_disk: usize = files.iter().map(|file| disk.bytes(file).unwrap().len()).sum();
    assert_eq!(broker.journal.stats().snapshot_bytes, on_disk as u64);
}
