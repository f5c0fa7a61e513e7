//! Checks that `peeklock`, the crate for users, and the crates below it can be published.
//!
//! [`check`] is the cheap part: it packs the sources and resolves the dependencies between the packages, but compiles nothing. [`verify`] also
//! compiles each package as a user gets it. Neither needs the network: cargo resolves packages of one command among each other.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::counts::Counts;
use crate::{process, workspace};

/// The crate that users depend on.
pub(crate) const TOP: &str = "peeklock";

/// The folder for the compiled packages, in the build directory.
const VERIFIED: &str = "verified";

/// A crate of the workspace.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Package {
    name: String,
    folder: PathBuf,
}

pub(crate) fn check() -> Result<Counts> {
    let packages = packages()?;
    let mut counts = Counts::default();
    for package in &packages {
        let manifest = package.folder.join("Cargo.toml");
        let text =
            fs::read_to_string(&manifest).with_context(|| format!("cannot read {}", manifest.display()))?;
        let faults = faults(&text);
        for fault in &faults {
            eprintln!("check: {} {fault}", package.name);
        }
        counts += Counts::of(faults.is_empty());
    }
    counts += Counts::of(process::succeeds(pack(&packages)?.args(["--no-verify", "--quiet"]))?);
    Ok(counts)
}

/// Compiles each package from its packed sources, with all features, against the other packages.
pub(crate) fn verify() -> Result<Counts> {
    let packages = packages()?;
    let mut command = pack(&packages)?;
    // Without a folder for all of them, each package compiles every dependency again.
    command.arg("--all-features").env("CARGO_TARGET_DIR", workspace::target()?.join(VERIFIED));
    let success = process::succeeds(&mut command)?;
    let count = packages.len() as u64;
    Ok(if success { Counts { passed: count, failed: 0 } } else { Counts::of(false) })
}

fn pack(packages: &BTreeSet<Package>) -> Result<Command> {
    let mut command = workspace::cargo()?;
    command.args(["package", "--allow-dirty", "--offline"]);
    command.args(packages.iter().flat_map(|package| ["--package", &package.name]));
    Ok(command)
}

/// Returns the crate for users and every workspace crate that any of its features needs.
fn packages() -> Result<BTreeSet<Package>> {
    let mut command = workspace::cargo()?;
    command.args(["tree", "--package", TOP, "--all-features", "--edges", "normal,build", "--offline"]);
    let output = command.args(["--prefix", "none", "--format", "{p}"]).output()?;
    if !output.status.success() {
        bail!("cargo tree failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(packages_in(&String::from_utf8_lossy(&output.stdout)))
}

/// Reads lines like `peeklock-types v0.1.0 (/src/crates/types) (*)`. Only crates of the workspace have a path.
fn packages_in(tree: &str) -> BTreeSet<Package> {
    let package = |line: &str| {
        let name = line.split(' ').next()?.to_owned();
        let (_, rest) = line.split_once("(/")?;
        let folder = Path::new("/").join(rest.split(')').next()?);
        Some(Package { name, folder })
    };
    tree.lines().filter_map(package).collect()
}

/// Returns what the registry would reject, or what would keep the crate from being published.
fn faults(manifest: &str) -> Vec<&'static str> {
    let has = |key: &str| manifest.lines().any(|line| line.starts_with(key));
    let mut faults = Vec::new();
    for (key, fault) in [
        ("description", "has no description"),
        ("license", "has no license"),
        ("readme", "has no readme"),
        ("documentation", "has no documentation address"),
    ] {
        faults.extend((!has(key)).then_some(fault));
    }
    faults.extend(has("publish").then_some("must not set publish: the crate for users depends on it"));
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packages_of_the_workspace_have_a_path() {
        let tree = "peeklock v0.1.0 (/src/crates/peeklock)\nbytes v1.0.0\npeeklock-types v0.1.0 (/src/crates/types) (*)";
        let found = packages_in(tree);
        let names: Vec<_> = found.iter().map(|package| package.name.as_str()).collect();
        assert_eq!(names, ["peeklock", "peeklock-types"]);
        assert_eq!(found.last().unwrap().folder, Path::new("/src/crates/types"));
    }

    #[test]
    fn a_manifest_needs_everything_that_the_registry_asks_for() {
        let whole = "description = \"A\"\nlicense.workspace = true\nreadme = \"README.md\"\ndocumentation = \"https://docs.rs/a\"";
        assert_eq!(faults(whole), Vec::<&str>::new());
        assert_eq!(faults(&format!("{whole}\npublish = false")).len(), 1);
        assert_eq!(faults("").len(), 4);
    }
}
