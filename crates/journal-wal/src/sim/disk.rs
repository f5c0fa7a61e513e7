use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::disk::{DirectoryItem, DirectoryLock, Disk, DiskFile};
use crate::locked;

/// The unit that a disk writes completely or not at all.
const SECTOR_BYTES: usize = 512;

/// A disk in memory. It tracks which bytes and names were synced, and loses the others in a power failure.
///
/// Every call that changes something is a numbered step, so that a test can fail each of them in turn.
#[derive(Clone, Default)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

/// The fault of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// This step and all later ones fail until [`SimDisk::reboot`]. The change of this step is not synced.
    PowerOff,
    /// The step fails. After a failed sync the bytes are readable but not on the device, and no later sync writes them.
    Error,
    /// The step fails with a full disk, if it needs space.
    NoRoom,
    /// The step fails with too many open files, if it opens one.
    NoHandle,
    /// The step panics, like a bug in the program.
    Panic,
}

/// The unsynced changes that survive a power failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    All,
    None,
    /// Some sectors, and the names up to some point, chosen by the seed.
    Some {
        seed: u64,
    },
}

#[derive(Default)]
struct State {
    inodes: Vec<Inode>,
    names: BTreeMap<PathBuf, usize>,
    synced_names: BTreeMap<PathBuf, usize>,
    unsynced_names: Vec<NameChange>,
    directories: BTreeSet<PathBuf>,
    locks: BTreeSet<PathBuf>,
    step_count: u64,
    faults: BTreeMap<u64, Fault>,
    off: bool,
    capacity_bytes: Option<u64>,
    hides_capacity: bool,
    failing_read_count: u64,
}

#[derive(Clone, Default)]
struct Inode {
    synced: Vec<u8>,
    current: Vec<u8>,
    unsynced: Vec<(usize, Vec<u8>)>,
}

#[derive(Clone, Debug)]
struct NameChange {
    directory: PathBuf,
    removed: Option<PathBuf>,
    added: Option<(PathBuf, usize)>,
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<PathBuf, usize>) {
        if let Some(path) = &self.removed {
            names.remove(path);
        }
        if let Some((path, inode)) = &self.added {
            names.insert(path.clone(), *inode);
        }
    }
}

fn powered_off() -> io::Error {
    io::Error::other("the power is off")
}

/// A small random generator. A simulation needs repeatable choices, not good ones.
struct Choices(u64);

impl Choices {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % limit.max(1)
    }
}

impl SimDisk {
    pub fn new() -> Self {
        SimDisk::default()
    }

    /// Returns the number of steps so far.
    pub fn step_count(&self) -> u64 {
        locked(&self.state).step_count
    }

    /// Injects a fault at a step, counted from the creation of the disk.
    pub fn fail_at(&self, step: u64, fault: Fault) {
        locked(&self.state).faults.insert(step, fault);
    }

    pub fn clear_faults(&self) {
        let mut state = locked(&self.state);
        state.faults.clear();
        state.failing_read_count = 0;
    }

    /// Lets the next `count` opens and reads of files fail, like a device that returns errors for a while.
    pub fn fail_reads(&self, count: u64) {
        locked(&self.state).failing_read_count = count;
    }

    /// Sets the capacity, or removes the limit.
    pub fn set_capacity(&self, capacity_bytes: Option<u64>) {
        locked(&self.state).capacity_bytes = capacity_bytes;
    }

    /// Hides the capacity, as a quota does: from now on, a full disk is noticed only when a write fails.
    pub fn hide_capacity(&self) {
        locked(&self.state).hides_capacity = true;
    }

    pub fn used_bytes(&self) -> u64 {
        locked(&self.state).used_bytes()
    }

    pub fn is_off(&self) -> bool {
        locked(&self.state).off
    }

    /// Turns the power off, if it is on, and on again. All locks end, and unsynced changes are lost as `loss` defines.
    pub fn reboot(&self, loss: Loss) {
        let mut state = locked(&self.state);
        state.lose(loss);
        state.off = false;
        state.faults.clear();
        state.failing_read_count = 0;
        state.locks.clear();
    }

