//! `cargo xtask bench`: the benchmarks, with a release build of the broker.

use anyhow::Result;

use crate::counts::{self, Counts, Part};
use crate::{process, workspace};

pub(crate) fn run(arguments: &[String]) -> Result<Counts> {
    Ok(counts::report(&[Part::of("bench", || measure(arguments))]))
}

fn measure(arguments: &[String]) -> Result<Counts> {
    let broker = workspace::build_release()?;
    let mut command = workspace::cargo()?;
    command.env(workspace::BROKER_VARIABLE, broker);
    command.args(["run", "--release", "--package", "peeklock-bench", "--"]).args(arguments);
    Ok(Counts::of(process::succeeds(&mut command)?))
}
