//! Checks the table *Vocabulary*: a type with exactly the name of a word is defined only in the files that the table allows.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::table;

const HEADING: &str = "## Vocabulary";
const FOLDERS: [&str; 6] = ["crates", "sim", "bench", "fuzz", "interop/fe2o3", "xtask"];
const KEYWORDS: [&str; 5] = ["struct ", "enum ", "union ", "trait ", "type "];

/// A type name of the vocabulary, and the files and folders in which it may be defined.
struct Word {
    name: String,
    places: Vec<String>,
}

pub(super) fn faults(root: &Path, text: &str) -> Result<Vec<String>> {
    let rows = table::rows(text, HEADING, 3)?;
    let words: Vec<Word> = rows.iter().flat_map(|row| words_in(row[0], row[2])).collect();
    let mut faults = Vec::new();
    for file in rust_files(root)? {
        let source = fs::read_to_string(root.join(&file))
            .with_context(|| format!("cannot read {}", file.display()))?;
        faults.extend(misused(&words, &file, &source));
    }
    Ok(faults)
}

/// Returns the type names of a row: the spans of the first cell that start with a capital letter.
fn words_in(names: &str, places: &str) -> Vec<Word> {
    let spans = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    let types = spans(names).into_iter().filter(|name| name.starts_with(|c: char| c.is_ascii_uppercase()));
    types.map(|name| Word { name, places: spans(places) }).collect()
}

fn misused(words: &[Word], file: &Path, source: &str) -> Vec<String> {
    let defined = source.lines().filter_map(type_defined_in);
    let forbidden = |name: &str| {
        let word = words.iter().find(|word| word.name == name);
        word.is_some_and(|word| !word.places.iter().any(|place| file.starts_with(place)))
    };
    let misused = defined.filter(|name| forbidden(name));
    misused
        .map(|name| format!("the vocabulary does not allow a type named {name} in {}", file.display()))
        .collect()
}

/// Returns the name of the type that a line defines: `Lane` in `pub(crate) struct Lane {`.
fn type_defined_in(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
        Some(rest) => rest.trim_start(),
        None => line,
    };
    let rest = KEYWORDS.iter().find_map(|keyword| line.strip_prefix(keyword))?;
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
    Some(&rest[..end])
}

/// Returns the Rust files of the repository, relative to its root.
fn rust_files(root: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders: Vec<PathBuf> = FOLDERS.iter().map(PathBuf::from).collect();
    while let Some(folder) = folders.pop() {
        let entries =
            fs::read_dir(root.join(&folder)).with_context(|| format!("cannot list {}", folder.display()))?;
        for entry in entries {
            let entry = entry?;
            let path = folder.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_are_found() {
        for line in [
            "struct Lane;",
            "    pub(crate) enum Lane<'a> {",
            "pub trait Lane: Send {",
            "pub(in crate::x) type Lane = ();",
        ] {
            assert_eq!(type_defined_in(line), Some("Lane"), "{line}");
        }
        for line in ["let lane = Lane::new();", "// struct Lane", "use x::Lane;", "fn of(type_: Lane) {}"] {
            assert_eq!(type_defined_in(line), None, "{line}");
        }
    }

    #[test]
    fn a_type_outside_of_its_places_is_a_fault() {
        let words = words_in("lane: `Lane`", "`crates/engine/src/order`");
        let faults = |file: &str, source: &str| misused(&words, Path::new(file), source).len();
        assert_eq!(faults("crates/engine/src/order/lane.rs", "pub(crate) struct Lane {"), 0);
        assert_eq!(faults("crates/broker/src/outgoing.rs", "struct Lane {"), 1);
        assert_eq!(faults("crates/broker/src/outgoing.rs", "struct LaneCount {\nlet lane: Lane;"), 0);
    }

    #[test]
    fn a_type_without_places_is_a_fault_everywhere() {
        let words = words_in("`Entry`", "nowhere");
        assert_eq!(misused(&words, Path::new("crates/hubs/src/agenda.rs"), "enum Entry {}").len(), 1);
    }
}
