//! Interop tests: clients of other projects against a running broker.

mod frameworks;
mod go;
mod java;
mod node;
mod python;

use std::path::Path;

use anyhow::{Result, bail};

use crate::counts::Counts;
use crate::test::libtest_counts;
use crate::{process, workspace};

pub(crate) use node::js_smoke;
pub(crate) use python::{environment, python_smoke};

/// Runs one part against the broker; `name` chooses tests, in the syntax of the part's own test program.
pub(crate) fn part(part: &str, broker: &Path, name: Option<&str>) -> Result<Counts> {
    match part {
        "python" => python::python(broker, name),
        "proton" => python::proton(broker, name),
        "js" => node::js(broker, name),
        "fe2o3" => fe2o3(broker, name),
        "go" => go::go(broker, name),
        "java" => java::java(broker, name),
        "frameworks" => frameworks::frameworks(broker, name),
        "kill" => node::kill(broker, name),
        _ => bail!("'{part}' is not a part of the interop tests"),
    }
}

fn fe2o3(broker: &Path, name: Option<&str>) -> Result<Counts> {
    let mut command = workspace::cargo()?;
    command.args(["test", "--package", "peeklock-interop-fe2o3"]).env(workspace::BROKER_VARIABLE, broker);
    command.args(name);
    process::counted(&mut command, libtest_counts)
}
