//! Rules of subscriptions: stored with the subscription, compiled in its topic.

use peeklock_filter::{Filter, Rule, RuleName};
use peeklock_types::{EntityKind, EntityName, Timestamp, limits};

use crate::catalog::RuleView;
use crate::engine::Engine;
use crate::error::{Error, ReplayError};
use crate::fact::Fact;
use crate::message::EntityId;
use crate::output::Output;
use crate::queue::{Queue, StoredRule};
use crate::topics::Topic;

/// The limit of rules without a correlation filter. Each subscription starts with a rule that matches everything, so
/// these rules have a limit of their own.
const OTHER_RULES_PER_TOPIC_MAX: usize =
    limits::SUBSCRIPTIONS_PER_TOPIC_MAX + limits::SQL_RULES_PER_TOPIC_MAX;

fn is_correlation(filter: &Filter) -> bool {
    matches!(filter, Filter::Correlation(_))
}

fn is_sql(filter: &Filter) -> bool {
    matches!(filter, Filter::Sql(_))
}

impl Engine {
    pub fn add_rule(
        &mut self,
        now: Timestamp,
        name: &EntityName,
        rule: Rule,
        out: &mut Output,
    ) -> Result<(), Error> {
        if self.subscription(name)?.find_rule(&rule.name).is_ok() {
            return Err(Error::RuleExists { name: name.clone(), rule: rule.name });
        }
        self.put_rule(now, name, rule, out)
    }

    pub fn replace_rule(
        &mut self,
        now: Timestamp,
        name: &EntityName,
        rule: Rule,
        out: &mut Output,
    ) -> Result<(), Error> {
        if self.subscription(name)?.find_rule(&rule.name).is_err() {
            return Err(Error::NoSuchRule { name: name.clone(), rule: rule.name });
        }
        self.put_rule(now, name, rule, out)
    }

    fn put_rule(
        &mut self,
        now: Timestamp,
        name: &EntityName,
        rule: Rule,
        out: &mut Output,
    ) -> Result<(), Error> {
        rule.check()?;
        let queue = self.subscription(name)?;
        let (entity, old) = (queue.entity, queue.find_rule(&rule.name).ok());
        let old = old.and_then(|place| queue.rules.get(place)).map(|stored| &stored.rule.filter);
        if let Some(topic) = name.topic() {
            self.check_rule_count(&topic, &rule, old)?;
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
        out: &mut Output,
    ) -> Result<(), Error> {
        let queue = self.subscription(name)?;
        let entity = queue.entity;
        let found = queue.find_rule(rule).ok().and_then(|place| queue.rules.get(place));
        let Some(found) = found.map(|stored| stored.rule.name.clone()) else {
            return Err(Error::NoSuchRule { name: name.clone(), rule: rule.clone() });
        };
        self.touch(now, entity);
        self.record(Fact::RuleRemoved { entity, name: found }, out);
        Ok(())
    }

    /// Returns the rules of a subscription, by name.
    pub fn rules(&self, name: &EntityName) -> Result<impl Iterator<Item = RuleView<'_>>, Error> {
        let rules = self.subscription(name)?.rules.iter();
        Ok(rules.map(|stored| RuleView { rule: &stored.rule, created_at: stored.created_at }))
    }

    /// Returns the number of SQL filters and of correlation filters of a topic's subscriptions. Filters that are true
    /// or false for every message count as SQL filters: they are `1=1` and `1=0`.
    pub fn rule_counts(&self, topic: EntityId) -> (usize, usize) {
        let Some(topic) = self.topics.get(&topic) else { return (0, 0) };
        let correlation_count = topic.rules.correlation_count();
        (topic.rules.rule_count().saturating_sub(correlation_count), correlation_count)
    }

    /// Checks that the topic may have this rule, which replaces `old` if there is one.
    pub(crate) fn check_rule_count(
        &self,
        name: &EntityName,
        rule: &Rule,
        old: Option<&Filter>,
    ) -> Result<(), Error> {
        let topic = self.find(name).and_then(|topic| self.topics.get(&topic));
        let topic = topic.ok_or_else(|| Error::NoSuchTopic { name: name.clone() })?;
        let (sql_count, correlation_count) = (topic.rules.sql_count(), topic.rules.correlation_count());
        let check = |count: usize, goes: fn(&Filter) -> bool, what, max| {
            if count.saturating_sub(usize::from(old.is_some_and(goes))) >= max {
                return Err(Error::TopicFull { name: name.clone(), what, max });
            }
            Ok(())
        };
        if is_correlation(&rule.filter) {
            let max = limits::CORRELATION_RULES_PER_TOPIC_MAX;
            return check(correlation_count, is_correlation, "correlation filters", max);
        }
        if is_sql(&rule.filter) {
            check(sql_count, is_sql, "SQL filters", limits::SQL_RULES_PER_TOPIC_MAX)?;
        }
        let count = topic.rules.rule_count().saturating_sub(correlation_count);
        check(
            count,
            |old| !is_correlation(old),
            "rules without correlation filter",
            OTHER_RULES_PER_TOPIC_MAX,
        )
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
        match queue.find_rule(&rule.name) {
            Ok(place) => queue.rules[place] = stored,
            Err(place) => queue.rules.insert(place, stored),
        }
        Ok(())
    }

    /// Adds a rule of a subscription to the compiled rules of its topic.
    pub(crate) fn compile(&mut self, entity: EntityId, rule: &Rule) -> Result<(), ReplayError> {
        let topic = self.topic_of(entity).ok_or(ReplayError::OtherKind { entity })?;
        topic.rules.remove(entity, &rule.name);
        topic.rules.insert(entity, rule).map_err(|reason| ReplayError::Rule { entity, reason })
    }

    pub(crate) fn drop_rule(&mut self, entity: EntityId, name: &RuleName) -> Result<(), ReplayError> {
        let topic = self.topic_of(entity).ok_or(ReplayError::OtherKind { entity })?;
        topic.rules.remove(entity, name);
        let queue = self.queues.get_mut(&entity).ok_or(ReplayError::NoSuchEntity { entity })?;
        if let Ok(place) = queue.find_rule(name) {
            queue.rules.remove(place);
        }
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
