//! Rules in documents.

use peeklock_filter::{Action, CorrelationFilter, Filter, Given, Part, Rule, RuleError, RuleName, SqlFilter};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::named::Named;
use crate::property::{PropertyValue, RuleValue};

/// A rule, which selects messages for a subscription and changes its copies. It has at most one of `sql`, `correlation` and `match`;
/// without any of them it matches all messages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "RuleSettings")]
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
    pub parameters: Option<RuleProperties>,
    /// Values of `@name` in the action.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action_parameters: Option<RuleProperties>,
}

/// A filter without conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Match {
    All,
    None,
}

/// Equality conditions that must all be true.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "CorrelationFilter")]
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
    pub properties: Option<RuleProperties>,
}

/// Values by the name of their property.
pub type Properties = Named<String, PropertyValue>;

/// Values in a rule, by the name of their property or parameter.
pub type RuleProperties = Named<String, RuleValue>;

/// The reason why a rule is invalid, and the key of its spec.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RuleSpecError {
    pub key: Option<&'static str>,
    pub message: String,
}

impl RuleSpec {
    /// Returns the rule, validated.
    pub fn rule(&self, name: RuleName) -> Result<Rule, RuleSpecError> {
        let wrong = |key, message: &str| Err(RuleSpecError { key, message: message.to_owned() });
        let filter = match (&self.sql, &self.correlation, self.r#match) {
            (Some(expression), None, None) => Filter::Sql(SqlFilter {
                expression: expression.clone(),
                parameters: pairs(self.parameters.as_ref()),
            }),
            (None, Some(correlation), None) => Filter::Correlation(correlation.filter()),
            (None, None, Some(Match::None)) => Filter::False,
            (None, None, None | Some(Match::All)) => Filter::True,
            _ => return wrong(None, "a rule has one filter: write only one of sql, correlation and match"),
        };
        if self.parameters.is_some() && self.sql.is_none() {
            return wrong(Some("parameters"), "parameters are for a SQL filter, and the rule has none");
        }
        if self.action_parameters.is_some() && self.action.is_none() {
            return wrong(
                Some("actionParameters"),
                "action parameters are for an action, and the rule has none",
            );
        }
        let action = self.action.as_ref().map(|expression| Action {
            expression: expression.clone(),
            parameters: pairs(self.action_parameters.as_ref()),
        });
        let rule = Rule { name, filter, action };
        rule.check()
            .map_err(|error| RuleSpecError { key: key_of(&error, &rule), message: error.to_string() })?;
        Ok(rule)
    }

    pub fn of(rule: &Rule) -> Self {
        let mut spec = RuleSpec::default();
        match &rule.filter {
            Filter::True => spec.r#match = Some(Match::All),
            Filter::False => spec.r#match = Some(Match::None),
            Filter::Sql(filter) => {
                spec.sql = Some(filter.expression.clone());
                spec.parameters = properties(&filter.parameters);
            }
            Filter::Correlation(filter) => spec.correlation = Some(CorrelationSpec::of(filter)),
        }
        if let Some(action) = &rule.action {
            spec.action = Some(action.expression.clone());
            spec.action_parameters = properties(&action.parameters);
        }
        spec
    }

    /// Checks whether the spec is a valid rule.
    pub fn check(&self) -> Result<(), RuleSpecError> {
        self.rule(RuleName::default_rule()).map(drop)
    }
}

fn key_of(error: &RuleError, rule: &Rule) -> Option<&'static str> {
    let part = match error {
        RuleError::Syntax { part, .. }
        | RuleError::TooLong { part, .. }
        | RuleError::TooDeep { part, .. }
        | RuleError::TooManyStatements { part, .. }
        | RuleError::TooManyParameters { part, .. }
        | RuleError::RepeatedParameter { part, .. } => Some(*part),
        _ => None,
    };
    match (part, &rule.filter) {
        (Some(Part::Filter), _) => Some("sql"),
        (Some(Part::Action), _) => Some("action"),
        (None, Filter::Correlation(_)) => Some("correlation"),
        (Some(Part::Expression) | None, _) => None,
    }
}

fn pairs(properties: Option<&RuleProperties>) -> Vec<(String, Given)> {
    let named = properties.iter().flat_map(|named| &named.0);
    named.map(|(name, value)| (name.clone(), value.0.clone())).collect()
}

fn properties(pairs: &[(String, Given)]) -> Option<RuleProperties> {
    let named = || pairs.iter().map(|(name, value)| (name.clone(), RuleValue(value.clone()))).collect();
    (!pairs.is_empty()).then(|| Named(named()))
}

impl CorrelationSpec {
    fn filter(&self) -> CorrelationFilter {
        let spec = self.clone();
        CorrelationFilter {
            correlation_id: spec.correlation_id,
            message_id: spec.message_id,
            to: spec.to,
            reply_to: spec.reply_to,
            label: spec.label,
            session_id: spec.session_id,
            reply_to_session_id: spec.reply_to_session_id,
            content_type: spec.content_type,
            properties: pairs(spec.properties.as_ref()),
        }
    }

    fn of(filter: &CorrelationFilter) -> Self {
        let filter = filter.clone();
        CorrelationSpec {
            correlation_id: filter.correlation_id,
            message_id: filter.message_id,
            to: filter.to,
            reply_to: filter.reply_to,
            label: filter.label,
            session_id: filter.session_id,
            reply_to_session_id: filter.reply_to_session_id,
            content_type: filter.content_type,
            properties: properties(&filter.properties),
        }
    }
}
