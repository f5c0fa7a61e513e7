//! Rules of a subscription.

use peeklock_spec::RuleSpec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::endpoint::{Delete, Endpoint, Get, Page, Put};
use crate::query::PageQuery;

const ONE: &[&str] = &["/api/topics/{topic}/subscriptions/{subscription}/rules/{rule}"];

pub static LIST: Get<Page<RuleInfo>, PageQuery> = Endpoint::get(
    &["/api/topics/{topic}/subscriptions/{subscription}/rules"],
    "Lists the rules of a subscription by name",
);
pub static SHOW: Get<RuleInfo> = Endpoint::get(ONE, "Shows a rule");
pub static PUT: Put<RuleSpec, RuleInfo> = Endpoint::put(ONE, "Adds or replaces a rule. May be repeated");
pub static DELETE: Delete = Endpoint::delete(ONE, "Removes a rule");

/// A rule of a subscription.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Rule")]
pub struct RuleInfo {
    pub name: String,
    #[serde(flatten)]
    pub spec: RuleSpec,
    pub created_at: String,
}
