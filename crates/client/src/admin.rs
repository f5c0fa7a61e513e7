//! Management: entities, rules and keys, over the JSON API of a broker.

mod error;
mod http;
mod hubs;
mod subject;

use std::sync::Arc;

use peeklock_api::{
    Delete, Endpoint, Explained, ExplainedMessage, Get, KeyInfo, Page, PageQuery, Query, QueueGroupInfo,
    QueueInfo, Regenerate, RuleInfo, Sample, SubscriptionInfo, TopicInfo, WhichKey, messages, policies,
    queue_groups, queues, rules, subscriptions, topics,
};
use peeklock_spec::{PolicySpec, QueueSpec, RightList, RuleSpec, SubscriptionSpec, TopicSpec};
use peeklock_types::{EntityName, SequenceNumber};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use error::AdminError;
use http::{Call, Http, If};
pub use subject::KeyScope;
use subject::Subject;

use crate::client::Options;
use crate::{Connector, Target};

/// The size of the pages that the client requests; the broker may send fewer items.
const PAGE_COUNT: u64 = 1000;

/// Manages the queues, topics, subscriptions, rules and keys of a namespace. Requires a key of the namespace or of the entity, with the
/// Manage right.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use peeklock_client::{Admin, EntityName, Options, QueueSpec, Target};
///
/// let target = Target::parse("amqp://RootManageSharedAccessKey:SAS_KEY_VALUE@127.0.0.1:5672")?;
/// let mut admin = Admin::new(&target, &Options::default());
/// admin.create_queue(&EntityName::parse("orders")?, &QueueSpec::default()).await?;
/// for queue in admin.queues().await? {
///     println!("{}: {} waiting", queue.name, queue.counts.active_count);
/// }
/// # Ok(())
/// # }
/// ```
pub struct Admin {
    http: Http,
}

impl Admin {
    /// Returns a client, which connects with its first request.
    pub fn new(target: &Target, options: &Options) -> Self {
        Admin { http: Http::new(target, options) }
    }

    /// Returns a client that connects over streams of the program's own. The secret of a target with a user and a secret is sent as it is,
    /// so the streams must not leave the machine unencrypted.
    pub fn over(target: &Target, connector: Arc<dyn Connector>) -> Self {
        Admin { http: Http::over(target, connector) }
    }

    /// Creates a queue; if the name is taken, this is [`AdminError::Exists`].
    pub async fn create_queue(
        &mut self,
        name: &EntityName,
        spec: &QueueSpec,
    ) -> Result<QueueInfo, AdminError> {
        self.put_queue(name, If::IsNew, spec).await
    }

    /// Changes the settings that the spec has; the others keep their values.
    pub async fn update_queue(
        &mut self,
        name: &EntityName,
        spec: &QueueSpec,
    ) -> Result<QueueInfo, AdminError> {
        self.put_queue(name, If::Exists, spec).await
    }

    /// Like [`Self::update_queue`], but fails with [`AdminError::Changed`] if the queue has another revision. For changes that depend on the
    /// previous settings.
    pub async fn update_queue_at(
        &mut self,
        name: &EntityName,
        revision: u64,
        spec: &QueueSpec,
    ) -> Result<QueueInfo, AdminError> {
        self.put_queue(name, If::Is(revision), spec).await
    }

    /// Returns a queue with its settings and counts.
    pub async fn queue(&mut self, name: &EntityName) -> Result<QueueInfo, AdminError> {
        self.get(&queues::SHOW, &Subject::Queue(name.clone())).await
    }

    /// Lists all queues by name.
    pub async fn queues(&mut self) -> Result<Vec<QueueInfo>, AdminError> {
        self.list(&queues::LIST, &Subject::Queues).await
    }

    /// Lists the first queues by name, at most `top`.
    pub async fn first_queues(&mut self, top: usize) -> Result<Vec<QueueInfo>, AdminError> {
        let query = PageQuery { top: Some(top as u64), after: None };
        Ok(self.ask(&queues::LIST, &Subject::Queues, &query).await?.items)
    }

