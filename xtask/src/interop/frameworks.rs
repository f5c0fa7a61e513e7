//! Programs of users that were written with frameworks on top of Service Bus and Event Hubs.

use std::path::Path;

use anyhow::Result;

use super::java::maven;
use crate::counts::Counts;

pub(crate) fn frameworks(broker: &Path, only: Option<&str>) -> Result<Counts> {
    maven("interop/frameworks/java", broker, only)
}