    /// Ends the process, but not the machine: only the locks are lost, and nothing more is synced.
    pub fn kill_process(&self) {
        let mut state = locked(&self.state);
        state.off = false;
        state.faults.clear();
        state.failing_read_count = 0;
        state.locks.clear();
    }

    /// Returns the current bytes of a file.
    pub fn bytes(&self, path: &Path) -> Option<Vec<u8>> {
        let state = locked(&self.state);
        state.names.get(path).and_then(|inode| state.inodes.get(*inode)).map(|inode| inode.current.clone())
    }

    /// Changes a file like a failure of the device would, without a step.
    pub fn damage(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
        let mut state = locked(&self.state);
        let Some(at) = state.names.get(path).copied() else { return };
        if let Some(inode) = state.inodes.get_mut(at) {
            change(&mut inode.current);
            inode.synced = inode.current.clone();
            inode.unsynced.clear();
        }
    }

    /// Returns a copy of the disk with the same contents.
    pub fn copy(&self) -> SimDisk {
        let state = locked(&self.state);
        let copy = State {
            inodes: state.inodes.clone(),
            names: state.names.clone(),
            synced_names: state.synced_names.clone(),
            unsynced_names: state.unsynced_names.clone(),
            directories: state.directories.clone(),
            capacity_bytes: state.capacity_bytes,
            ..State::default()
        };
        SimDisk { state: Arc::new(Mutex::new(copy)) }
    }

    /// Returns all files, in order.
    pub fn files(&self) -> Vec<PathBuf> {
        locked(&self.state).names.keys().cloned().collect()
    }
}

impl State {
    /// Counts a step and returns its fault.
    fn step(&mut self) -> Result<Option<Fault>, io::Error> {
        if self.off {
            return Err(powered_off());
        }
        self.step_count += 1;
        let fault = self.faults.get(&self.step_count).copied();
        assert!(fault != Some(Fault::Panic), "injected fault");
        Ok(fault)
    }

    /// Counts an open or a read. These change nothing, so they are no steps.
    fn read(&mut self, fault: impl FnOnce() -> io::Error) -> io::Result<()> {
        match self.failing_read_count.checked_sub(1) {
            None => Ok(()),
            Some(left) => {
                self.failing_read_count = left;
                Err(fault())
            }
        }
    }

    /// Changes names, with the fault of the step.
    fn change_names(&mut self, change: NameChange, creates: bool) -> io::Result<()> {
        match self.step()? {
            Some(Fault::Error) => return Err(io::Error::other("the device reports an error")),
            Some(Fault::NoRoom) if creates => return Err(io::ErrorKind::StorageFull.into()),
            Some(Fault::NoHandle) if creates => return Err(rustix::io::Errno::MFILE.into()),
            Some(Fault::PowerOff) => self.off = true,
            _ => {}
        }
        change.apply(&mut self.names);
        self.unsynced_names.push(change);
        if self.off { Err(powered_off()) } else { Ok(()) }
    }

    fn used_bytes(&self) -> u64 {
        self.names
            .values()
            .filter_map(|at| self.inodes.get(*at))
            .map(|inode| inode.current.len() as u64)
            .sum()
    }

    fn lose(&mut self, loss: Loss) {
        let mut choices = Choices(if let Loss::Some { seed } = loss { seed } else { 0 });
        let changes = std::mem::take(&mut self.unsynced_names);
        let kept = match loss {
            Loss::All => 0,
            Loss::None => changes.len(),
            Loss::Some { .. } => usize::try_from(choices.below(changes.len() as u64 + 1)).unwrap_or(0),
        };
        changes.iter().take(kept).for_each(|change| change.apply(&mut self.synced_names));
        self.names = self.synced_names.clone();
        for inode in &mut self.inodes {
            inode.lose(loss, &mut choices);
        }
    }
}

impl Inode {
    fn write(&mut self, at: usize, bytes: &[u8]) {
        overlay(&mut self.current, at, bytes);
        self.unsynced.push((at, bytes.to_vec()));
    }

