//! The JSON API as types: each endpoint with its method, paths, query, body and answer. The server adds a right and a
//! handler to an endpoint, the client calls it, and the OpenAPI description is derived from it.
//!
//! The crate owns the queries, bodies and answers that exist only in the API; `peeklock_spec` owns those that are also
//! in configuration files. It never does I/O.

pub mod checkpoints;
pub mod consumer_groups;
pub mod description;
mod endpoint;
pub mod events;
pub mod hubs;
pub mod messages;
mod order_runtime;
pub mod ownerships;
pub mod partitions;
pub mod policies;
mod query;
pub mod queue_groups;
pub mod queues;
mod refusal;
pub mod rules;
pub mod subscriptions;
pub mod topics;

pub use checkpoints::{
    CheckpointBody, CheckpointInfo, CheckpointMove, CheckpointReset, CheckpointSource, ResetTo,
};
pub use consumer_groups::{ConsumerGroupBody, ConsumerGroupInfo};
pub use endpoint::{Delete, Endpoint, Get, Page, Post, Put, parameters};
pub use events::{EventInfo, EventsQuery, EventsSent, NewEvent, NewEvents};
pub use hubs::{HubInfo, HubRuntime};
pub use messages::{
    Explained, ExplainedRule, MessageBody, MessageInfo, MessageState, MessagesQuery, Sample, SystemProperties,
};
pub use order_runtime::{
    Ahead, Alert, ClassRuntime, ExplainedMessage, Never, OrderRuntime, Percentiles, Runtime, TargetRuntime,
    TenantRuntime, TimeToDrain, WindowRuntime,
};
pub use ownerships::{Claim, OwnershipInfo};
pub use partitions::{PartitionRuntime, ReaderRuntime};
pub use policies::{KeyInfo, Regenerate, WhichKey};
pub use query::{PageQuery, Parameter, Query, WrongValue};
pub use queue_groups::QueueGroupInfo;
pub use queues::{Counts, History, QueueInfo};
pub use refusal::{Refusal, RefusalText};
pub use rules::RuleInfo;
pub use subscriptions::SubscriptionInfo;
pub use topics::TopicInfo;
