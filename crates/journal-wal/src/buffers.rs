//! Buffers of large reads, kept for the next ones. Fresh memory costs a page fault for each of its pages, which can take as long as the
//! read from the page cache itself.

use std::io;
use std::sync::{Arc, Mutex};

use bytes::Bytes;

use crate::disk::DiskFile;
use crate::locked;

/// The least size of a read whose buffer is kept. The allocator itself reuses the memory of smaller ones.
const SIZE_BYTES_MIN: usize = 64 * 1024;
/// The size of the buffers that are kept: one step of gathering needs as much.
const KEPT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The buffers that are not in use.
#[derive(Default)]
pub(crate) struct Buffers {
    free: Mutex<Free>,
}

#[derive(Default)]
struct Free {
    /// The buffer that was used last is at the end, because it may still be in the processor's cache.
    buffers: Vec<Vec<u8>>,
    size_bytes: usize,
}

impl Buffers {
    /// Reads `size_bytes` of a file. Fails if the file ends before. The buffer becomes free when the last slice of the
    /// bytes is dropped.
    pub(crate) fn read(
        self: &Arc<Self>,
        file: &dyn DiskFile,
        size_bytes: usize,
        offset: u64,
    ) -> io::Result<Bytes> {
        if size_bytes < SIZE_BYTES_MIN {
            return file.bytes_at(size_bytes, offset).map(Bytes::from);
        }
        let mut buffer = self.take(size_bytes).unwrap_or_default();
        match buffer.get_mut(..size_bytes) {
            Some(into) => file.read_at(into, offset)?,
            None => buffer = file.bytes_at(size_bytes, offset)?,
        }
        Ok(Bytes::from_owner(Lent { buffer, size_bytes, home: Arc::clone(self) }))
    }

    /// Takes a buffer of at least this size. A much larger one would hold memory that nobody counts.
    fn take(&self, size_bytes: usize) -> Option<Vec<u8>> {
        let mut free = locked(&self.free);
        let fits = |buffer: &Vec<u8>| buffer.len() >= size_bytes && buffer.len() / 2 <= size_bytes;
        let at = free.buffers.iter().rposition(fits)?;
        let buffer = free.buffers.remove(at);
        free.size_bytes -= buffer.len();
        Some(buffer)
    }

    /// Keeps a buffer, and gives up those that were not used for the longest time.
    fn put(&self, buffer: Vec<u8>) {
        let mut free = locked(&self.free);
        free.size_bytes += buffer.len();
        free.buffers.push(buffer);
        let mut surplus_count = 0;
        while free.size_bytes > KEPT_BYTES_MAX
            && let Some(oldest) = free.buffers.get(surplus_count)
        {
            free.size_bytes -= oldest.len();
            surplus_count += 1;
        }
        free.buffers.drain(..surplus_count);
    }
}

/// A buffer in use. Its first bytes are the result of the read.
struct Lent {
    buffer: Vec<u8>,
    size_bytes: usize,
    home: Arc<Buffers>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        self.buffer.get(..self.size_bytes).unwrap_or_default()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.home.put(std::mem::take(&mut self.buffer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Disk, RealDisk, write_all};

    fn file(folder: &tempfile::TempDir) -> Arc<dyn DiskFile> {
        let file = RealDisk::default().create(&folder.path().join("file")).unwrap();
        let contents: Vec<u8> = (0..SIZE_BYTES_MIN * 4).map(|at| at.to_le_bytes()[1]).collect();
        write_all(&*file, &contents, 0).unwrap();
        file
    }

    fn kept(buffers: &Buffers) -> Vec<usize> {
        locked(&buffers.free).buffers.iter().map(Vec::len).collect()
    }

    #[test]
    fn a_buffer_is_reused_after_its_last_slice_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let (file, buffers) = (file(&folder), Arc::<Buffers>::default());
        let first = buffers.read(&*file, SIZE_BYTES_MIN * 2, 0).unwrap();
        let (slice, place) = (first.slice(256..512), first.as_ptr());
        drop(first);
        assert_eq!(slice, [1; 256][..]);
        assert_eq!(kept(&buffers), [0; 0]);
        drop(slice);
        assert_eq!(kept(&buffers), [SIZE_BYTES_MIN * 2]);
        let second = buffers.read(&*file, SIZE_BYTES_MIN, 512).unwrap();
        assert_eq!((second.as_ptr(), second.len()), (place, SIZE_BYTES_MIN));
        assert_eq!(second[..256], [2; 256]);
        let other = buffers.read(&*file, SIZE_BYTES_MIN, 512).unwrap();
        assert_eq!(other, second, "a buffer in use is not taken");
    }

    #[test]
    fn small_reads_and_much_larger_buffers_are_not_kept_or_taken() {
        let folder = tempfile::tempdir().unwrap();
        let (file, buffers) = (file(&folder), Arc::<Buffers>::default());
        drop(buffers.read(&*file, SIZE_BYTES_MIN - 1, 0).unwrap());
        assert_eq!(kept(&buffers), [0; 0]);
        drop(buffers.read(&*file, SIZE_BYTES_MIN * 4, 0).unwrap());
        drop(buffers.read(&*file, SIZE_BYTES_MIN, 0).unwrap());
        assert_eq!(kept(&buffers), [SIZE_BYTES_MIN * 4, SIZE_BYTES_MIN]);
    }

    #[test]
    fn a_read_behind_the_end_of_the_file_fails_with_any_buffer() {
        let folder = tempfile::tempdir().unwrap();
        let (file, buffers) = (file(&folder), Arc::<Buffers>::default());
        for _ in 0..2 {
            assert!(buffers.read(&*file, SIZE_BYTES_MIN, SIZE_BYTES_MIN as u64 * 4 - 1).is_err());
            drop(buffers.read(&*file, SIZE_BYTES_MIN, 0).unwrap());
        }
    }

    #[test]
    fn the_memory_of_free_buffers_is_limited() {
        let buffers = Buffers::default();
        for _ in 0..5 {
            buffers.put(vec![0; KEPT_BYTES_MAX / 4]);
        }
        assert_eq!(kept(&buffers).len(), 4);
        buffers.put(vec![0; KEPT_BYTES_MAX + 1]);
        assert_eq!(kept(&buffers), [0; 0]);
        assert_eq!(locked(&buffers.free).size_bytes, 0);
    }
}
