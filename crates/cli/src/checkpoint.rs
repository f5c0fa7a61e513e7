//! `peeklock checkpoint`: list, show and reset the checkpoints of consumer groups.

use std::io::{self, Write};

use anyhow::{Result, bail};
use clap::Subcommand;
use peeklock::admin::Admin;
use peeklock::low_level::{CheckpointInfo, CheckpointMove, CheckpointSource, EntityName, ResetTo};
use peeklock_spec::parse_time;
use peeklock_types::ConsumerGroup;
use serde::Serialize;

use crate::command::{List, Listable};
use crate::connect::{Connect, confirm, is_interactive};
use crate::serve::plural;
use crate::table::Table;

/// List, show and reset the checkpoints of the consumer groups of a hub.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// List how far each consumer group has come, and how far it is behind
    List(List<AllGroups>),
    /// Show the checkpoints of one consumer group, with the owners of its partitions
    #[command(after_help = SHOW_EXAMPLES)]
    Show(List<OneGroup>),
    /// Move the checkpoints of a consumer group, so that its readers start there
    #[command(after_help = RESET_EXAMPLES)]
    Reset(Reset),
}

#[derive(clap::Args)]
struct AllGroups {
    /// The hub
    #[arg(value_parser = EntityName::parse)]
    hub: EntityName,
    /// Only this consumer group
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
}

#[derive(clap::Args)]
struct OneGroup {
    /// The hub
    #[arg(value_parser = EntityName::parse)]
    hub: EntityName,
    /// The consumer group
    #[arg(long, value_name = "GROUP", default_value = ConsumerGroup::DEFAULT)]
    group: String,
    /// Only this partition
    #[arg(long, value_name = "NUMBER")]
    partition: Option<u32>,
}

#[derive(clap::Args)]
struct Reset {
    /// The hub
    #[arg(value_parser = EntityName::parse)]
    hub: EntityName,
    /// The consumer group
    #[arg(long, value_name = "GROUP")]
    group: String,
    /// Only this partition; otherwise all
    #[arg(long, value_name = "NUMBER")]
    partition: Option<u32>,
    /// earliest, latest, a time such as 2026-01-31T18:00:00Z, the number of the last event that counts as done, or none
    #[arg(long, value_name = "WHERE", value_parser = reset_to)]
    to: ResetTo,
    /// Only tell what would be changed
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    connect: Connect,
}

const SHOW_EXAMPLES: &str = "\
Examples:
  peeklock checkpoint show telemetry
  peeklock checkpoint show telemetry --group billing --partition 3 --json";

const RESET_EXAMPLES: &str = "\
Examples:
  peeklock checkpoint reset telemetry --group billing --to earliest --dry-run
  peeklock checkpoint reset telemetry --group billing --partition 3 --to 184220
  peeklock checkpoint reset telemetry --group billing --to 2026-01-31T18:00:00Z --yes
Checkpoints are moved where the group keeps them: in the broker, in the blobs of an SDK's checkpoint store, or in both. Stop the readers of
the group first: one that runs goes on where it is, and its next checkpoint moves this one.";

fn reset_to(text: &str) -> Result<ResetTo> {
    if let Ok(sequence) = text.parse() {
        return Ok(ResetTo::Sequence(sequence));
    }
    if !matches!(text, "earliest" | "latest" | "none")
        && let Err(error) = parse_time(text)
    {
        bail!("{error}, or earliest, latest, none, or a sequence number");
    }
    Ok(ResetTo::Text(text.to_owned()))
}

/// A checkpoint with its consumer group.
#[derive(Serialize)]
struct Line {
    group: String,
    #[serde(flatten)]
    checkpoint: CheckpointInfo,
}

pub(crate) async fn run(arguments: Arguments) -> Result<()> {
    match arguments.action {
        Action::List(command) => command.run().await,
        Action::Show(command) => command.run().await,
        Action::Reset(command) => command.run().await,
    }
}

async fn lines(admin: &Admin, hub: &EntityName, group: &str) -> Result<Vec<Line>> {
    let checkpoints = admin.checkpoints(hub.as_str(), group).await?;
    Ok(checkpoints.into_iter().map(|checkpoint| Line { group: group.to_owned(), checkpoint }).collect())
}

impl Listable for AllGroups {
    type Item = Line;

    async fn items(&self, admin: &Admin) -> Result<Vec<Line>> {
        let groups = match &self.group {
            Some(group) => vec![group.clone()],
            None => {
                admin.consumer_groups(self.hub.as_str()).await?.into_iter().map(|group| group.name).collect()
            }
        };
        let mut all = Vec::new();
        for group in groups {
            all.extend(lines(admin, &self.hub, &group).await?);
        }
        Ok(all)
    }

    fn table(lines: &[Line]) -> Table {
        checkpoint_table(lines)
    }
}

impl Listable for OneGroup {
    type Item = Line;

