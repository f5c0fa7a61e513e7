//! Management: entities, rules and keys, over the JSON API of a broker.

mod error;
mod http;
mod hubs;
mod subject;
mod view;

use hyper::Method;
use peeklock_spec::{ExplainedMessage, QueueSpec, RuleSpec, SubscriptionSpec, TopicSpec};
use peeklock_types::{EntityName, SequenceNumber};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use error::AdminError;
use http::{Call, Http, If};
pub use hubs::{CheckpointMove, EventInfo, EventPage, HubInfo, ResetTo};
pub use subject::KeyScope;
use subject::{Subject, encode};
pub use view::{
    Counts, Explained, ExplainedRule, GroupInfo, History, KeyInfo, QueueInfo, RuleInfo, Sample,
    SubscriptionInfo, TopicInfo, WhichKey,
};

use crate::Target;
use crate::client::Options;

/// A page of a collection; the broker may send fewer.
const PAGE_COUNT: usize = 1000;

/// Manages the queues, topics, subscriptions, rules and keys of a namespace. Needs a key with the Manage right, of the namespace or of the
/// entity in question.
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

/// A page of a collection.
#[derive(Deserialize)]
struct Page<T> {
    items: Vec<T>,
    #[serde(default)]
    next: Option<String>,
}

/// A collection in one piece.
#[derive(Deserialize)]
struct Items<T> {
    items: Vec<T>,
}

impl Admin {
    /// Nothing is dialled before the first request.
    pub fn new(target: &Target, options: &Options) -> Self {
        Admin { http: Http::new(target, options) }
    }

    /// Creates a queue; one that is there already is [`AdminError::Exists`].
    pub async fn create_queue(
        &mut self,
        name: &EntityName,
        spec: &QueueSpec,
    ) -> Result<QueueInfo, AdminError> {
        self.put_forwarding(
            &Subject::Queue(name.clone()),
            If::IsNew,
            spec,
            [&spec.forward_to, &spec.forward_dead_letters_to],
        )
        .await
    }

    /// Changes what the spec says of a queue and leaves the rest as it is.
    pub async fn update_queue(
        &mut self,
        name: &EntityName,
        spec: &QueueSpec,
    ) -> Result<QueueInfo, AdminError> {
        self.put_forwarding(
            &Subject::Queue(name.clone()),
            If::Exists,
            spec,
            [&spec.forward_to, &spec.forward_dead_letters_to],
        )
        .await
    }

    /// Like [`Self::update_queue`], but only if the queue still has this revision; else [`AdminError::Changed`]. For changes that are made
    /// from what was there.
    pub async fn update_queue_at(
        &mut self,
        name: &EntityName,
        revision: u64,
        spec: &QueueSpec,
    ) -> Result<QueueInfo, AdminError> {
        self.put_forwarding(
            &Subject::Queue(name.clone()),
            If::Is(revision),
            spec,
            [&spec.forward_to, &spec.forward_dead_letters_to],
        )
        .await
    }

    pub async fn queue(&mut self, name: &EntityName) -> Result<QueueInfo, AdminError> {
        self.get(&Subject::Queue(name.clone())).await
    }

    pub async fn queues(&mut self) -> Result<Vec<QueueInfo>, AdminError> {
        self.list(&Subject::Queues).await
    }

    /// The first queues by name, at most `top`.
    pub async fn first_queues(&mut self, top: usize) -> Result<Vec<QueueInfo>, AdminError> {
        let mut call = Call::plain(Method::GET, &Subject::Queues);
        call.rest = format!("?top={top}");
        let page: Page<QueueInfo> = self.ask(call).await?;
        Ok(page.items)
    }

    /// Deletes a queue with everything in it.
    pub async fn delete_queue(&mut self, name: &EntityName) -> Result<(), AdminError> {
        self.delete(&Subject::Queue(name.clone())).await
    }

    pub async fn create_topic(
        &mut self,
        name: &EntityName,
        spec: &TopicSpec,
    ) -> Result<TopicInfo, AdminError> {
        self.put(&Subject::Topic(name.clone()), If::IsNew, spec).await
    }

    pub async fn update_topic(
        &mut self,
        name: &EntityName,
        spec: &TopicSpec,
    ) -> Result<TopicInfo, AdminError> {
        self.put(&Subject::Topic(name.clone()), If::Exists, spec).await
    }

    pub async fn topic(&mut self, name: &EntityName) -> Result<TopicInfo, AdminError> {
        self.get(&Subject::Topic(name.clone())).await
    }

