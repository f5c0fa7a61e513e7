//! node's own test runner, and the kill loop that is written for node too.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::counts::Counts;
use crate::{process, workspace};

/// A file that hangs must fail the run, not stop it.
const FILE_TIMEOUT: &str = "--test-timeout=300000";
/// Two test files at once: as many as the smallest machine has cores.
const FILES_AT_ONCE: &str = "--test-concurrency=2";

pub(crate) fn js(broker: &Path, only: Option<&str>) -> Result<Counts> {
    packages()?;
    node_tests("interop/js/test", broker, only)
}

/// First the checker is shown forged logs, then it judges real ones: a checker that flags nothing proves nothing.
/// With a name, the tests of the checker alone run: the loop itself is one test and has none.
pub(crate) fn kill(broker: &Path, only: Option<&str>) -> Result<Counts> {
    packages()?;
    let mut counts = node_tests("interop/kill/test", broker, only)?;
    if only.is_some() {
        return Ok(counts);
    }
    let mut command = Command::new("node");
    command
        .current_dir(workspace::root()?)
        .env(workspace::BROKER_VARIABLE, broker)
        .arg("interop/kill/run.mjs");
    counts += Counts::of(process::succeeds(&mut command)?);
    Ok(counts)
}

fn packages() -> Result<()> {
    let mut command = Command::new("npm");
    process::must_succeed(
        command.current_dir(workspace::root()?.join("interop/js")).args(["ci", "--loglevel=error"]),
    )
}

fn node_tests(folder: &str, broker: &Path, only: Option<&str>) -> Result<Counts> {
    let mut command = Command::new("node");
    command.current_dir(workspace::root()?).env(workspace::BROKER_VARIABLE, broker);
    command.args(["--test", "--test-reporter=spec", FILE_TIMEOUT, FILES_AT_ONCE]);
    command.args(only.map(|name| format!("--test-name-pattern={name}")));
    command.args(test_files(folder)?);
    process::counted(&mut command, |lines| node_counts(lines, only.is_some()))
}

/// Named one by one: node 20 does not look for tests in a folder that it is given.
fn test_files(folder: &str) -> Result<Vec<String>> {
    let mut files = Vec::new();
    for entry in workspace::root()?.join(folder).read_dir()? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".test.mjs") {
            files.push(format!("{folder}/{name}"));
        }
    }
    files.sort();
    Ok(files)
}

/// Reads the closing lines `ℹ pass 12`, `ℹ fail 1` and so on; a skipped or todo test counts as failed. Where a name chose
/// the tests, node reports all others as skipped, so they count nothing.
fn node_counts(lines: &[String], chosen: bool) -> Counts {
    let sum = |labels: &[&str]| labels.iter().filter_map(|label| closing_number(lines, label)).sum::<u64>();
    let skipped = if chosen { 0 } else { sum(&["skipped "]) };
    Counts { passed: sum(&["pass "]), failed: sum(&["fail ", "cancelled ", "todo "]) + skipped }
}

fn closing_number(lines: &[String], label: &str) -> Option<u64> {
    lines.iter().rev().find_map(|line| line.strip_prefix("ℹ ")?.strip_prefix(label)?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closing_lines_of_node_are_read() {
        let text = "✔ one (1ms)\nℹ tests 4\nℹ pass 2\nℹ fail 1\nℹ cancelled 0\nℹ skipped 1\nℹ todo 0";
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        assert_eq!(node_counts(&lines, false), Counts { passed: 2, failed: 2 });
        assert_eq!(node_counts(&lines, true), Counts { passed: 2, failed: 1 });
        assert_eq!(node_counts(&[], false), Counts::default());
    }
}
