//! Subscriptions.

use peeklock_client::{AdminError, SubscriptionInfo};

use super::{Admin, Subscription, entity};
use crate::error::Error;

impl Admin {
    /// Creates a subscription with its rules. A subscription without rules gets every message of the topic.
    pub async fn create_subscription(
        &self,
        topic: &str,
        name: &str,
        subscription: impl Into<Subscription>,
    ) -> Result<SubscriptionInfo, Error> {
        let (topic, spec) = (entity(topic)?, subscription.into().checked()?);
        attempts!(self, Always, |admin, is_repeated| {
            match admin.create_subscription(&topic, name, &spec).await {
                Err(AdminError::Exists { .. }) if is_repeated => admin.subscription(&topic, name).await,
                created => created,
            }
        })
    }

    /// Changes the settings that `changes` has; the others keep their values. Rules are changed with [`add_rule`](Self::add_rule) and
    /// [`remove_rule`](Self::remove_rule).
    pub async fn update_subscription(
        &self,
        topic: &str,
        name: &str,
        changes: impl Into<Subscription>,
    ) -> Result<SubscriptionInfo, Error> {
        let (topic, spec) = (entity(topic)?, changes.into().checked()?);
        attempts!(self, Always, |admin| admin.update_subscription(&topic, name, &spec).await)
    }

    /// Like [`update_queue_at`](Self::update_queue_at).
    pub async fn update_subscription_at(
        &self,
        topic: &str,
        name: &str,
        revision: u64,
        changes: impl Into<Subscription>,
    ) -> Result<SubscriptionInfo, Error> {
        let (topic, spec) = (entity(topic)?, changes.into().checked()?);
        attempts!(self, Unsent, |admin| { admin.update_subscription_at(&topic, name, revision, &spec).await })
    }

    /// Returns a subscription with its settings and counts.
    pub async fn subscription(&self, topic: &str, name: &str) -> Result<SubscriptionInfo, Error> {
        let topic = entity(topic)?;
        attempts!(self, Always, |admin| admin.subscription(&topic, name).await)
    }

    /// Lists the subscriptions of a topic by name.
    pub async fn subscriptions(&self, topic: &str) -> Result<Vec<SubscriptionInfo>, Error> {
        let topic = entity(topic)?;
        attempts!(self, Always, |admin| admin.subscriptions(&topic).await)
    }

    /// Deletes a subscription with its rules and messages.
    pub async fn delete_subscription(&self, topic: &str, name: &str) -> Result<(), Error> {
        let topic = entity(topic)?;
        attempts!(self, Always, |admin, is_repeated| {
            match admin.delete_subscription(&topic, name).await {
                Err(AdminError::NotFound { .. }) if is_repeated => Ok(()),
                deleted => deleted,
            }
        })
    }
}
