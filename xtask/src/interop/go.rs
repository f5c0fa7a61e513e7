//! The Go tests, in a module whose go.mod and go.sum pin every package.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::counts::Counts;
use crate::{process, workspace};

/// The time limit of a package. A package that hangs fails instead of stopping the run.
const TIMEOUT: &str = "-timeout=10m";
/// The number of tests at the same time. The tests mostly wait for sockets, so more of them than cores run at once.
const AT_ONCE: &str = "-parallel=8";
/// Disables the cache of results, because Go does not notice that the broker has changed.
const UNCACHED: &str = "-count=1";

pub(crate) fn go(broker: &Path, only: Option<&str>) -> Result<Counts> {
    let mut command = Command::new("go");
    command.current_dir(workspace::root()?.join("interop/go")).env(workspace::BROKER_VARIABLE, broker);
    command.args(["test", "-v", UNCACHED, AT_ONCE, TIMEOUT]);
    command.args(only.map(|name| format!("-run={name}")));
    process::counted(command.arg("./..."), go_counts)
}

/// Counts lines like `--- PASS: TestName (0.01s)`, without the indented lines of subtests. A skipped test counts as failed, and so does a
/// package that did not build.
fn go_counts(lines: &[String]) -> Counts {
    let count = |start: &str| lines.iter().filter(|line| line.starts_with(start)).count() as u64;
    let unbuilt =
        lines.iter().filter(|line| line.starts_with("FAIL\t") && line.ends_with(" failed]")).count() as u64;
    Counts { passed: count("--- PASS: "), failed: count("--- FAIL: ") + count("--- SKIP: ") + unbuilt }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_the_results_of_go() {
        let text = "=== RUN   TestA\n--- PASS: TestA (0.05s)\n    --- PASS: TestA/part (0.01s)\n--- FAIL: TestB (1.00s)\n\
                    --- SKIP: TestC (0.00s)\nFAIL\nFAIL\tpeeklock/interop/x\t1.2s\nFAIL\tpeeklock/interop/y [build failed]";
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        assert_eq!(go_counts(&lines), Counts { passed: 1, failed: 3 });
        assert_eq!(go_counts(&[]), Counts::default());
    }
}
