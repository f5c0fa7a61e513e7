//! Queues, topics and subscriptions.

use http::StatusCode;
use peeklock_access::Right;
use peeklock_api::{
    Counts, History, Page, PageQuery, QueueInfo, Runtime, SubscriptionInfo, TopicInfo, queues, subscriptions,
    topics,
};
use peeklock_broker::{EntityInfo, Listing, Page as Range, PageStart, engine};
use peeklock_filter::Rule;
use peeklock_spec::{OrderSpec, QueueSpec, SubscriptionSpec, TopicSpec, show_time};
use peeklock_types::{EntityKind, EntityName, QueueSettings};

use super::call::{Answer, Call};
use super::names::plain_name;
use super::route::{Route, route};
use super::rules;
use crate::auth::check_targets;
use crate::entity;
use crate::problem::Problem;
use crate::request::Condition;
use crate::runtime;

pub(super) fn routes() -> Vec<Route> {
    vec![
        route(&queues::LIST, Right::Manage, Call::list_queues),
        route(&queues::SHOW, Right::Manage, Call::show_entity::<QueueInfo>),
        route(&queues::PUT, Right::Manage, Call::put_queue),
        route(&queues::DELETE, Right::Manage, Call::delete_entity::<QueueInfo>),
        route(&topics::LIST, Right::Manage, Call::list_topics),
        route(&topics::SHOW, Right::Manage, Call::show_entity::<TopicInfo>),
        route(&topics::PUT, Right::Manage, Call::put_topic),
        route(&topics::DELETE, Right::Manage, Call::delete_entity::<TopicInfo>),
        route(&subscriptions::LIST, Right::Manage, Call::list_subscriptions),
        route(&subscriptions::SHOW, Right::Manage, Call::show_entity::<SubscriptionInfo>),
        route(&subscriptions::PUT, Right::Manage, Call::put_subscription),
        route(&subscriptions::DELETE, Right::Manage, Call::delete_entity::<SubscriptionInfo>),
    ]
}

/// The answer for an entity of one kind.
trait Described: Sized + Send {
    const KIND: EntityKind;

    fn of(entity: &EntityInfo, runtime: Option<Runtime>) -> Self;
}

impl Described for QueueInfo {
    const KIND: EntityKind = EntityKind::Queue;

    fn of(entity: &EntityInfo, runtime: Option<Runtime>) -> Self {
        QueueInfo {
            name: entity.name.to_string(),
            spec: QueueSpec::of(&entity.settings),
            counts: counts(&entity.counts),
            runtime,
            history: history(entity),
        }
    }
}

impl Described for TopicInfo {
    const KIND: EntityKind = EntityKind::Topic;

    fn of(entity: &EntityInfo, _: Option<Runtime>) -> Self {
        TopicInfo {
            name: entity.name.to_string(),
            spec: TopicSpec::of(&entity.settings),
            subscription_count: count(entity.subscription_count),
            sql_rule_count: count(entity.sql_rule_count),
            correlation_rule_count: count(entity.correlation_rule_count),
            scheduled_count: entity.counts.scheduled_count,
            size_bytes: entity.counts.size_bytes,
            history: history(entity),
        }
    }
}

impl Described for SubscriptionInfo {
    const KIND: EntityKind = EntityKind::Subscription;

    fn of(entity: &EntityInfo, runtime: Option<Runtime>) -> Self {
        let (topic, name) = entity.name.topic_and_subscription().unwrap_or_default();
        SubscriptionInfo {
            name: name.to_owned(),
            topic: topic.to_owned(),
            spec: SubscriptionSpec::of(&entity.settings),
            counts: counts(&entity.counts),
            runtime,
            rule_count: count(entity.rule_count),
            history: history(entity),
        }
    }
}

fn counts(counts: &engine::Counts) -> Counts {
    Counts {
        active_count: counts.active_count,
        locked_count: counts.locked_count,
        deferred_count: counts.deferred_count,
        scheduled_count: counts.scheduled_count,
        dead_letter_count: counts.dead_letter_count,
        transfer_count: counts.transfer_count,
        transfer_dead_letter_count: counts.transfer_dead_letter_count,
        message_count: counts.message_count(),
        size_bytes: counts.size_bytes,
    }
}

