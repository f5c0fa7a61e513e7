//! Old segments are reused, owners of idle shards get requests to trim, and a full disk slows senders down without
//! losing anything.

use std::path::Path;
use std::sync::Arc;

use crate::support::{Broker, DIRECTORY, Oracle, Random, now, tiny, work};
use bytes::Bytes;
use peeklock_journal::{AppendError, BodyRange, Journal, Log, Space};
use peeklock_journal_wal::sim::{Driver, Loss, SimDisk};
use peeklock_journal_wal::{WalConfig, WalJournal, WalLog};
use peeklock_types::{CommitGroupNumber, ShardId};

fn open(disk: &SimDisk, config: WalConfig) -> (WalJournal, Driver) {
    WalJournal::open_driven(Arc::new(disk.clone()), Path::new(DIRECTORY), config).unwrap()
}

fn append(log: &mut WalLog, driver: &mut Driver, size: usize) -> Result<CommitGroupNumber, AppendError> {
    let number = log.append(vec![7; size].into())?;
    while driver.commit() {}
    driver.keep();
    Ok(number)
}

/// Puts a snapshot of all durable groups and trims them.
fn let_go(log: &mut WalLog) {
    let upto = log.watermark();
    now(log.put_snapshot(upto, Bytes::from_static(b"state").into())).unwrap();
    log.trim(upto);
}

fn wal_files(disk: &SimDisk) -> Vec<String> {
    let files = disk.files().into_iter().filter(|path| path.extension().is_some_and(|e| e == "wal"));
    files.map(|path| path.file_stem().unwrap().to_string_lossy().into_owned()).collect()
}

#[test]
fn a_trimmed_log_reuses_a_few_files() {
    let disk = SimDisk::new();
    let (journal, mut driver) = open(&disk, tiny());
    let (mut log, _) = now(journal.open(ShardId(0))).unwrap();
    for n in 0..400 {
        append(&mut log, &mut driver, 3000).unwrap();
        if n % 4 == 3 {
            let_go(&mut log);
            driver.keep();
        }
    }
    let files = wal_files(&disk);
    assert!(files.len() <= 6, "{files:?}");
    let newest: u64 = files.last().unwrap().parse().unwrap();
    assert!(newest > 40, "segments should be reused under new names: {files:?}");
    let (journal, _driver) = {
        drop((log, journal, driver));
        disk.reboot(Loss::All);
        open(&disk, tiny())
    };
    let (log, recovery) = now(journal.open(ShardId(0))).unwrap();
    assert_eq!(recovery.groups.count(), 0);
    assert_eq!(log.next_group(), CommitGroupNumber(401));
}

#[test]
fn a_log_that_grows_and_shrinks_keeps_its_segments() {
    let disk = SimDisk::new();
    let config = WalConfig { ring_bytes: 16 * tiny().segment_bytes, ..tiny() };
    let (journal, mut driver) = open(&disk, config);
    let (mut log, _) = now(journal.open(ShardId(0))).unwrap();
    let mut counts = Vec::new();
    for _ in 0..4 {
        for _ in 0..12 * 7 {
            append(&mut log, &mut driver, 3000).unwrap();
        }
        let grown = wal_files(&disk).len();
        let_go(&mut log);
        driver.keep();
        counts.push((grown, wal_files(&disk).len()));
    }
    let (grown, shrunk) = counts[1];
    assert!(grown > 12 && shrunk == grown, "segments should be reused, not removed: {counts:?}");
    assert_eq!(counts[3], counts[2], "the log should need no new segment");
}

#[test]
fn an_idle_shard_is_asked_to_give_up_the_oldest_segment() {
    let disk = SimDisk::new();
    let (journal, mut driver) = open(&disk, tiny());
    let (mut idle, _) = now(journal.open(ShardId(0))).unwrap();
    let (mut busy, _) = now(journal.open(ShardId(1))).unwrap();
    append(&mut idle, &mut driver, 100).unwrap();
    append(&mut idle, &mut driver, 100).unwrap();
    assert!(!idle.wants_snapshot() && idle.wants_moved().is_none());
    for _ in 0..60 {
        append(&mut busy, &mut driver, 3000).unwrap();
        let_go(&mut busy);
    }
    assert_eq!(idle.wants_moved(), Some(BodyRange::groups_upto(CommitGroupNumber(2))));
    assert!(idle.wants_snapshot());
    let before = wal_files(&disk).len();
    let_go(&mut idle);
    driver.keep();
    assert!(idle.wants_moved().is_none() && !idle.wants_snapshot());
    assert!(wal_files(&disk).len() < before, "old segments should be reused");
}

