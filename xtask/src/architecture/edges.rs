//! Checks that the crates of the workspace depend on each other exactly as the table *Dependencies* shows. Dev-dependencies are exempt,
//! because tests may depend on more.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail};

use super::table;
use crate::workspace;

const HEADING: &str = "## Dependencies";
const PREFIX: &str = "peeklock-";
/// The crate whose name is the prefix alone.
const SDK: &str = "peeklock";

/// The dependencies of each crate. Names have no prefix.
type Edges = BTreeMap<String, BTreeSet<String>>;

pub(super) fn faults(text: &str) -> Result<Vec<String>> {
    let rows = table::rows(text, HEADING, 2)?;
    let mut faults = out_of_order(&rows);
    faults.extend(differences(&drawn(&rows), &real()?));
    Ok(faults)
}

/// Returns the dependencies on crates that are not in a row above. The table must read from the bottom of the system to its top.
fn out_of_order(rows: &[Vec<&str>]) -> Vec<String> {
    let mut above = BTreeSet::new();
    let mut faults = Vec::new();
    for row in rows {
        let below = names(row[1]).filter(|name| !above.contains(name));
        faults.extend(below.map(|name| format!("{} is above {name}, on which it depends", row[0])));
        above.extend(names(row[0]));
    }
    faults
}

fn drawn(rows: &[Vec<&str>]) -> Edges {
    rows.iter().flat_map(|row| names(row[0]).map(|name| (name, names(row[1]).collect()))).collect()
}

/// Returns the names between backticks.
fn names(cell: &str) -> impl Iterator<Item = String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned)
}

fn differences(drawn: &Edges, real: &Edges) -> Vec<String> {
    let none = BTreeSet::new();
    let mut faults = Vec::new();
    for name in drawn.keys().chain(real.keys()).collect::<BTreeSet<_>>() {
        if !drawn.contains_key(name) {
            faults.push(format!("crate {name} is not in the table below '{HEADING}'"));
        }
        if !real.contains_key(name) {
            faults.push(format!("there is no crate {name}"));
        }
        let (drawn, real) = (drawn.get(name).unwrap_or(&none), real.get(name).unwrap_or(&none));
        faults.extend(real.difference(drawn).map(|on| format!("the edge from {name} to {on} is not drawn")));
        faults.extend(drawn.difference(real).map(|on| format!("{name} does not depend on {on}")));
    }
    faults
}

fn real() -> Result<Edges> {
    let mut command = workspace::cargo()?;
    command.args(["tree", "--workspace", "--depth", "1", "--edges", "normal,build", "--no-dedupe"]);
    let output = command.args(["--prefix", "depth", "--format", "{p}"]).output()?;
    if !output.status.success() {
        bail!("cargo tree failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(edges_in(&String::from_utf8_lossy(&output.stdout)))
}

/// Reads lines like `0peeklock-access v0.1.0 (/src/crates/access)`, where 0 marks a crate of the workspace and 1 a dependency of it.
fn edges_in(tree: &str) -> Edges {
    let mut edges = Edges::new();
    let mut current = None;
    for line in tree.lines() {
        let Some(name) = line.get(1..).and_then(|rest| rest.split(' ').next()) else { continue };
        let short = name.strip_prefix(PREFIX).unwrap_or(name).to_owned();
        if line.starts_with('0') {
            edges.entry(short.clone()).or_default();
            current = Some(short);
        } else if let Some(current) = current.as_ref().filter(|_| name == SDK || name.starts_with(PREFIX)) {
            edges.entry(current.clone()).or_default().insert(short);
        }
    }
    edges
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges(list: &[(&str, &[&str])]) -> Edges {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        list.iter().map(|(name, on)| ((*name).to_owned(), set(on))).collect()
    }

    #[test]
    fn edges_are_read_from_the_tree() {
        let tree = "0peeklock-types v0.1.0 (/x)\n\n0peeklock-engine v0.1.0 (/y)\n1peeklock-types v0.1.0 (/x)\n1slab v0.4.11\n\n0xtask v0.1.0 (/z)\n\
                    1anyhow v1.0.0\n1peeklock v0.1.0 (/w)\n";
        assert_eq!(
            edges_in(tree),
            edges(&[("types", &[]), ("engine", &["types"]), ("xtask", &["peeklock"])])
        );
    }

    #[test]
    fn an_edge_that_is_not_drawn_is_a_fault() {
        let real = edges(&[("types", &[]), ("engine", &["types"])]);
        assert_eq!(differences(&real, &real), [""; 0]);
        let drawn = edges(&[("types", &[]), ("engine", &[])]);
        assert_eq!(differences(&drawn, &real), ["the edge from engine to types is not drawn"]);
        assert_eq!(differences(&real, &drawn), ["engine does not depend on types"]);
    }

    #[test]
    fn a_crate_that_is_missing_on_either_side_is_a_fault() {
        let (one, two) = (edges(&[("types", &[])]), edges(&[("types", &[]), ("engine", &["types"])]));
        assert_eq!(differences(&one, &two).len(), 2);
        assert_eq!(differences(&two, &one).len(), 2);
    }

    #[test]
    fn a_crate_is_in_a_row_below_its_dependencies() {
        let rows = |text: &'static str| {
            vec![vec!["`types`", ""], vec!["`engine`, `hubs`", text], vec!["`broker`", "`engine`"]]
        };
        assert_eq!(out_of_order(&rows("`types`")), [""; 0]);
        assert_eq!(out_of_order(&rows("`types`, `broker`")).len(), 1);
        assert_eq!(drawn(&rows("`types`"))["hubs"].len(), 1);
    }
}
