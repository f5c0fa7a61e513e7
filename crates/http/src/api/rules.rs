//! The rules of a subscription.

use axum::body::Body;
use axum::response::Response;
use http::StatusCode;
use peeklock_broker::{Broker, RuleInfo};
use peeklock_filter::{Rule, RuleName};
use peeklock_spec::RuleSpec;
use peeklock_types::EntityName;

use super::{Call, done, json, shape};
use crate::entity;
use crate::problem::Problem;
use crate::request::Condition;

/// Rules that a subscription is compared with at a time.
const BATCH_COUNT: usize = 1000;

/// A rule as a body says it.
pub(super) fn read(name: &RuleName, spec: &RuleSpec) -> Result<Rule, Problem> {
    spec.rule(name.clone()).map_err(|error| Problem::bad(format!("rule '{name}': {error}")))
}

/// Makes the rules of a subscription these and no others; those that are right already are left alone.
pub(super) async fn set(broker: &Broker, subscription: &EntityName, wanted: &[Rule]) -> Result<(), Problem> {
    let before = all(broker, subscription).await?;
    for rule in wanted {
        let old = before.iter().find(|old| old.rule.name == rule.name);
        match old {
            Some(old) if old.rule == *rule => {}
            Some(_) => broker.replace_rule(subscription.clone(), rule.clone()).await?,
            None => broker.add_rule(subscription.clone(), rule.clone()).await?,
        }
    }
    for old in before {
        if !wanted.iter().any(|rule| rule.name == old.rule.name) {
            broker.remove_rule(subscription.clone(), old.rule.name).await?;
        }
    }
    Ok(())
}

async fn all(broker: &Broker, subscription: &EntityName) -> Result<Vec<RuleInfo>, Problem> {
    let mut all = Vec::new();
    loop {
        let page = broker.rules(subscription.clone(), all.len(), BATCH_COUNT).await?;
        let is_last = page.len() < BATCH_COUNT;
        all.extend(page);
        if is_last {
            return Ok(all);
        }
    }
}

impl Call<'_> {
    fn rule_name(&self) -> Result<RuleName, Problem> {
        self.names.rule.clone().ok_or_else(|| Problem::bad("the path names no rule"))
    }

    pub(super) async fn list_rules(&self) -> Result<Response, Problem> {
        let wrong = |_| Problem::bad("the query's 'after' is not the 'next' of a page of rules");
        let skip = self.head.query("after").map_or(Ok(0), |after| after.parse().map_err(wrong))?;
        let top = self.top()?;
        let mut found = self.namespace.broker.rules(self.entity()?, skip, top.saturating_add(1)).await?;
        let is_more = found.len() > top;
        found.truncate(top);
        let next = is_more.then(|| skip.saturating_add(top).to_string());
        let items = found.iter().map(shape::Rule::of).collect();
        json(StatusCode::OK, None, &shape::Page { items, next })
    }

    pub(super) async fn show_rule(&self) -> Result<Response, Problem> {
        let rule = entity::rule(&self.namespace.broker, &self.entity()?, &self.rule_name()?).await?;
        respond(StatusCode::OK, &rule)
    }

    pub(super) async fn put_rule(&self, body: Body) -> Result<Response, Problem> {
        let (subscription, name) = (self.entity()?, self.rule_name()?);
        let spec: RuleSpec = self.body(body).await?;
        let rule = read(&name, &spec)?;
        let broker = &self.namespace.broker;
        let condition = self.head.condition();
        if matches!(condition, Condition::None | Condition::IsNew) {
            match broker.add_rule(subscription.clone(), rule.clone()).await.map_err(Problem::from) {
                Ok(()) => {
                    return respond(StatusCode::CREATED, &entity::rule(broker, &subscription, &name).await?);
                }
                Err(Problem::Exists(_)) if condition == Condition::None => {}
                Err(problem) => return Err(problem),
            }
            let current = entity::rule(broker, &subscription, &name).await?;
            if current.rule == rule {
                return respond(StatusCode::OK, &current);
            }
        } else {
            entity::check_rule(broker, &subscription, &name, &condition).await?;
        }
        broker.replace_rule(subscription.clone(), rule).await?;
        respond(StatusCode::OK, &entity::rule(broker, &subscription, &name).await?)
    }

    pub(super) async fn delete_rule(&self) -> Result<Response, Problem> {
        let (subscription, name) = (self.entity()?, self.rule_name()?);
        let broker = &self.namespace.broker;
        entity::check_rule(broker, &subscription, &name, &self.head.condition()).await?;
        broker.remove_rule(subscription, name).await?;
        Ok(done())
    }
}

fn respond(status: StatusCode, rule: &RuleInfo) -> Result<Response, Problem> {
    json(status, Some(rule.created_at.as_millis()), &shape::Rule::of(rule))
}
