//! Hostile bytes into the decoders, the connection machine, rules, and the documents of management, for a bounded time.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::counts::{self, Counts, Part};
use crate::{process, workspace};

const PROGRAM: &str = "peeklock-fuzz";
const TARGETS: [&str; 5] = ["codec", "connection", "filter", "json", "xml"];
const SECONDS_DEFAULT: u32 = 60;
/// Enough to try the corpus and some hundred thousand mutations in every test run.
const SECONDS_SHORT: u32 = 8;

pub(crate) fn run(arguments: &[String]) -> Result<Counts> {
    let seconds = match arguments {
        [] => SECONDS_DEFAULT,
        [flag, seconds] if flag == "--seconds" => {
            seconds.parse().with_context(|| format!("'{seconds}' is not a number of seconds"))?
        }
        _ => bail!("usage: cargo xtask fuzz [--seconds N]"),
    };
    workspace::build_program(PROGRAM)?;
    Ok(counts::report(&[Part::of("fuzz", || every_target(seconds))]))
}

pub(crate) fn short() -> Result<Counts> {
    every_target(SECONDS_SHORT)
}

fn every_target(seconds: u32) -> Result<Counts> {
    let mut counts = Counts::default();
    for target in TARGETS {
        let corpus = format!("fuzz/corpus/{target}");
        let mut command = Command::new(workspace::program(PROGRAM)?);
        command.current_dir(workspace::root()?);
        command.args(["--target", target, "--seconds", &seconds.to_string(), "--corpus", &corpus]);
        counts += Counts::of(process::succeeds(&mut command)?);
    }
    Ok(counts)
}
