//! `peeklock group`: groups of queues, which the configuration of the broker declares.

use std::io::{self, Write};

use anyhow::Result;
use clap::Subcommand;
use peeklock_client::{EntityName, QueueGroupInfo};
use peeklock_spec::{show_duration, show_order_policy};

use crate::connect::Connect;
use crate::describe::json_lines;
use crate::table::Table;

/// List and show groups of queues; they are declared in peeklock.toml, under [groups.NAME].
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// List all groups
    List {
        #[command(flatten)]
        connect: Connect,
    },
    /// Show one group: its members, the most urgent first
    Show {
        /// The group
        #[arg(value_parser = EntityName::parse)]
        name: EntityName,
        #[command(flatten)]
        connect: Connect,
    },
}

pub(crate) async fn run(arguments: Arguments) -> Result<()> {
    let mut out = Vec::new();
    match arguments.action {
        Action::List { connect } => {
            let groups = connect.admin()?.queue_groups().await?;
            list(&mut out, &groups, connect.json)?;
        }
        Action::Show { name, connect } => {
            let group = connect.admin()?.queue_group(&name).await?;
            show(&mut out, &group, connect.json)?;
        }
    }
    io::stdout().lock().write_all(&out)?;
    Ok(())
}

fn list(out: &mut Vec<u8>, groups: &[QueueGroupInfo], as_json: bool) -> io::Result<()> {
    if as_json {
        return json_lines(out, groups);
    }
    let mut table = Table::new().text("NAME").text("ORDER").text("MEMBERS");
    for group in groups {
        let settings = group.spec.settings();
        let members: Vec<_> = settings.members.iter().map(|member| member.name.to_string()).collect();
        let order = show_order_policy(settings.policy).to_owned();
        table.row([group.name.clone(), order, members.join(", ")]);
    }
    table.write(out)
}

fn show(out: &mut Vec<u8>, group: &QueueGroupInfo, as_json: bool) -> io::Result<()> {
    if as_json {
        return json_lines(out, std::slice::from_ref(group));
    }
    let settings = group.spec.settings();
    writeln!(out, "Group '{}'", group.name)?;
    writeln!(out, "Order                    {}", show_order_policy(settings.policy))?;
    writeln!(out, "Max outstanding          {}", settings.max_outstanding)?;
    let mut table = Table::new().text("MEMBER").number("OFFSET").number("WEIGHT");
    for (place, member) in settings.members.iter().enumerate() {
        let offset = show_duration(settings.offset(place));
        table.row([member.name.to_string(), offset, settings.weight(place).to_string()]);
    }
    table.write(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_readable() {
        let json = r#"{"name": "work", "order": "aged", "members": ["high", {"name": "low", "weight": 2}]}"#;
        let group: QueueGroupInfo = serde_json::from_str(json).unwrap();
        let mut out = Vec::new();
        list(&mut out, std::slice::from_ref(&group), false).unwrap();
        show(&mut out, &group, false).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("high, low") && text.contains("Max outstanding          16"), "{text}");
        assert!(text.lines().any(|line| line.split_whitespace().eq(["low", "30s", "2"])), "{text}");
    }
}