    fn sync(&mut self) {
        for (at, bytes) in std::mem::take(&mut self.unsynced) {
            overlay(&mut self.synced, at, &bytes);
        }
    }

    fn lose(&mut self, loss: Loss, choices: &mut Choices) {
        for (at, bytes) in std::mem::take(&mut self.unsynced) {
            let mut done = 0;
            while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
                let now = (SECTOR_BYTES - (at + done) % SECTOR_BYTES).min(rest.len());
                let keep = match loss {
                    Loss::All => false,
                    Loss::None => true,
                    Loss::Some { .. } => choices.below(2) == 0,
                };
                if keep {
                    overlay(&mut self.synced, at + done, rest.get(..now).unwrap_or(rest));
                }
                done += now;
            }
        }
        self.current = self.synced.clone();
    }
}

fn overlay(onto: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    let end = at + bytes.len();
    if onto.len() < end {
        onto.resize(end, 0);
    }
    if let Some(room) = onto.get_mut(at..end) {
        room.copy_from_slice(bytes);
    }
}

fn directory_of(path: &Path) -> PathBuf {
    path.parent().map(Path::to_path_buf).unwrap_or_default()
}

impl Disk for SimDisk {
    /// Creates directories, which are durable at once: losing one is the same as losing the files in it.
    fn create_dir_all(&self, directory: &Path) -> io::Result<()> {
        let mut state = locked(&self.state);
        if state.off {
            return Err(powered_off());
        }
        state.directories.extend(directory.ancestors().map(Path::to_path_buf));
        Ok(())
    }