    pub async fn topics(&mut self) -> Result<Vec<TopicInfo>, AdminError> {
        self.list(&Subject::Topics).await
    }

    /// The groups of queues that the broker's configuration declares.
    pub async fn groups(&mut self) -> Result<Vec<GroupInfo>, AdminError> {
        self.list(&Subject::Groups).await
    }

    pub async fn group(&mut self, name: &EntityName) -> Result<GroupInfo, AdminError> {
        self.get(&Subject::Group(name.clone())).await
    }

    /// Deletes a topic with its subscriptions and everything in them.
    pub async fn delete_topic(&mut self, name: &EntityName) -> Result<(), AdminError> {
        self.delete(&Subject::Topic(name.clone())).await
    }

    /// Tells which subscriptions of a topic would get a message, and why the others would not. Nothing is sent.
    pub async fn explain(
        &mut self,
        topic: &EntityName,
        sample: &Sample,
    ) -> Result<Vec<Explained>, AdminError> {
        let answer: Items<Explained> = self.post(&Subject::Topic(topic.clone()), "explain", sample).await?;
        Ok(answer.items)
    }

    /// Creates a subscription with the rules of the spec; without any it has one that takes everything.
    pub async fn create_subscription(
        &mut self,
        topic: &EntityName,
        name: &str,
        spec: &SubscriptionSpec,
    ) -> Result<SubscriptionInfo, AdminError> {
        self.put_forwarding(
            &subscription(topic, name),
            If::IsNew,
            spec,
            [&spec.forward_to, &spec.forward_dead_letters_to],
        )
        .await
    }

    pub async fn update_subscription(
        &mut self,
        topic: &EntityName,
        name: &str,
        spec: &SubscriptionSpec,
    ) -> Result<SubscriptionInfo, AdminError> {
        self.put_forwarding(
            &subscription(topic, name),
            If::Exists,
            spec,
            [&spec.forward_to, &spec.forward_dead_letters_to],
        )
        .await
    }

    /// Like [`Self::update_queue_at`].
    pub async fn update_subscription_at(
        &mut self,
        topic: &EntityName,
        name: &str,
        revision: u64,
        spec: &SubscriptionSpec,
    ) -> Result<SubscriptionInfo, AdminError> {
        self.put_forwarding(
            &subscription(topic, name),
            If::Is(revision),
            spec,
            [&spec.forward_to, &spec.forward_dead_letters_to],
        )
        .await
    }

    pub async fn subscription(
        &mut self,
        topic: &EntityName,
        name: &str,
    ) -> Result<SubscriptionInfo, AdminError> {
        self.get(&subscription(topic, name)).await
    }

    pub async fn subscriptions(&mut self, topic: &EntityName) -> Result<Vec<SubscriptionInfo>, AdminError> {
        self.list(&Subject::Subscriptions { topic: topic.clone() }).await
    }

    /// Deletes a subscription with everything in it.
    pub async fn delete_subscription(&mut self, topic: &EntityName, name: &str) -> Result<(), AdminError> {
        self.delete(&subscription(topic, name)).await
    }

    /// Tells why a message of a queue or subscription has not been received yet, and behind what it waits.
    pub async fn explain_message(
        &mut self,
        name: &EntityName,
        number: SequenceNumber,
    ) -> Result<ExplainedMessage, AdminError> {
        let subject = Subject::Message { entity: name.clone(), number };
        let mut call = Call::plain(Method::GET, &subject);
        "/explain".clone_into(&mut call.rest);
        self.ask(call).await
    }

    /// Adds a rule to a subscription; one of that name is [`AdminError::Exists`].
    pub async fn add_rule(
        &mut self,
        topic: &EntityName,
        subscription: &str,
        name: &str,
        spec: &RuleSpec,
    ) -> Result<RuleInfo, AdminError> {
        self.put(&rule(topic, subscription, name), If::IsNew, spec).await
    }

    pub async fn rule(
        &mut self,
        topic: &EntityName,
        subscription: &str,
        name: &str,
    ) -> Result<RuleInfo, AdminError> {
        self.get(&rule(topic, subscription, name)).await
    }

    pub async fn rules(
        &mut self,
        topic: &EntityName,
        subscription: &str,
    ) -> Result<Vec<RuleInfo>, AdminError> {
        self.list(&Subject::Rules { topic: topic.clone(), subscription: subscription.to_owned() }).await
    }

    pub async fn remove_rule(
        &mut self,
        topic: &EntityName,
        subscription: &str,
        name: &str,
    ) -> Result<(), AdminError> {
        self.delete(&rule(topic, subscription, name)).await
    }

