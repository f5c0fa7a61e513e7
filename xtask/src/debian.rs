//! Debian packages that a command of the project needs. A missing one is installed with `apt-get`.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::process;

/// A program and the Debian package that contains it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Program {
    /// The name that is searched in `PATH`, or an absolute path.
    name: &'static str,
    package: &'static str,
}

/// Needed to build the allocator of the command `peeklock`.
pub(crate) const MAKE: Program = Program { name: "make", package: "make" };
/// The browser that tests what web pages can do.
pub(crate) const CHROMIUM: Program = Program { name: "chromium", package: "chromium" };
/// Needed to count instructions.
pub(crate) const VALGRIND: Program = Program { name: "valgrind", package: "valgrind" };
/// The servers of the comparison. The program named `rabbitmq-server` in `PATH` changes the user, so the one below it is checked.
pub(crate) const PEERS: [Program; 2] = [
    Program { name: "/usr/lib/rabbitmq/bin/rabbitmq-server", package: "rabbitmq-server" },
    Program { name: "redis-server", package: "redis-server" },
];

/// Installs the packages of the missing programs.
pub(crate) fn install(programs: &[Program]) -> Result<()> {
    let missing: Vec<&str> =
        programs.iter().filter(|program| !is_there(program.name)).map(|program| program.package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let arguments = ["install", "--yes", "--no-install-recommends"];
    apt(&["update"]).and_then(|()| apt(&[&arguments, &missing[..]].concat())).with_context(|| {
        format!("cannot install {}; install it with the package manager of the system", missing.join(", "))
    })
}

fn apt(arguments: &[&str]) -> Result<()> {
    process::must_succeed(Command::new("apt-get").args(arguments).env("DEBIAN_FRONTEND", "noninteractive"))
}

fn is_there(program: &str) -> bool {
    if Path::new(program).is_absolute() {
        return Path::new(program).exists();
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| folder.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_by_name_and_by_path() {
        assert!(is_there("sh"));
        assert!(is_there("/bin/sh"));
        assert!(!is_there("no-such-program-in-any-folder"));
        assert!(!is_there("/no-such-folder/sh"));
    }

    #[test]
    fn nothing_is_installed_for_a_program_that_is_there() {
        install(&[Program { name: "sh", package: "no-such-package" }]).unwrap();
    }
}
