//! `cargo xtask test`: every part, a quick selection, or the parts that the caller names.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow, bail};

use crate::counts::{self, Counts, Part};
use crate::{check, fuzz, instructions, interop, process, sim, workspace};

const USAGE: &str = "usage: cargo xtask test [--quick | --only PART[,PART] [-k NAME]]";
/// The parts, in the order in which `cargo xtask test` starts them. The last two are contained in `python` and in `cargo`.
const PARTS: [&str; 15] = [
    "check",
    "cargo",
    "rustdoc",
    "doctest",
    "fuzz",
    "sim",
    "instructions",
    "python",
    "js",
    "go",
    "java",
    "frameworks",
    "kill",
    "proton",
    "fe2o3",
];
/// Parts that have no tests to choose from.
const WITHOUT_NAMES: [&str; 4] = ["check", "rustdoc", "sim", "instructions"];

/// Fragments of the names of the slowest Rust tests, which `--quick` leaves out.
const SLOW: [&str; 4] = ["stress::", "floods::", "slow::", "large::"];
/// The number of cases of each property test in a quick run, where the test does not set its own number.
const QUICK_CASES: &str = "32";

pub(crate) fn run(arguments: &[String]) -> Result<Counts> {
    match Choice::parse(arguments)? {
        Choice::All => Ok(all()),
        Choice::Quick => Ok(quick()),
        Choice::Only { parts, name } => Ok(only(&parts, name.as_deref())),
    }
}

/// The tests that the arguments select.
#[derive(Debug, PartialEq, Eq)]
enum Choice {
    All,
    Quick,
    Only { parts: Vec<&'static str>, name: Option<String> },
}

impl Choice {
    fn parse(arguments: &[String]) -> Result<Choice> {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        match arguments[..] {
            [] => Ok(Choice::All),
            ["--quick"] => Ok(Choice::Quick),
            ["--only", parts] => Self::only(parts, None),
            ["--only", parts, "-k", name] => Self::only(parts, Some(name)),
            _ => bail!("{USAGE}"),
        }
    }

    fn only(list: &str, name: Option<&str>) -> Result<Choice> {
        let parts = list.split(',').map(part_named).collect::<Result<Vec<_>>>()?;
        if let (Some(part), Some(_)) = (parts.iter().find(|part| WITHOUT_NAMES.contains(part)), name) {
            bail!("-k does not apply to '{part}': it has no tests to choose from");
        }
        Ok(Choice::Only { parts, name: name.map(str::to_owned) })
    }
}

fn part_named(name: &str) -> Result<&'static str> {
    let known = PARTS.into_iter().find(|part| *part == name);
    known.with_context(|| format!("'{name}' is not a part; the parts are {}", PARTS.join(", ")))
}

/// Runs every part. The cheap parts run first, so that most failures are reported early.
fn all() -> Counts {
    let mut parts = vec![Part::of("check", check::code)];
    let broker = build(&mut parts);
    parts.push(Part::of("cargo", || with(&broker, |path| cargo_tests(path, None))));
    parts.extend(beside_each_other(&broker));
    parts.extend(second_wave(&broker));
    parts.push(Part::of("kill", || with(&broker, |path| interop::part("kill", path, None))));
    counts::report(&parts)
}

/// Runs the checks that a developer needs before each commit.
fn quick() -> Counts {
    let mut parts = vec![Part::of("check", check::code)];
    let broker = build(&mut parts);
    let computed = || {
        vec![
            Part::of("cargo", || with(&broker, quick_cargo_tests)),
            Part::of("sim", || with(&broker, |_| sim::quick())),
        ]
    };
    let sdks = || {
        vec![
            Part::of("python", || with(&broker, interop::python_smoke)),
            Part::of("js", || with(&broker, interop::js_smoke)),
        ]
    };
    parts.extend(at_once(&[&computed, &sdks]));
    counts::report(&parts)
}

