//! Checks ARCHITECTURE.md against the code: the paths that it names, the dependencies between crates, and the vocabulary. Checks the
//! paths of CONTRIBUTING.md as well.

mod edges;
mod paths;
mod table;
mod vocabulary;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::counts::Counts;

const FILE: &str = "ARCHITECTURE.md";
const GUIDE: &str = "CONTRIBUTING.md";

pub(crate) fn check(root: &Path) -> Result<Counts> {
    let (text, guide) = (read(root, FILE)?, read(root, GUIDE)?);
    let mut counts = report(GUIDE, &paths::faults(root, &guide));
    counts += report(FILE, &paths::faults(root, &text));
    counts += report(FILE, &edges::faults(&text)?);
    counts += report(FILE, &vocabulary::faults(root, &text)?);
    Ok(counts)
}

fn read(root: &Path, file: &str) -> Result<String> {
    fs::read_to_string(root.join(file)).with_context(|| format!("cannot read {file}"))
}

fn report(file: &str, faults: &[String]) -> Counts {
    for fault in faults {
        eprintln!("check: {file}: {fault}");
    }
    Counts::of(faults.is_empty())
}
