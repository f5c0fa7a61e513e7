//! Clients that others wrote, against a running broker.

mod frameworks;
mod go;
mod java;
mod node;
mod python;

use std::path::Path;

use anyhow::{Result, bail};

use crate::counts::{self, Counts, Part};
use crate::test::libtest_counts;
use crate::{process, workspace};

pub(crate) use frameworks::frameworks;
pub(crate) use go::go;
pub(crate) use java::java;
pub(crate) use node::{js, kill};
pub(crate) use python::{proton, python};

const ALL: [&str; 7] = ["python", "js", "fe2o3", "go", "java", "frameworks", "kill"];

pub(crate) fn run(arguments: &[String]) -> Result<Counts> {
    let (wanted, only) = choice(arguments)?;
    let broker = workspace::build_broker()?;
    let parts: Result<Vec<Part>> = wanted.into_iter().map(|name| part(name, &broker, only)).collect();
    Ok(counts::report(&parts?))
}

/// The parts to run, and the name of the tests where not all of the part are wanted.
fn choice(arguments: &[String]) -> Result<(Vec<&str>, Option<&str>)> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [] => Ok((ALL.to_vec(), None)),
        [part] if part != "-k" => Ok((vec![part], None)),
        [part, "-k", name] => Ok((vec![part], Some(name))),
        _ => bail!("usage: cargo xtask interop [{}|proton] [-k NAME]", ALL.join("|")),
    }
}

fn part(name: &str, broker: &Path, only: Option<&str>) -> Result<Part> {
    Ok(match name {
        "python" => Part::of("python", || python(broker, only)),
        "proton" => Part::of("proton", || proton(broker, only)),
        "js" => Part::of("js", || js(broker, only)),
        "fe2o3" => Part::of("fe2o3", || fe2o3(broker, only)),
        "go" => Part::of("go", || go(broker, only)),
        "java" => Part::of("java", || java(broker, only)),
        "frameworks" => Part::of("frameworks", || frameworks(broker, only)),
        "kill" => Part::of("kill", || kill(broker, only)),
        _ => bail!("'{name}' is not a part of interop; there are {} and proton", ALL.join(", ")),
    })
}

fn fe2o3(broker: &Path, only: Option<&str>) -> Result<Counts> {
    let mut command = workspace::cargo()?;
    command.args(["test", "--package", "peeklock-interop-fe2o3"]).env(workspace::BROKER_VARIABLE, broker);
    command.args(only);
    process::counted(&mut command, libtest_counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(text: &str) -> Option<(Vec<String>, Option<String>)> {
        let arguments: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        let (parts, only) = choice(&arguments).ok()?;
        Some((parts.into_iter().map(str::to_owned).collect(), only.map(str::to_owned)))
    }

    #[test]
    fn a_name_chooses_tests_of_one_part() {
        assert_eq!(chosen("go -k Peek"), Some((vec!["go".to_owned()], Some("Peek".to_owned()))));
        assert_eq!(chosen("go"), Some((vec!["go".to_owned()], None)));
        assert_eq!(chosen("").map(|(parts, _)| parts.len()), Some(ALL.len()));
        assert_eq!(chosen("-k Peek"), None);
        assert_eq!(chosen("-k"), None);
        assert_eq!(chosen("go -k"), None);
    }
}
