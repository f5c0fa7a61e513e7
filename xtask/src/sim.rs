//! The simulator: the whole broker on virtual time, for one seed, for many, or for those of the commit.

use std::process::Command;

use anyhow::Result;

use crate::counts::{self, Counts, Part};
use crate::test::number_before;
use crate::{process, workspace};

const PROGRAM: &str = "peeklock-sim";
/// The file with the seeds that have failed once.
const KNOWN: &str = "sim/seeds.txt";
/// The number of seeds in a full test run, which take approximately a minute.
const SEEDS_SHORT: &str = "100";
/// The number of seeds in a quick test run.
const SEEDS_QUICK: &str = "6";

/// Without arguments, runs the seeds of a full test run; otherwise passes the arguments to the simulator.
pub(crate) fn run(arguments: &[String]) -> Result<Counts> {
    build()?;
    if arguments.is_empty() {
        return Ok(counts::report(&[Part::of("sim", short)]));
    }
    Ok(Counts::of(process::succeeds(simulator()?.args(arguments))?))
}

pub(crate) fn build() -> Result<()> {
    workspace::build_program(PROGRAM)
}

/// Runs every seed that has failed once, and a hundred that the commit determines: a second run of a commit repeats the first, and each
/// commit adds runs that no earlier commit had.
pub(crate) fn short() -> Result<Counts> {
    simulate(&["--known", KNOWN, "--seeds", SEEDS_SHORT])
}

/// Runs a few seeds that the commit determines.
pub(crate) fn quick() -> Result<Counts> {
    simulate(&["--seeds", SEEDS_QUICK])
}

fn simulate(seeds: &[&str]) -> Result<Counts> {
    let mut command = simulator()?;
    command.args(seeds).args(["--from", &first_seed()?.to_string()]);
    process::counted(&mut command, seed_counts)
}

/// Returns the first twelve digits of the commit's hash as a number; 1 outside of a repository.
fn first_seed() -> Result<u64> {
    let mut git = Command::new("git");
    let hash = git.current_dir(workspace::root()?).args(["rev-parse", "--short=12", "HEAD"]).output();
    let text = hash.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    Ok(text.get(..12).and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or(1))
}

fn simulator() -> Result<Command> {
    let mut command = Command::new(workspace::program(PROGRAM)?);
    command.current_dir(workspace::root()?);
    Ok(command)
}

/// Reads `34 seeds, 2.1 simulated hours in 60.0 s, 1 failed`.
fn seed_counts(lines: &[String]) -> Counts {
    let Some(line) = lines.iter().rev().find(|line| line.contains(" simulated hours in ")) else {
        return Counts::default();
    };
    let failed = number_before(line, "failed");
    Counts { passed: number_before(line, "seeds").saturating_sub(failed), failed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_the_last_line() {
        let lines = ["seed 3: …", "34 seeds, 2.1 simulated hours in 60.0 s, 1 failed"].map(str::to_owned);
        assert_eq!(seed_counts(&lines), Counts { passed: 33, failed: 1 });
        assert_eq!(seed_counts(&[]), Counts::default());
    }
}