    /// Deletes a queue with its messages.
    pub async fn delete_queue(&mut self, name: &EntityName) -> Result<(), AdminError> {
        self.delete(&queues::DELETE, &Subject::Queue(name.clone())).await
    }

    /// Creates a topic; if the name is taken, this is [`AdminError::Exists`].
    pub async fn create_topic(
        &mut self,
        name: &EntityName,
        spec: &TopicSpec,
    ) -> Result<TopicInfo, AdminError> {
        self.put(&topics::PUT, &Subject::Topic(name.clone()), If::IsNew, spec).await
    }

    /// Changes the settings that the spec has; the others keep their values.
    pub async fn update_topic(
        &mut self,
        name: &EntityName,
        spec: &TopicSpec,
    ) -> Result<TopicInfo, AdminError> {
        self.put(&topics::PUT, &Subject::Topic(name.clone()), If::Exists, spec).await
    }

    /// Returns a topic with its settings and counts.
    pub async fn topic(&mut self, name: &EntityName) -> Result<TopicInfo, AdminError> {
        self.get(&topics::SHOW, &Subject::Topic(name.clone())).await
    }

    /// Lists all topics by name.
    pub async fn topics(&mut self) -> Result<Vec<TopicInfo>, AdminError> {
        self.list(&topics::LIST, &Subject::Topics).await
    }

    /// Lists the queue groups that the configuration of the broker declares.
    pub async fn queue_groups(&mut self) -> Result<Vec<QueueGroupInfo>, AdminError> {
        self.list(&queue_groups::LIST, &Subject::QueueGroups).await
    }

    /// Returns a queue group with its members.
    pub async fn queue_group(&mut self, name: &EntityName) -> Result<QueueGroupInfo, AdminError> {
        self.get(&queue_groups::SHOW, &Subject::QueueGroup(name.clone())).await
    }

    /// Deletes a topic with its subscriptions and their messages.
    pub async fn delete_topic(&mut self, name: &EntityName) -> Result<(), AdminError> {
        self.delete(&topics::DELETE, &Subject::Topic(name.clone())).await
    }

    /// Returns which subscriptions of a topic would take a message, and why the others would not. Nothing is sent.
    pub async fn explain(
        &mut self,
        topic: &EntityName,
        sample: &Sample,
    ) -> Result<Vec<Explained>, AdminError> {
        Ok(self.post(&topics::EXPLAIN, &Subject::Topic(topic.clone()), sample).await?.items)
    }

    /// Creates a subscription with the rules of the spec. Without rules in the spec, it gets a rule that matches every message.
    pub async fn create_subscription(
        &mut self,
        topic: &EntityName,
        name: &str,
        spec: &SubscriptionSpec,
    ) -> Result<SubscriptionInfo, AdminError> {
        self.put_subscription(topic, name, If::IsNew, spec).await
    }

    /// Changes the settings that the spec has; the others keep their values.
    pub async fn update_subscription(
        &mut self,
        topic: &EntityName,
        name: &str,
        spec: &SubscriptionSpec,
    ) -> Result<SubscriptionInfo, AdminError> {
        self.put_subscription(topic, name, If::Exists, spec).await
    }

    /// Like [`Self::update_queue_at`].
    pub async fn update_subscription_at(
        &mut self,
        topic: &EntityName,
        name: &str,
        revision: u64,
        spec: &SubscriptionSpec,
    ) -> Result<SubscriptionInfo, AdminError> {
        self.put_subscription(topic, name, If::Is(revision), spec).await
    }

    /// Returns a subscription with its settings and counts.
    pub async fn subscription(
        &mut self,
        topic: &EntityName,
        name: &str,
    ) -> Result<SubscriptionInfo, AdminError> {
        self.get(&subscriptions::SHOW, &subscription(topic, name)).await
    }