/// Runs the named parts, one after the other. Each builds only the programs that it needs.
fn only(parts: &[&'static str], name: Option<&str>) -> Counts {
    let done: Vec<Part> = parts.iter().map(|&part| Part::of(part, || run_part(part, name))).collect();
    counts::report(&done)
}

fn run_part(part: &str, name: Option<&str>) -> Result<Counts> {
    match part {
        "check" => check::code(),
        "rustdoc" => check::documentation(),
        "cargo" => cargo_tests(&workspace::build_all()?, name),
        "doctest" => documentation_tests(name),
        "fuzz" => {
            fuzz::build()?;
            fuzz::short(name)
        }
        "sim" => {
            sim::build()?;
            sim::short()
        }
        "instructions" => instructions::check(),
        interop => interop::part(interop, &workspace::build_broker()?, name),
    }
}

/// Builds all test programs and the broker, as a part of its own.
fn build(parts: &mut Vec<Part>) -> Result<PathBuf> {
    let mut broker = Err(anyhow!("it was not built"));
    parts.push(Part::of("build", || {
        broker = workspace::build_all();
        Ok(Counts::of(broker.is_ok()))
    }));
    broker
}

/// Runs the SDK tests, which mostly wait for timers and sockets, at the same time as the parts that compute. Their output is interleaved.
fn beside_each_other(broker: &Result<PathBuf>) -> Vec<Part> {
    let computed = || {
        vec![
            Part::of("rustdoc", check::documentation),
            Part::of("doctest", || with(broker, |_| documentation_tests(None))),
            Part::of("fuzz", || with(broker, |_| fuzz::short(None))),
            Part::of("sim", || with(broker, |_| sim::short())),
            Part::of("instructions", instructions::check),
        ]
    };
    let python = || vec![interop_part("python", broker)];
    let js = || vec![interop_part("js", broker)];
    at_once(&[&computed, &python, &js])
}

/// Runs the SDK tests that must be compiled, after the parts that compute.
fn second_wave(broker: &Result<PathBuf>) -> Vec<Part> {
    let go = || vec![interop_part("go", broker)];
    let java = || vec![interop_part("java", broker), interop_part("frameworks", broker)];
    at_once(&[&go, &java])
}

fn interop_part(name: &'static str, broker: &Result<PathBuf>) -> Part {
    Part::of(name, || with(broker, |path| interop::part(name, path, None)))
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

/// Fails each part that needs the broker if the broker did not build.
fn with(broker: &Result<PathBuf>, part: impl Fn(&Path) -> Result<Counts>) -> Result<Counts> {
    match broker {
        Ok(path) => part(path),
        Err(error) => bail!("there is no broker to test: {error:#}"),
    }
}

/// Runs all Rust tests of the workspace. They include the Rust interop tests, which start the broker.
fn cargo_tests(broker: &Path, name: Option<&str>) -> Result<Counts> {
    let mut command = workspace::cargo()?;
    if has_nextest()? {
        command.args(["nextest", "run", "--workspace", "--no-fail-fast"]);
        command.args(workspace::TEST_FEATURES).args(name).env(workspace::BROKER_VARIABLE, broker);
        return process::counted(&mut command, |lines| nextest_counts(lines, name.is_some()));
    }
    command.args(["test", "--workspace", "--all-targets", "--no-fail-fast"]);
    command.args(workspace::TEST_FEATURES).args(name).env(workspace::BROKER_VARIABLE, broker);
    process::counted(&mut command, libtest_counts)
}

/// Runs the Rust tests without the slowest and with few cases of each property.
fn quick_cargo_tests(broker: &Path) -> Result<Counts> {
    let mut command = workspace::cargo()?;
    command.args(["test", "--workspace", "--lib", "--bins", "--tests", "--no-fail-fast"]);
    command.args(workspace::TEST_FEATURES).env(workspace::BROKER_VARIABLE, broker);
    command.env("PROPTEST_CASES", QUICK_CASES).arg("--");
    command.args(SLOW.into_iter().flat_map(|name| ["--skip", name]));
    process::counted(&mut command, libtest_counts)
}

/// Runs the examples in the documentation.
fn documentation_tests(name: Option<&str>) -> Result<Counts> {
    let mut command = workspace::cargo()?;
    command
        .args(["test", "--workspace", "--doc", "--no-fail-fast"])
        .args(workspace::TEST_FEATURES)
        .args(name);
    process::counted(&mut command, libtest_counts)
}

fn has_nextest() -> Result<bool> {
    let mut command: Command = workspace::cargo()?;
    command.args(["nextest", "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(command.status()?.success())
}

/// Sums lines like `test result: ok. 12 passed; 0 failed; 0 ignored; …`. An ignored test counts as failed.
pub(crate) fn libtest_counts(lines: &[String]) -> Counts {
    let mut counts = Counts::default();
    for line in lines.iter().filter(|line| line.starts_with("test result:")) {
        counts.passed += number_before(line, "passed");
        counts.failed += number_before(line, "failed") + number_before(line, "ignored");
    }
    counts
}

/// Reads `Summary [ 1.2s] 34 tests run: 33 passed, 1 failed, 2 skipped`. A skipped test counts as failed, unless a name chose the tests.
fn nextest_counts(lines: &[String], chosen: bool) -> Counts {
    let Some(line) = lines.iter().rev().find(|line| line.trim_start().starts_with("Summary")) else {
        return Counts::default();
    };
    let bad: u64 = ["failed", "timed out", "exec"].iter().map(|word| number_before(line, word)).sum();
    let skipped = if chosen { 0 } else { number_before(line, "skipped") };
    Counts { passed: number_before(line, "passed"), failed: bad + skipped }
}

/// Returns the number in front of a word: `3` in `… 3 failed; …`; zero if there is none.
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

    fn chosen(text: &str) -> Option<Choice> {
        let arguments: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        Choice::parse(&arguments).ok()
    }

    #[test]
    fn arguments_choose_parts_and_tests() {
        let only = |parts: &[&'static str], name: Option<&str>| {
            Some(Choice::Only { parts: parts.to_vec(), name: name.map(str::to_owned) })
        };
        assert_eq!(chosen(""), Some(Choice::All));
        assert_eq!(chosen("--quick"), Some(Choice::Quick));
        assert_eq!(chosen("--only python"), only(&["python"], None));
        assert_eq!(chosen("--only python,js -k sessions"), only(&["python", "js"], Some("sessions")));
        let refused =
            ["python", "--only", "--only python -k", "--only cobol", "--only sim -k x", "--quick --only js"];
        for arguments in refused {
            assert_eq!(chosen(arguments), None, "{arguments}");
        }
    }

    #[test]
    fn libtest_counts_are_summed_over_all_programs_and_ignored_tests_count_as_failed() {
        let text = "test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured\nrunning 3 tests\n\
                    test result: FAILED. 1 passed; 2 failed; 1 ignored; 0 measured";
        assert_eq!(libtest_counts(&lines(text)), Counts { passed: 13, failed: 3 });
    }

    #[test]
    fn nextest_counts_are_read_from_the_summary() {
        let text = "     Summary [   1.234s] 34 tests run: 33 passed (1 slow), 1 failed, 2 skipped";
        assert_eq!(nextest_counts(&lines(text), false), Counts { passed: 33, failed: 3 });
        assert_eq!(nextest_counts(&lines(text), true), Counts { passed: 33, failed: 1 });
        assert_eq!(nextest_counts(&lines("error: no such command"), false), Counts::default());
    }

    #[test]
    fn a_word_without_a_number_counts_as_zero() {
        assert_eq!(number_before("all passed", "passed"), 0);
        assert_eq!(number_before("7 passed", "failed"), 0);
    }
}
