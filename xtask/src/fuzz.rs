//! Hostile bytes into the decoders, the connection machine, rules, and the documents of management, for a bounded time.

use anyhow::{Context, Result, bail};

use crate::counts::{self, Counts, Part};
use crate::{process, workspace};

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
    Ok(counts::report(&[part(seconds)]))
}

pub(crate) fn short() -> Part {
    part(SECONDS_SHORT)
}

fn part(seconds: u32) -> Part {
    Part::close("fuzz", every_target(seconds))
}

fn every_target(seconds: u32) -> Result<Counts> {
    let mut counts = Counts::default();
    for target in TARGETS {
        let corpus = format!("fuzz/corpus/{target}");
        let mut command = workspace::cargo()?;
        // The profile that all tests share: a release build of its own would take longer than all targets run.
        command.args(["run", "--profile", "test", "--package", "peeklock-fuzz", "--", "--target", target]);
        command.args(["--seconds", &seconds.to_string(), "--corpus", &corpus]);
        counts += Counts::of(process::succeeds(&mut command)?);
    }
    Ok(counts)
}
