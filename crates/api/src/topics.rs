//! Topics, and the subscriptions that would receive a sample message.

use peeklock_spec::TopicSpec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::endpoint::{Delete, Endpoint, Get, Page, Post, Put};
use crate::messages::{Explained, Sample};
use crate::query::PageQuery;
use crate::queues::History;

pub static LIST: Get<Page<TopicInfo>, PageQuery> =
    Endpoint::get(&["/api/topics"], "Lists the topics by name");
pub static SHOW: Get<TopicInfo> = Endpoint::get(&["/api/topics/{topic}"], "Shows a topic");
pub static PUT: Put<TopicSpec, TopicInfo> = Endpoint::put(
    &["/api/topics/{topic}"],
    "Creates or changes a topic; settings that the body leaves out keep their values. May be repeated",
);
pub static DELETE: Delete =
    Endpoint::delete(&["/api/topics/{topic}"], "Deletes a topic with its subscriptions and their messages");
pub static EXPLAIN: Post<Sample, Page<Explained>> = Endpoint::post(
    &["/api/topics/{topic}/explain"],
    "Shows which subscriptions would take a message, and why the others would not. Nothing is sent",
);

/// A topic with its settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Topic")]
pub struct TopicInfo {
    pub name: String,
    #[serde(flatten)]
    pub spec: TopicSpec,
    pub subscription_count: u64,
    /// Rules of all subscriptions with a SQL filter.
    pub sql_rule_count: u64,
    /// Rules of all subscriptions with a correlation filter.
    pub correlation_rule_count: u64,
    /// Messages that the subscriptions have not received yet.
    pub scheduled_count: u64,
    pub size_bytes: u64,
    #[serde(flatten)]
    pub history: History,
}