    /// Creates a key with new secrets and these rights: `Send`, `Listen`, `Manage`.
    pub async fn create_key(
        &mut self,
        scope: &KeyScope,
        name: &str,
        rights: &[&str],
    ) -> Result<KeyInfo, AdminError> {
        let body = serde_json::json!({ "rights": rights });
        self.put(&Subject::Key(scope.clone(), name.to_owned()), If::IsNew, &body).await
    }

    pub async fn key(&mut self, scope: &KeyScope, name: &str) -> Result<KeyInfo, AdminError> {
        self.get(&Subject::Key(scope.clone(), name.to_owned())).await
    }

    pub async fn keys(&mut self, scope: &KeyScope) -> Result<Vec<KeyInfo>, AdminError> {
        self.list(&Subject::Keys(scope.clone())).await
    }

    /// Gives a key a new secret in place of one of its two. What was signed with the old one is refused from then on.
    pub async fn rotate_key(
        &mut self,
        scope: &KeyScope,
        name: &str,
        which: WhichKey,
    ) -> Result<KeyInfo, AdminError> {
        let body = serde_json::json!({ "key": which });
        self.post(&Subject::Key(scope.clone(), name.to_owned()), "regenerate", &body).await
    }

    pub async fn remove_key(&mut self, scope: &KeyScope, name: &str) -> Result<(), AdminError> {
        self.delete(&Subject::Key(scope.clone(), name.to_owned())).await
    }

    async fn put<T: DeserializeOwned>(
        &mut self,
        subject: &Subject,
        condition: If,
        body: &impl Serialize,
    ) -> Result<T, AdminError> {
        self.ask(Call { condition, body: Some(json(body)), ..Call::plain(Method::PUT, subject) }).await
    }

    /// Like [`Self::put`], for what may forward to other entities: that takes a right on them, too.
    async fn put_forwarding<T: DeserializeOwned>(
        &mut self,
        subject: &Subject,
        condition: If,
        body: &impl Serialize,
        targets: [&Option<Option<EntityName>>; 2],
    ) -> Result<T, AdminError> {
        let reaches_out = targets.iter().any(|target| matches!(target, Some(Some(_))));
        let body = Some(json(body));
        self.ask(Call { condition, body, reaches_out, ..Call::plain(Method::PUT, subject) }).await
    }

    async fn get<T: DeserializeOwned>(&mut self, subject: &Subject) -> Result<T, AdminError> {
        self.ask(Call::plain(Method::GET, subject)).await
    }

    async fn delete(&mut self, subject: &Subject) -> Result<(), AdminError> {
        self.http.call(Call::plain(Method::DELETE, subject)).await.map(|_| ())
    }

    async fn post<T: DeserializeOwned>(
        &mut self,
        subject: &Subject,
        action: &str,
        body: &impl Serialize,
    ) -> Result<T, AdminError> {
        let mut call = Call::plain(Method::POST, subject);
        call.rest = format!("/{action}");
        call.body = Some(json(body));
        self.ask(call).await
    }

    /// All pages.
    async fn list<T: DeserializeOwned>(&mut self, subject: &Subject) -> Result<Vec<T>, AdminError> {
        let mut all = Vec::new();
        let mut after: Option<String> = None;
        loop {
            let mut call = Call::plain(Method::GET, subject);
            call.rest = format!("?top={PAGE_COUNT}");
            if let Some(after) = &after {
                call.rest.push_str(&format!("&after={}", encode(after)));
            }
            let page: Page<T> = self.ask(call).await?;
            let is_empty = page.items.is_empty();
            all.extend(page.items);
            match page.next {
                // A page with nothing on it, or the same mark twice, would be asked for again and again.
                Some(next) if !is_empty && after.as_ref() != Some(&next) => after = Some(next),
                _ => return Ok(all),
            }
        }
    }

    async fn ask<T: DeserializeOwned>(&mut self, call: Call<'_>) -> Result<T, AdminError> {
        let body = self.http.call(call).await?;
        serde_json::from_slice(&body).map_err(|error| self.http.malformed(error))
    }
}

fn subscription(topic: &EntityName, name: &str) -> Subject {
    Subject::Subscription { topic: topic.clone(), name: name.to_owned() }
}

fn rule(topic: &EntityName, subscription: &str, name: &str) -> Subject {
    Subject::Rule { topic: topic.clone(), subscription: subscription.to_owned(), name: name.to_owned() }
}

fn json(body: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(body).expect("what is sent has texts as keys and no numbers beyond JSON")
}
