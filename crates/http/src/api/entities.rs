//! Queues, topics and subscriptions.

use axum::body::Body;
use axum::response::Response;
use http::StatusCode;
use peeklock_api::Runtime;
use peeklock_broker::{EntityInfo, Listing, Page, PageStart};
use peeklock_filter::Rule;
use peeklock_spec::{Document, OrderSpec, QueueSpec, SubscriptionSpec, TopicSpec};
use peeklock_types::{EntityKind, EntityName, QueueSettings};

use super::route::{Collection, Item, Operation};
use super::{Call, done, json, plain_name, rules, shape, wrong_body};
use crate::auth::check_targets;
use crate::entity;
use crate::problem::Problem;
use crate::request::Condition;
use crate::runtime;

/// What a `PUT` says of an entity.
enum Spec {
    Queue(QueueSpec),
    Topic(TopicSpec),
    Subscription(SubscriptionSpec, Option<Vec<Rule>>),
}

impl Spec {
    fn kind(&self) -> EntityKind {
        match self {
            Spec::Queue(_) => EntityKind::Queue,
            Spec::Topic(_) => EntityKind::Topic,
            Spec::Subscription(..) => EntityKind::Subscription,
        }
    }

    fn apply(&self, settings: &mut QueueSettings) {
        match self {
            Spec::Queue(spec) => spec.apply(settings),
            Spec::Topic(spec) => spec.apply(settings),
            Spec::Subscription(spec, _) => spec.apply(settings),
        }
    }

    fn rules(&self) -> Option<&[Rule]> {
        match self {
            Spec::Subscription(_, rules) => rules.as_deref(),
            Spec::Queue(_) | Spec::Topic(_) => None,
        }
    }
}

pub(super) fn kind_of(item: Item) -> EntityKind {
    match item {
        Item::Topic => EntityKind::Topic,
        Item::Subscription => EntityKind::Subscription,
        _ => EntityKind::Queue,
    }
}

