//! Small programs that use frameworks on top of Service Bus and Event Hubs.

use std::path::Path;

use anyhow::Result;

use super::java::maven;
use super::python::pytest_in;
use crate::counts::Counts;

/// Runs the tests of the Python and Java frameworks. A name may choose tests of one program only, so a program without a chosen test has
/// not failed.
pub(crate) fn frameworks(broker: &Path, only: Option<&str>) -> Result<Counts> {
    let mut counts = Counts::default();
    // `Class#method` names a test in Java; pytest cannot parse it.
    if !only.is_some_and(|name| name.contains('#')) {
        counts += celery(broker, only)?;
    }
    counts += maven("interop/frameworks/java", broker, only)?;
    Ok(counts)
}

/// Runs the Celery tests. Each file has a broker and workers of its own, so the files run side by side.
fn celery(broker: &Path, only: Option<&str>) -> Result<Counts> {
    let arguments = ["--numprocesses", "4", "--dist", "loadfile"];
    pytest_in("interop/frameworks/python", "frameworks-venv", broker, &arguments, only)
}
