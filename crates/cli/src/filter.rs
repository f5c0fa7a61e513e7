//! The filter and the action of a rule on the command line.

use anyhow::{Result, bail};
use peeklock::low_level::{
    CorrelationSpec, Match, Named, PropertyValue, RuleProperties, RuleSpec, RuleValue,
};
use peeklock_filter::Value;

use crate::property::Property;

#[derive(clap::Args, Default)]
#[command(next_help_heading = "Filter")]
pub(crate) struct FilterFlags {
    /// Messages for which this holds, such as \"Priority = 'High' AND sys.Label LIKE 'order%'\"
    #[arg(long, value_name = "EXPRESSION", conflicts_with_all = ["correlation", "all", "none"])]
    sql: Option<String>,
    /// Messages that have this property with this value: KEY=TEXT, or KEY:=VALUE for a number, true or false. Keys that start with
    /// 'sys.' are the message's own: sys.CorrelationId, sys.MessageId, sys.To, sys.ReplyTo, sys.Label, sys.SessionId,
    /// sys.ReplyToSessionId, sys.ContentType. May be repeated: all must hold
    #[arg(long, value_name = "KEY=VALUE", value_parser = Property::parse, conflicts_with_all = ["all", "none"])]
    correlation: Vec<Property>,
    /// All messages
    #[arg(id = "all", long = "true", conflicts_with = "none")]
    all: bool,
    /// No message
    #[arg(id = "none", long = "false")]
    none: bool,
    /// Change the copies that this rule makes, such as \"SET Priority = 1; REMOVE Secret\"
    #[arg(long, value_name = "EXPRESSION")]
    action: Option<String>,
    /// The value of @NAME in the filter or the action; may be repeated
    #[arg(long = "parameter", value_name = "@NAME=VALUE", value_parser = Property::parse)]
    parameters: Vec<Property>,
}

impl FilterFlags {
    /// Returns the rule, or `None` without a filter and without an action.
    pub(crate) fn rule(self) -> Result<Option<RuleSpec>> {
        let is_named = self.sql.is_some() || !self.correlation.is_empty() || self.all || self.none;
        if !is_named && self.action.is_none() {
            if !self.parameters.is_empty() {
                bail!("--parameter has no meaning without --sql or --action");
            }
            return Ok(None);
        }
        let parameters = properties(self.parameters);
        Ok(Some(RuleSpec {
            parameters: self.sql.is_some().then(|| parameters.clone()).flatten(),
            sql: self.sql,
            correlation: correlation(self.correlation)?,
            r#match: if self.none { Some(Match::None) } else { self.all.then_some(Match::All) },
            action_parameters: self.action.is_some().then_some(parameters).flatten(),
            action: self.action,
        }))
    }
}

fn properties(given: Vec<Property>) -> Option<RuleProperties> {
    let value = |PropertyValue(value)| RuleValue(value.into());
    let entries: Vec<_> = given.into_iter().map(|property| (property.key, value(property.value))).collect();
    if entries.is_empty() { None } else { Some(Named(entries)) }
}

fn correlation(given: Vec<Property>) -> Result<Option<CorrelationSpec>> {
    if given.is_empty() {
        return Ok(None);
    }
    let (own, of_user): (Vec<_>, Vec<_>) = given.into_iter().partition(|property| is_own(&property.key));
    let mut spec = CorrelationSpec { properties: properties(of_user), ..CorrelationSpec::default() };
    for Property { key, value } in own {
        let PropertyValue(Value::Text(text)) = value else {
            bail!("'{key}' is a text; write {key}=TEXT, without the ':'")
        };
        let place = match key.get(OWN.len()..).unwrap_or_default().to_ascii_lowercase().as_str() {
            "correlationid" => &mut spec.correlation_id,
            "messageid" => &mut spec.message_id,
            "to" => &mut spec.to,
            "replyto" => &mut spec.reply_to,
            "label" | "subject" => &mut spec.label,
            "sessionid" => &mut spec.session_id,
            "replytosessionid" => &mut spec.reply_to_session_id,
            "contenttype" => &mut spec.content_type,
            _ => bail!(
                "'{key}' is nothing that a correlation filter compares; write sys.CorrelationId, sys.MessageId, sys.To, sys.ReplyTo, \
                 sys.Label, sys.SessionId, sys.ReplyToSessionId or sys.ContentType, or use --sql"
            ),
        };
        *place = Some(text.to_string());
    }
    Ok(Some(spec))
}

const OWN: &str = "sys.";

fn is_own(key: &str) -> bool {
    key.get(..OWN.len()).is_some_and(|start| start.eq_ignore_ascii_case(OWN))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    #[command(no_binary_name = true)]
    struct Flags {
        #[command(flatten)]
        filter: FilterFlags,
    }

    fn rule(arguments: &[&str]) -> Result<Option<RuleSpec>> {
        Flags::try_parse_from(arguments).unwrap().filter.rule()
    }

    #[test]
    fn each_kind_of_filter_has_flags() {
        assert_eq!(rule(&[]).unwrap(), None);
        let sql = rule(&["--sql", "a > @b", "--parameter", "@b:=5"]).unwrap().unwrap();
        assert_eq!(sql.sql.as_deref(), Some("a > @b"));
        assert_eq!(sql.parameters, Some(Named(vec![("@b".to_owned(), Value::Long(5).into())])));
        assert_eq!(sql.action_parameters, None);
        assert_eq!(rule(&["--false"]).unwrap().unwrap().r#match, Some(Match::None));
        let all = rule(&["--true", "--action", "SET x = 1"]).unwrap().unwrap();
        assert_eq!((all.r#match, all.action.as_deref()), (Some(Match::All), Some("SET x = 1")));
        let both =
            ["--correlation", "SYS.label=order", "--correlation", "city=Rome", "--correlation", "n:=1"];
        let correlation = rule(&both).unwrap().unwrap().correlation.unwrap();
        assert_eq!(correlation.label.as_deref(), Some("order"));
        let properties = correlation.properties.unwrap().0;
        assert_eq!(properties[0], ("city".to_owned(), Value::text("Rome").into()));
        assert_eq!(properties[1], ("n".to_owned(), Value::Long(1).into()));
    }

    #[test]
    fn invalid_filters_are_rejected() {
        assert!(Flags::try_parse_from(["--sql", "a", "--true"]).is_err());
        assert!(Flags::try_parse_from(["--true", "--false"]).is_err());
        let told = |arguments: &[&str]| rule(arguments).unwrap_err().to_string();
        assert!(told(&["--correlation", "sys.Colour=red"]).contains("sys.CorrelationId"));
        assert!(told(&["--correlation", "sys.Label:=5"]).contains("is a text"));
        assert!(told(&["--parameter", "@a=b"]).contains("--sql"));
    }
}
