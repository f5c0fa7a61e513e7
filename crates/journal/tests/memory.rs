//! Tests that the journal in memory conforms, and that its hooks for tests work.

use bytes::Bytes;
use peeklock_journal::{
    AppendError, BodyRange, BodyReader, Journal, Log, MemoryJournal, Space, StoredBody, conformance,
};
use peeklock_types::{BodyRef, CommitGroupNumber, ShardId};

const SHARD: ShardId = ShardId(1);

#[tokio::test]
async fn the_journal_in_memory_conforms() {
    conformance::run(|| {
        let journal = MemoryJournal::with_backlog_bytes_max(256 * 1024);
        move || journal.clone()
    })
    .await;
}

#[tokio::test]
async fn a_restart_loses_the_groups_above_a_held_watermark() {
    let journal = MemoryJournal::with_backlog_bytes_max(10);
    let (mut log, _) = journal.open(SHARD).await.unwrap();
    log.append(Bytes::from_static(b"one").into()).unwrap();
    journal.hold();
    log.append(Bytes::from_static(b"12345678").into()).unwrap();
    assert_eq!(log.watermark(), CommitGroupNumber(1));
    assert!(matches!(log.append(Bytes::from_static(b"123").into()), Err(AppendError::Busy)));
    journal.release();
    assert_eq!(log.durable(CommitGroupNumber(1)).await.unwrap(), CommitGroupNumber(2));
    journal.hold();
    log.append(Bytes::from_static(b"lost").into()).unwrap();
    let (log, recovery) = journal.open(SHARD).await.unwrap();
    assert_eq!(recovery.groups.count(), 2);
    assert_eq!(log.next_group(), CommitGroupNumber(3));
}

#[tokio::test]
async fn a_poisoned_log_rejects_every_call_until_it_is_opened_again() {
    let journal = MemoryJournal::new();
    let (mut log, _) = journal.open(SHARD).await.unwrap();
    log.append(Bytes::from_static(b"one").into()).unwrap();
    journal.poison("injected by a test");
    assert!(
        matches!(log.append(Bytes::new().into()), Err(AppendError::Poisoned(p)) if p.reason.contains("test"))
    );
    assert!(log.durable(CommitGroupNumber(1)).await.is_err());
    assert!(log.put_snapshot(CommitGroupNumber(1), Bytes::new().into()).await.is_err());
    let (mut log, recovery) = journal.open(SHARD).await.unwrap();
    assert_eq!(recovery.groups.count(), 1);
    assert_eq!(log.append(Bytes::new().into()).unwrap(), CommitGroupNumber(2));
}

#[tokio::test]
async fn tests_can_make_a_log_want_snapshots_and_moves() {
    let journal = MemoryJournal::new();
    let (mut log, _) = journal.open(SHARD).await.unwrap();
    log.append(Bytes::from_static(b"12345678").into()).unwrap();
    assert!(!log.wants_snapshot() && log.wants_moved().is_none() && log.space() == Space::Enough);
    journal.ask_snapshot(SHARD);
    journal.ask_move(SHARD, BodyRange::groups_upto(CommitGroupNumber(1)));
    journal.set_space(Space::RejectSends);
    assert!(log.wants_snapshot() && log.space() == Space::RejectSends);
    assert_eq!(log.wants_moved(), Some(BodyRange::groups_upto(CommitGroupNumber(1))));
    log.put_snapshot(CommitGroupNumber(1), Bytes::new().into()).await.unwrap();
    log.trim(CommitGroupNumber(1));
    assert!(!log.wants_snapshot() && log.wants_moved().is_none());
    let gone = StoredBody { place: BodyRef::in_group(CommitGroupNumber(1), 0).unwrap(), size_bytes: 8 };
    assert!(log.reader().try_read(gone).is_none(), "a trimmed body should be gone");
}
