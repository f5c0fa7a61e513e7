//! The rules of a subscription.

use peeklock_client::{AdminError, RuleInfo};

use super::{Admin, Rule, entity};
use crate::error::Error;

impl Admin {
    /// Adds a rule to a subscription. The rule `$Default` of a new subscription matches every message until it is removed.
    pub async fn add_rule(
        &self,
        topic: &str,
        subscription: &str,
        name: &str,
        rule: impl Into<Rule>,
    ) -> Result<RuleInfo, Error> {
        let (topic, spec) = (entity(topic)?, rule.into().checked(name)?);
        attempts!(self, Always, |admin, is_repeated| {
            match admin.add_rule(&topic, subscription, name, &spec).await {
                Err(AdminError::Exists { .. }) if is_repeated => admin.rule(&topic, subscription, name).await,
                added => added,
            }
        })
    }

    /// Returns a rule of a subscription.
    pub async fn rule(&self, topic: &str, subscription: &str, name: &str) -> Result<RuleInfo, Error> {
        let topic = entity(topic)?;
        attempts!(self, Always, |admin| admin.rule(&topic, subscription, name).await)
    }

    /// Lists the rules of a subscription by name.
    pub async fn rules(&self, topic: &str, subscription: &str) -> Result<Vec<RuleInfo>, Error> {
        let topic = entity(topic)?;
        attempts!(self, Always, |admin| admin.rules(&topic, subscription).await)
    }

    /// Removes a rule of a subscription. A subscription without rules gets no message.
    pub async fn remove_rule(&self, topic: &str, subscription: &str, name: &str) -> Result<(), Error> {
        let topic = entity(topic)?;
        attempts!(self, Always, |admin, is_repeated| {
            match admin.remove_rule(&topic, subscription, name).await {
                Err(AdminError::NotFound { .. }) if is_repeated => Ok(()),
                removed => removed,
            }
        })
    }
}
