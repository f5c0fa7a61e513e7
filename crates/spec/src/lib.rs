//! Entities in JSON, in TOML and in the official emulators' `Config.json`, with one declaration for each kind of entity and both
//! directions.
//!
//! Owns the text forms of durations, sizes, words, times and rules, and reads documents with errors that have a place. It does no I/O and
//! does not depend on the engine.

mod document;
pub mod emulator;
mod entity;
#[cfg(feature = "cli")]
mod flag;
mod hub;
pub mod iso8601;
mod named;
mod namespace;
mod order;
mod policy;
mod property;
mod queue_group;
mod rule;
mod schema;
mod text;
mod time;
mod written;

pub use document::{
    DOCUMENT_DEPTH_MAX, Document, Problem, from_json, from_json_bytes, from_toml, nearest, utf8,
};
pub use entity::{QueueSpec, SubscriptionSpec, TopicSpec, setting_rows};
#[cfg(feature = "cli")]
pub use flag::{any_text, or_none};
pub use hub::{EXPIRED_POSITIONS, HubSpec, parse_expired_position, show_expired_position};
pub use named::{Name, Named, SubscriptionName};
pub use namespace::{Misfit, NamespaceSpec};
pub use order::{
    ORDER_POLICIES, OrderSpec, parse_objective, parse_order_policy, parse_priorities, parse_rate,
    parse_share, parse_tenant_weight, parse_weight, show_millionths, show_order_policy, show_priorities,
    show_thousandths,
};
pub use peeklock_access::Right;
pub use policy::{DeclaredPolicyError, KeyText, PolicySpec, RightList};
pub use property::{PropertyValue, RuleValue};
pub use queue_group::{MemberSpec, QueueGroupSpec};
pub use rule::{CorrelationSpec, Match, Properties, RuleProperties, RuleSpec, RuleSpecError};
pub use text::{
    NONE, POISON_SESSIONS, STATUSES, TextError, parse_duration, parse_poison_session, parse_retry,
    parse_size, parse_status, parse_tier, show_duration, show_poison_session, show_retry, show_size,
    show_status, show_tier,
};
pub use time::{parse_time, show_time};
pub use written::{Maybe, MessageSize, Size};
