//! Paths of the repository, the build directory and the built programs.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::{debian, process};

/// The environment variable that names the broker for the interop tests.
pub(crate) const BROKER_VARIABLE: &str = "PEEKLOCK_BIN";
const BROKER_PACKAGE: &str = "peeklock-cli";
/// Its program `worker` competes with workers of other SDKs.
const EXAMPLES_PACKAGE: &str = "peeklock-examples";
const BROKER: &str = "peeklock";
/// The features of a test build. Interop tests move the clock of the broker.
pub(crate) const TEST_FEATURES: [&str; 2] = ["--features", "peeklock-cli/test-clock"];

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

/// Returns `cargo` in the repository, with the toolchain that runs this program. Installs `make` if it is missing, because builds need it.
pub(crate) fn cargo() -> Result<Command> {
    debian::install(&[debian::MAKE])?;
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.current_dir(root()?);
    Ok(command)
}

/// Builds the broker as it is released and returns the path of its binary.
pub(crate) fn build_release() -> Result<PathBuf> {
    process::must_succeed(cargo()?.args(["build", "--release", "--package", BROKER_PACKAGE]))?;
    binary(&target()?.join("release").join(BROKER))
}

/// Builds the broker for tests, and the programs that run beside it: with assertions and overflow checks, in the profile that all tests share.
pub(crate) fn build_broker() -> Result<PathBuf> {
    let mut command = cargo()?;
    command.args(["build", "--profile", "test", "--package", BROKER_PACKAGE, "--package", EXAMPLES_PACKAGE]);
    command.args(TEST_FEATURES);
    process::must_succeed(&mut command)?;
    program(BROKER)
}

/// Builds all tests and programs and returns the path of the broker. It is one command, because a build of some packages would select
/// other features of their dependencies and so build those again.
pub(crate) fn build_all() -> Result<PathBuf> {
    let mut command = cargo()?;
    command.args(["build", "--workspace", "--all-targets", "--profile", "test"]).args(TEST_FEATURES);
    process::must_succeed(&mut command)?;
    program(BROKER)
}

pub(crate) fn build_program(package: &str) -> Result<()> {
    process::must_succeed(cargo()?.args(["build", "--profile", "test", "--package", package]))
}

/// Returns the path of a program that was built with the tests.
pub(crate) fn program(name: &str) -> Result<PathBuf> {
    program_of("debug", name)
}

/// Returns the path of a program in the folder of a build profile.
pub(crate) fn program_of(profile: &str, name: &str) -> Result<PathBuf> {
    binary(&target()?.join(profile).join(name))
}

fn binary(path: &Path) -> Result<PathBuf> {
    path.canonicalize().with_context(|| format!("the build left no {}", path.display()))
}