/// The disk has space, so the level `Behind` ends as soon as the owner trims.
#[test]
fn a_log_that_grows_faster_than_it_is_trimmed_is_behind() {
    let disk = SimDisk::new();
    let (journal, mut driver) = open(&disk, WalConfig { ring_bytes_max: 64 * 1024, ..tiny() });
    let (mut log, _) = now(journal.open(ShardId(0))).unwrap();
    let mut count = 0;
    while log.space() == Space::Enough {
        append(&mut log, &mut driver, 3000).unwrap();
        driver.keep();
        count += 1;
        assert!(count < 100);
    }
    assert_eq!(log.space(), Space::Behind);
    append(&mut log, &mut driver, 100).unwrap();
    assert!(
        log.wants_snapshot() && log.wants_moved().is_some(),
        "the journal should request a trim from the owner"
    );
    let_go(&mut log);
    driver.keep();
    assert_eq!(log.space(), Space::Enough);
}

#[test]
fn an_unopened_shard_keeps_everything() {
    let disk = SimDisk::new();
    let (journal, mut driver) = open(&disk, tiny());
    let (mut absent, _) = now(journal.open(ShardId(0))).unwrap();
    append(&mut absent, &mut driver, 500).unwrap();
    drop((absent, journal, driver));
    let (journal, mut driver) = open(&disk, tiny());
    assert_eq!(journal.shards(), [ShardId(0)]);
    let (mut busy, _) = now(journal.open(ShardId(1))).unwrap();
    for _ in 0..60 {
        append(&mut busy, &mut driver, 3000).unwrap();
        let_go(&mut busy);
    }
    let (_log, recovery) = now(journal.open(ShardId(0))).unwrap();
    let groups: Vec<_> = recovery.groups.map(|group| group.unwrap().payload.len()).collect();
    assert_eq!(groups, [500]);
}

#[test]
fn a_trim_without_a_snapshot_drops_nothing() {
    let disk = SimDisk::new();
    let (journal, mut driver) = open(&disk, tiny());
    let (mut log, _) = now(journal.open(ShardId(0))).unwrap();
    for _ in 0..60 {
        append(&mut log, &mut driver, 3000).unwrap();
        log.trim(log.watermark());
        driver.keep();
    }
    drop((log, journal, driver));
    let (journal, _driver) = open(&disk, tiny());
    let (_log, recovery) = now(journal.open(ShardId(0))).unwrap();
    assert_eq!(recovery.groups.filter(Result::is_ok).count(), 60);
}

#[test]
fn a_segment_that_is_being_read_is_not_reused() {
    let disk = SimDisk::new();
    let (journal, mut driver) = open(&disk, tiny());
    let (mut log, _) = now(journal.open(ShardId(0))).unwrap();
    for n in 0..30_u8 {
        log.append(vec![n; 3000].into()).unwrap();
        while driver.commit() {}
        driver.keep();
    }
    drop(log);
    let (mut log, recovery) = now(journal.open(ShardId(0))).unwrap();
    let mut replay = recovery.groups;
    assert_eq!(replay.next().unwrap().unwrap().payload[0], 0);
    // The reader is slow. In the meantime everything is trimmed and every segment is reused several times.
    for _ in 0..80 {
        let_go(&mut log);
        append(&mut log, &mut driver, 3000).unwrap();
    }
    for n in 1..30_u8 {
        assert_eq!(replay.next().unwrap().unwrap().payload, vec![n; 3000]);
    }
}

