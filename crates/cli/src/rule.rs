//! `peeklock rule`: the rules of a subscription, which select messages and change their copies.

use anyhow::{Context, Result};
use clap::Subcommand;
use peeklock::admin::Admin;
use peeklock::low_level::{CorrelationSpec, Match, RuleInfo, RuleSpec, RuleValue};
use peeklock_filter::Value;

use crate::command::{Creatable, Create, Deletable, Delete, Entity, List, Listable, Show, Showable};
use crate::describe::Page;
use crate::filter::FilterFlags;
use crate::subscription::Subscription;
use crate::table::Table;

/// Add, list, show and remove the rules of a subscription: a message comes to it if the filter of any of its rules takes it.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Add a rule; the one called '$Default' takes everything until it is removed
    #[command(after_help = ADD_EXAMPLES)]
    Add(Create<Rule>),
    /// List the rules of a subscription
    List(List<Rules>),
    /// Show one rule
    Show(Show<Rule>),
    /// Remove a rule; a subscription without any gets nothing
    Remove(Delete<Rule>),
}

#[derive(clap::Args)]
struct Rule {
    #[command(flatten)]
    of: Subscription,
    /// The rule
    rule: String,
}

#[derive(clap::Args)]
struct Rules {
    #[command(flatten)]
    of: Subscription,
}

const ADD_EXAMPLES: &str = "\
Examples:
  peeklock rule add orders audit large --sql 'Amount > 1000'
  peeklock rule add orders audit rome --correlation city=Rome --action \"SET Region = 'IT'\"
  peeklock rule remove orders audit '$Default'";

pub(crate) async fn run(arguments: Arguments) -> Result<()> {
    match arguments.action {
        Action::Add(command) => command.run().await,
        Action::List(command) => command.run().await,
        Action::Show(command) => command.run().await,
        Action::Remove(command) => command.run().await,
    }
}

impl Entity for Rule {
    const KIND: &'static str = "rule";

    fn name(&self) -> &str {
        &self.rule
    }
}

impl Creatable for Rule {
    type Settings = FilterFlags;
    const CREATED: &'static str = "added";

    async fn create(&self, admin: &Admin, filter: FilterFlags) -> Result<String> {
        let spec = filter
            .rule()?
            .context("a rule needs a filter: --sql EXPRESSION, --correlation KEY=VALUE, --true or --false")?;
        admin.add_rule(self.of.topic.as_str(), &self.of.subscription, &self.rule, spec).await?;
        Ok(String::new())
    }
}

impl Deletable for Rule {
    const DELETED: &'static str = "removed";

    async fn delete(&self, admin: &Admin) -> Result<String> {
        admin.remove_rule(self.of.topic.as_str(), &self.of.subscription, &self.rule).await?;
        Ok(String::new())
    }
}

impl Listable for Rules {
    type Item = RuleInfo;

    async fn items(&self, admin: &Admin) -> Result<Vec<RuleInfo>> {
        Ok(admin.rules(self.of.topic.as_str(), &self.of.subscription).await?)
    }

    fn table(rules: &[RuleInfo]) -> Table {
        let mut table = Table::new().text("NAME").text("FILTER").text("ACTION");
        for RuleInfo { name, spec, .. } in rules {
            table.row([name.clone(), filter_text(spec), spec.action.clone().unwrap_or_default()]);
        }
        table
    }
}

impl Showable for Rule {
    type Info = RuleInfo;

    async fn info(&self, admin: &Admin) -> Result<RuleInfo> {
        Ok(admin.rule(self.of.topic.as_str(), &self.of.subscription, &self.rule).await?)
    }

    async fn page(&self, _: &Admin, rule: &RuleInfo, page: &mut Page<'_>) -> Result<()> {
        page.line("Rule", &rule.name)?;
        page.line("Filter", &filter_text(&rule.spec))?;
        if let Some(action) = &rule.spec.action {
            page.line("Action", action)?;
        }
        let parameters = [&rule.spec.parameters, &rule.spec.action_parameters];
        for (name, value) in parameters.into_iter().flatten().flat_map(|named| &named.0) {
            page.line(&format!("  {name}"), &value_text(value))?;
        }
        Ok(())
    }
}

/// Returns a filter in one line.
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
    use peeklock::low_level::Named;

    #[test]
    fn a_filter_is_printed_in_the_form_of_its_flags() {
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
