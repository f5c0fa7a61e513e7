//! Tests of segments that change while copies are written to them.

use std::path::Path;
use std::sync::atomic::AtomicU64;

use super::*;
use crate::disk::{DirectoryItem, DirectoryLock};
use crate::sim::{Fault, SimDisk};

const OWNER: u32 = 1;
const SEGMENT_BYTES: u64 = 4096;
const SHARD: ShardId = ShardId(0);

/// Calls back when a cold segment is created, which is when another thread could interfere.
struct Meddling {
    disk: SimDisk,
    on_create: Box<dyn Fn() + Send + Sync>,
}

fn meddling(disk: &SimDisk, on_create: impl Fn() + Send + Sync + 'static) -> Meddling {
    Meddling { disk: disk.clone(), on_create: Box::new(on_create) }
}

impl Disk for Meddling {
    fn create_dir_all(&self, directory: &Path) -> io::Result<()> {
        self.disk.create_dir_all(directory)
    }
    fn lock(&self, path: &Path, owner: &str) -> io::Result<Option<DirectoryLock>> {
        self.disk.lock(path, owner)
    }
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        (self.on_create)();
        self.disk.create(path)
    }
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.disk.open(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }
    fn list(&self, directory: &Path) -> io::Result<Vec<DirectoryItem>> {
        self.disk.list(directory)
    }
    fn sync_dir(&self, directory: &Path) -> io::Result<()> {
        self.disk.sync_dir(directory)
    }
    fn free_bytes(&self, directory: &Path) -> io::Result<u64> {
        self.disk.free_bytes(directory)
    }
}

struct Bench {
    layout: Layout,
    store: Arc<ColdStore>,
    usage_bytes: AtomicU64,
}

impl Bench {
    fn new() -> Self {
        let store = Arc::new(ColdStore::new(SHARD));
        store.start_count(OWNER);
        assert!(store.adopt(OWNER, &[]).is_empty());
        Bench { layout: Layout::new(Path::new("/data")), store, usage_bytes: AtomicU64::new(0) }
    }

    fn write(&self, disk: &dyn Disk, sizes: &[usize], dead: &mut Vec<Dead>) -> Option<Vec<StoredBody>> {
        self.write_to(Target::Moved, disk, sizes, dead)
    }

    fn write_to(
        &self,
        target: Target,
        disk: &dyn Disk,
        sizes: &[usize],
        dead: &mut Vec<Dead>,
    ) -> Option<Vec<StoredBody>> {
        let site = Site {
            disk,
            layout: &self.layout,
            moved_bytes: SEGMENT_BYTES,
            stream_bytes: SEGMENT_BYTES,
            usage_bytes: &self.usage_bytes,
        };
        let bodies: Vec<Bytes> = sizes.iter().map(|size| vec![7; *size].into()).collect();
        let bodies: Vec<Copy<'_>> = bodies.chunks(1).map(|pieces| Copy { target, pieces }).collect();
        self.store.write(&site, &bodies, dead).ok()
    }

    /// Checks that the counted usage equals the size of the files.
    fn check_usage(&self, disk: &SimDisk) {
        assert_eq!(self.usage_bytes.load(Ordering::Relaxed), disk.used_bytes());
    }
}

fn segment_of(body: &StoredBody) -> u32 {
    segment_and_size(body).expect("the body should be standalone").0
}

#[test]
fn a_segment_with_fresh_copies_outlives_its_last_older_body() {
    let (bench, disk) = (Bench::new(), SimDisk::new());
    let mut dead = Vec::new();
    let older = bench.write(&disk, &[3000], &mut dead).expect("there should be space");
    let found = Arc::new(Mutex::new(Vec::new()));
    let forget = {
        let (store, older, found) = (Arc::clone(&bench.store), older.clone(), Arc::clone(&found));
        move || locked(&found).extend(store.release(OWNER, &older))
    };
    let copies =
        bench.write(&meddling(&disk, forget), &[600, 600, 600], &mut dead).expect("there should be space");
    assert_eq!(segment_of(&copies[0]), segment_of(&older[0]));
    assert_ne!(
        segment_of(&copies[2]),
        segment_of(&older[0]),
        "the first segment should be sealed during the write"
    );
    assert!(dead.is_empty() && locked(&found).is_empty(), "both segments should have live copies");
    assert_eq!(bench.store.mostly_dead(), Some(segment_of(&older[0])));
    let gone = bench.store.release(OWNER, &copies[..2]);
    assert_eq!(gone.len(), 1, "the first segment should have no live body");
    bench.check_usage(&disk);
}

#[test]
fn a_failure_takes_back_what_was_counted_in_all_segments() {
    let (bench, disk) = (Bench::new(), SimDisk::new());
    bench.store.ensure_directory(&disk, &bench.layout).expect("there should be space");
    let steps = {
        let (bench, trial) = (Bench::new(), SimDisk::new());
        bench.store.ensure_directory(&trial, &bench.layout).expect("there should be space");
        let before = trial.step_count();
        bench.write(&trial, &[3000, 3000, 3000], &mut Vec::new()).expect("there should be space");
        trial.step_count() - before
    };
    let mut removed_bytes = 0;
    for step in 0..steps {
        disk.fail_at(disk.step_count() + step + 1, Fault::Error);
        let mut dead = Vec::new();
        assert!(bench.write(&disk, &[3000, 3000, 3000], &mut dead).is_none(), "step {step}");
        disk.clear_faults();
        for gone in dead {
            removed_bytes += gone.size_bytes;
            bench.usage_bytes.fetch_sub(gone.size_bytes, Ordering::Relaxed);
        }
        assert!(
            locked(&bench.store.books).segments.is_empty(),
            "step {step}: no segment should remain without a live body"
        );
        assert_eq!(bench.usage_bytes.load(Ordering::Relaxed), 0, "step {step}");
    }
    assert!(removed_bytes > 0);
}

#[test]
fn calls_of_an_earlier_owner_have_no_effect() {
    let (bench, disk) = (Bench::new(), SimDisk::new());
    let bodies = bench.write(&disk, &[5000], &mut Vec::new()).expect("there should be space");
    bench.store.start_count(OWNER + 1);
    bench.store.start_count(OWNER);
    assert!(bench.store.adopt(OWNER, &[]).is_empty() && bench.store.release(OWNER, &bodies).is_empty());
    assert!(bench.store.adopt(OWNER + 1, &bodies).is_empty());
    assert_eq!(bench.store.release(OWNER + 1, &bodies).len(), 1);
}