    /// Lists all subscriptions of a topic by name.
    pub async fn subscriptions(&mut self, topic: &EntityName) -> Result<Vec<SubscriptionInfo>, AdminError> {
        self.list(&subscriptions::LIST, &Subject::Subscriptions { topic: topic.clone() }).await
    }

    /// Deletes a subscription with its rules and messages.
    pub async fn delete_subscription(&mut self, topic: &EntityName, name: &str) -> Result<(), AdminError> {
        self.delete(&subscriptions::DELETE, &subscription(topic, name)).await
    }

    /// Returns why a message of a queue or subscription has not been received yet, and which messages are ahead of it.
    pub async fn explain_message(
        &mut self,
        name: &EntityName,
        number: SequenceNumber,
    ) -> Result<ExplainedMessage, AdminError> {
        self.get(&messages::EXPLAIN, &Subject::Message { entity: name.clone(), number }).await
    }

    /// Adds a rule to a subscription; if the name is taken, this is [`AdminError::Exists`].
    pub async fn add_rule(
        &mut self,
        topic: &EntityName,
        subscription: &str,
        name: &str,
        spec: &RuleSpec,
    ) -> Result<RuleInfo, AdminError> {
        self.put(&rules::PUT, &rule(topic, subscription, name), If::IsNew, spec).await
    }

    /// Returns a rule of a subscription.
    pub async fn rule(
        &mut self,
        topic: &EntityName,
        subscription: &str,
        name: &str,
    ) -> Result<RuleInfo, AdminError> {
        self.get(&rules::SHOW, &rule(topic, subscription, name)).await
    }

    /// Lists all rules of a subscription by name.
    pub async fn rules(
        &mut self,
        topic: &EntityName,
        subscription: &str,
    ) -> Result<Vec<RuleInfo>, AdminError> {
        let subject = Subject::Rules { topic: topic.clone(), subscription: subscription.to_owned() };
        self.list(&rules::LIST, &subject).await
    }

    /// Removes a rule of a subscription.
    pub async fn remove_rule(
        &mut self,
        topic: &EntityName,
        subscription: &str,
        name: &str,
    ) -> Result<(), AdminError> {
        self.delete(&rules::DELETE, &rule(topic, subscription, name)).await
    }

    /// Creates a key with new secrets and these rights.
    pub async fn create_key(
        &mut self,
        scope: &KeyScope,
        name: &str,
        rights: RightList,
    ) -> Result<KeyInfo, AdminError> {
        let spec = PolicySpec { rights: Some(rights), ..PolicySpec::default() };
        self.put(&policies::PUT, &key(scope, name), If::IsNew, &spec).await
    }

    /// Returns an access policy with its keys.
    pub async fn key(&mut self, scope: &KeyScope, name: &str) -> Result<KeyInfo, AdminError> {
        self.get(&policies::SHOW, &key(scope, name)).await
    }

    /// Lists the access policies of the namespace or of one entity.
    pub async fn keys(&mut self, scope: &KeyScope) -> Result<Vec<KeyInfo>, AdminError> {
        self.list(&policies::LIST, &Subject::Keys(scope.clone())).await
    }

    /// Replaces one of the two secrets of a key. The broker then rejects signatures with the old secret.
    pub async fn rotate_key(
        &mut self,
        scope: &KeyScope,
        name: &str,
        which: WhichKey,
    ) -> Result<KeyInfo, AdminError> {
        self.post(&policies::REGENERATE, &key(scope, name), &Regenerate { key: which }).await
    }

    /// Removes an access policy. The broker detaches the links that use its keys.
    pub async fn remove_key(&mut self, scope: &KeyScope, name: &str) -> Result<(), AdminError> {
        self.delete(&policies::DELETE, &key(scope, name)).await
    }

