//! `cargo xtask instructions`: counts the instructions per message of scripted runs and compares them with the recorded numbers.
//!
//! The numbers depend on the code and the compiler, but not on the machine or its load, so a small regression is visible in every test
//! run. The runs are in `bench/instructions`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::counts::{self, Counts, Part};
use crate::test::number_before;
use crate::{debian, process, workspace};

const USAGE: &str = "usage: cargo xtask instructions [--record]";
const PACKAGE: &str = "peeklock-instructions";
/// The name of the build profile, and of its folder in the target folder.
const PROFILE: &str = "instructions";
/// The file with the recorded numbers.
const EXPECTED: &str = "bench/instructions/expected.toml";
const EXPECTED_HEAD: &str =
    "# Instructions per message. `cargo xtask instructions --record` writes this file.";
const RUSTC: &str = "rustc";
const HOW_TO_RECORD: &str = "record the numbers of this version with `cargo xtask instructions --record`";
/// The largest accepted difference to the recorded number, in percent.
const DIFFERENCE_PERCENT_MAX: u64 = 3;
/// Selects the basic variants of glibc's memory functions. Without it, the counts would depend on the processor.
const GLIBC_TUNABLES: &str = "glibc.cpu.x86_non_temporal_threshold=0x40000000:glibc.cpu.hwcaps=\
    -AVX_Fast_Unaligned_Load,-AVX512F,-AVX512VL,-AVX2,-BMI2,-SSSE3,-SSE4_1,-SSE4_2,-ERMS,-FSRM";

/// Instructions per message, by the name of the run.
type Numbers = BTreeMap<String, u64>;

pub(crate) fn run(arguments: &[String]) -> Result<Counts> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [] => Ok(counts::report(&[Part::of("instructions", check)])),
        ["--record"] => Ok(counts::report(&[Part::of("instructions", record)])),
        _ => bail!("{USAGE}"),
    }
}

/// Counts the instructions of all runs and compares them with the recorded numbers.
pub(crate) fn check() -> Result<Counts> {
    let path = workspace::root()?.join(EXPECTED);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let (expected, recorded_with) = (numbers_in(&text), value_of(&text, RUSTC).unwrap_or_default());
    let rustc = rustc_version()?;
    if recorded_with != rustc {
        bail!(
            "{EXPECTED} was recorded with rustc {recorded_with}, but this is rustc {rustc}; {HOW_TO_RECORD}"
        );
    }
    let found = count_all()?;
    print!("{}", table(&expected, &found));
    let mut counts = Counts::default();
    for name in expected.keys().chain(found.keys()).collect::<BTreeSet<_>>() {
        let fault = fault(name, expected.get(name).copied(), found.get(name).copied());
        counts += Counts::of(fault.is_none());
        fault.iter().for_each(|fault| eprintln!("instructions: {fault}"));
    }
    Ok(counts)
}

/// Counts the instructions of all runs and writes them to the file of recorded numbers.
fn record() -> Result<Counts> {
    let path = workspace::root()?.join(EXPECTED);
    let before = fs::read_to_string(&path).unwrap_or_default();
    let found = count_all()?;
    print!("{}", table(&numbers_in(&before), &found));
    let mut text = format!("{EXPECTED_HEAD}\n{RUSTC} = \"{}\"\n\n[instructions]\n", rustc_version()?);
    for (name, number) in &found {
        writeln!(text, "{name} = {number}")?;
    }
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    println!("recorded in {EXPECTED}");
    Ok(Counts::of(true))
}

/// Returns the error for a run whose number differs too much from the recorded one.
fn fault(name: &str, expected: Option<u64>, found: Option<u64>) -> Option<String> {
    let (Some(expected), Some(found)) = (expected, found) else {
        let problem = if found.is_some() { "has no recorded number" } else { "does not exist" };
        return Some(format!("the run '{name}' {problem}; {HOW_TO_RECORD}"));
    };
    if found.abs_diff(expected) * 100 <= expected * DIFFERENCE_PERCENT_MAX {
        return None;
    }
    let percent = change_percent(expected, found);
    let advice = if percent > 0.0 {
        format!(
            "find the cause with `callgrind_annotate target/{}`. If the cost is intended, {HOW_TO_RECORD}",
            output_name(name)
        )
    } else {
        format!("so that it stays so, {HOW_TO_RECORD}")
    };
    let direction = if percent > 0.0 { "more" } else { "fewer" };
    Some(format!(
        "the run '{name}' takes {found} instructions per message, {:.1} % {direction} than the recorded {expected}; {advice}",
        percent.abs()
    ))
}

fn change_percent(expected: u64, found: u64) -> f64 {
    (found as f64 / expected as f64 - 1.0) * 100.0
}

