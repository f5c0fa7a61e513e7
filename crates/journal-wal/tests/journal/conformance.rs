//! The journal on disk passes the conformance suite, with its default sizes and with segments so small that everything
//! happens often.

use std::path::Path;
use std::sync::Arc;

use peeklock_journal::conformance;
use peeklock_journal_wal::sim::SimDisk;
use peeklock_journal_wal::{WalConfig, WalJournal};

fn small() -> WalConfig {
    WalConfig {
        segment_bytes: 256 * 1024,
        first_segment_bytes: 16 * 1024,
        ring_bytes: 1024 * 1024,
        hot_cache_bytes: 64 * 1024,
        backlog_bytes_max: 128 * 1024,
        commit_bytes_max: 64 * 1024,
        cold_segment_bytes: 64 * 1024,
        reserve_bytes: 64 * 1024,
        ..WalConfig::default()
    }
}

#[tokio::test]
async fn a_directory_conforms() {
    conformance::run(|| {
        let directory = tempfile::tempdir().unwrap();
        move || WalJournal::open(directory.path(), WalConfig::default()).unwrap()
    })
    .await;
}

#[tokio::test]
async fn a_directory_with_small_segments_conforms() {
    conformance::run(|| {
        let directory = tempfile::tempdir().unwrap();
        move || WalJournal::open(directory.path(), small()).unwrap()
    })
    .await;
}

#[tokio::test]
async fn a_simulated_disk_conforms() {
    conformance::run(|| {
        let disk = SimDisk::new();
        move || WalJournal::open_on(Arc::new(disk.clone()), Path::new("/data"), small()).unwrap()
    })
    .await;
}
