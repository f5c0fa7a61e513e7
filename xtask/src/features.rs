//! Checks the features of `peeklock`, the crate for users: each builds alone, and only those that need the broker compile it.

use std::fs;

use anyhow::{Context, Result, bail};

use crate::counts::Counts;
use crate::{process, workspace};

const PACKAGE: &str = "peeklock";
const MANIFEST: &str = "crates/peeklock/Cargo.toml";
/// The crate that contains the whole broker.
const BROKER: &str = "peeklock-server";
/// The features that contain the broker.
const WITH_BROKER: [&str; 2] = ["embedded", "testing"];

pub(crate) fn check() -> Result<Counts> {
    let path = workspace::root()?.join(MANIFEST);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {MANIFEST}"))?;
    let features = features(&text);
    if features.is_empty() {
        bail!("{MANIFEST} has no features");
    }
    let mut counts = Counts::default();
    for feature in std::iter::once(None).chain(features.iter().map(|feature| Some(feature.as_str()))) {
        let name = feature.unwrap_or("none");
        let has_broker = compiles(feature, BROKER)?;
        let is_wanted = feature.is_some_and(|feature| WITH_BROKER.contains(&feature));
        if has_broker != is_wanted {
            let fault = if has_broker { "compiles" } else { "does not compile" };
            eprintln!("check: {PACKAGE} with the feature '{name}' {fault} {BROKER}");
        }
        counts += Counts::of(has_broker == is_wanted);
        // Clippy passes its options to this package alone, so its dependencies are shared with other builds.
        let mut command = workspace::cargo()?;
        command.args(["clippy", "--package", PACKAGE, "--no-default-features"]).args(selection(feature));
        let success = process::succeeds(command.args(["--", "--deny", "warnings"]))?;
        if !success {
            eprintln!("check: {PACKAGE} does not build with the feature '{name}' alone");
        }
        counts += Counts::of(success);
    }
    Ok(counts)
}

fn selection(feature: Option<&str>) -> Vec<&str> {
    feature.map_or_else(Vec::new, |feature| vec!["--features", feature])
}

/// Returns whether the package with this feature alone needs a crate.
fn compiles(feature: Option<&str>, dependency: &str) -> Result<bool> {
    let mut command = workspace::cargo()?;
    command.args(["tree", "--package", PACKAGE, "--edges", "normal,build", "--offline"]);
    command.args(["--no-default-features"]).args(selection(feature));
    let output = command.args(["--prefix", "none", "--format", "{p}"]).output()?;
    if !output.status.success() {
        bail!("cargo tree failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let names = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(names.lines().any(|line| line.split(' ').next() == Some(dependency)))
}

/// Returns the names in the section `[features]` of a manifest, without `default`.
fn features(manifest: &str) -> Vec<String> {
    let section = manifest.lines().skip_while(|line| line.trim() != "[features]").skip(1);
    let section = section.take_while(|line| !line.starts_with('['));
    let names = section.filter_map(|line| Some(line.split_once('=')?.0.trim().to_owned()));
    names.filter(|name| !name.starts_with('#') && name != "default").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_features_of_a_manifest_are_read() {
        let manifest = "[package]\nname = \"a\"\n\n[features]\n# The x = y.\ndefault = []\nembedded = [\"dep:b\"]\n\
                        health = []\n\n[dependencies]\nb = \"1\"";
        assert_eq!(features(manifest), ["embedded", "health"]);
        assert!(features("[package]\nname = \"a\"").is_empty());
    }
}
