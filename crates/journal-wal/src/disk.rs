//! The file layer: the only access to the operating system, so that tests can replace it with a faulty disk.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rustix::buffer::spare_capacity;
use rustix::fs::{Advice, FallocateFlags, FlockOperation};
use rustix::io::Errno;

use crate::locked;

/// A file or directory in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryItem {
    pub name: String,
    pub size_bytes: u64,
}

/// Holds the lock on a directory until it is dropped.
pub type DirectoryLock = Box<dyn Send + Sync>;

/// A file system. Changes to a directory are durable after [`Disk::sync_dir`], the contents of a file after
/// [`DiskFile::sync`].
pub trait Disk: Send + Sync + 'static {
    fn create_dir_all(&self, directory: &Path) -> io::Result<()>;
    /// Locks a directory. Returns `None` if another process holds the lock.
    fn lock(&self, path: &Path, owner: &str) -> io::Result<Option<DirectoryLock>>;
    /// Creates an empty file. An existing file of that name is truncated.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;
    /// Opens an existing file for reading and writing.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Lists the files and directories in a directory, in no particular order.
    fn list(&self, directory: &Path) -> io::Result<Vec<DirectoryItem>>;
    fn sync_dir(&self, directory: &Path) -> io::Result<()>;
    /// Syncs the contents of all files, in any order.
    fn sync_files(&self, files: &[&dyn DiskFile]) -> io::Result<()> {
        files.iter().try_for_each(|file| file.sync())
    }
    /// Returns how many bytes this process may still write.
    fn free_bytes(&self, directory: &Path) -> io::Result<u64>;
}

