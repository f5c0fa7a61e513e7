//! Creates, changes and deletes entities and rules.

use axum::body::Body;
use axum::response::Response;
use http::StatusCode;
use peeklock_broker::EntityInfo;
use peeklock_filter::{Rule, RuleName};
use peeklock_types::{EntityKind, EntityName, QueueSettings, Tier};
use peeklock_web::xml::{self, Element, Space};

use super::Call;
use super::describe::root_name;
use super::hub::{HUB, read_hub};
use super::policy::{Draft, read_policies, set_policies};
use super::property::{Dialect, read_settings};
use super::rule::read_rule;
use super::version::Version;
use crate::auth::check_targets;
use crate::entity;
use crate::problem::Problem;
use crate::request::{Condition, read_body, shown};

const CONTENT_TYPES: [&str; 3] = ["application/atom+xml", "application/xml", "text/xml"];

/// The content of a `PUT` of an entity, parsed as far as possible without the entity.
struct Asked {
    kind: EntityKind,
    description: Element,
    policies: Option<Vec<Draft>>,
}

impl Asked {
    fn read(description: Element) -> Result<Self, Problem> {
        let kind = [EntityKind::Queue, EntityKind::Topic, EntityKind::Subscription]
            .into_iter()
            .find(|kind| root_name(*kind) == description.name)
            .ok_or_else(|| {
                unexpected(
                    &description.name,
                    "QueueDescription, TopicDescription, EventHubDescription or SubscriptionDescription",
                )
            })?;
        let policies = read_policies(&description)?;
        Ok(Asked { kind, description, policies })
    }

    fn settings(&self, dialect: Dialect, current: Option<&QueueSettings>) -> Result<QueueSettings, Problem> {
        read_settings(dialect, self.kind, &self.description, current)
    }

    fn first_rule(&self) -> Result<Option<Rule>, Problem> {
        let rule = self.description.child("DefaultRuleDescription").filter(|rule| !rule.is_nil);
        rule.map(|rule| read_rule(rule, None)).transpose()
    }
}

/// Parses any body of management. For fuzzing: it must return for any bytes.
pub fn check_body(bytes: &[u8]) -> Result<(), String> {
    let check = || {
        let description = content(bytes)?;
        if description.name == RULE {
            return read_rule(&description, None).map(|_| ());
        }
        if description.name == HUB {
            return read_hub(&description, None).map(|_| ());
        }
        let asked = Asked::read(description)?;
        let dialect = Dialect { version: Version::V2024, tier: Tier::Premium };
        let settings = asked.settings(dialect, None)?;
        asked.settings(dialect, Some(&settings))?;
        asked.first_rule().map(|_| ())
    };
    check().map_err(|problem: Problem| problem.to_string())
}

const RULE: &str = "RuleDescription";

/// Returns the description inside an entry.
fn content(bytes: &[u8]) -> Result<Element, Problem> {
    let entry = xml::read(bytes)?;
    if (entry.space, entry.name.as_str()) != (Space::Atom, "entry") {
        return Err(unexpected(&entry.name, "entry, of the namespace http://www.w3.org/2005/Atom"));
    }
    let contents = entry
        .children
        .into_iter()
        .find(|child| (child.space, child.name.as_str()) == (Space::Atom, "content"));
    let contents =
        contents.ok_or_else(|| Problem::bad("the entry has no content; put the description there"))?;
    let mut descriptions = contents.children.into_iter();
    match (descriptions.next(), descriptions.next()) {
        (Some(one), None) if one.space == Space::ServiceBus => Ok(one),
        (Some(one), None) => {
            let text = format!("{}, of the namespace {}", shown(&one.name), xml::SERVICE_BUS);
            Err(unexpected("an element of another namespace", &text))
        }
        (None, _) => Err(Problem::bad("the entry's content is empty; put the description there")),
        (Some(_), Some(_)) => {
            Err(Problem::bad("the entry's content has more than one description; send one at a time"))
        }
    }
}

pub(super) fn unexpected(found: &str, expected: &str) -> Problem {
    Problem::bad(format!("found {} where this was expected: {expected}", shown(found)))
}

