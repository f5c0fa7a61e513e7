//! Shared access policies, also called keys: of the namespace, or of one queue, topic or hub.

use peeklock_spec::PolicySpec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::endpoint::{Delete, Endpoint, Get, Page, Post, Put};
use crate::query::PageQuery;

/// Returns the same path below the namespace, a queue, a topic and a hub.
macro_rules! in_each_scope {
    ($path:literal) => {
        &[
            concat!("/api", $path),
            concat!("/api/queues/{queue}", $path),
            concat!("/api/topics/{topic}", $path),
            concat!("/api/hubs/{hub}", $path),
        ]
    };
}

const ONE: &[&str] = in_each_scope!("/policies/{policy}");

pub static LIST: Get<Page<KeyInfo>, PageQuery> = Endpoint::get(
    in_each_scope!("/policies"),
    "Lists the shared access policies of the namespace or of an entity, without their keys",
);
pub static SHOW: Get<KeyInfo> = Endpoint::get(ONE, "Shows a policy with its keys");
pub static PUT: Put<PolicySpec, KeyInfo> = Endpoint::put(
    ONE,
    "Creates or changes a policy; what the body leaves out keeps its value, or is generated. May be repeated",
);
pub static DELETE: Delete = Endpoint::delete(ONE, "Deletes a policy; connections that use it end");
pub static REGENERATE: Post<Regenerate, KeyInfo> = Endpoint::post(
    in_each_scope!("/policies/{policy}/regenerate"),
    "Replaces one of the two keys of a policy",
);

/// An access key. Its `Debug` form omits the secrets.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Policy")]
pub struct KeyInfo {
    pub name: String,
    /// `Send`, `Listen`, `Manage`.
    pub rights: Vec<String>,
    /// Both secrets are valid. Absent in a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub primary_key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secondary_key: Option<String>,
    /// Whether the broker's flags or its configuration declare the policy. The API cannot change such a policy.
    pub is_declared: bool,
    pub created_at: String,
    pub modified_at: String,
}

impl std::fmt::Debug for KeyInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyInfo")
            .field("name", &self.name)
            .field("rights", &self.rights)
            .finish_non_exhaustive()
    }
}

/// The key to replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Regenerate {
    pub key: WhichKey,
}

/// One of the two secrets of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub enum WhichKey {
    Primary,
    Secondary,
}
