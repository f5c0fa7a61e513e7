//! Checks ARCHITECTURE.md against the code: the paths that it names, the dependencies between crates, and the vocabulary.

mod edges;
mod paths;
mod table;
mod vocabulary;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::counts::Counts;

const FILE: &str = "ARCHITECTURE.md";

pub(crate) fn check(root: &Path) -> Result<Counts> {
    let text = fs::read_to_string(root.join(FILE)).with_context(|| format!("cannot read {FILE}"))?;
    let mut counts = Counts::default();
    for faults in [paths::faults(root, &text), edges::faults(&text)?, vocabulary::faults(root, &text)?] {
        for fault in &faults {
            eprintln!("check: {FILE}: {fault}");
        }
        counts += Counts::of(faults.is_empty());
    }
    Ok(counts)
}
