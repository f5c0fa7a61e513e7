//! Everything, in the order in which a failure is cheapest to learn.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Result, anyhow, bail};

use crate::counts::{self, Counts, Part};
use crate::{check, fuzz, interop, process, sim, workspace};

pub(crate) fn run(arguments: &[String]) -> Result<Counts> {
    if let Some(argument) = arguments.first() {
        bail!("'{argument}': `cargo xtask test` takes no arguments");
    }
    let mut parts = vec![Part::of("check", check::code)];
    let mut broker = Err(anyhow!("it was not built"));
    parts.push(Part::of("build", || {
        broker = workspace::build_all();
        Ok(Counts::of(broker.is_ok()))
    }));
    parts.push(Part::of("cargo", || with(&broker, cargo_tests)));
    parts.extend(beside_each_other(&broker));
    parts.extend(second_wave(&broker));
    parts.push(Part::of("kill", || with(&broker, |path| interop::kill(path, None))));
    Ok(counts::report(&parts))
}

/// The SDKs mostly wait for timers and sockets, so there is time for what computes; the lines come mixed.
fn beside_each_other(broker: &Result<PathBuf>) -> Vec<Part> {
    let computed = || {
        vec![
            Part::of("rustdoc", check::documentation),
            Part::of("doctest", || with(broker, |_| documentation_tests())),
            Part::of("fuzz", || with(broker, |_| fuzz::short())),
            Part::of("sim", || with(broker, |_| sim::short())),
        ]
    };
    let python = || vec![Part::of("python", || with(broker, |path| interop::python(path, None)))];
    let js = || vec![Part::of("js", || with(broker, |path| interop::js(path, None)))];
    at_once(&[&computed, &python, &js])
}

/// More SDKs; each compiles its tests, so they do not run beside what computes already.
fn second_wave(broker: &Result<PathBuf>) -> Vec<Part> {
    let go = || vec![Part::of("go", || with(broker, |path| interop::go(path, None)))];
    let java = || {
        vec![
            Part::of("java", || with(broker, |path| interop::java(path, None))),
            Part::of("frameworks", || with(broker, |path| interop::frameworks(path, None))),
        ]
    };
    at_once(&[&go, &java])
}

/// Runs strands at the same time, and the parts of each strand in their order.
fn at_once(strands: &[&(dyn Fn() -> Vec<Part> + Sync)]) -> Vec<Part> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = strands.iter().map(|strand| scope.spawn(strand)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap_or_else(|_| vec![panicked()])).collect()
    })
}

fn panicked() -> Part {
    Part::of("panicked", || bail!("a part of the test run itself has panicked"))
}

/// A broker that did not build fails each part that needs it.
fn with(broker: &Result<PathBuf>, part: impl Fn(&Path) -> Result<Counts>) -> Result<Counts> {
    match broker {
        Ok(path) => part(path),
        Err(error) => bail!("there is nothing to test: {error:#}"),
    }
}

/// All Rust tests of the workspace; the Rust interop tests are among them, hence the broker.
fn cargo_tests(broker: &Path) -> Result<Counts> {
    if !has_nextest()? {
        let mut command = workspace::cargo()?;
        command
            .args(["test", "--workspace", "--all-targets", "--no-fail-fast"])
            .env(workspace::BROKER_VARIABLE, broker);
        return process::counted(&mut command, libtest_counts);
    }
    let mut command = workspace::cargo()?;
    command.args(["nextest", "run", "--workspace", "--no-fail-fast"]).env(workspace::BROKER_VARIABLE, broker);
    process::counted(&mut command, nextest_counts)
}

/// The examples in the documentation.
fn documentation_tests() -> Result<Counts> {
    let mut command = workspace::cargo()?;
    command.args(["test", "--workspace", "--doc", "--no-fail-fast"]);
    process::counted(&mut command, libtest_counts)
}

fn has_nextest() -> Result<bool> {
    let mut command: Command = workspace::cargo()?;
    command.args(["nextest", "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(command.status()?.success())
}

/// Sums lines like `test result: ok. 12 passed; 0 failed; 0 ignored; …`. An ignored test is a failed promise.
pub(crate) fn libtest_counts(lines: &[String]) -> Counts {
    let mut counts = Counts::default();
    for line in lines.iter().filter(|line| line.starts_with("test result:")) {
        counts.passed += number_before(line, "passed");
        counts.failed += number_before(line, "failed") + number_before(line, "ignored");
    }
    counts
}

/// Reads `Summary [ 1.2s] 34 tests run: 33 passed, 1 failed, 2 skipped`; a skipped test counts as failed.
fn nextest_counts(lines: &[String]) -> Counts {
    let Some(line) = lines.iter().rev().find(|line| line.trim_start().starts_with("Summary")) else {
        return Counts::default();
    };
    let bad = ["failed", "timed out", "skipped", "exec"].iter().map(|word| number_before(line, word)).sum();
    Counts { passed: number_before(line, "passed"), failed: bad }
}

/// The number in front of a word: `3` in `… 3 failed; …`. None there means zero.
pub(crate) fn number_before(line: &str, word: &str) -> u64 {
    let Some((before, _)) = line.split_once(&format!(" {word}")) else { return 0 };
    let digits = before.rsplit(|c: char| !c.is_ascii_digit()).next();
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn results_of_all_test_binaries_are_summed_and_ignored_tests_count_as_failed() {
        let text = "test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured\nrunning 3 tests\n\
                    test result: FAILED. 1 passed; 2 failed; 1 ignored; 0 measured";
        assert_eq!(libtest_counts(&lines(text)), Counts { passed: 13, failed: 3 });
    }

    #[test]
    fn the_summary_of_nextest_is_read() {
        let text = "     Summary [   1.234s] 34 tests run: 33 passed (1 slow), 1 failed, 2 skipped";
        assert_eq!(nextest_counts(&lines(text)), Counts { passed: 33, failed: 3 });
        assert_eq!(nextest_counts(&lines("error: no such command")), Counts::default());
    }

    #[test]
    fn a_word_without_number_counts_nothing() {
        assert_eq!(number_before("all passed", "passed"), 0);
        assert_eq!(number_before("7 passed", "failed"), 0);
    }
}
