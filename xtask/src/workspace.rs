//! Where things are: the repository, the build directory, the broker's binary.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::process;

/// The variable by which every interop test learns which broker to start.
pub(crate) const BROKER_VARIABLE: &str = "PEEKLOCK_BIN";
const BROKER_PACKAGE: &str = "peeklock-cli";
const BROKER: &str = "peeklock";

pub(crate) fn root() -> Result<PathBuf> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = manifest.parent().context("the xtask folder has no parent")?;
    root.canonicalize().with_context(|| format!("the repository {} is gone", root.display()))
}

pub(crate) fn target() -> Result<PathBuf> {
    Ok(match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => std::env::current_dir()?.join(folder),
        None => root()?.join("target"),
    })
}

/// `cargo` in the repository, with the toolchain that runs us.
pub(crate) fn cargo() -> Result<Command> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.current_dir(root()?);
    Ok(command)
}

/// Builds the broker as users get it, and returns the path of its binary.
pub(crate) fn build_release() -> Result<PathBuf> {
    process::must_succeed(cargo()?.args(["build", "--release", "--package", BROKER_PACKAGE]))?;
    binary(&target()?.join("release").join(BROKER))
}

/// Builds the broker for tests: with assertions and overflow checks, in the profile that all tests share.
pub(crate) fn build_broker() -> Result<PathBuf> {
    build_program(BROKER_PACKAGE)?;
    program(BROKER)
}

/// Builds all tests and programs at once, and returns the path of the broker. One command, because a build of some packages
/// would choose other features of what they depend on, and so build that again.
pub(crate) fn build_all() -> Result<PathBuf> {
    process::must_succeed(cargo()?.args(["build", "--workspace", "--all-targets", "--profile", "test"]))?;
    program(BROKER)
}

pub(crate) fn build_program(package: &str) -> Result<()> {
    process::must_succeed(cargo()?.args(["build", "--profile", "test", "--package", package]))
}

/// A program that was built with the tests.
pub(crate) fn program(name: &str) -> Result<PathBuf> {
    binary(&target()?.join("debug").join(name))
}

fn binary(path: &Path) -> Result<PathBuf> {
    path.canonicalize().with_context(|| format!("the build left no {}", path.display()))
}