fn history(entity: &EntityInfo) -> History {
    History {
        created_at: show_time(entity.created_at),
        updated_at: show_time(entity.updated_at),
        accessed_at: show_time(entity.accessed_at),
        revision: entity.revision,
    }
}

fn count(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// The body of a `PUT`.
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

impl Call<PageQuery> {
    async fn list_queues(self) -> Result<Answer<Page<QueueInfo>>, Problem> {
        self.list_entities(Listing::Queues).await
    }

    async fn list_topics(self) -> Result<Answer<Page<TopicInfo>>, Problem> {
        self.list_entities(Listing::Topics).await
    }

    async fn list_subscriptions(self) -> Result<Answer<Page<SubscriptionInfo>>, Problem> {
        self.list_entities(Listing::Subscriptions { topic: self.entity()? }).await
    }

    async fn list_entities<T: Described>(&self, what: Listing) -> Result<Answer<Page<T>>, Problem> {
        let start = match (self.query.after.as_deref(), &what) {
            (None, _) => PageStart::Skip(0),
            (Some(name), Listing::Subscriptions { topic }) => {
                PageStart::After(EntityName::subscription(topic, name)?)
            }
            (Some(name), _) => PageStart::After(plain_name(name)?),
        };
        let top = self.page_count(self.query.top);
        // One item more than requested shows whether there is a next page.
        let mut found = self.namespace.broker.list(what, Range { start, top: top.saturating_add(1) }).await?;
        let is_more = found.len() > top;
        found.truncate(top);
        let next = found.last().filter(|_| is_more).map(short_name);
        let mut items = Vec::with_capacity(found.len());
        for entity in &found {
            items.push(self.describe(entity).await?);
        }
        Ok(Answer::ok(Page { items, next }))
    }
}

impl Call {
    async fn show_entity<T: Described>(self) -> Result<Answer<T>, Problem> {
        let entity = entity::show(&self.namespace.broker, self.entity()?, T::KIND).await?;
        self.respond(StatusCode::OK, &entity).await
    }

    async fn delete_entity<T: Described>(self) -> Result<Answer<()>, Problem> {
        let name = self.entity()?;
        entity::delete(&self.namespace, name, Some(T::KIND), self.head.condition()).await?;
        Ok(Answer::done())
    }

    async fn put_entity<T: Described>(&self, spec: &Spec) -> Result<Answer<T>, Problem> {
        let name = self.entity()?;
        let condition = self.head.condition();
        for _ in 0..entity::ATTEMPT_COUNT_MAX {
            let current = match self.namespace.broker.show(name.clone()).await.map_err(Problem::from) {
                Ok(current) => Some(current),
                Err(Problem::NotFound(_)) => None,
                Err(problem) => return Err(problem),
            };
            let result = match (current, &condition) {
                (None, Condition::None | Condition::IsNew) => self.create(&name, spec).await,
                (None, _) => return Err(Problem::NotFound(format!("there is no {} '{name}'", spec.kind()))),
                (Some(_), Condition::IsNew) => {
                    return Err(Problem::Exists(format!("'{name}' exists already")));
                }
                (Some(current), condition) => self.update(current, spec, condition).await,
            };
            match result {
                // A change without a required revision is retried.
                Err(Problem::Exists(_) | Problem::Conflict(_))
                    if matches!(condition, Condition::None | Condition::Exists) => {}
                result => return result,
            }
        }
        Err(Problem::Conflict(format!("'{name}' is being changed by others; try again")))
    }

    async fn create<T: Described>(&self, name: &EntityName, spec: &Spec) -> Result<Answer<T>, Problem> {
        let mut settings = QueueSettings::default();
        spec.apply(&mut settings);
        check_targets(&self.namespace, &self.head, &settings, None)?;
        let broker = &self.namespace.broker;
        let first = spec.rules().and_then(<[Rule]>::first).cloned();
        let created = entity::create(&self.namespace, name.clone(), spec.kind(), settings, first).await?;
        if let Some(rules) = spec.rules()
            && let Err(problem) = rules::set(broker, name, rules).await
        {
            // Creation is atomic: the client has received no answer yet, so the entity is deleted again.
            broker.delete(name.clone(), None).await?;
            return Err(problem);
        }
        let created = if spec.rules().is_some() { broker.show(name.clone()).await? } else { created };
        self.respond(StatusCode::CREATED, &created).await
    }

    async fn update<T: Described>(
        &self,
        current: EntityInfo,
        spec: &Spec,
        condition: &Condition,
    ) -> Result<Answer<T>, Problem> {
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
            check_targets(&self.namespace, &self.head, &settings, Some(&current.settings))?;
            let updated = broker.update(name.clone(), settings, Some(current.revision)).await;
            updated.map_err(|error| entity::update_problem(error, expected.is_some()))?
        };
        if let Some(rules) = spec.rules() {
            rules::set(broker, &name, rules).await?;
            updated = broker.show(name).await?;
        }
        self.respond(StatusCode::OK, &updated).await
    }

    async fn respond<T: Described>(
        &self,
        status: StatusCode,
        entity: &EntityInfo,
    ) -> Result<Answer<T>, Problem> {
        Ok(Answer::with_status(status, self.describe(entity).await?).tagged(entity.revision))
    }
}

