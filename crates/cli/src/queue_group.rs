//! `peeklock group`: queue groups, which the configuration of the broker declares.

use std::io::Write;

use anyhow::Result;
use clap::Subcommand;
use peeklock::admin::Admin;
use peeklock::low_level::{EntityName, QueueGroupInfo};
use peeklock_spec::{show_duration, show_order_policy};

use crate::command::{List, Listable, Show, Showable};
use crate::describe::Page;
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
    List(List<QueueGroups>),
    /// Show one group: its members, the most urgent first
    Show(Show<QueueGroup>),
}

#[derive(clap::Args)]
struct QueueGroups {}

#[derive(clap::Args)]
struct QueueGroup {
    /// The group
    #[arg(value_parser = EntityName::parse)]
    name: EntityName,
}

pub(crate) async fn run(arguments: Arguments) -> Result<()> {
    match arguments.action {
        Action::List(command) => command.run().await,
        Action::Show(command) => command.run().await,
    }
}

impl Listable for QueueGroups {
    type Item = QueueGroupInfo;

    async fn items(&self, admin: &Admin) -> Result<Vec<QueueGroupInfo>> {
        Ok(admin.queue_groups().await?)
    }

    fn table(groups: &[QueueGroupInfo]) -> Table {
        let mut table = Table::new().text("NAME").text("ORDER").text("MEMBERS");
        for group in groups {
            let settings = group.spec.settings();
            let members: Vec<_> = settings.members.iter().map(|member| member.name.to_string()).collect();
            let order = show_order_policy(settings.policy).to_owned();
            table.row([group.name.clone(), order, members.join(", ")]);
        }
        table
    }
}

impl Showable for QueueGroup {
    type Info = QueueGroupInfo;

    async fn info(&self, admin: &Admin) -> Result<QueueGroupInfo> {
        Ok(admin.queue_group(self.name.as_str()).await?)
    }

    async fn page(&self, _: &Admin, group: &QueueGroupInfo, page: &mut Page<'_>) -> Result<()> {
        describe(group, page)
    }
}

fn describe(group: &QueueGroupInfo, page: &mut Page<'_>) -> Result<()> {
    let settings = group.spec.settings();
    writeln!(page.0, "Group '{}'", group.name)?;
    page.line("Order", &show_order_policy(settings.policy))?;
    page.line("Max outstanding", &settings.max_outstanding)?;
    let mut table = Table::new().text("MEMBER").number("OFFSET").number("WEIGHT");
    for (place, member) in settings.members.iter().enumerate() {
        let offset = show_duration(settings.offset(place));
        table.row([member.name.to_string(), offset, settings.weight(place).to_string()]);
    }
    Ok(table.write(page.0)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_printed() {
        let json = r#"{"name": "work", "order": "aged", "members": ["high", {"name": "low", "weight": 2}]}"#;
        let group: QueueGroupInfo = serde_json::from_str(json).unwrap();
        let mut out = Vec::new();
        QueueGroups::table(std::slice::from_ref(&group)).write(&mut out).unwrap();
        describe(&group, &mut Page(&mut out)).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("high, low") && text.contains("Max outstanding          16"), "{text}");
        assert!(text.lines().any(|line| line.split_whitespace().eq(["low", "30s", "2"])), "{text}");
    }
}
