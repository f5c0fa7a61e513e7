//! Checks licences, bans and sources of all dependencies against deny.toml, with nothing but cargo. Where `cargo deny` is installed, it
//! runs as well: only it checks advisories, whose database is a Git repository of its own.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, bail};

use crate::counts::Counts;
use crate::{process, workspace};

const FILE: &str = "deny.toml";

pub(crate) fn check(root: &Path) -> Result<Counts> {
    let text = fs::read_to_string(root.join(FILE)).with_context(|| format!("cannot read {FILE}"))?;
    let (allowed, banned) = (list(&text, "licenses", "allow")?, list(&text, "bans", "deny")?);
    let packages = packages()?;
    let faults: Vec<_> = packages
        .iter()
        .filter_map(|package| fault(package, &allowed, &banned))
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();
    for fault in &faults {
        eprintln!("check: {FILE}: {fault}");
    }
    let mut counts = Counts::of(faults.is_empty() && !packages.is_empty());
    if is_installed()? {
        counts += Counts::of(process::succeeds(workspace::cargo()?.args(["deny", "check"]))?);
    }
    Ok(counts)
}

fn is_installed() -> Result<bool> {
    let mut command = workspace::cargo()?;
    command.args(["deny", "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(command.status()?.success())
}

/// Returns a line of `cargo tree` for each package: the name, the version with the source if it is not crates.io, and the licence.
fn packages() -> Result<Vec<String>> {
    let mut command = workspace::cargo()?;
    command.args(["tree", "--workspace", "--all-features", "--edges", "normal,build,dev"]);
    let output = command.args(["--prefix", "none", "--format", "{p}|{l}"]).output()?;
    if !output.status.success() {
        bail!("cargo tree failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(lines
        .lines()
        .filter(|line| !line.is_empty())
        .map(|line| line.trim_end_matches(" (*)").to_owned())
        .collect())
}

/// Returns the first rule of deny.toml that a package breaks, as a sentence.
fn fault(package: &str, allowed: &[String], banned: &[String]) -> Option<String> {
    let (package, licence) = package.split_once('|')?;
    let name = package.split(' ').next().unwrap_or_default();
    if banned.iter().any(|banned| banned == name) {
        return Some(format!("{name} is banned"));
    }
    if package.contains("://") {
        return Some(format!("{package} does not come from crates.io"));
    }
    match Expression::parse(licence) {
        Some(expression) if expression.is_met(allowed) => None,
        _ => Some(format!("the licence of {package} is not allowed: '{licence}'")),
    }
}

/// Returns the strings of an array in a section of a TOML text.
fn list(text: &str, section: &str, key: &str) -> Result<Vec<String>> {
    let array = || {
        let (_, rest) = text.split_once(&format!("\n[{section}]\n"))?;
        let section = rest.split("\n[").next()?;
        section.split_once(&format!("\n{key} = ["))?.1.split("\n]").next()
    };
    let array = array().with_context(|| format!("{FILE} has no array '{key}' in [{section}]"))?;
    let lines = array.lines().map(|line| line.split('#').next().unwrap_or_default());
    Ok(lines.flat_map(|line| line.split('"').skip(1).step_by(2)).map(str::to_owned).collect())
}

/// A licence expression of SPDX. `AND` binds tighter than `OR`; an old manifest may write `/` for `OR`.
enum Expression {
    Licence(String),
    All(Vec<Expression>),
    Any(Vec<Expression>),
}

impl Expression {
    fn parse(text: &str) -> Option<Self> {
        let text = text.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
        let mut words = text.split_whitespace().peekable();
        let expression = Self::any(&mut words)?;
        words.next().is_none().then_some(expression)
    }

    fn any<'a>(words: &mut std::iter::Peekable<impl Iterator<Item = &'a str>>) -> Option<Self> {
        let mut parts = vec![Self::all(words)?];
        while words.next_if_eq(&"OR").is_some() {
            parts.push(Self::all(words)?);
        }
        Some(Expression::Any(parts))
    }

    fn all<'a>(words: &mut std::iter::Peekable<impl Iterator<Item = &'a str>>) -> Option<Self> {
        let mut parts = vec![Self::one(words)?];
        while words.next_if_eq(&"AND").is_some() {
            parts.push(Self::one(words)?);
        }
        Some(Expression::All(parts))
    }

    fn one<'a>(words: &mut std::iter::Peekable<impl Iterator<Item = &'a str>>) -> Option<Self> {
        let word = words.next()?;
        if word == "(" {
            let inner = Self::any(words)?;
            return words.next_if_eq(&")").map(|_| inner);
        }
        let exception = match words.next_if_eq(&"WITH") {
            Some(_) => format!(" WITH {}", words.next()?),
            None => String::new(),
        };
        let is_name = !matches!(word, "AND" | "OR" | "WITH" | ")");
        is_name.then(|| Expression::Licence(format!("{word}{exception}")))
    }

    fn is_met(&self, allowed: &[String]) -> bool {
        match self {
            Expression::Licence(name) => allowed.contains(name),
            Expression::All(parts) => parts.iter().all(|part| part.is_met(allowed)),
            Expression::Any(parts) => parts.iter().any(|part| part.is_met(allowed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_met(text: &str) -> bool {
        let allowed = ["MIT", "ISC"].map(str::to_owned);
        Expression::parse(text).is_some_and(|expression| expression.is_met(&allowed))
    }

    #[test]
    fn licence_expressions_are_evaluated() {
        for text in [
            "MIT",
            "GPL-3.0 OR MIT",
            "GPL-3.0/MIT",
            "(GPL-3.0 OR MIT) AND ISC",
            "Apache-2.0 WITH LLVM-exception OR MIT",
        ] {
            assert!(is_met(text), "{text}");
        }
        for text in ["", "GPL-3.0", "MIT AND GPL-3.0", "MIT WITH exception", "(MIT", "MIT OR", "MIT MIT"] {
            assert!(!is_met(text), "{text}");
        }
    }

    #[test]
    fn a_licence_a_ban_and_a_source_can_be_faults() {
        let (allowed, banned) = (["MIT".to_owned()], ["openssl".to_owned()]);
        let has_fault = |package| fault(package, &allowed, &banned).is_some();
        assert!(!has_fault("slab v0.4.11|MIT"));
        assert!(!has_fault("peeklock-types v0.1.0 (/src/crates/types)|MIT OR Apache-2.0"));
        assert!(has_fault("slab v0.4.11|GPL-3.0"));
        assert!(has_fault("openssl v0.10.0|MIT"));
        assert!(has_fault("slab v0.4.11 (https://example.com/slab#1234)|MIT"));
    }

    #[test]
    fn arrays_are_read_from_their_section() {
        let text = "# x\n[bans]\nallow = [\n    \"no\",\n]\n\n[licenses]\nversion = 2\nallow = [\n    # why \"not\"\n    \"MIT\", \"ISC\",\n]\n";
        assert_eq!(list(text, "licenses", "allow").unwrap(), ["MIT", "ISC"]);
        assert!(list(text, "licenses", "deny").is_err());
        assert!(list(text, "sources", "allow").is_err());
    }
}
