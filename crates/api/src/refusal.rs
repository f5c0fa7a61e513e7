//! The answer to a request that the server refuses.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Error")]
pub struct Refusal {
    pub error: RefusalText,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(inline)]
pub struct RefusalText {
    /// For programs; a code never changes its meaning.
    pub code: String,
    /// For people.
    pub message: String,
}
