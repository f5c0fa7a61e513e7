//! `cargo xtask check`: format, lints, documentation, ARCHITECTURE.md, the dependencies, the packages and the features.

use std::process::Command;

use anyhow::Result;

use crate::counts::{Counts, Part};
use crate::{architecture, deny, features, package, process, workspace};

pub(crate) fn parts() -> [Part; 2] {
    [Part::of("check", code), Part::of("rustdoc", documentation)]
}

pub(crate) fn code() -> Result<Counts> {
    let mut counts = Counts::default();
    counts += step("format", workspace::cargo()?.args(["fmt", "--all", "--check"]))?;
    counts += architecture::check(&workspace::root()?)?;
    counts += deny::check(&workspace::root()?)?;
    counts += package::check()?;
    let clippy = ["clippy", "--workspace", "--all-targets", "--all-features", "--", "--deny", "warnings"];
    counts += step("clippy", workspace::cargo()?.args(clippy))?;
    counts += features::check()?;
    Ok(counts)
}

/// Builds the documentation and checks its links.
pub(crate) fn documentation() -> Result<Counts> {
    let docs = ["doc", "--workspace", "--no-deps", "--document-private-items"];
    let mut counts = step("rustdoc", rustdoc()?.args(docs))?;
    // The documentation that users read: all features, and nothing private.
    let public = ["doc", "--package", package::TOP, "--no-deps", "--all-features"];
    counts += step("rustdoc of the SDK", rustdoc()?.args(public))?;
    Ok(counts)
}

fn rustdoc() -> Result<Command> {
    let mut command = workspace::cargo()?;
    command.env("RUSTDOCFLAGS", "--deny warnings");
    Ok(command)
}

fn step(name: &str, command: &mut Command) -> Result<Counts> {
    let success = process::succeeds(command)?;
    if !success {
        eprintln!("check: {name} failed");
    }
    Ok(Counts::of(success))
}
