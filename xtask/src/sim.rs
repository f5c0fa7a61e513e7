//! The whole broker on virtual time: one seed, many seeds, or a bounded number of fresh ones.

use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;

use crate::counts::{self, Counts, Part};
use crate::test::number_before;
use crate::{process, workspace};

const PROGRAM: &str = "peeklock-sim";
/// Seeds that failed once.
const KNOWN: &str = "sim/seeds.txt";
const SECONDS_SHORT: &str = "60";
/// More than can be run in the time there is.
const SEEDS_SHORT: &str = "100000";

/// Without arguments, what every test run does; else what the arguments say.
pub(crate) fn run(arguments: &[String]) -> Result<Counts> {
    workspace::build_program(PROGRAM)?;
    if arguments.is_empty() {
        return Ok(counts::report(&[Part::of("sim", short)]));
    }
    Ok(Counts::of(process::succeeds(simulator()?.args(arguments))?))
}

/// Every seed that ever failed, and a minute of seeds that nobody has run before.
pub(crate) fn short() -> Result<Counts> {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let from = (since_epoch.as_secs() * 1000).to_string();
    let mut command = simulator()?;
    command.args(["--known", KNOWN, "--seeds", SEEDS_SHORT, "--seconds", SECONDS_SHORT, "--from", &from]);
    process::counted(&mut command, seed_counts)
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
