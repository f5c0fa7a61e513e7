//! Rules with their filters and actions.

use peeklock_filter::RuleName;
use serde::Deserialize;

use super::Place;
use super::properties::unless_empty;
use crate::document::Problem;
use crate::named::{Name, Named};
use crate::rule::{CorrelationSpec, Match, RuleProperties as Values, RuleSpec};

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct Rule {
    name: String,
    properties: RuleProperties,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct RuleProperties {
    filter_type: FilterType,
    correlation_filter: Option<Correlation>,
    sql_filter: Option<Sql>,
    action: Option<Sql>,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
enum FilterType {
    Correlation,
    Sql,
    // Not in the emulators' schema.
    True,
    False,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Sql {
    #[serde(default, deserialize_with = "unless_empty")]
    sql_expression: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields, default)]
struct Correlation {
    #[serde(deserialize_with = "unless_empty")]
    content_type: Option<String>,
    #[serde(deserialize_with = "unless_empty")]
    correlation_id: Option<String>,
    #[serde(deserialize_with = "unless_empty", alias = "Subject")]
    label: Option<String>,
    #[serde(deserialize_with = "unless_empty")]
    message_id: Option<String>,
    #[serde(deserialize_with = "unless_empty")]
    reply_to: Option<String>,
    #[serde(deserialize_with = "unless_empty")]
    reply_to_session_id: Option<String>,
    #[serde(deserialize_with = "unless_empty")]
    session_id: Option<String>,
    #[serde(deserialize_with = "unless_empty")]
    to: Option<String>,
    properties: Option<Values>,
}

pub(super) fn specs(
    rules: Vec<Rule>,
    subscription: &Place<'_>,
) -> Result<Named<RuleName, RuleSpec>, Problem> {
    let mut named: Vec<(RuleName, RuleSpec)> = Vec::new();
    for (at, rule) in rules.into_iter().enumerate() {
        let place = subscription.item("Rules", at);
        let at_name = place.under(&["Name"]);
        let name = RuleName::parse_name(&rule.name).map_err(|error| at_name.problem(error))?;
        if named.iter().any(|(taken, _)| *taken == name) {
            return Err(
                at_name.problem(format!("the name '{}' is given twice; case makes no difference", rule.name))
            );
        }
        let place = place.under(&["Properties"]);
        let spec = rule.properties.spec(&place)?;
        spec.check().map_err(|error| {
            let keys: &[&str] = match error.key {
                Some("sql") => &["SqlFilter", "SqlExpression"],
                Some("action") => &["Action", "SqlExpression"],
                Some("correlation") => &["CorrelationFilter"],
                _ => &[],
            };
            place.under(keys).problem(error.message)
        })?;
        named.push((name, spec));
    }
    Ok(Named(named))
}

impl RuleProperties {
    fn spec(self, place: &Place<'_>) -> Result<RuleSpec, Problem> {
        let missing =
            |what: &str| place.problem(format!("the filter type asks for a {what}, which is not there"));
        let mut spec =
            RuleSpec { action: self.action.and_then(|action| action.sql_expression), ..RuleSpec::default() };
        match self.filter_type {
            FilterType::Correlation => {
                let filter = self.correlation_filter.ok_or_else(|| missing("CorrelationFilter"))?;
                spec.correlation = Some(filter.spec());
            }
            FilterType::Sql => {
                let expression = self.sql_filter.and_then(|filter| filter.sql_expression);
                spec.sql = Some(expression.ok_or_else(|| missing("SqlFilter with its SqlExpression"))?);
            }
            FilterType::True => spec.r#match = Some(Match::All),
            FilterType::False => spec.r#match = Some(Match::None),
        }
        Ok(spec)
    }
}

impl Correlation {
    fn spec(self) -> CorrelationSpec {
        CorrelationSpec {
            correlation_id: self.correlation_id,
            message_id: self.message_id,
            to: self.to,
            reply_to: self.reply_to,
            label: self.label,
            session_id: self.session_id,
            reply_to_session_id: self.reply_to_session_id,
            content_type: self.content_type,
            properties: self.properties,
        }
    }
}
