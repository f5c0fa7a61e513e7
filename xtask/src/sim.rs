//! The whole broker on virtual time: one seed, many seeds, or those of the commit.

use std::process::Command;

use anyhow::Result;

use crate::counts::{self, Counts, Part};
use crate::test::number_before;
use crate::{process, workspace};

const PROGRAM: &str = "peeklock-sim";
/// Seeds that failed once.
const KNOWN: &str = "sim/seeds.txt";
/// About a minute.
const SEEDS_SHORT: &str = "100";

/// Without arguments, what every test run does; else what the arguments say.
pub(crate) fn run(arguments: &[String]) -> Result<Counts> {
    workspace::build_program(PROGRAM)?;
    if arguments.is_empty() {
        return Ok(counts::report(&[Part::of("sim", short)]));
    }
    Ok(Counts::of(process::succeeds(simulator()?.args(arguments))?))
}

/// Every seed that ever failed, and some that belong to the commit: a commit that passed once passes again, and each one has worlds that nobody
/// has seen before.
pub(crate) fn short() -> Result<Counts> {
    let from = first_seed()?.to_string();
    let mut command = simulator()?;
    command.args(["--known", KNOWN, "--seeds", SEEDS_SHORT, "--from", &from]);
    process::counted(&mut command, seed_counts)
}

/// The beginning of the commit's hash as a number; 1 where there is no repository.
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
    fn the_last_line_tells_how_many_failed() {
        let lines = ["seed 3: …", "34 seeds, 2.1 simulated hours in 60.0 s, 1 failed"].map(str::to_owned);
        assert_eq!(seed_counts(&lines), Counts { passed: 33, failed: 1 });
        assert_eq!(seed_counts(&[]), Counts::default());
    }
}