impl Call<(), QueueSpec> {
    async fn put_queue(self) -> Result<Answer<QueueInfo>, Problem> {
        let (call, spec) = self.split();
        call.check_order(spec.order.as_ref())?;
        call.put_entity(&Spec::Queue(spec)).await
    }
}

impl Call<(), TopicSpec> {
    async fn put_topic(self) -> Result<Answer<TopicInfo>, Problem> {
        let (call, spec) = self.split();
        if spec.subscriptions.is_some() {
            let text = "a topic's subscriptions are created at their own addresses, /api/topics/TOPIC/subscriptions/NAME";
            return Err(Problem::bad(text));
        }
        call.put_entity(&Spec::Topic(spec)).await
    }
}

impl Call<(), SubscriptionSpec> {
    async fn put_subscription(self) -> Result<Answer<SubscriptionInfo>, Problem> {
        let (call, spec) = self.split();
        call.check_order(spec.order.as_ref())?;
        let rules = spec.rules.as_ref().map(|rules| {
            rules.0.iter().map(|(name, spec)| rules::read(name, spec)).collect::<Result<_, _>>()
        });
        let rules = rules.transpose()?;
        call.put_entity(&Spec::Subscription(spec, rules)).await
    }
}

impl<Q, B> Call<Q, B> {
    async fn describe<T: Described>(&self, entity: &EntityInfo) -> Result<T, Problem> {
        Ok(T::of(entity, self.runtime(entity).await?))
    }

    /// Returns the state of the order; `None` for an entity without an order.
    async fn runtime(&self, entity: &EntityInfo) -> Result<Option<Runtime>, Problem> {
        if entity.settings.order.is_none() {
            return Ok(None);
        }
        match self.namespace.broker.order(entity.name.clone()).await.map_err(Problem::from) {
            Ok(view) => {
                let order = view.map(|view| runtime::order(&view, self.namespace.now()));
                Ok(Some(Runtime { order }))
            }
            // The entity was deleted meanwhile. The values that were read before are returned anyway.
            Err(Problem::NotFound(_)) => Ok(None),
            Err(problem) => Err(problem),
        }
    }

    /// Rejects an invalid order with its position in the body. The engine would reject it without a position.
    fn check_order(&self, order: Option<&Option<OrderSpec>>) -> Result<(), Problem> {
        let Some(Some(order)) = order else { return Ok(()) };
        order.check().map_err(|misfit| self.wrong_place(misfit.under(["order".to_owned()])))
    }
}

/// Returns the name; for a subscription, without the topic.
fn short_name(entity: &EntityInfo) -> String {
    entity.name.topic_and_subscription().map_or(entity.name.as_str(), |(_, name)| name).to_owned()
}
