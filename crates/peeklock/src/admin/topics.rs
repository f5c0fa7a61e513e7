//! Topics.

use peeklock_client::{AdminError, Explained, Sample, TopicInfo};

use super::{Admin, Topic, entity};
use crate::error::Error;

impl Admin {
    /// Creates a topic. If the name is taken, the error is of the kind [`Exists`](crate::Kind::Exists).
    pub async fn create_topic(&self, name: &str, topic: impl Into<Topic>) -> Result<TopicInfo, Error> {
        let (name, spec) = (entity(name)?, topic.into().checked()?);
        attempts!(self, Always, |admin, is_repeated| {
            match admin.create_topic(&name, &spec).await {
                Err(AdminError::Exists { .. }) if is_repeated => admin.topic(&name).await,
                created => created,
            }
        })
    }

    /// Changes the settings that `changes` has; the others keep their values.
    pub async fn update_topic(&self, name: &str, changes: impl Into<Topic>) -> Result<TopicInfo, Error> {
        let (name, spec) = (entity(name)?, changes.into().checked()?);
        attempts!(self, Always, |admin| admin.update_topic(&name, &spec).await)
    }

    /// Returns a topic with its settings and counts.
    pub async fn topic(&self, name: &str) -> Result<TopicInfo, Error> {
        let name = entity(name)?;
        attempts!(self, Always, |admin| admin.topic(&name).await)
    }

    /// Lists all topics by name.
    pub async fn topics(&self) -> Result<Vec<TopicInfo>, Error> {
        attempts!(self, Always, |admin| admin.topics().await)
    }

    /// Deletes a topic with its subscriptions and their messages.
    pub async fn delete_topic(&self, name: &str) -> Result<(), Error> {
        let name = entity(name)?;
        attempts!(self, Always, |admin, is_repeated| {
            match admin.delete_topic(&name).await {
                Err(AdminError::NotFound { .. }) if is_repeated => Ok(()),
                deleted => deleted,
            }
        })
    }

    /// Returns which subscriptions of a topic would get a message, and why the others would not. Nothing is sent.
    pub async fn explain(&self, topic: &str, sample: &Sample) -> Result<Vec<Explained>, Error> {
        let topic = entity(topic)?;
        attempts!(self, Always, |admin| admin.explain(&topic, sample).await)
    }
}
