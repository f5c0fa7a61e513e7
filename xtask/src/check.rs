//! What must hold before any test is worth running: format, lints, documentation, and a truthful map of the code.

use std::process::Command;

use anyhow::Result;

use crate::counts::{Counts, Part};
use crate::{architecture, process, workspace};

pub(crate) fn part() -> Part {
    Part::of("check", run)
}

fn run() -> Result<Counts> {
    let mut counts = Counts::default();
    counts += step("format", workspace::cargo()?.args(["fmt", "--all", "--check"]))?;
    let clippy = ["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"];
    counts += step("clippy", workspace::cargo()?.args(clippy))?;
    let docs = ["doc", "--workspace", "--no-deps", "--document-private-items"];
    counts += step("rustdoc", workspace::cargo()?.env("RUSTDOCFLAGS", "--deny warnings").args(docs))?;
    counts += architecture::check(&workspace::root()?)?;
    Ok(counts)
}

fn step(name: &str, command: &mut Command) -> Result<Counts> {
    let success = process::succeeds(command)?;
    if !success {
        eprintln!("check: {name} failed");
    }
    Ok(Counts::of(success))
}
