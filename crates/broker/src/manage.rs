//! Requests from nobody's connection: what management asks, one question and one answer at a time.

use std::collections::BTreeMap;

use bytes::Bytes;
use peeklock_engine::Explained;
use peeklock_filter::{Rule, RuleName};
use peeklock_types::{EntityKind, EntityName, EntityPath, QueueSettings, SequenceNumber};

use crate::batch::{Batch, Ticket};
use crate::broker::{Broker, ShardStopped};
use crate::guest::Guest;
use crate::reply::{Answer, EntityInfo, Error, Message, Reply, RuleInfo};
use crate::request::{Listing, Request};

#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    #[error(transparent)]
    Refused(#[from] Error),
    #[error(transparent)]
    Stopped(#[from] ShardStopped),
}

/// Which part of a long list.
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
    /// All there is.
    pub const ALL: Page = Page { start: PageStart::Skip(0), top: usize::MAX };
}

impl Broker {
    /// `rule`: the first rule of a subscription; without one it gets everything.
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
        let _turn = self.quota_turn().await;
        self.check_entity_count(&name, kind).await?;
        let settings = self.entity_within_quotas(&name, settings)?;
        let (shard, settings, rule) = (self.place(&name), Box::new(settings), rule.map(Box::new));
        self.one(shard, |ticket| Request::Create { ticket, name, kind, settings, rule }).await
    }

    pub async fn create_queue(&self, name: EntityName, settings: QueueSettings) -> Result<(), AdminError> {
        self.create(name, EntityKind::Queue, settings, None).await.map(|_| ())
    }

    /// `expected`: the revision that the caller has read; `None`: whatever it is.
    pub async fn update(
        &self,
        name: EntityName,
        settings: QueueSettings,
        expected: Option<u64>,
    ) -> Result<EntityInfo, AdminError> {
        let settings = self.entity_within_quotas(&name, settings)?;
        let (shard, settings) = (self.place(&name), Box::new(settings));
        self.one(shard, |ticket| Request::Update { ticket, name, settings, expected }).await
    }

    /// Deletes a queue or a subscription with all its messages, or a topic with all its subscriptions.
    pub async fn delete(&self, name: EntityName, expected: Option<u64>) -> Result<(), AdminError> {
        let shard = self.place(&name);
        self.ask(shard, |ticket| Request::Delete { ticket, name, expected }).await.map(|_| ())
    }

    pub async fn show(&self, name: EntityName) -> Result<EntityInfo, AdminError> {
        let shard = self.place(&name);
        self.one(shard, |ticket| Request::Show { ticket, name }).await
    }

    /// Entities by name.
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
            let answer = self.ask(shard, |ticket| Request::List { ticket, what, after, top }).await?;
            if let Answer::Entities(entities) = answer {
                found.extend(entities.into_iter().map(|entity| (entity.name.clone(), entity)));
            }
        }
        Ok(found.into_values().take(top).collect())
    }

    pub(crate) async fn names(&self, what: &Listing) -> Result<Vec<EntityName>, AdminError> {
        let mut all = Vec::new();
        for shard in self.shards_with(what) {
            let what = what.clone();
            if let Answer::Names(names) = self.ask(shard, |ticket| Request::Names { ticket, what }).await? {
                all.extend(names);
            }
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
        let (shard, name, rule) = (self.place(&subscription), subscription, Box::new(rule));
        self.ask(shard, |ticket| Request::AddRule { ticket, name, rule }).await.map(|_| ())
    }

    /// In place of the one with the same name.
    pub async fn replace_rule(&self, subscription: EntityName, rule: Rule) -> Result<(), AdminError> {
        let (shard, name, rule) = (self.place(&subscription), subscription, Box::new(rule));
        self.ask(shard, |ticket| Request::ReplaceRule { ticket, name, rule }).await.map(|_| ())
    }

    pub async fn remove_rule(&self, subscription: EntityName, rule: RuleName) -> Result<(), AdminError> {
        let (shard, name) = (self.place(&subscription), subscription);
        self.ask(shard, |ticket| Request::RemoveRule { ticket, name, rule }).await.map(|_| ())
    }

    pub async fn rule(&self, subscription: EntityName, rule: RuleName) -> Result<RuleInfo, AdminError> {
        let (shard, name) = (self.place(&subscription), subscription);
        match self.ask(shard, |ticket| Request::ShowRule { ticket, name, rule }).await? {
            Answer::Rules(mut rules) => rules.pop().ok_or_else(|| ShardStopped.into()),
            _ => Err(ShardStopped.into()),
        }
    }

    pub async fn rules(
        &self,
        subscription: EntityName,
        skip: usize,
        top: usize,
    ) -> Result<Vec<RuleInfo>, AdminError> {
        let (shard, name) = (self.place(&subscription), subscription);
        match self.ask(shard, |ticket| Request::ListRules { ticket, name, skip, top }).await? {
            Answer::Rules(rules) => Ok(rules),
            _ => Err(ShardStopped.into()),
        }
    }

    /// What a topic would do with a message that has these properties.
    pub async fn explain(&self, topic: EntityName, view: Bytes) -> Result<Vec<Explained>, AdminError> {
        let (shard, name) = (self.place(&topic), topic);
        match self.ask(shard, |ticket| Request::Explain { ticket, name, view }).await? {
            Answer::Explained(explained) => Ok(explained),
            _ => Err(ShardStopped.into()),
        }
    }

    /// Shows messages from `from` on, in any state, without touching them.
    pub async fn peek(
        &self,
        path: EntityPath,
        from: SequenceNumber,
        count_max: usize,
    ) -> Result<Vec<Message>, AdminError> {
        let (shard, name, sub_queue) = (self.place(&path.name), path.name, path.sub_queue);
        let Answer::Found(found) = self.ask(shard, |ticket| Request::Find { ticket, name }).await? else {
            return Err(ShardStopped.into());
        };
        let (entity, session) = (found.entity, None);
        let peek = |ticket| Request::Peek { ticket, entity, sub_queue, from, count_max, session };
        match self.ask(shard, peek).await? {
            Answer::Messages(messages) => Ok(messages),
            _ => Err(ShardStopped.into()),
        }
    }

    async fn one(
        &self,
        shard: usize,
        request: impl FnOnce(Ticket) -> Request,
    ) -> Result<EntityInfo, AdminError> {
        match self.ask(shard, request).await? {
            Answer::Entities(mut entities) => entities.pop().ok_or_else(|| ShardStopped.into()),
            _ => Err(ShardStopped.into()),
        }
    }

    pub(crate) async fn ask(
        &self,
        shard: usize,
        request: impl FnOnce(Ticket) -> Request,
    ) -> Result<Answer, AdminError> {
        self.ask_batch(shard, Batch::from(request(Ticket(0)))).await
    }

    /// The same for a request that brings messages.
    pub(crate) async fn ask_batch(&self, shard: usize, batch: Batch) -> Result<Answer, AdminError> {
        let mut guest = Guest::new(self, shard)?;
        guest.send(batch).await?;
        let reply = guest.replies().await?.into_iter().next();
        match reply {
            Some(Reply::Answer { result, .. }) => Ok(result?),
            _ => Err(ShardStopped.into()),
        }
    }
}
