//! Checks that every path that ARCHITECTURE.md names exists.

use std::fs;
use std::path::Path;

/// Returns the paths in the text that do not exist.
pub(super) fn faults(root: &Path, text: &str) -> Vec<String> {
    let paths = paths_in(text);
    if paths.is_empty() {
        return vec!["it names no path at all".to_owned()];
    }
    let missing = paths.iter().filter(|path| !exists(root, path));
    missing.map(|path| format!("it names `{path}`, which does not exist")).collect()
}

/// Returns the spans between single backticks that are paths of this repository.
fn paths_in(text: &str) -> Vec<String> {
    outside_fences(text).lines().flat_map(spans).filter(|span| is_path(span)).map(str::to_owned).collect()
}

fn outside_fences(text: &str) -> String {
    text.split("```").step_by(2).collect()
}

fn spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Returns whether a span is a path: it has a slash or the ending of a source file, and consists of name characters only. So addresses such
/// as `orders/$DeadLetterQueue` and commands with blanks are not paths.
fn is_path(span: &str) -> bool {
    let is_name_character = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '-' | '_' | '*');
    let has_file_ending =
        [".rs", ".md", ".toml", ".py", ".mjs", ".json"].iter().any(|ending| span.ends_with(ending));
    let starts_as_name = span.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '.');
    starts_as_name && span.chars().all(is_name_character) && (span.contains('/') || has_file_ending)
}

/// Returns whether a path exists. It may start at the root, at `crates`, or anywhere in a crate (`src/queue/lock.rs`, `lock.rs`).
fn exists(root: &Path, path: &str) -> bool {
    let path = path.trim_end_matches(['*', '/']);
    root.join(path).exists()
        || root.join("crates").join(path).exists()
        || is_tail_below(&root.join("crates"), path)
}

fn is_tail_below(folder: &Path, tail: &str) -> bool {
    let Ok(entries) = fs::read_dir(folder) else { return false };
    entries
        .flatten()
        .map(|entry| entry.path())
        .any(|path| path.ends_with(tail) || (path.is_dir() && is_tail_below(&path, tail)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_distinguished_from_other_code() {
        let text = "`crates/engine` has `lock.rs`; `orders/$DeadLetterQueue`, `Queue::decide`, `cargo xtask test` and `/x` are none.\n\
                    ```\n`crates/in-a-picture`\n```\nThen `xtask/`.";
        assert_eq!(paths_in(text), ["crates/engine", "lock.rs", "xtask/"]);
    }

    #[test]
    fn a_missing_path_is_a_fault() {
        let root = crate::workspace::root().unwrap();
        assert_eq!(faults(&root, "`crates/types`"), [""; 0]);
        assert_eq!(faults(&root, "`crates/none`"), ["it names `crates/none`, which does not exist"]);
        assert_eq!(faults(&root, "no path").len(), 1);
    }

    #[test]
    fn a_path_exists_from_the_root_from_crates_or_as_a_tail() {
        let root = crate::workspace::root().unwrap();
        for path in [
            "crates/types",
            "xtask/src/main.rs",
            "types/src/lib.rs",
            "entity.rs",
            "src/entity.rs",
            "crates/*",
        ] {
            assert!(exists(&root, path), "{path}");
        }
        for path in ["crates/no-such-crate", "no_such_file.rs", "ntity.rs"] {
            assert!(!exists(&root, path), "{path}");
        }
    }
}