fn table(expected: &Numbers, found: &Numbers) -> String {
    let mut text = format!("  {:<18} {:>10} {:>10} {:>9}\n", "instructions", "recorded", "now", "change");
    for (name, number) in found {
        let (before, change) = match expected.get(name) {
            Some(&before) => (before.to_string(), format!("{:+.2} %", change_percent(before, *number))),
            None => ("-".to_owned(), "new".to_owned()),
        };
        text += &format!("  {name:<18} {before:>10} {number:>10} {change:>9}\n");
    }
    text
}

/// Builds the runs and counts the instructions per message of each.
fn count_all() -> Result<Numbers> {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        bail!("the instructions are recorded on x86-64 Linux and can be compared only there");
    }
    debian::install(&[debian::VALGRIND])?;
    process::must_succeed(workspace::cargo()?.args(["build", "--profile", PROFILE, "--package", PACKAGE]))?;
    let program = workspace::program_of(PROFILE, PACKAGE)?;
    let list = Command::new(&program).output().context("cannot list the runs")?;
    let names = String::from_utf8_lossy(&list.stdout).into_owned();
    names.lines().map(|name| Ok((name.to_owned(), count(&program, name)?))).collect()
}

/// Runs one script under callgrind. Counting starts and ends where the script says so; see `bench/instructions/src/counting.rs`.
fn count(program: &Path, name: &str) -> Result<u64> {
    let output = workspace::target()?.join(output_name(name));
    let mut command = Command::new("valgrind");
    // Other variables could change the counts, for example those of the allocator.
    command.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    command.env("GLIBC_TUNABLES", GLIBC_TUNABLES);
    command.args([
        "--quiet",
        "--tool=callgrind",
        "--collect-atstart=no",
        "--toggle-collect=*counting*toggle_*",
    ]);
    command.arg(format!("--callgrind-out-file={}", output.display())).arg(program).arg(name);
    let result = process::watch(&mut command)?;
    let messages: u64 = result.lines.iter().map(|line| number_before(line, "messages")).sum();
    if !result.success || messages == 0 {
        bail!("the run '{name}' failed");
    }
    let text = fs::read_to_string(&output).with_context(|| format!("cannot read {}", output.display()))?;
    let total = text
        .lines()
        .find_map(|line| line.strip_prefix("totals: "))
        .and_then(|total| total.trim().parse().ok());
    match total {
        Some(0) | None => bail!("callgrind counted no instructions of the run '{name}'"),
        Some(total) => Ok(total / messages),
    }
}

/// Returns the path of callgrind's output below the target folder.
fn output_name(name: &str) -> String {
    format!("{PROFILE}/{name}.callgrind")
}

fn rustc_version() -> Result<String> {
    let output = Command::new("rustc").current_dir(workspace::root()?).arg("--version").output();
    let text = String::from_utf8_lossy(&output.context("cannot start rustc")?.stdout).into_owned();
    let version = text.split_whitespace().nth(1);
    version.map(str::to_owned).with_context(|| format!("rustc has the unknown version '{text}'"))
}

/// Returns the numbers in lines like `codec = 2450`.
fn numbers_in(text: &str) -> Numbers {
    let pairs = text.lines().filter_map(|line| line.split_once(" = "));
    pairs.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect()
}

/// Returns the text of a line like `rustc = "1.95.0"`.
fn value_of<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let mut pairs = text.lines().filter_map(|line| line.split_once(" = "));
    pairs.find(|(name, _)| *name == key).map(|(_, value)| value.trim_matches('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_numbers_are_read() {
        let text = "# Text.\nrustc = \"1.95.0\"\n\n[instructions]\ncodec = 2450\ngateway-queue = 20000\n";
        assert_eq!(value_of(text, RUSTC), Some("1.95.0"));
        let numbers = numbers_in(text);
        assert_eq!(numbers.len(), 2);
        assert_eq!(numbers["gateway-queue"], 20000);
    }

    #[test]
    fn a_difference_of_three_percent_in_either_direction_is_accepted() {
        assert_eq!(fault("codec", Some(1000), Some(1030)), None);
        assert_eq!(fault("codec", Some(1000), Some(970)), None);
        let more = fault("codec", Some(1000), Some(1031)).unwrap();
        assert!(more.contains("3.1 % more than the recorded 1000"), "{more}");
        let fewer = fault("codec", Some(1000), Some(900)).unwrap();
        assert!(fewer.contains("10.0 % fewer") && fewer.contains("--record"), "{fewer}");
    }

    #[test]
    fn each_run_has_a_recorded_number() {
        assert!(fault("new", None, Some(1)).unwrap().contains("no recorded number"));
        assert!(fault("old", Some(1), None).unwrap().contains("does not exist"));
    }
}
