//! Programs of users that were written with frameworks on top of Service Bus and Event Hubs.

use std::path::Path;

use anyhow::Result;

use super::java::maven;
use super::python::pytest_in;
use crate::counts::Counts;

/// A name may choose tests of one program only; the others then run nothing, which is no failure of theirs.
pub(crate) fn frameworks(broker: &Path, only: Option<&str>) -> Result<Counts> {
    let mut counts = Counts::default();
    // `Class#method` is a test in Java, and nothing that pytest could read.
    if !only.is_some_and(|name| name.contains('#')) {
        counts += celery(broker, only)?;
    }
    counts += maven("interop/frameworks/java", broker, only)?;
    Ok(counts)
}

/// Each file has a broker and workers of its own, so the files run side by side.
fn celery(broker: &Path, only: Option<&str>) -> Result<Counts> {
    let arguments = ["--numprocesses", "4", "--dist", "loadfile"];
    pytest_in("interop/frameworks/python", "frameworks-venv", broker, &arguments, only)
}