/// An open file. It can be used from several threads, also after it was removed.
pub trait DiskFile: Send + Sync + 'static {
    fn size_bytes(&self) -> io::Result<u64>;
    /// Fills `into`. Fails if the file ends before.
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()>;
    /// Reads `size_bytes` into a new buffer. Fails if the file ends before.
    fn bytes_at(&self, size_bytes: usize, offset: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; size_bytes];
        self.read_at(&mut bytes, offset)?;
        Ok(bytes)
    }
    /// Reserves space for an empty file without writing it. The file then has this size and reads as zeros. Returns
    /// `false` and changes nothing if the file system does not support this.
    fn reserve(&self, size_bytes: u64) -> io::Result<bool>;
    /// Writes all parts consecutively.
    fn write_at(&self, parts: &mut [IoSlice<'_>], offset: u64) -> io::Result<()>;
    /// Returns when the contents are on stable storage. After an error, the contents on stable storage are unknown.
    fn sync(&self) -> io::Result<()>;
    /// Drops cached pages, so that later reads come from the device. After a failed sync, the cache may contain data
    /// that never reached the device.
    fn forget_cache(&self) -> io::Result<()>;
}

/// The files of the operating system.
#[derive(Debug, Default)]
pub struct RealDisk {
    /// Open handles of directories that were synced before. A changed directory must be synced even if the process has
    /// no free handles left.
    directories: Mutex<BTreeMap<PathBuf, Arc<File>>>,
}

/// The largest number of threads that sync files at the same time.
const SYNC_THREADS_MAX: usize = 8;
/// The largest number of directories that stay open. A broker has fewer.
const DIRECTORIES_MAX: usize = 256;

impl RealDisk {
    fn directory(&self, path: &Path) -> io::Result<Arc<File>> {
        let mut directories = locked(&self.directories);
        if let Some(directory) = directories.get(path) {
            return Ok(Arc::clone(directory));
        }
        let directory = Arc::new(File::open(path)?);
        if directories.len() < DIRECTORIES_MAX {
            directories.insert(path.to_path_buf(), Arc::clone(&directory));
        }
        Ok(directory)
    }
}

impl Disk for RealDisk {
    fn create_dir_all(&self, directory: &Path) -> io::Result<()> {
        std::fs::create_dir_all(directory)
    }

    fn lock(&self, path: &Path, owner: &str) -> io::Result<Option<DirectoryLock>> {
        // The file is opened without truncation, so that another process can still read the name of the owner.
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        // The name is only shown to people. A full disk must not keep the owner from starting.
        let noted = file.set_len(0).and_then(|()| file.write_all(owner.as_bytes()));
        if let Err(error) = noted {
            tracing::warn!(path = %path.display(), %error, "the owner could not be noted in the lock file");
        }
        Ok(Some(Box::new(HeldLock(file))))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
        Ok(Arc::new(RealFile(file)))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(RealFile(OpenOptions::new().read(true).write(true).open(path)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<DirectoryItem>> {
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(directory)? {
            let entry = entry?;
            // The journal creates only names that are valid text.
            if let Ok(name) = entry.file_name().into_string() {
                entries.push(DirectoryItem { name, size_bytes: entry.metadata()?.len() });
            }
        }
        Ok(entries)
    }

    fn sync_dir(&self, directory: &Path) -> io::Result<()> {
        self.directory(directory)?.sync_all()
    }

    /// Syncs several files at the same time, so that the file system can make them durable together.
    fn sync_files(&self, files: &[&dyn DiskFile]) -> io::Result<()> {
        let per_thread = files.len().div_ceil(SYNC_THREADS_MAX);
        let Some((first, others)) = files.split_at_checked(per_thread) else { return Ok(()) };
        let sync = |files: &[&dyn DiskFile]| files.iter().try_for_each(|file| file.sync());
        if others.is_empty() {
            return sync(first);
        }
        std::thread::scope(|scope| {
            let chunks = others.chunks(per_thread).map(|files| (files, std::thread::Builder::new()));
            let threads: Vec<_> = chunks
                .map(|(files, thread)| (files, thread.spawn_scoped(scope, move || sync(files))))
                .collect();
            let mut synced = sync(first);
            for (files, thread) in threads {
                let done = match thread {
                    Ok(thread) => {
                        thread.join().unwrap_or_else(|_| Err(io::Error::other("a sync has panicked")))
                    }
                    // No thread is available: the files are synced one after the other.
                    Err(_) => sync(files),
                };
                synced = synced.and(done);
            }
            synced
        })
    }

    fn free_bytes(&self, directory: &Path) -> io::Result<u64> {
        let found = rustix::fs::statvfs(directory)?;
        Ok(found.f_bavail.saturating_mul(found.f_frsize))
    }
}

struct HeldLock(File);

impl Drop for HeldLock {
    fn drop(&mut self) {
        // Closing the file is not enough if a child process that is being started has inherited it. A failure cannot be
        // handled.
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

#[derive(Debug)]
struct RealFile(File);

/// The largest number of parts that the kernel accepts in one call.
const PARTS_MAX: usize = 1024;

impl DiskFile for RealFile {
    fn size_bytes(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(into, offset)
    }

    /// Reads without zeroing the buffer first, because zeroing takes approximately as long as a read from the page
    /// cache.
    fn bytes_at(&self, size_bytes: usize, offset: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(size_bytes);
        while bytes.len() < size_bytes {
            let at = offset.checked_add(bytes.len() as u64).ok_or(io::ErrorKind::InvalidInput)?;
            match rustix::io::pread(self.0.as_fd(), spare_capacity(&mut bytes), at) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        // The buffer may be larger than requested.
        bytes.truncate(size_bytes);
        Ok(bytes)
    }

    fn reserve(&self, size_bytes: u64) -> io::Result<bool> {
        loop {
            match rustix::fs::fallocate(&self.0, FallocateFlags::empty(), 0, size_bytes) {
                Ok(()) => return Ok(true),
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn write_at(&self, parts: &mut [IoSlice<'_>], mut offset: u64) -> io::Result<()> {
        let mut rest = parts;
        while !rest.is_empty() {
            let now = rest.get(..PARTS_MAX).unwrap_or(rest);
            let written = match rustix::io::pwritev(self.0.as_fd(), now, offset) {
                Ok(0) if now.iter().all(|part| part.is_empty()) => return Ok(()),
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => written,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            offset = offset.saturating_add(written as u64);
            IoSlice::advance_slices(&mut rest, written);
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn forget_cache(&self) -> io::Result<()> {
        Ok(rustix::fs::fadvise(&self.0, 0, None, Advice::DontNeed)?)
    }
}

/// Writes one buffer.
pub(crate) fn write_all(file: &dyn DiskFile, bytes: &[u8], offset: u64) -> io::Result<()> {
    file.write_at(&mut [IoSlice::new(bytes)], offset)
}

/// Returns whether the error means that the process or the machine has too many open files, which is temporary.
pub(crate) fn is_out_of_handles(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

/// Returns whether the error means that the disk is full, which is temporary, and not that the disk fails.
pub(crate) fn is_no_room(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserved_file_reads_as_zeros_and_takes_writes() {
        let folder = tempfile::tempdir().expect("there should be space");
        let file = RealDisk::default().create(&folder.path().join("file")).expect("there should be space");
        if file.reserve(64 * 1024).expect("there should be space") {
            assert_eq!(file.size_bytes().expect("the file should exist"), 64 * 1024);
            write_all(&*file, b"here", 4096).expect("there should be space");
            file.sync().expect("the disk should work");
            let bytes = file.bytes_at(64 * 1024, 0).expect("the file should exist");
            assert_eq!(bytes.get(4096..4100), Some(&b"here"[..]));
            assert_eq!(bytes.iter().filter(|byte| **byte != 0).count(), 4);
        }
    }
}
