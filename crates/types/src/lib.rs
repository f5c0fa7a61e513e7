//! The types that all other crates share: names, numbers, times and limits.
//!
//! Depends on no other crate of the project, does no I/O and contains no protocol.

mod body;
pub mod calendar;
mod entity;
mod hub;
pub mod iso8601;
mod number;
mod order;
mod partition_key;
mod queue_group;
mod session;
mod settings;
mod time;
mod version;

pub mod wire;

pub use body::{BodyPlace, BodyRange, BodyRef, StoredBody};
pub use entity::{EntityKind, EntityName, EntityPath, NameError, SubQueue};
pub use hub::{ConsumerGroup, ConsumerGroupError, ExpiredPosition, HubId, HubSettings, HubSettingsError};
pub use number::{CommitGroupNumber, Etag, LockToken, Placement, ReceiverId, SequenceNumber, ShardId};
pub use order::{
    ClassName, ClassNameError, ClassRule, ClassSettings, OrderError, OrderPolicy, OrderSettings, Rate,
    Target, TenantClass, TenantSettings,
};
pub use partition_key::{partition_key_hash, partition_of_key};
pub use queue_group::{MemberSettings, QueueGroupError, QueueGroupSettings, QueueGroups};
pub use session::{SessionId, SessionIdError};
pub use settings::{PoisonSession, QueueSettings, QueueStatus, RetryPolicy, SettingsError, Tier, limits};
pub use time::Timestamp;
pub use version::ProgramVersion;