#[test]
fn a_full_disk_loses_nothing_and_recovers_by_itself() {
    let (disk, mut oracle) = (SimDisk::new(), Oracle::default());
    disk.set_capacity(Some(450 * 1024));
    let mut config = tiny();
    config.ring_bytes = 1 << 30;
    config.snapshot_after_bytes = 1 << 30;
    let mut broker = Broker::open(&disk, &config, &mut oracle, 2).unwrap();
    assert!(work(&mut broker, &mut oracle, &mut Random(8), 1));
    assert_eq!(broker.owners[0].log.space(), Space::Enough);
    assert!(disk.files().contains(&Path::new("/data/RESERVE").to_path_buf()));
    let mut levels = Vec::new();
    for _ in 0..100 {
        assert!(work(&mut broker, &mut oracle, &mut Random(8), 1), "a full disk should not stop the journal");
        levels.push(broker.owners[0].log.space());
    }
    assert!(levels.is_sorted(), "{levels:?}");
    assert!(levels.contains(&Space::RejectSends) && levels.last() == Some(&Space::OnlySettle), "{levels:?}");
    assert!(
        !disk.files().contains(&Path::new("/data/RESERVE").to_path_buf()),
        "the reserve should be removed"
    );
    let shard = broker.owners[0].shard;
    let refused = broker.owners[0].work(oracle.shards.get_mut(&shard).unwrap(), &mut Random(9));
    assert!(matches!(refused, Err(AppendError::Busy)), "no segment should be left");
    // Another program frees space.
    disk.set_capacity(Some(4 << 20));
    for _ in 0..3 {
        broker.driver.keep();
        broker.commit(&mut oracle);
    }
    assert_eq!(broker.owners[0].log.space(), Space::Enough);
    assert!(work(&mut broker, &mut oracle, &mut Random(10), 5));
    assert!(
        disk.files().contains(&Path::new("/data/RESERVE").to_path_buf()),
        "the reserve should exist again"
    );
    drop(broker);
    disk.reboot(Loss::All);
    Broker::open(&disk, &config, &mut oracle, 2).unwrap();
}

#[test]
fn snapshots_and_trimming_free_a_full_disk() {
    let (disk, mut oracle) = (SimDisk::new(), Oracle::default());
    disk.set_capacity(Some(450 * 1024));
    let mut config = tiny();
    config.ring_bytes = 1 << 30;
    config.snapshot_after_bytes = 1 << 30;
    let mut broker = Broker::open(&disk, &config, &mut oracle, 2).unwrap();
    // Sends are rejected early enough to leave space for the work that frees space, and the journal requests that work
    // from the owners.
    for _ in 0..300 {
        assert!(work(&mut broker, &mut oracle, &mut Random(8), 1));
        if broker.owners[0].log.space() != Space::Enough {
            assert!(
                broker.owners.iter().any(|owner| owner.log.wants_snapshot()),
                "the journal should request a snapshot from an owner"
            );
            assert!(crate::support::tend(&mut broker, &mut oracle));
            broker.driver.keep();
            broker.driver.keep();
        }
    }
    assert!(broker.done.group_moves > 3 && broker.done.snapshots > 3, "{:?}", broker.done);
    drop(broker);
    disk.reboot(Loss::All);
    Broker::open(&disk, &config, &mut oracle, 2).unwrap();
}

#[test]
fn the_whole_directory_can_have_a_limit() {
    let (disk, mut oracle) = (SimDisk::new(), Oracle::default());
    let limit = 400 * 1024;
    let mut config = tiny();
    config.total_bytes_max = Some(limit);
    let mut broker = Broker::open(&disk, &config, &mut oracle, 2).unwrap();
    for _ in 0..70 {
        assert!(work(&mut broker, &mut oracle, &mut Random(8), 3));
        assert!(disk.used_bytes() <= limit + 32 * 1024, "{} bytes", disk.used_bytes());
    }
    let stats = broker.journal.stats();
    assert!(stats.commit_count > 200 && stats.segment_count < 10, "{stats:?}");
}

/// After a start, the whole log counts as new. An owner whose snapshot covers it gets one request, not one after the
/// other.
#[test]
fn an_owner_with_a_complete_snapshot_is_asked_once() {
    let disk = SimDisk::new();
    let mut config = tiny();
    config.ring_bytes = 1 << 30;
    let (journal, mut driver) = open(&disk, config.clone());
    let (mut log, _) = now(journal.open(ShardId(0))).unwrap();
    for _ in 0..20 {
        append(&mut log, &mut driver, 3000).unwrap();
    }
    let upto = log.watermark();
    now(log.put_snapshot(upto, Bytes::from_static(b"state").into())).unwrap();
    drop((log, journal, driver));
    let (journal, _driver) = open(&disk, config);
    let (mut log, _) = now(journal.open(ShardId(0))).unwrap();
    now(log.put_snapshot(upto, Bytes::from_static(b"state").into())).unwrap();
    assert!(!log.wants_snapshot());
}

