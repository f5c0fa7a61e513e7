//! Rules of subscriptions: kept with the subscription, compiled in its topic.

use peeklock_filter::{Filter, Rule, RuleName};
use peeklock_types::{EntityKind, EntityName, Timestamp, limits};

use crate::catalog::RuleView;
use crate::engine::Engine;
use crate::error::{Error, ReplayError};
use crate::fact::Fact;
use crate::message::EntityId;
use crate::outbox::Outbox;
use crate::queue::{Queue, StoredRule};
use crate::topics::Topic;

/// One for each subscription, and as many more as there may be SQL filters.
const TRUE_RULES_PER_TOPIC_MAX: usize = limits::SUBSCRIPTIONS_PER_TOPIC_MAX + limits::SQL_RULES_PER_TOPIC_MAX;

/// Rules that are counted together.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RuleClass {
    Sql,
    Correlation,
    Other,
}

fn class(rule: &Rule) -> RuleClass {
    match rule.filter {
        Filter::Sql(_) => RuleClass::Sql,
        Filter::Correlation(_) => RuleClass::Correlation,
        Filter::True | Filter::False => RuleClass::Other,
    }
}

impl Engine {
    pub fn add_rule(
        &mut self,
        now: Timestamp,
        name: &EntityName,
        rule: Rule,
        out: &mut Outbox,
    ) -> Result<(), Error> {
        if self.subscription(name)?.rules.iter().any(|stored| stored.rule.name == rule.name) {
            return Err(Error::RuleExists { name: name.clone(), rule: rule.name });
        }
        self.put_rule(now, name, rule, out)
    }

    pub fn replace_rule(
        &mut self,
        now: Timestamp,
        name: &EntityName,
        rule: Rule,
        out: &mut Outbox,
    ) -> Result<(), Error> {
        if !self.subscription(name)?.rules.iter().any(|stored| stored.rule.name == rule.name) {
            return Err(Error::NoSuchRule { name: name.clone(), rule: rule.name });
        }
        self.put_rule(now, name, rule, out)
    }

    fn put_rule(
        &mut self,
        now: Timestamp,
        name: &EntityName,
        rule: Rule,
        out: &mut Outbox,
    ) -> Result<(), Error> {
        rule.check()?;
        let queue = self.subscription(name)?;
        let entity = queue.entity;
        let replaced = queue.rules.iter().map(|stored| &stored.rule).find(|stored| stored.name == rule.name);
        let takes_place = replaced.is_some_and(|replaced| class(replaced) == class(&rule));
        if let (Some(topic), false) = (name.topic(), takes_place) {
            self.check_rule_count(&topic, &rule)?;
        }
        self.touch(now, entity);
        self.record(Fact::RuleSet { entity, rule: Box::new(rule), at: now }, out);
        Ok(())
    }

    pub fn remove_rule(
        &mut self,
        now: Timestamp,
        name: &EntityName,
        rule: &RuleName,
        out: &mut Outbox,
    ) -> Result<(), Error> {
        let queue = self.subscription(name)?;
        let entity = queue.entity;
        let found = queue.rules.iter().map(|stored| &stored.rule.name).find(|name| *name == rule).cloned();
        let Some(found) = found else {
            return Err(Error::NoSuchRule { name: name.clone(), rule: rule.clone() });
        };
        self.touch(now, entity);
        self.record(Fact::RuleRemoved { entity, name: found }, out);
        Ok(())
    }

    /// The rules of a subscription, by name.
    pub fn rules(&self, name: &EntityName) -> Result<impl Iterator<Item = RuleView<'_>>, Error> {
        let rules = self.subscription(name)?.rules.iter();
        Ok(rules.map(|stored| RuleView { rule: &stored.rule, created_at: stored.created_at }))
    }

    /// How many SQL filters and how many correlation filters the subscriptions of a topic have.
    pub fn rule_counts(&self, topic: EntityId) -> (usize, usize) {
        self.topics
            .get(&topic)
            .map_or((0, 0), |topic| (topic.rules.sql_count(), topic.rules.correlation_count()))
    }

    pub(crate) fn check_rule_count(&self, topic: &EntityName, rule: &Rule) -> Result<(), Error> {
        let Some(found) = self.find(topic).and_then(|topic| self.topics.get(&topic)) else { return Ok(()) };
        let (sql, correlation) = (found.rules.sql_count(), found.rules.correlation_count());
        let other = found.rules.rule_count().saturating_sub(sql + correlation);
        let (count, what, max) = match class(rule) {
            RuleClass::Sql => (sql, "SQL filters", limits::SQL_RULES_PER_TOPIC_MAX),
            RuleClass::Correlation => {
                (correlation, "correlation filters", limits::CORRELATION_RULES_PER_TOPIC_MAX)
            }
            RuleClass::Other => (other, "true and false filters", TRUE_RULES_PER_TOPIC_MAX),
        };
        if count >= max {
            return Err(Error::TopicFull { name: topic.clone(), what, max });
        }
        Ok(())
    }

    pub(crate) fn set_rule(
        &mut self,
        entity: EntityId,
        rule: &Rule,
        at: Timestamp,
    ) -> Result<(), ReplayError> {
        self.compile(entity, rule)?;
        let queue = self.queues.get_mut(&entity).ok_or(ReplayError::NoSuchEntity { entity })?;
        let stored = StoredRule { rule: rule.clone(), created_at: at };
        match queue.rules.binary_search_by(|other| other.rule.name.cmp(&rule.name)) {
            Ok(place) => queue.rules[place] = stored,
            Err(place) => queue.rules.insert(place, stored),
        }
        Ok(())
    }

    /// Makes a rule of a subscription one of those that its topic looks at.
    pub(crate) fn compile(&mut self, entity: EntityId, rule: &Rule) -> Result<(), ReplayError> {
        let topic = self.topic_of(entity).ok_or(ReplayError::OtherKind { entity })?;
        topic.rules.remove(entity, &rule.name);
        topic.rules.insert(entity, rule).map_err(|reason| ReplayError::Rule { entity, reason })
    }

    pub(crate) fn drop_rule(&mut self, entity: EntityId, name: &RuleName) -> Result<(), ReplayError> {
        let topic = self.topic_of(entity).ok_or(ReplayError::OtherKind { entity })?;
        topic.rules.remove(entity, name);
        let queue = self.queues.get_mut(&entity).ok_or(ReplayError::NoSuchEntity { entity })?;
        queue.rules.retain(|stored| stored.rule.name != *name);
        Ok(())
    }

    fn topic_of(&mut self, subscription: EntityId) -> Option<&mut Topic> {
        let name = self.queues.get(&subscription)?.name.topic()?;
        let topic = self.find(&name)?;
        self.topics.get_mut(&topic)
    }

    fn subscription(&self, name: &EntityName) -> Result<&Queue, Error> {
        let queue = self.find(name).and_then(|entity| self.queues.get(&entity));
        let queue = queue.ok_or_else(|| Error::NoSuchQueue { name: name.clone() })?;
        match queue.kind {
            EntityKind::Subscription => Ok(queue),
            EntityKind::Queue | EntityKind::Topic => Err(Error::NoRules { name: name.clone() }),
        }
    }
}
