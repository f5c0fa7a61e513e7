//! The rules of a subscription.

use http::StatusCode;
use peeklock_access::Right;
use peeklock_api::{Page, PageQuery, RuleInfo, rules};
use peeklock_broker::{Broker, RuleInfo as StoredRule};
use peeklock_filter::{Rule, RuleName};
use peeklock_spec::{RuleSpec, show_time};
use peeklock_types::EntityName;

use super::call::{Answer, Call};
use super::route::{Route, route};
use crate::entity;
use crate::problem::Problem;
use crate::request::Condition;

pub(super) fn routes() -> Vec<Route> {
    vec![
        route(&rules::LIST, Right::Manage, Call::list_rules),
        route(&rules::SHOW, Right::Manage, Call::show_rule),
        route(&rules::PUT, Right::Manage, Call::put_rule),
        route(&rules::DELETE, Right::Manage, Call::delete_rule),
    ]
}

/// The number of rules that one request to the broker returns.
const BATCH_COUNT: usize = 1000;

/// Parses the rule in a body.
pub(super) fn read(name: &RuleName, spec: &RuleSpec) -> Result<Rule, Problem> {
    spec.rule(name.clone()).map_err(|error| Problem::bad(format!("rule '{name}': {error}")))
}

/// Replaces the rules of a subscription. Rules that are already equal are not changed.
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

async fn all(broker: &Broker, subscription: &EntityName) -> Result<Vec<StoredRule>, Problem> {
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

impl Call<PageQuery> {
    async fn list_rules(self) -> Result<Answer<Page<RuleInfo>>, Problem> {
        let wrong = |_| Problem::bad("the query's 'after' is not the 'next' of a page of rules");
        let skip = self.query.after.as_deref().map_or(Ok(0), |after| after.parse().map_err(wrong))?;
        let top = self.page_count(self.query.top);
        let mut found = self.namespace.broker.rules(self.entity()?, skip, top.saturating_add(1)).await?;
        let is_more = found.len() > top;
        found.truncate(top);
        let next = is_more.then(|| skip.saturating_add(top).to_string());
        let items = found.iter().map(info).collect();
        Ok(Answer::ok(Page { items, next }))
    }
}

impl Call {
    async fn show_rule(self) -> Result<Answer<RuleInfo>, Problem> {
        let rule = entity::rule(&self.namespace.broker, &self.entity()?, &self.rule_name()?).await?;
        Ok(respond(StatusCode::OK, &rule))
    }

    async fn delete_rule(self) -> Result<Answer<()>, Problem> {
        let (subscription, name) = (self.entity()?, self.rule_name()?);
        let broker = &self.namespace.broker;
        entity::check_rule(broker, &subscription, &name, &self.head.condition()).await?;
        broker.remove_rule(subscription, name).await?;
        Ok(Answer::done())
    }
}

impl Call<(), RuleSpec> {
    async fn put_rule(self) -> Result<Answer<RuleInfo>, Problem> {
        let (subscription, name) = (self.entity()?, self.rule_name()?);
        let rule = read(&name, &self.body)?;
        let broker = &self.namespace.broker;
        let condition = self.head.condition();
        if matches!(condition, Condition::None | Condition::IsNew) {
            match broker.add_rule(subscription.clone(), rule.clone()).await.map_err(Problem::from) {
                Ok(()) => {
                    let added = entity::rule(broker, &subscription, &name).await?;
                    return Ok(respond(StatusCode::CREATED, &added));
                }
                Err(Problem::Exists(_)) if condition == Condition::None => {}
                Err(problem) => return Err(problem),
            }
            let current = entity::rule(broker, &subscription, &name).await?;
            if current.rule == rule {
                return Ok(respond(StatusCode::OK, &current));
            }
        } else {
            entity::check_rule(broker, &subscription, &name, &condition).await?;
        }
        broker.replace_rule(subscription.clone(), rule).await?;
        Ok(respond(StatusCode::OK, &entity::rule(broker, &subscription, &name).await?))
    }
}

fn respond(status: StatusCode, rule: &StoredRule) -> Answer<RuleInfo> {
    Answer::with_status(status, info(rule)).tagged(rule.created_at.as_millis())
}

fn info(stored: &StoredRule) -> RuleInfo {
    RuleInfo {
        name: stored.rule.name.to_string(),
        spec: RuleSpec::of(&stored.rule),
        created_at: show_time(stored.created_at),
    }
}