    fn lock(&self, path: &Path, _owner: &str) -> io::Result<Option<DirectoryLock>> {
        let mut state = locked(&self.state);
        if state.off {
            return Err(powered_off());
        }
        if !state.locks.insert(path.to_path_buf()) {
            return Ok(None);
        }
        Ok(Some(Box::new(SimLock { disk: self.clone(), path: path.to_path_buf() })))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = locked(&self.state);
        let inode = state.inodes.len();
        let directory = directory_of(path);
        if !state.directories.contains(&directory) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let change = NameChange { directory, removed: None, added: Some((path.to_path_buf(), inode)) };
        state.inodes.push(Inode::default());
        state.change_names(change, true)?;
        Ok(Arc::new(SimFile { disk: self.clone(), inode }))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = locked(&self.state);
        if state.off {
            return Err(powered_off());
        }
        state.read(|| rustix::io::Errno::MFILE.into())?;
        let inode = *state.names.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(SimFile { disk: self.clone(), inode }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = locked(&self.state);
        let inode = *state.names.get(from).ok_or(io::ErrorKind::NotFound)?;
        let directory = directory_of(to);
        let change = NameChange {
            directory,
            removed: Some(from.to_path_buf()),
            added: Some((to.to_path_buf(), inode)),
        };
        state.change_names(change, false)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = locked(&self.state);
        if !state.off && !state.names.contains_key(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let change =
            NameChange { directory: directory_of(path), removed: Some(path.to_path_buf()), added: None };
        state.change_names(change, false)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<DirectoryItem>> {
        let state = locked(&self.state);
        if state.off {
            return Err(powered_off());
        }
        if !state.directories.contains(directory) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let name_of = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
        let inside = |path: &&PathBuf| path.parent() == Some(directory);
        let mut entries = Vec::new();
        for (path, inode) in state.names.iter().filter(|(path, _)| inside(path)) {
            let size_bytes = state.inodes.get(*inode).map_or(0, |inode| inode.current.len() as u64);
            entries.extend(name_of(path).map(|name| DirectoryItem { name, size_bytes }));
        }
        for path in state.directories.iter().filter(inside) {
            entries.extend(name_of(path).map(|name| DirectoryItem { name, size_bytes: 0 }));
        }
        Ok(entries)
    }

    fn sync_dir(&self, directory: &Path) -> io::Result<()> {
        let mut state = locked(&self.state);
        match state.step()? {
            Some(Fault::PowerOff) => {
                state.off = true;
                return Err(powered_off());
            }
            Some(Fault::Error) => return Err(io::Error::other("the device reports an error")),
            _ => {}
        }
        let changes = std::mem::take(&mut state.unsynced_names);
        let (now, later): (Vec<_>, Vec<_>) =
            changes.into_iter().partition(|change| change.directory == directory);
        now.iter().for_each(|change| change.apply(&mut state.synced_names));
        state.unsynced_names = later;
        Ok(())
    }

    fn free_bytes(&self, _directory: &Path) -> io::Result<u64> {
        let state = locked(&self.state);
        let capacity_bytes = state.capacity_bytes.filter(|_| !state.hides_capacity);
        Ok(capacity_bytes.map_or(u64::MAX, |capacity| capacity.saturating_sub(state.used_bytes())))
    }
}

struct SimLock {
    disk: SimDisk,
    path: PathBuf,
}

impl Drop for SimLock {
    fn drop(&mut self) {
        locked(&self.disk.state).locks.remove(&self.path);
    }
}

struct SimFile {
    disk: SimDisk,
    inode: usize,
}

impl SimFile {
    fn with<T>(&self, act: impl FnOnce(&mut Inode) -> io::Result<T>) -> io::Result<T> {
        let mut state = locked(&self.disk.state);
        if state.off {
            return Err(powered_off());
        }
        act(state.inodes.get_mut(self.inode).ok_or(io::ErrorKind::NotFound)?)
    }
}

fn position(offset: u64) -> io::Result<usize> {
    usize::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput.into())
}

impl DiskFile for SimFile {
    fn size_bytes(&self) -> io::Result<u64> {
        self.with(|inode| Ok(inode.current.len() as u64))
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        let at = position(offset)?;
        locked(&self.disk.state).read(|| io::Error::other("the device reports an error"))?;
        self.with(|inode| {
            let end = at.checked_add(into.len()).ok_or(io::ErrorKind::InvalidInput)?;
            into.copy_from_slice(inode.current.get(at..end).ok_or(io::ErrorKind::UnexpectedEof)?);
            Ok(())
        })
    }

    fn reserve(&self, size_bytes: u64) -> io::Result<bool> {
        let zeros = vec![0; position(size_bytes)?];
        self.write_at(&mut [IoSlice::new(&zeros)], 0)?;
        Ok(true)
    }

    fn write_at(&self, parts: &mut [IoSlice<'_>], offset: u64) -> io::Result<()> {
        let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        let at = position(offset)?;
        let mut state = locked(&self.disk.state);
        match state.step()? {
            Some(Fault::Error) => return Err(io::Error::other("the device reports an error")),
            Some(Fault::NoRoom) => return Err(io::ErrorKind::StorageFull.into()),
            Some(Fault::PowerOff) => state.off = true,
            Some(Fault::NoHandle | Fault::Panic) | None => {}
        }
        let size = state.inodes.get(self.inode).map_or(0, |inode| inode.current.len());
        let growth = (at + bytes.len()).saturating_sub(size) as u64;
        let (used, capacity) = (state.used_bytes(), state.capacity_bytes.unwrap_or(u64::MAX));
        if growth > 0 && used.saturating_add(growth) > capacity {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if let Some(inode) = state.inodes.get_mut(self.inode) {
            inode.write(at, &bytes);
        }
        if state.off { Err(powered_off()) } else { Ok(()) }
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = locked(&self.disk.state);
        let fault = state.step()?;
        let off = fault == Some(Fault::PowerOff);
        state.off = off;
        let inode = state.inodes.get_mut(self.inode).ok_or(io::ErrorKind::NotFound)?;
        match fault {
            Some(Fault::PowerOff) => Err(powered_off()),
            Some(Fault::Error) => {
                inode.unsynced.clear();
                Err(io::Error::other("the device reports an error"))
            }
            _ => {
                inode.sync();
                Ok(())
            }
        }
    }

    fn forget_cache(&self) -> io::Result<()> {
        self.with(|inode| {
            inode.current = inode.synced.clone();
            for (at, bytes) in &inode.unsynced {
                overlay(&mut inode.current, *at, bytes);
            }
            Ok(())
        })
    }
}