    async fn items(&self, admin: &Admin) -> Result<Vec<Line>> {
        let OneGroup { hub, group, partition } = self;
        let mut found = lines(admin, hub, group).await?;
        let count = found.len();
        found.retain(|line| partition.is_none_or(|partition| line.checkpoint.partition == partition));
        if let (Some(partition), true) = (partition, found.is_empty()) {
            bail!("the hub '{hub}' has no partition {partition}; its {count} partitions are numbered from 0");
        }
        Ok(found)
    }

    fn table(lines: &[Line]) -> Table {
        checkpoint_table(lines)
    }
}

fn checkpoint_table(lines: &[Line]) -> Table {
    let table = Table::new().text("GROUP").number("PARTITION").text("OWNER").number("EPOCH");
    let table = table.number("CHECKPOINT").number("LAST").number("LAG").number("LAG SECONDS");
    let mut table = table.text("AT").text("KEPT IN");
    for Line { group, checkpoint } in lines {
        let number = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
        table.row([
            group.clone(),
            checkpoint.partition.to_string(),
            checkpoint.owner.clone().unwrap_or_else(|| "-".to_owned()),
            number(checkpoint.epoch),
            number(checkpoint.sequence_number),
            checkpoint.last_sequence_number.to_string(),
            checkpoint.lag_events.to_string(),
            seconds(checkpoint.lag_seconds),
            checkpoint.at.clone().unwrap_or_else(|| "-".to_owned()),
            kept_in(checkpoint).to_owned(),
        ]);
    }
    table
}

fn kept_in(checkpoint: &CheckpointInfo) -> &'static str {
    match (checkpoint.source, checkpoint.sequence_number) {
        (_, None) => "-",
        (CheckpointSource::Broker, _) => "broker",
        (CheckpointSource::Blob, _) => "blob",
    }
}

pub(crate) fn seconds(seconds: f64) -> String {
    format!("{seconds:.1}")
}

impl Reset {
    async fn run(self) -> Result<()> {
        let admin = self.connect.admin().await?;
        let planned = self.ask(&admin, true).await?;
        let changed = planned.iter().filter(|planned| planned.before != planned.after).count();
        let count = plural(changed as u64, "checkpoint");
        if self.dry_run {
            return self.connect.print(&planned, |out| {
                move_table(&planned).write(out)?;
                let group = &self.group;
                writeln!(out, "Would move {count} of consumer group '{group}'. Nothing was changed.")
            });
        }
        if changed > 0 && !self.yes {
            self.confirm(&planned, &count)?;
        }
        let done = self.ask(&admin, false).await?;
        self.connect.print(&done, |out| {
            move_table(&done).write(out)?;
            writeln!(out, "Moved {count} of consumer group '{}'.", self.group)
        })
    }

    async fn ask(&self, admin: &Admin, dry_run: bool) -> Result<Vec<CheckpointMove>> {
        Ok(admin.reset_checkpoints(self.hub.as_str(), &self.group, self.partition, &self.to, dry_run).await?)
    }

    /// Asks for confirmation on a terminal; a script has to pass `--yes`.
    fn confirm(&self, planned: &[CheckpointMove], count: &str) -> Result<()> {
        if !is_interactive() {
            bail!("add --yes to move {count} of consumer group '{}', or --dry-run to see which", self.group);
        }
        move_table(planned).write(&mut io::stderr())?;
        if !confirm(&format!("Move {count} of consumer group '{}' of '{}'?", self.group, self.hub))? {
            bail!("nothing was changed");
        }
        Ok(())
    }
}

fn move_table(moves: &[CheckpointMove]) -> Table {
    let table =
        Table::new().number("PARTITION").number("FROM").number("TO").number("REPEATED").number("SKIPPED");
    let mut table = table.text("KEPT IN").text("OWNER");
    let number = |number: Option<i64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    for moved in moves {
        table.row([
            moved.partition.to_string(),
            number(moved.before),
            number(moved.after),
            moved.repeated_events.to_string(),
            moved.skipped_events.to_string(),
            place(moved),
            moved.owner.as_ref().map_or_else(String::new, |owner| format!("{owner} (stop it first)")),
        ]);
    }
    table
}

fn place(moved: &CheckpointMove) -> String {
    match (moved.source, &moved.container) {
        (CheckpointSource::Broker, _) => "broker".to_owned(),
        (CheckpointSource::Blob, None) => "blob".to_owned(),
        (CheckpointSource::Blob, Some(container)) => format!("blob in '{container}'"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_of_a_reset_has_several_forms() {
        assert_eq!(reset_to("17").unwrap(), ResetTo::Sequence(17));
        for text in ["earliest", "latest", "none", "2026-01-31T18:00:00Z"] {
            assert_eq!(reset_to(text).unwrap(), ResetTo::Text(text.to_owned()));
        }
        let told = reset_to("yesterday").unwrap_err().to_string();
        assert!(told.contains("'yesterday'") && told.contains("sequence number"), "{told}");
    }
}