impl Call<'_> {
    fn dialect(&self) -> Dialect {
        Dialect { version: self.context.version, tier: self.context.tier }
    }

    pub(super) async fn description(&self, body: Body) -> Result<Element, Problem> {
        self.head.check_content_type(&CONTENT_TYPES, "application/atom+xml")?;
        let limits = self.state.limits();
        content(&read_body(body, limits.body_size_bytes_max, limits.body_time_max).await?)
    }

    pub(super) async fn put_entity(&self, name: EntityName, body: Body) -> Result<Response, Problem> {
        let description = self.description(body).await?;
        if description.name == HUB {
            return self.put_hub(name, &description).await;
        }
        let asked = Asked::read(description)?;
        if asked.kind == EntityKind::Subscription {
            let expected = "QueueDescription, TopicDescription or EventHubDescription";
            return Err(unexpected(root_name(asked.kind), expected));
        }
        self.put(name, asked).await
    }

    pub(super) async fn put_subscription(&self, name: EntityName, body: Body) -> Result<Response, Problem> {
        let asked = Asked::read(self.description(body).await?)?;
        if asked.kind != EntityKind::Subscription {
            return Err(unexpected(root_name(asked.kind), root_name(EntityKind::Subscription)));
        }
        self.put(name, asked).await
    }

    async fn put(&self, name: EntityName, asked: Asked) -> Result<Response, Problem> {
        match self.head.condition() {
            Condition::None | Condition::IsNew => self.create(name, asked).await,
            Condition::Exists => self.update(name, asked, None).await,
            Condition::Revision(revision) => self.update(name, asked, Some(revision)).await,
            Condition::Unknown => Err(entity::changed_meanwhile(&name)),
        }
    }

    async fn create(&self, name: EntityName, asked: Asked) -> Result<Response, Problem> {
        let settings = asked.settings(self.dialect(), None)?;
        check_targets(self.namespace, self.head, &settings, None)?;
        let (broker, rule) = (&self.namespace.broker, asked.first_rule()?);
        let created = entity::create(self.namespace, name.clone(), asked.kind, settings, rule).await?;
        if let Some(drafts) = asked.policies.filter(|drafts| !drafts.is_empty())
            && let Err(problem) = self.set_policies(&name, drafts).await
        {
            // Creation is atomic: the client has received no answer yet, so the entity is deleted again.
            broker.delete(name, Some(created.revision)).await?;
            return Err(problem);
        }
        Ok(self.show_entity(StatusCode::CREATED, &created))
    }

    async fn update(
        &self,
        name: EntityName,
        asked: Asked,
        revision: Option<u64>,
    ) -> Result<Response, Problem> {
        if asked.description.child("DefaultRuleDescription").is_some_and(|rule| !rule.is_nil) {
            let text = "DefaultRuleDescription is for new subscriptions; change rules at their own addresses";
            return Err(Problem::bad(text));
        }
        let mut result = self.try_update(&name, &asked, revision).await;
        for _ in 1..entity::ATTEMPT_COUNT_MAX {
            // Another client changed the entity concurrently. A change without a required revision is retried.
            if revision.is_some() || !matches!(result, Err(Problem::Conflict(_))) {
                break;
            }
            result = self.try_update(&name, &asked, revision).await;
        }
        let updated = result?;
        if let Some(drafts) = asked.policies {
            self.set_policies(&name, drafts).await?;
        }
        Ok(self.show_entity(StatusCode::OK, &updated))
    }

    async fn try_update(
        &self,
        name: &EntityName,
        asked: &Asked,
        revision: Option<u64>,
    ) -> Result<EntityInfo, Problem> {
        let broker = &self.namespace.broker;
        let current = entity::show(broker, name.clone(), asked.kind).await?;
        let settings = asked.settings(self.dialect(), Some(&current.settings))?;
        check_targets(self.namespace, self.head, &settings, Some(&current.settings))?;
        // The revision must be the one that was read, because the settings without an ATOM element are copied from it.
        let expected = revision.unwrap_or(current.revision);
        let updated = broker.update(name.clone(), settings, Some(expected)).await;
        updated.map_err(|error| entity::update_problem(error, revision.is_some()))
    }

    pub(super) async fn set_policies(&self, name: &EntityName, drafts: Vec<Draft>) -> Result<(), Problem> {
        let (access, entity, now) = (self.namespace.access.clone(), name.clone(), self.namespace.now());
        entity::blocking(move || set_policies(&access, &entity, drafts, now)).await
    }

    pub(super) async fn delete_entity(&self, name: EntityName) -> Result<Response, Problem> {
        match entity::delete(self.namespace, name.clone(), None, self.head.condition()).await {
            Err(Problem::NotFound(text)) => self.delete_hub(name, text).await?,
            other => other?,
        }
        Ok(Response::new(Body::empty()))
    }

    pub(super) async fn put_rule(
        &self,
        subscription: EntityName,
        name: RuleName,
        body: Body,
    ) -> Result<Response, Problem> {
        let description = self.description(body).await?;
        if description.name != RULE {
            return Err(unexpected(&description.name, RULE));
        }
        let rule = read_rule(&description, Some(&name))?;
        let broker = &self.namespace.broker;
        let status = match self.head.condition() {
            Condition::None | Condition::IsNew => {
                broker.add_rule(subscription.clone(), rule).await?;
                StatusCode::CREATED
            }
            condition => {
                entity::check_rule(broker, &subscription, &name, &condition).await?;
                broker.replace_rule(subscription.clone(), rule).await?;
                StatusCode::OK
            }
        };
        let rule = entity::rule(broker, &subscription, &name).await?;
        Ok(self.show_rule(status, &subscription, &rule))
    }

    pub(super) async fn delete_rule(
        &self,
        subscription: EntityName,
        name: RuleName,
    ) -> Result<Response, Problem> {
        let broker = &self.namespace.broker;
        entity::check_rule(broker, &subscription, &name, &self.head.condition()).await?;
        broker.remove_rule(subscription, name).await?;
        Ok(Response::new(Body::empty()))
    }
}
