//! Clients that others wrote, against a running broker.

mod node;
mod python;

use std::path::Path;

use anyhow::{Result, bail};

use crate::counts::{self, Counts, Part};
use crate::test::libtest_counts;
use crate::{process, workspace};

pub(crate) use node::{js, kill};
pub(crate) use python::{proton, python};

pub(crate) fn run(arguments: &[String]) -> Result<Counts> {
    let wanted: Vec<&str> = match arguments {
        [] => vec!["python", "js", "fe2o3", "kill"],
        [part] => vec![part],
        _ => bail!("usage: cargo xtask interop [python|js|proton|fe2o3|kill]"),
    };
    let broker = workspace::build_broker()?;
    let parts: Result<Vec<Part>> = wanted.into_iter().map(|name| part(name, &broker)).collect();
    Ok(counts::report(&parts?))
}

fn part(name: &str, broker: &Path) -> Result<Part> {
    Ok(match name {
        "python" => Part::of("python", || python(broker)),
        "proton" => Part::of("proton", || proton(broker)),
        "js" => Part::of("js", || js(broker)),
        "fe2o3" => Part::of("fe2o3", || fe2o3(broker)),
        "kill" => Part::of("kill", || kill(broker)),
        _ => bail!("'{name}' is not a part of interop; there are python, js, proton, fe2o3 and kill"),
    })
}

fn fe2o3(broker: &Path) -> Result<Counts> {
    let mut command = workspace::cargo()?;
    command.args(["test", "--package", "peeklock-interop-fe2o3"]).env(workspace::BROKER_VARIABLE, broker);
    process::counted(&mut command, libtest_counts)
}
