//! `cargo xtask check`: format, lints, documentation, ARCHITECTURE.md, the dependencies and the packages.

use std::process::Command;

use anyhow::Result;

use crate::counts::{Counts, Part};
use crate::{architecture, deny, package, process, workspace};

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
    Ok(counts)
}

/// Builds the documentation and checks its links.
pub(crate) fn documentation() -> Result<Counts> {
    let docs = ["doc", "--workspace", "--no-deps", "--document-private-items"];
    step("rustdoc", workspace::cargo()?.env("RUSTDOCFLAGS", "--deny warnings").args(docs))
}

fn step(name: &str, command: &mut Command) -> Result<Counts> {
    let success = process::succeeds(command)?;
    if !success {
        eprintln!("check: {name} failed");
    }
    Ok(Counts::of(success))
}