    async fn put_queue(
        &mut self,
        name: &EntityName,
        condition: If,
        spec: &QueueSpec,
    ) -> Result<QueueInfo, AdminError> {
        let subject = Subject::Queue(name.clone());
        let reaches_out = forwards([&spec.forward_to, &spec.forward_dead_letters_to]);
        let call = Call::new(&queues::PUT, &subject, &(), condition).with_body(spec);
        self.answer(&queues::PUT, call.reaching_out(reaches_out)).await
    }

    async fn put_subscription(
        &mut self,
        topic: &EntityName,
        name: &str,
        condition: If,
        spec: &SubscriptionSpec,
    ) -> Result<SubscriptionInfo, AdminError> {
        let subject = subscription(topic, name);
        let reaches_out = forwards([&spec.forward_to, &spec.forward_dead_letters_to]);
        let call = Call::new(&subscriptions::PUT, &subject, &(), condition).with_body(spec);
        self.answer(&subscriptions::PUT, call.reaching_out(reaches_out)).await
    }

    async fn get<A: DeserializeOwned>(
        &mut self,
        endpoint: &Get<A>,
        subject: &Subject,
    ) -> Result<A, AdminError> {
        self.ask(endpoint, subject, &()).await
    }

    async fn ask<Q: Query, A: DeserializeOwned>(
        &mut self,
        endpoint: &Get<A, Q>,
        subject: &Subject,
        query: &Q,
    ) -> Result<A, AdminError> {
        self.answer(endpoint, Call::new(endpoint, subject, query, If::Any)).await
    }

    async fn put<B: Serialize, A: DeserializeOwned>(
        &mut self,
        endpoint: &Endpoint<(), B, A>,
        subject: &Subject,
        condition: If,
        body: &B,
    ) -> Result<A, AdminError> {
        self.answer(endpoint, Call::new(endpoint, subject, &(), condition).with_body(body)).await
    }

    async fn post<B: Serialize, A: DeserializeOwned>(
        &mut self,
        endpoint: &Endpoint<(), B, A>,
        subject: &Subject,
        body: &B,
    ) -> Result<A, AdminError> {
        self.put(endpoint, subject, If::Any, body).await
    }

    async fn delete(&mut self, endpoint: &Delete, subject: &Subject) -> Result<(), AdminError> {
        self.http.call(Call::new(endpoint, subject, &(), If::Any)).await.map(|_| ())
    }

    /// Requests all pages and returns their items.
    async fn list<T: DeserializeOwned>(
        &mut self,
        endpoint: &Get<Page<T>, PageQuery>,
        subject: &Subject,
    ) -> Result<Vec<T>, AdminError> {
        let mut all = Vec::new();
        let mut query = PageQuery { top: Some(PAGE_COUNT), after: None };
        loop {
            let page = self.ask(endpoint, subject, &query).await?;
            let is_empty = page.items.is_empty();
            all.extend(page.items);
            // After an empty page or a repeated mark, the client would send the same request for ever.
            if page.next.is_none() || is_empty || query.after == page.next {
                return Ok(all);
            }
            query.after = page.next;
        }
    }

    async fn answer<Q, B, A: DeserializeOwned>(
        &mut self,
        _: &Endpoint<Q, B, A>,
        call: Call<'_>,
    ) -> Result<A, AdminError> {
        let body = self.http.call(call).await?;
        serde_json::from_slice(&body).map_err(|error| self.http.malformed(error))
    }
}

/// Returns whether an entity forwards to another one. If so, a token for this entity is not enough.
fn forwards(targets: [&Option<Option<EntityName>>; 2]) -> bool {
    targets.iter().any(|target| matches!(target, Some(Some(_))))
}

fn subscription(topic: &EntityName, name: &str) -> Subject {
    Subject::Subscription { topic: topic.clone(), name: name.to_owned() }
}

fn rule(topic: &EntityName, subscription: &str, name: &str) -> Subject {
    Subject::Rule { topic: topic.clone(), subscription: subscription.to_owned(), name: name.to_owned() }
}

fn key(scope: &KeyScope, name: &str) -> Subject {
    Subject::Key(scope.clone(), name.to_owned())
}
