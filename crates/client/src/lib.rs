//! A client for Peeklock and for other brokers with the AMQP 1.0 dialect of Azure Service Bus.
//!
//! One task owns a connection and everything on it. [`Client`], [`Sender`], [`Pipeline`] and [`Receiver`] are handles that send commands to
//! that task. The client does not reconnect: after a lost connection, pending calls fail with [`Error::ConnectionLost`].
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use peeklock_client::{Client, Message};
//!
//! let client = Client::connect("amqp://RootManageSharedAccessKey:SAS_KEY_VALUE@127.0.0.1:5672").await?;
//! client.sender("orders").await?.send(&Message::data("hello")).await?;
//! # Ok(())
//! # }
//! ```

#![warn(missing_docs)]

mod admin;
mod cbs;
mod client;
mod clock;
mod driver;
mod error;
mod extensions;
mod management;
mod message;
mod outcome;
mod ownership;
mod pipeline;
mod producer;
mod received;
mod receiver;
mod sas;
mod sender;
mod session;
mod settler;
mod shared;
mod spares;
mod target;
mod transaction;
mod transport;

pub use admin::{Admin, AdminError, KeyScope};
pub use client::{Client, Options};
pub use clock::BrokerClock;
pub use error::{ConnectError, Error, MalformedReason};
pub use extensions::Extensions;
pub use message::MessageExt;
pub use outcome::{INTERRUPTED_PROPERTY, Outcome};
pub use ownership::{Ownership, Partitions};
pub use pipeline::{Failure, Pipeline, PipelineError};
pub use producer::Producer;
pub use received::{ATTEMPT, MessageState, ORIGINAL_MESSAGE_ID, ReceivedMessage};
pub use receiver::{Delivery, ReceiveMode, Receiver, ReceiverBuilder};
pub use sender::Sender;
pub use session::Session;
pub use settler::{Settled, Settler};
pub use target::{Target, TargetError};
pub use transaction::Transaction;
pub use transport::{ByteStream, Connecting, Connector};

pub use peeklock_amqp::{
    AmqpError, Body, Encode, Fields, Header, Message, MessageId, Properties, Symbol, Text, Value,
};
pub use peeklock_api::{
    Ahead, Alert, CheckpointInfo, CheckpointMove, CheckpointSource, ClassRuntime, ConsumerGroupInfo, Counts,
    EventInfo, Explained, ExplainedMessage, ExplainedRule, History, HubInfo, HubRuntime, KeyInfo,
    MessageBody, OrderRuntime, OwnershipInfo, Page, PartitionRuntime, Percentiles, QueueGroupInfo, QueueInfo,
    ReaderRuntime, ResetTo, RuleInfo, Runtime, Sample, SubscriptionInfo, TargetRuntime, TenantRuntime,
    TimeToDrain, TopicInfo, WhichKey, WindowRuntime,
};
pub use peeklock_spec::{
    CorrelationSpec, HubSpec, Match, Named, OrderSpec, PropertyValue, QueueSpec, Right, RightList,
    RuleProperties, RuleSpec, RuleValue, SubscriptionSpec, TopicSpec,
};
pub use peeklock_types::{
    ClassName, ClassRule, ClassSettings, EntityName, LockToken, OrderPolicy, OrderSettings, PoisonSession,
    QueueSettings, QueueStatus, Rate, RetryPolicy, SequenceNumber, Target as ClassTarget, TenantClass,
    TenantSettings, Timestamp,
};
