//! An owner that is alone writes its groups itself, and blocks neither the journal nor the runtime for long.

use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use bytes::Bytes;
use peeklock_journal::{AppendError, Journal, Log};
use peeklock_journal_wal::sim::{Fault, SimDisk};
use peeklock_journal_wal::{WalConfig, WalJournal, WalLog};
use peeklock_types::{CommitGroupNumber, ShardId};
use tokio::io::AsyncReadExt as _;

const PATIENCE: Duration = Duration::from_secs(20);

async fn opened(disk: &SimDisk) -> (WalJournal, WalLog) {
    let path = Path::new(crate::support::DIRECTORY);
    let journal = WalJournal::open_on(Arc::new(disk.clone()), path, WalConfig::default()).unwrap();
    let (log, _) = journal.open(ShardId(0)).await.unwrap();
    (journal, log)
}

fn append(log: &mut WalLog) -> Result<CommitGroupNumber, AppendError> {
    log.append_alone(Bytes::from_static(b"one").into())
}

/// Appends one group at a time until one is durable as soon as it is appended.
async fn append_until_alone(log: &mut WalLog) {
    let alone = async {
        loop {
            let number = append(log).unwrap();
            if log.watermark() == number {
                return;
            }
            while log.watermark() < number {
                log.durable(log.watermark()).await.unwrap();
            }
        }
    };
    tokio::time::timeout(PATIENCE, alone).await.expect("the owner should write its groups");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_that_is_alone_writes_its_groups() {
    let disk = SimDisk::new();
    let (journal, mut log) = opened(&disk).await;
    let (mut other, _) = journal.open(ShardId(1)).await.unwrap();
    append_until_alone(&mut log).await;
    let number = append(&mut other).unwrap();
    assert_eq!(other.durable(CommitGroupNumber::NONE).await.unwrap(), number);
    append_until_alone(&mut log).await;
    append_until_alone(&mut other).await;
    let (last, last_of_other) = (log.watermark(), other.watermark());
    journal.close();
    assert!(append(&mut log).is_err());
    drop((log, other, journal));
    let (journal, log) = opened(&disk).await;
    let (other, _) = journal.open(ShardId(1)).await.unwrap();
    assert_eq!((log.watermark(), other.watermark()), (last, last_of_other));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_write_of_an_owner_stops_the_journal() {
    for fault in [Fault::Error, Fault::Panic] {
        let disk = SimDisk::new();
        let (journal, mut log) = opened(&disk).await;
        let (mut other, _) = journal.open(ShardId(1)).await.unwrap();
        append_until_alone(&mut log).await;
        // The keeper may do some of these steps.
        (1..9).for_each(|n| disk.fail_at(disk.step_count() + n, fault));
        let durable = log.watermark();
        let failed =
            tokio::spawn(async move { append(&mut log).is_err() || log.durable(durable).await.is_err() });
        // A panic in the write ends the task of its owner.
        assert!(failed.await.unwrap_or(true));
        let stopped = tokio::time::timeout(PATIENCE, other.durable(CommitGroupNumber::NONE)).await;
        assert!(stopped.expect("the call should return").is_err());
        assert!(matches!(append(&mut other), Err(AppendError::Poisoned(_))));
        journal.close();
    }
}

/// The disk is blocked until a task of the runtime has read from a socket. If no thread served the sockets while the
/// owner writes, this test would never end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_runtime_serves_sockets_while_an_owner_writes_for_a_long_time() {
    let disk = SimDisk::new();
    let (_journal, mut log) = opened(&disk).await;
    let (near, mut far) = std::os::unix::net::UnixStream::pair().unwrap();
    near.set_nonblocking(true).unwrap();
    let mut near = tokio::net::UnixStream::from_std(near).unwrap();
    let (release, released) = mpsc::channel();
    let reading = tokio::spawn(async move {
        near.read_u8().await.unwrap();
        release.send(()).unwrap();
    });
    let owner = tokio::spawn(async move {
        append_until_alone(&mut log).await;
        let (hold, held) = mpsc::channel();
        let file = disk.files().swap_remove(0);
        std::thread::spawn(move || {
            disk.damage(&file, |_| {
                hold.send(()).unwrap();
                std::io::Write::write_all(&mut far, b"x").unwrap();
                released.recv().unwrap();
            });
        });
        held.recv().unwrap();
        append(&mut log).unwrap()
    });
    owner.await.unwrap();
    reading.await.unwrap();
}
