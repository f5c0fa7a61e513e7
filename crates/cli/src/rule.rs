//! `peeklock rule`: which messages a subscription gets, and what is changed on its copies.

use std::io::{self, Write};

use anyhow::{Context, Result};
use clap::Subcommand;
use peeklock_client::{CorrelationSpec, EntityName, Match, RuleInfo, RuleSpec, RuleValue};
use peeklock_filter::Value;

use crate::connect::Connect;
use crate::describe::{Page, json_lines};
use crate::filter::FilterFlags;
use crate::said::said;
use crate::table::Table;

/// Add, list, show and remove the rules of a subscription: a message comes to it if the filter of any of its rules takes it.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Args)]
struct Place {
    /// The topic
    #[arg(value_parser = EntityName::parse)]
    topic: EntityName,
    /// The subscription
    subscription: String,
}

#[derive(Subcommand)]
enum Action {
    /// Add a rule; the one called '$Default' takes everything until it is removed
    #[command(after_help = ADD_EXAMPLES)]
    Add {
        #[command(flatten)]
        place: Place,
        /// The rule
        rule: String,
        #[command(flatten)]
        filter: FilterFlags,
        #[command(flatten)]
        connect: Connect,
    },
    /// List the rules of a subscription
    List {
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        connect: Connect,
    },
    /// Show one rule
    Show {
        #[command(flatten)]
        place: Place,
        /// The rule
        rule: String,
        #[command(flatten)]
        connect: Connect,
    },
    /// Remove a rule; a subscription without any gets nothing
    Remove {
        #[command(flatten)]
        place: Place,
        /// The rule
        rule: String,
        #[command(flatten)]
        connect: Connect,
    },
}

const ADD_EXAMPLES: &str = "\
Examples:
  peeklock rule add orders audit large --sql 'Amount > 1000'
  peeklock rule add orders audit rome --correlation city=Rome --action \"SET Region = 'IT'\"
  peeklock rule remove orders audit '$Default'";

pub(crate) async fn run(arguments: Arguments) -> Result<()> {
    let mut out = Vec::new();
    match arguments.action {
        Action::Add { place: Place { topic, subscription }, rule, filter, connect } => {
            let spec = filter.rule()?.context(
                "a rule needs a filter: --sql EXPRESSION, --correlation KEY=VALUE, --true or --false",
            )?;
            connect.admin()?.add_rule(&topic, &subscription, &rule, &spec).await?;
            said(&mut out, connect.json, "added", "rule", &rule)?;
        }
        Action::List { place: Place { topic, subscription }, connect } => {
            let rules = connect.admin()?.rules(&topic, &subscription).await?;
            list(&mut out, &rules, connect.json)?;
        }
        Action::Show { place: Place { topic, subscription }, rule, connect } => {
            let rule = connect.admin()?.rule(&topic, &subscription, &rule).await?;
            show(&mut out, &rule, connect.json)?;
        }
        Action::Remove { place: Place { topic, subscription }, rule, connect } => {
            connect.admin()?.remove_rule(&topic, &subscription, &rule).await?;
            said(&mut out, connect.json, "removed", "rule", &rule)?;
        }
    }
    io::stdout().lock().write_all(&out)?;
    Ok(())
}

fn list(out: &mut Vec<u8>, rules: &[RuleInfo], as_json: bool) -> io::Result<()> {
    if as_json {
        return json_lines(out, rules);
    }
    let mut table = Table::new().text("NAME").text("FILTER").text("ACTION");
    for RuleInfo { name, spec, .. } in rules {
        table.row([name.clone(), filter_text(spec), spec.action.clone().unwrap_or_default()]);
    }
    table.write(out)
}

fn show(out: &mut Vec<u8>, rule: &RuleInfo, as_json: bool) -> io::Result<()> {
    if as_json {
        return json_lines(out, std::slice::from_ref(rule));
    }
    let mut page = Page(out);
    page.line("Rule", &rule.name)?;
    page.line("Filter", &filter_text(&rule.spec))?;
    let parameters = [&rule.spec.parameters, &rule.spec.action_parameters];
    if let Some(action) = &rule.spec.action {
        page.line("Action", action)?;
    }
    for (name, value) in parameters.into_iter().flatten().flat_map(|named| &named.0) {
        page.line(&format!("  {name}"), &value_text(value))?;
    }
    Ok(())
}

/// A filter on one line.
pub(crate) fn filter_text(rule: &RuleSpec) -> String {
    match (&rule.sql, &rule.correlation, rule.r#match) {
        (Some(sql), _, _) => sql.clone(),
        (None, Some(correlation), _) => correlation_text(correlation),
        (None, None, Some(Match::None)) => "no message".to_owned(),
        (None, None, _) => "every message".to_owned(),
    }
}

fn correlation_text(spec: &CorrelationSpec) -> String {
    let own = [
        ("sys.CorrelationId", &spec.correlation_id),
        ("sys.MessageId", &spec.message_id),
        ("sys.To", &spec.to),
        ("sys.ReplyTo", &spec.reply_to),
        ("sys.Label", &spec.label),
        ("sys.SessionId", &spec.session_id),
        ("sys.ReplyToSessionId", &spec.reply_to_session_id),
        ("sys.ContentType", &spec.content_type),
    ];
    let own = own.into_iter().filter_map(|(key, text)| Some(format!("{key}={}", text.as_ref()?)));
    let properties = spec.properties.iter().flat_map(|named| &named.0);
    let properties = properties.map(|(key, value)| match (value.0.value(), value.0.exact()) {
        (Value::Text(text), None) => format!("{key}={text}"),
        _ => format!("{key}:={}", value_text(value)),
    });
    own.chain(properties).collect::<Vec<_>>().join(" and ")
}

fn value_text(value: &RuleValue) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use peeklock_client::Named;

    #[test]
    fn a_filter_is_told_in_the_words_that_make_it() {
        assert_eq!(filter_text(&RuleSpec::default()), "every message");
        assert_eq!(
            filter_text(&RuleSpec { r#match: Some(Match::None), ..RuleSpec::default() }),
            "no message"
        );
        assert_eq!(filter_text(&RuleSpec { sql: Some("a = 1".into()), ..RuleSpec::default() }), "a = 1");
        let properties =
            vec![("n".to_owned(), Value::Long(1).into()), ("c".to_owned(), Value::text("x").into())];
        let correlation = CorrelationSpec {
            label: Some("order".into()),
            properties: Some(Named(properties)),
            ..CorrelationSpec::default()
        };
        let rule = RuleSpec { correlation: Some(correlation), ..RuleSpec::default() };
        assert_eq!(filter_text(&rule), "sys.Label=order and n:=1 and c=x");
    }
}
