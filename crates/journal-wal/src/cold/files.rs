use std::collections::BTreeMap;
use std::sync::Arc;

use crate::disk::DiskFile;

/// The number of open files per shard, for reading and writing. A broker may have thousands of segments, and all shards
/// share the file handles that connections do not need.
const OPEN_FILES_MAX: usize = 32;

/// The most recently used files.
#[derive(Default)]
pub(super) struct OpenFiles {
    files: BTreeMap<u32, OpenFile>,
    use_count: u64,
}

struct OpenFile {
    file: Arc<dyn DiskFile>,
    used_at: u64,
}

impl OpenFiles {
    pub(super) fn get(&mut self, number: u32) -> Option<Arc<dyn DiskFile>> {
        self.use_count += 1;
        let open = self.files.get_mut(&number)?;
        open.used_at = self.use_count;
        Some(Arc::clone(&open.file))
    }

    pub(super) fn keep(&mut self, number: u32, file: &Arc<dyn DiskFile>) {
        if self.files.len() >= OPEN_FILES_MAX
            && let Some(oldest) = self.files.iter().min_by_key(|(_, open)| open.used_at).map(|(n, _)| *n)
        {
            self.files.remove(&oldest);
        }
        self.use_count += 1;
        self.files.insert(number, OpenFile { file: Arc::clone(file), used_at: self.use_count });
    }

    pub(super) fn forget(&mut self, number: u32) {
        self.files.remove(&number);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::disk::Disk as _;
    use crate::sim::SimDisk;

    #[test]
    fn the_most_recently_used_files_stay_open() {
        let (disk, mut files) = (SimDisk::new(), OpenFiles::default());
        disk.create_dir_all(Path::new("/data")).expect("there should be space");
        let file = disk.create(Path::new("/data/file")).expect("there should be space");
        for number in 0..200 {
            files.keep(number, &file);
            assert!(files.get(0).is_some(), "a file in use should stay open");
        }
        let open_count = (0..200).filter(|number| files.get(*number).is_some()).count();
        assert_eq!(open_count, OPEN_FILES_MAX);
        assert!(files.get(199).is_some());
        files.forget(199);
        assert!(files.get(199).is_none());
    }
}
