//! The file `FORMAT`: the format of a data directory, the version of the program that it needs, and its number of
//! shards.
//!
//! ```text
//! peeklock journal 3
//! needs 0.1.0
//! shards 8
//! ```

use std::io;
use std::path::Path;

use peeklock_journal::OpenError;
use peeklock_types::{Placement, ProgramVersion, ShardId};

use crate::disk::{Disk, write_all};
use crate::journal::failed;
use crate::layout::{Layout, text};

/// The number of the format. It changes when the layout of a directory, a frame, a segment or the payload of a group
/// changes. Records, settings and snapshots are tagged, so their changes do not change it.
const FORMAT: u32 = 3;
/// The first version of the program that reads this format.
const NEEDS: &str = "0.1.0";
const FORMAT_WORDS: &str = "peeklock journal ";

/// Checks the format of a directory and returns its placement. A new directory gets this format and the placement
/// `new`.
pub(crate) fn settle(disk: &dyn Disk, layout: &Layout, new: Placement) -> Result<Placement, OpenError> {
    let path = layout.format();
    match read_file(disk, &path) {
        Ok(bytes) => {
            let placement = check(layout, &bytes)?;
            // The names that are visible here must survive a power failure, even if the last run died before it could
            // sync them.
            for directory in [layout.root.clone(), layout.wal_dir()] {
                disk.sync_dir(&directory).map_err(failed("syncing", &directory))?;
            }
            return Ok(placement);
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed("reading", &path)(error)),
    }
    if disk.list(&layout.wal_dir()).is_ok_and(|entries| !entries.is_empty()) {
        return Err(corrupt(layout, "the file is missing, but the directory holds a log".to_owned()));
    }
    create(disk, layout, new).map_err(failed("preparing", &layout.root))?;
    Ok(new)
}

/// Rejects a log that contains a shard above the number of shards in the file.
pub(crate) fn check_shards(
    layout: &Layout,
    placement: Placement,
    mut logged: impl Iterator<Item = ShardId>,
) -> Result<(), OpenError> {
    match logged.find(|shard| shard.0 >= placement.shard_count()) {
        None => Ok(()),
        Some(shard) => {
            let what = format!("it counts {} shards, but the log holds {shard}", placement.shard_count());
            Err(corrupt(layout, what))
        }
    }
}

fn create(disk: &dyn Disk, layout: &Layout, placement: Placement) -> io::Result<()> {
    for directory in [layout.wal_dir(), layout.cold_root(), layout.snapshot_root()] {
        disk.create_dir_all(&directory)?;
    }
    let draft = layout.format().with_extension("tmp");
    let file = disk.create(&draft)?;
    let words = format!("{FORMAT_WORDS}{FORMAT}\nneeds {NEEDS}\nshards {}\n", placement.shard_count());
    write_all(&*file, words.as_bytes(), 0)?;
    file.sync()?;
    disk.rename(&draft, &layout.format())?;
    disk.sync_dir(&layout.root)?;
    sync_parent(disk, &layout.root)
}

/// Syncs the parent of the data directory, because the directory itself may be new. A parent that belongs to another
/// user cannot be synced, which is ignored.
fn sync_parent(disk: &dyn Disk, directory: &Path) -> io::Result<()> {
    let parent = match directory.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return Ok(()),
    };
    match disk.sync_dir(parent) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        other => other,
    }
}

fn corrupt(layout: &Layout, what: String) -> OpenError {
    OpenError::Corrupt { file: text(&layout.format()), offset: 0, what }
}

fn check(layout: &Layout, bytes: &[u8]) -> Result<Placement, OpenError> {
    let mut lines = std::str::from_utf8(bytes).unwrap_or_default().lines();
    let number = lines.next().and_then(|line| line.strip_prefix(FORMAT_WORDS)?.parse::<u32>().ok());
    let found =
        number.ok_or_else(|| corrupt(layout, "it does not name the format of the directory".to_owned()))?;
    let words: Vec<_> = lines.map(|line| line.split_once(' ').unwrap_or((line, ""))).collect();
    let directory = || text(&layout.root);
    let newer = |what: String| {
        let needs = words.iter().find(|(word, _)| *word == "needs").map(|(_, needs)| *needs);
        let needs = needs.map_or_else(|| "that created it".to_owned(), str::to_owned);
        OpenError::NewerFormat { directory: directory(), what, needs, this: ProgramVersion::THIS.to_string() }
    };
    if found < FORMAT {
        return Err(OpenError::OlderFormat { directory: directory(), found, known: FORMAT });
    }
    if found > FORMAT {
        return Err(newer(format!("format {found}")));
    }
    let mut placement = Placement::default();
    for (word, value) in &words {
        match *word {
            "needs" => {}
            "shards" => {
                let found = value.parse().ok().and_then(Placement::new);
                placement = found.ok_or_else(|| {
                    corrupt(layout, format!("it has an impossible number of shards, {value}"))
                })?;
            }
            word => return Err(newer(format!("the unknown word '{word}' in its file FORMAT"))),
        }
    }
    Ok(placement)
}

fn read_file(disk: &dyn Disk, path: &Path) -> io::Result<Vec<u8>> {
    const FORMAT_BYTES_MAX: u64 = 4096;
    let file = disk.open(path)?;
    let mut bytes = vec![0; usize::try_from(file.size_bytes()?.min(FORMAT_BYTES_MAX)).unwrap_or(0)];
    file.read_at(&mut bytes, 0)?;
    Ok(bytes)
}
