//! Fuzzing: hostile bytes for the decoders, the connection machine, the rules and the documents of management, for a bounded time.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::counts::{self, Counts, Part};
use crate::{process, workspace};

const PROGRAM: &str = "peeklock-fuzz";
const TARGETS: [&str; 5] = ["codec", "connection", "filter", "json", "xml"];
const SECONDS_DEFAULT: u32 = 60;
/// The time for each target in a test run: enough for the corpus and some hundred thousand mutations.
const SECONDS_SHORT: u32 = 8;

pub(crate) fn run(arguments: &[String]) -> Result<Counts> {
    let seconds = match arguments {
        [] => SECONDS_DEFAULT,
        [flag, seconds] if flag == "--seconds" => {
            seconds.parse().with_context(|| format!("'{seconds}' is not a number of seconds"))?
        }
        _ => bail!("usage: cargo xtask fuzz [--seconds N]"),
    };
    build()?;
    Ok(counts::report(&[Part::of("fuzz", || fuzz(seconds, None))]))
}

pub(crate) fn build() -> Result<()> {
    workspace::build_program(PROGRAM)
}

/// Fuzzes the targets whose names contain `name` for a short time; without a name, all targets.
pub(crate) fn short(name: Option<&str>) -> Result<Counts> {
    fuzz(SECONDS_SHORT, name)
}

fn fuzz(seconds: u32, name: Option<&str>) -> Result<Counts> {
    let mut counts = Counts::default();
    for target in TARGETS.into_iter().filter(|target| name.is_none_or(|name| target.contains(name))) {
        let corpus = format!("fuzz/corpus/{target}");
        let mut command = Command::new(workspace::program(PROGRAM)?);
        command.current_dir(workspace::root()?);
        command.args(["--target", target, "--seconds", &seconds.to_string(), "--corpus", &corpus]);
        counts += Counts::of(process::succeeds(&mut command)?);
    }
    Ok(counts)
}
