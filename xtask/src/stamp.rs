//! Stamps: a hash of the list of packages, kept in the folder into which they were installed. A folder with the right stamp is complete.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use anyhow::{Context, Result};

const FILE: &str = ".peeklock-packages-hash";

pub(crate) fn is_current(folder: &Path, list: &Path) -> Result<bool> {
    let hash = hash_of(list)?;
    Ok(fs::read_to_string(folder.join(FILE)).is_ok_and(|found| found == hash))
}

/// Writes the stamp. Callers do this last, so that an interrupted installation starts over.
pub(crate) fn write(folder: &Path, list: &Path) -> Result<()> {
    let path = folder.join(FILE);
    fs::write(&path, hash_of(list)?).with_context(|| format!("cannot write {}", path.display()))
}

fn hash_of(list: &Path) -> Result<String> {
    let text = fs::read(list).with_context(|| format!("cannot read {}", list.display()))?;
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    Ok(format!("{:016x}", hasher.finish()))
}
