//! The JavaScript tests, with the test runner of node, and the kill loop, which is a program for node.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::counts::Counts;
use crate::{process, stamp, workspace};

/// The time limit of a file. A file that hangs fails instead of stopping the run.
const FILE_TIMEOUT: &str = "--test-timeout=300000";
/// The number of test files at the same time: the cores of the smallest machine.
const FILES_AT_ONCE: &str = "--test-concurrency=2";
const FOLDER: &str = "interop/js/test";
/// The test files of a quick run.
const SMOKE: [&str; 4] = ["send_receive", "settle", "topics", "hubs_send"];

pub(crate) fn js(broker: &Path, only: Option<&str>) -> Result<Counts> {
    packages()?;
    node_tests(test_files(FOLDER)?, broker, only)
}

pub(crate) fn js_smoke(broker: &Path) -> Result<Counts> {
    packages()?;
    node_tests(SMOKE.map(|name| format!("{FOLDER}/{name}.test.mjs")).to_vec(), broker, None)
}

/// Tests the checker with forged logs, then runs the loop and checks its logs. A name chooses among the tests of the checker; the
/// loop, which is a single test, is then left out.
pub(crate) fn kill(broker: &Path, only: Option<&str>) -> Result<Counts> {
    packages()?;
    let mut counts = node_tests(test_files("interop/kill/test")?, broker, only)?;
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
    let folder = workspace::root()?.join("interop/js");
    let (installed, list) = (folder.join("node_modules"), folder.join("package-lock.json"));
    if stamp::is_current(&installed, &list)? {
        return Ok(());
    }
    process::must_succeed(Command::new("npm").current_dir(folder).args(["ci", "--loglevel=error"]))?;
    stamp::write(&installed, &list)
}

fn node_tests(files: Vec<String>, broker: &Path, only: Option<&str>) -> Result<Counts> {
    let mut command = Command::new("node");
    command.current_dir(workspace::root()?).env(workspace::BROKER_VARIABLE, broker);
    command.args(["--test", "--test-reporter=spec", FILE_TIMEOUT, FILES_AT_ONCE]);
    command.args(only.map(|name| format!("--test-name-pattern={name}")));
    command.args(files);
    process::counted(&mut command, |lines| node_counts(lines, only.is_some()))
}

/// Returns the test files of a folder. Node 20 does not search a folder for tests.
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

/// Reads the closing lines `ℹ pass 12`, `ℹ fail 1` and so on. A skipped or todo test counts as failed. If a name chose the tests, node
/// reports all others as skipped, and they do not count.
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
    fn counts_are_read_from_the_closing_lines_of_node() {
        let text = "✔ one (1ms)\nℹ tests 4\nℹ pass 2\nℹ fail 1\nℹ cancelled 0\nℹ skipped 1\nℹ todo 0";
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        assert_eq!(node_counts(&lines, false), Counts { passed: 2, failed: 2 });
        assert_eq!(node_counts(&lines, true), Counts { passed: 2, failed: 1 });
        assert_eq!(node_counts(&[], false), Counts::default());
    }
}
