//! Rules as documents write them.

use serde::{Deserialize, Serialize};

use crate::named::Named;
use crate::property::PropertyValue;

/// A rule: which messages a subscription gets, and what is changed on its copies. At most one of `sql`, `correlation` and `match`; none of them
/// means all messages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RuleSpec {
    /// A SQL filter, such as `Priority = 'High' AND sys.Label LIKE 'order%'`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sql: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation: Option<CorrelationSpec>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r#match: Option<Match>,
    /// A SQL action, such as `SET Priority = 1; REMOVE Secret`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// Values of `@name` in the filter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Properties>,
    /// Values of `@name` in the action.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action_parameters: Option<Properties>,
}

/// A filter without conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Match {
    All,
    None,
}

/// Conditions that must all hold, each an equality.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CorrelationSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    #[serde(alias = "subject", skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_to_session_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub properties: Option<Properties>,
}

/// Values by the name of their property or parameter.
pub type Properties = Named<String, PropertyValue>;
