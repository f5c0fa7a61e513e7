//! Queue groups, which the configuration of the broker declares.

use peeklock_client::QueueGroupInfo;

use super::{Admin, entity};
use crate::error::Error;

impl Admin {
    /// Returns a queue group with its members.
    pub async fn queue_group(&self, name: &str) -> Result<QueueGroupInfo, Error> {
        let name = entity(name)?;
        attempts!(self, Always, |admin| admin.queue_group(&name).await)
    }

    /// Lists the queue groups.
    pub async fn queue_groups(&self) -> Result<Vec<QueueGroupInfo>, Error> {
        attempts!(self, Always, |admin| admin.queue_groups().await)
    }
}