impl Call<'_> {
    pub(super) async fn list_entities(&self, operation: Operation) -> Result<Response, Problem> {
        let what = match operation {
            Operation::List(Collection::Topics) => Listing::Topics,
            Operation::List(Collection::Subscriptions) => Listing::Subscriptions { topic: self.entity()? },
            _ => Listing::Queues,
        };
        let start = match (self.head.query("after"), &what) {
            (None, _) => PageStart::Skip(0),
            (Some(name), Listing::Subscriptions { topic }) => {
                PageStart::After(EntityName::subscription(topic, name)?)
            }
            (Some(name), _) => PageStart::After(plain_name(name)?),
        };
        let top = self.top()?;
        // One more than asked for tells whether there is a next page.
        let mut found = self.namespace.broker.list(what, Page { start, top: top.saturating_add(1) }).await?;
        let is_more = found.len() > top;
        found.truncate(top);
        let next = found.last().filter(|_| is_more).map(short_name);
        let mut items = Vec::with_capacity(found.len());
        for entity in &found {
            items.push(self.describe(entity).await?);
        }
        json(StatusCode::OK, None, &shape::Page { items, next })
    }

    pub(super) async fn show_entity(&self, item: Item) -> Result<Response, Problem> {
        let entity = entity::show(&self.namespace.broker, self.entity()?, kind_of(item)).await?;
        self.respond(StatusCode::OK, &entity).await
    }

    pub(super) async fn delete_entity(&self, item: Item) -> Result<Response, Problem> {
        let name = self.entity()?;
        entity::delete(self.namespace, name, Some(kind_of(item)), self.head.condition()).await?;
        Ok(done())
    }

    pub(super) async fn put_entity(&self, item: Item, body: Body) -> Result<Response, Problem> {
        let spec = self.spec(item, body).await?;
        let name = self.entity()?;
        let condition = self.head.condition();
        for _ in 0..entity::ATTEMPT_COUNT_MAX {
            let current = match self.namespace.broker.show(name.clone()).await.map_err(Problem::from) {
                Ok(current) => Some(current),
                Err(Problem::NotFound(_)) => None,
                Err(problem) => return Err(problem),
            };
            let result = match (current, &condition) {
                (None, Condition::None | Condition::IsNew) => self.create(&name, &spec).await,
                (None, _) => return Err(Problem::NotFound(format!("there is no {} '{name}'", spec.kind()))),
                (Some(_), Condition::IsNew) => {
                    return Err(Problem::Exists(format!("'{name}' exists already")));
                }
                (Some(current), condition) => self.update(current, &spec, condition).await,
            };
            match result {
                // Only for a change that any state will do for.
                Err(Problem::Exists(_) | Problem::Conflict(_))
                    if matches!(condition, Condition::None | Condition::Exists) => {}
                result => return result,
            }
        }
        Err(Problem::Conflict(format!("'{name}' is being changed by others; try again")))
    }

    async fn spec(&self, item: Item, body: Body) -> Result<Spec, Problem> {
        match item {
            Item::Topic => {
                let spec: TopicSpec = self.body(body).await?;
                if spec.subscriptions.is_some() {
                    let text = "a topic's subscriptions are created at their own addresses, /api/topics/TOPIC/subscriptions/NAME";
                    return Err(Problem::bad(text));
                }
                Ok(Spec::Topic(spec))
            }
            Item::Subscription => {
                let document = self.document(body).await?;
                let spec: SubscriptionSpec = document.read().map_err(wrong_body)?;
                check_order(&document, spec.order.as_ref())?;
                let rules = spec.rules.as_ref().map(|rules| {
                    rules.0.iter().map(|(name, spec)| rules::read(name, spec)).collect::<Result<_, _>>()
                });
                let rules = rules.transpose()?;
                Ok(Spec::Subscription(spec, rules))
            }
            _ => {
                let document = self.document(body).await?;
                let spec: QueueSpec = document.read().map_err(wrong_body)?;
                check_order(&document, spec.order.as_ref())?;
                Ok(Spec::Queue(spec))
            }
        }
    }

    async fn create(&self, name: &EntityName, spec: &Spec) -> Result<Response, Problem> {
        let mut settings = QueueSettings::default();
        spec.apply(&mut settings);
        check_targets(self.namespace, self.head, &settings, None)?;
        let broker = &self.namespace.broker;
        let first = spec.rules().and_then(<[Rule]>::first).cloned();
        let created = entity::create(self.namespace, name.clone(), spec.kind(), settings, first).await?;
        if let Some(rules) = spec.rules()
            && let Err(problem) = rules::set(broker, name, rules).await
        {
            // All or nothing: nobody has been told of it yet.
            broker.delete(name.clone(), None).await?;
            return Err(problem);
        }
        let created = if spec.rules().is_some() { broker.show(name.clone()).await? } else { created };
        self.respond(StatusCode::CREATED, &created).await
    }

    async fn update(
        &self,
        current: EntityInfo,
        spec: &Spec,
        condition: &Condition,
    ) -> Result<Response, Problem> {
        let broker = &self.namespace.broker;
        if current.kind != spec.kind() {
            return Err(Problem::bad(format!(
                "'{}' is a {}, not a {}",
                current.name,
                current.kind,
                spec.kind()
            )));
        }
        let expected = match condition {
            Condition::Revision(revision) => Some(*revision),
            Condition::Unknown => return Err(entity::changed_meanwhile(&current.name)),
            _ => None,
        };
        if expected.is_some_and(|expected| expected != current.revision) {
            return Err(entity::changed_meanwhile(&current.name));
        }
        let mut settings = current.settings.clone();
        spec.apply(&mut settings);
        let name = current.name.clone();
        let mut updated = if settings == current.settings {
            current
        } else {
            check_targets(self.namespace, self.head, &settings, Some(&current.settings))?;
            let updated = broker.update(name.clone(), settings, Some(current.revision)).await;
            updated.map_err(|error| entity::update_problem(error, expected.is_some()))?
        };
        if let Some(rules) = spec.rules() {
            rules::set(broker, &name, rules).await?;
            updated = broker.show(name).await?;
        }
        self.respond(StatusCode::OK, &updated).await
    }

    async fn describe(&self, entity: &EntityInfo) -> Result<shape::Entity, Problem> {
        Ok(match entity.kind {
            EntityKind::Queue => shape::Entity::queue(entity, self.runtime(entity).await?),
            EntityKind::Topic => shape::Entity::topic(entity),
            EntityKind::Subscription => shape::Entity::subscription(entity, self.runtime(entity).await?),
        })
    }

    /// Only entities with an order have something to tell.
    async fn runtime(&self, entity: &EntityInfo) -> Result<Option<Runtime>, Problem> {
        if entity.settings.order.is_none() {
            return Ok(None);
        }
        match self.namespace.broker.order(entity.name.clone()).await.map_err(Problem::from) {
            Ok(view) => {
                let order = view.map(|view| runtime::order(&view, self.namespace.now()));
                Ok(Some(Runtime { order }))
            }
            // Deleted meanwhile: what was found before is told all the same.
            Err(Problem::NotFound(_)) => Ok(None),
            Err(problem) => Err(problem),
        }
    }

    async fn respond(&self, status: StatusCode, entity: &EntityInfo) -> Result<Response, Problem> {
        json(status, Some(entity.revision), &self.describe(entity).await?)
    }
}

/// Refuses an order that makes no sense, with its place in the body: the engine would refuse it too, but cannot say where.
fn check_order(document: &Document, order: Option<&Option<OrderSpec>>) -> Result<(), Problem> {
    let Some(Some(order)) = order else { return Ok(()) };
    order.check().map_err(|misfit| {
        let misfit = misfit.under(["order".to_owned()]);
        let path: Vec<&str> = misfit.path.iter().map(String::as_str).collect();
        wrong_body(document.problem(&path, misfit.message))
    })
}

/// Without the topic, for a subscription.
fn short_name(entity: &EntityInfo) -> String {
    entity.name.topic_and_subscription().map_or(entity.name.as_str(), |(_, name)| name).to_owned()
}
