//! Administration: queues, topics, subscriptions, rules, event hubs, keys and queue groups.
//!
//! [`Client::admin`](crate::Client::admin) returns the handle, [`Queue`], [`Topic`], [`Subscription`], [`Rule`] and [`Hub`] hold settings.
//! The handle reconnects and repeats requests as the client does.
//!
//! ```no_run
//! # async fn example(client: peeklock::Client) -> Result<(), peeklock::Error> {
//! use std::time::Duration;
//! use peeklock::admin::{Queue, Rule, Subscription, Topic};
//!
//! let admin = client.admin();
//! let jobs = Queue::new().classes(["high", "normal", "low"]).lock_duration(Duration::from_secs(30)).max_delivery_count(5);
//! admin.create_queue("jobs", jobs).await?;
//!
//! admin.create_topic("orders", Topic::new()).await?;
//! let audit = Subscription::new().rule("large", Rule::sql("amount > 1000"));
//! admin.create_subscription("orders", "audit", audit).await?;
//!
//! for queue in admin.queues().await? {
//!     println!("{}: {} waiting, {} dead", queue.name, queue.counts.active_count, queue.counts.dead_letter_count);
//! }
//! # Ok(())
//! # }
//! ```

#[macro_use]
mod attempts;
mod error;
mod hub;
mod hubs;
mod keys;
mod order;
mod queue_groups;
mod queues;
mod rule;
mod rules;
mod settings;
mod subscriptions;
mod topics;

use std::sync::Arc;

use peeklock_client::EntityName;

use crate::backoff::Backoff;
use crate::connection::Dial;
use crate::error::{Error, Kind};
use attempts::Requests;

pub use hub::Hub;
pub use keys::Scope;
pub use order::{Class, TenantClass, Tenants};
pub use rule::{Correlation, Rule, RuleValue};
pub use settings::{Queue, Subscription, Topic};

pub use peeklock_client::{
    CheckpointInfo, CheckpointMove, ConsumerGroupInfo, Counts, EventInfo, Explained, ExplainedMessage,
    History, HubInfo, HubSpec, KeyInfo, OrderPolicy, OwnershipInfo, PartitionRuntime, PoisonSession,
    QueueGroupInfo, QueueInfo, QueueSpec, QueueStatus, Rate, ResetTo, RetryPolicy, Right, RuleInfo, RuleSpec,
    Runtime, Sample, SubscriptionInfo, SubscriptionSpec, TopicInfo, TopicSpec, WhichKey,
};

/// Manages the entities and keys of a namespace. It is cheap to clone, and requests of several tasks do not wait for each other.
///
/// Requires a key with the Manage right, of the namespace or of the entity.
#[derive(Clone)]
pub struct Admin {
    requests: Arc<Requests>,
}

impl Admin {
    pub(crate) fn new(dial: Arc<dyn Dial>, backoff: Backoff) -> Self {
        Admin { requests: Arc::new(Requests::new(dial, backoff)) }
    }
}

/// Parses the name of an entity.
fn entity(name: &str) -> Result<EntityName, Error> {
    EntityName::parse(name).map_err(|error| invalid(error.to_string()))
}

/// Returns the error of a setting or name that the broker would reject.
fn invalid(text: impl Into<String>) -> Error {
    Error::new(Kind::Invalid, "E-ADMIN-01", text)
}
