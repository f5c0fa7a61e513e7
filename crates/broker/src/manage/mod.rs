//! Management calls: each sends a request to a shard and waits for its answer. The callers have no connection.

mod blobs;
mod events;
mod guest;
mod hubs;
mod quotas;
mod receipts;

use std::collections::BTreeMap;

use bytes::Bytes;
use peeklock_engine::Explained;
use peeklock_filter::{Rule, RuleName};
use peeklock_types::{EntityKind, EntityName, EntityPath, QueueSettings, SequenceNumber};

use crate::batch::Batch;
use crate::broker::{Broker, ShardStopped};
use crate::execute::missing;
use crate::reply::{EntityInfo, Error, Message, RuleInfo};
use crate::request::entities::{Create, Delete, Find, List, Listing, Named, Names, Show, Update};
use crate::request::receiving::Peek;
use crate::request::rules::{AddRule, Explain, ListRules, RemoveRule, ReplaceRule, ShowRule};
use crate::request::{Ask, Ticket};
pub(crate) use guest::Guest;
pub use quotas::QuotaError;

#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    #[error(transparent)]
    Refused(#[from] Error),
    #[error(transparent)]
    Stopped(#[from] ShardStopped),
}

/// A page of a long list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    pub start: PageStart,
    pub top: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PageStart {
    Skip(usize),
    After(EntityName),
}

impl Page {
    /// The whole list.
    pub const ALL: Page = Page { start: PageStart::Skip(0), top: usize::MAX };
}

impl Broker {
    /// Creates an entity. `rule` is the first rule of a subscription; without it, the subscription receives every
    /// message.
    pub async fn create(
        &self,
        name: EntityName,
        kind: EntityKind,
        settings: QueueSettings,
        rule: Option<Rule>,
    ) -> Result<EntityInfo, AdminError> {
        if self.queue_groups().contains_key(&name) {
            return Err(Error::NameOfQueueGroup { name }.into());
        }
        name.check_new().map_err(Error::from)?;
        let _turn = self.quota_turn().await;
        self.check_entity_count(&name, kind).await?;
        let settings = self.entity_within_quotas(&name, settings)?;
        let (settings, rule) = (Box::new(settings), rule.map(Box::new));
        self.ask_at(&name.clone(), Create { name, kind, settings, rule }).await
    }

    pub async fn create_queue(&self, name: EntityName, settings: QueueSettings) -> Result<(), AdminError> {
        self.create(name, EntityKind::Queue, settings, None).await.map(|_| ())
    }

    /// Changes the settings of an entity. `expected` is the revision that the caller has read; `None` accepts any.
    pub async fn update(
        &self,
        name: EntityName,
        settings: QueueSettings,
        expected: Option<u64>,
    ) -> Result<EntityInfo, AdminError> {
        let settings = self.entity_within_quotas(&name, settings)?;
        let settings = Box::new(settings);
        self.ask_at(&name.clone(), Update { name, settings, expected }).await
    }

    /// Deletes a queue or a subscription with all its messages, or a topic with all its subscriptions.
    pub async fn delete(&self, name: EntityName, expected: Option<u64>) -> Result<(), AdminError> {
        self.ask_at(&name.clone(), Delete { name, expected }).await
    }

    pub async fn show(&self, name: EntityName) -> Result<EntityInfo, AdminError> {
        self.ask_at(&name.clone(), Show { name }).await
    }

    /// Lists entities by name.
    pub async fn list(&self, what: Listing, page: Page) -> Result<Vec<EntityInfo>, AdminError> {
        match page.start {
            PageStart::After(after) => self.list_after(&what, Some(after), page.top).await,
            PageStart::Skip(0) => self.list_after(&what, None, page.top).await,
            PageStart::Skip(skip) => {
                let mut names = self.names(&what).await?;
                names.sort();
                match skip.checked_sub(1).and_then(|last| names.into_iter().nth(last)) {
                    Some(last) => self.list_after(&what, Some(last), page.top).await,
                    None => Ok(Vec::new()),
                }
            }
        }
    }

    async fn list_after(
        &self,
        what: &Listing,
        after: Option<EntityName>,
        top: usize,
    ) -> Result<Vec<EntityInfo>, AdminError> {
        let mut found = BTreeMap::new();
        for shard in self.shards_with(what) {
            let (what, after) = (what.clone(), after.clone());
            let entities = self.ask(shard, List { what, after, top }).await?;
            found.extend(entities.into_iter().map(|entity| (entity.name.clone(), entity)));
        }
        Ok(found.into_values().take(top).collect())
    }

    pub(crate) async fn names(&self, what: &Listing) -> Result<Vec<EntityName>, AdminError> {
        let mut all = Vec::new();
        for shard in self.shards_with(what) {
            all.extend(self.ask(shard, Names { what: what.clone() }).await?);
        }
        Ok(all)
    }

    fn shards_with(&self, what: &Listing) -> std::ops::Range<usize> {
        match what {
            Listing::Subscriptions { topic } => {
                let shard = self.place(topic);
                shard..shard + 1
            }
            Listing::All | Listing::Queues | Listing::Topics => 0..self.shard_count(),
        }
    }

    pub async fn add_rule(&self, subscription: EntityName, rule: Rule) -> Result<(), AdminError> {
        let (at, rule) = (subscription.clone(), Box::new(rule));
        self.ask_at(&at, AddRule { name: subscription, rule }).await
    }

    /// Replaces the rule with the same name.
    pub async fn replace_rule(&self, subscription: EntityName, rule: Rule) -> Result<(), AdminError> {
        let (at, rule) = (subscription.clone(), Box::new(rule));
        self.ask_at(&at, ReplaceRule { name: subscription, rule }).await
    }

    pub async fn remove_rule(&self, subscription: EntityName, rule: RuleName) -> Result<(), AdminError> {
        self.ask_at(&subscription.clone(), RemoveRule { name: subscription, rule }).await
    }

    pub async fn rule(&self, subscription: EntityName, rule: RuleName) -> Result<RuleInfo, AdminError> {
        self.ask_at(&subscription.clone(), ShowRule { name: subscription, rule }).await
    }

    pub async fn rules(
        &self,
        subscription: EntityName,
        skip: usize,
        top: usize,
    ) -> Result<Vec<RuleInfo>, AdminError> {
        self.ask_at(&subscription.clone(), ListRules { name: subscription, skip, top }).await
    }

    /// Explains how a topic would route a message that has these properties.
    pub async fn explain(&self, topic: EntityName, view: Bytes) -> Result<Vec<Explained>, AdminError> {
        self.ask_at(&topic.clone(), Explain { name: topic, view }).await
    }

    /// Returns messages from `from` on, in any state, without changing them.
    pub async fn peek(
        &self,
        path: EntityPath,
        from: SequenceNumber,
        count_max: usize,
    ) -> Result<Vec<Message>, AdminError> {
        let EntityPath { name, sub_queue } = path;
        let shard = self.place(&name);
        let entity = match self.ask(shard, Find { name: name.clone() }).await? {
            Named::Entity(found) => found.entity,
            Named::Hub(_) => return Err(missing(name).into()),
        };
        self.ask(shard, Peek { entity, sub_queue, from, count_max, session: None }).await
    }

    /// Sends a request to the shard that owns `name`.
    pub async fn ask_at<R: Ask>(&self, name: &EntityName, request: R) -> Result<R::Answer, AdminError> {
        self.ask(self.place(name), request).await
    }

    /// Sends a request to a shard and waits for its answer.
    pub async fn ask<R: Ask>(&self, shard: usize, request: R) -> Result<R::Answer, AdminError> {
        self.ask_with(shard, Batch::default(), request).await
    }

    /// Like [`Broker::ask`], for a request about messages that were written to `batch`.
    pub async fn ask_with<R: Ask>(
        &self,
        shard: usize,
        mut batch: Batch,
        request: R,
    ) -> Result<R::Answer, AdminError> {
        let mut guest = Guest::new(self, shard)?;
        batch.ask(Ticket::new(0), request);
        guest.send(batch).await?;
        guest.answer::<R>().await
    }
}