#[test]
fn a_broker_with_a_full_disk_starts() {
    let (disk, mut oracle) = (SimDisk::new(), Oracle::default());
    disk.set_capacity(Some(450 * 1024));
    let mut config = tiny();
    config.ring_bytes = 1 << 30;
    config.snapshot_after_bytes = 1 << 30;
    let mut broker = Broker::open(&disk, &config, &mut oracle, 2).unwrap();
    for _ in 0..100 {
        assert!(work(&mut broker, &mut oracle, &mut Random(8), 1), "one round should trim nothing");
    }
    assert_eq!(broker.journal.stats().spare_count, 0, "the disk is full");
    drop(broker);
    disk.reboot(Loss::All);
    disk.set_capacity(Some(disk.used_bytes()));
    let mut broker = Broker::open(&disk, &config, &mut oracle, 2).unwrap();
    broker.driver.keep();
    assert_eq!(broker.owners[0].log.space(), Space::OnlySettle);
    disk.set_capacity(None);
    broker.driver.keep();
    assert!(work(&mut broker, &mut oracle, &mut Random(9), 5));
    assert_eq!(broker.owners[0].log.space(), Space::Enough);
}

/// This is the purpose of the reserve: after a start on a full disk, the settlements that free space still find a
/// segment.
#[test]
fn the_reserve_becomes_the_first_segment_on_a_full_disk() {
    let (disk, mut oracle) = (SimDisk::new(), Oracle::default());
    let mut broker = Broker::open(&disk, &tiny(), &mut oracle, 1).unwrap();
    assert!(work(&mut broker, &mut oracle, &mut Random(8), 3));
    drop(broker);
    let is_spare =
        |path: &Path| path.extension().is_some_and(|e| e == "wal") && disk.bytes(path).unwrap()[0] == 0;
    for path in disk.files().into_iter().filter(|path| is_spare(path)) {
        peeklock_journal_wal::disk::Disk::remove(&disk, &path).unwrap();
    }
    assert!(disk.files().contains(&Path::new("/data/RESERVE").to_path_buf()));
    disk.set_capacity(Some(disk.used_bytes()));
    let mut broker = Broker::open(&disk, &tiny(), &mut oracle, 1).unwrap();
    let known = oracle.shards.get_mut(&ShardId(0)).unwrap();
    broker.owners[0].work(known, &mut Random(9)).unwrap();
    assert!(broker.driver.commit());
}

/// A limit that the file system does not report appears only as failed writes. The space level must not oscillate, and
/// the disk must not be filled at every pass.
#[test]
fn a_hidden_limit_leads_to_a_steady_space_level() {
    let disk = SimDisk::new();
    let (journal, mut driver) = open(&disk, tiny());
    let (mut log, _) = now(journal.open(ShardId(0))).unwrap();
    append(&mut log, &mut driver, 100).unwrap();
    assert_eq!(log.space(), Space::Enough);
    disk.set_capacity(Some(disk.used_bytes()));
    disk.hide_capacity();
    for _ in 0..8 {
        append(&mut log, &mut driver, 3000).unwrap();
    }
    assert_eq!(log.space(), Space::RejectSends);
    for _ in 0..10 {
        driver.keep();
        assert_eq!(log.space(), Space::RejectSends);
    }
    disk.set_capacity(None);
    driver.keep();
    assert_eq!(log.space(), Space::Enough);
}

/// Every start writes into a new segment, and a short run has no time to trim.
#[test]
fn a_hundred_starts_take_little_space() {
    let disk = SimDisk::new();
    let mut config = tiny();
    config.segment_bytes = 1024 * 1024;
    config.ring_bytes = 1 << 30;
    for n in 0..100 {
        let (journal, mut driver) = open(&disk, config.clone());
        let (mut log, recovery) = now(journal.open(ShardId(0))).unwrap();
        assert_eq!(recovery.groups.count(), n);
        append(&mut log, &mut driver, 100).unwrap();
        drop((log, journal, driver));
        disk.kill_process();
    }
    assert!(disk.used_bytes() < 6 << 20, "{} bytes", disk.used_bytes());
}
