//! Runs the benchmark of the journal and takes over its table.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::Arguments;

pub(crate) fn run(arguments: &Arguments) -> Result<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args([
        "run",
        "--release",
        "--quiet",
        "-p",
        "peeklock-journal-wal",
        "--example",
        "journal_bench",
        "--",
    ]);
    command.arg(&arguments.data);
    if arguments.quick {
        command.env("SLICES", "3");
    }
    let output = command.stderr(std::process::Stdio::inherit()).output().context("cannot run cargo")?;
    if !output.status.success() {
        bail!("the journal's benchmark failed");
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
