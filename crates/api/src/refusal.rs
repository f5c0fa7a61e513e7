//! The answer to a request that the server rejects.

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
    /// The code for programs. A code never changes its meaning.
    pub code: String,
    /// The text for people.
    pub message: String,
}
