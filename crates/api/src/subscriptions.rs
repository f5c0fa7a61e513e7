//! Subscriptions of a topic.

use peeklock_spec::SubscriptionSpec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::endpoint::{Delete, Endpoint, Get, Page, Put};
use crate::order_runtime::Runtime;
use crate::query::PageQuery;
use crate::queues::{Counts, History};

const ONE: &[&str] = &["/api/topics/{topic}/subscriptions/{subscription}"];

pub static LIST: Get<Page<SubscriptionInfo>, PageQuery> =
    Endpoint::get(&["/api/topics/{topic}/subscriptions"], "Lists the subscriptions of a topic by name");
pub static SHOW: Get<SubscriptionInfo> = Endpoint::get(ONE, "Shows a subscription");
pub static PUT: Put<SubscriptionSpec, SubscriptionInfo> = Endpoint::put(
    ONE,
    "Creates or changes a subscription; settings that the body leaves out keep their values. May be repeated",
);
pub static DELETE: Delete = Endpoint::delete(ONE, "Deletes a subscription with its rules and messages");

/// A subscription with its settings and counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Subscription")]
pub struct SubscriptionInfo {
    /// The name without the topic.
    pub name: String,
    pub topic: String,
    #[serde(flatten)]
    pub spec: SubscriptionSpec,
    #[serde(flatten)]
    pub counts: Counts,
    /// The state of its classes; absent for a subscription without an order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<Runtime>,
    pub rule_count: u64,
    #[serde(flatten)]
    pub history: History,
}
