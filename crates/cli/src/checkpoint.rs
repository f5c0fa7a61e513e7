//! `peeklock checkpoint`: how far consumer groups have come, and moving them elsewhere.

use std::io::{self, BufRead, IsTerminal, Write};

use anyhow::{Result, bail};
use clap::Subcommand;
use peeklock_client::{Admin, CheckpointInfo, CheckpointMove, CheckpointSource, EntityName, ResetTo};
use peeklock_spec::parse_time;
use peeklock_types::ConsumerGroup;
use serde::Serialize;

use crate::connect::Connect;
use crate::describe::json_lines;
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
    List {
        /// The hub
        #[arg(value_parser = EntityName::parse)]
        hub: EntityName,
        /// Only this consumer group
        #[arg(long, value_name = "GROUP")]
        group: Option<String>,
        #[command(flatten)]
        connect: Connect,
    },
    /// Show the checkpoints of one consumer group, with the owners of its partitions
    #[command(after_help = SHOW_EXAMPLES)]
    Show {
        /// The hub
        #[arg(value_parser = EntityName::parse)]
        hub: EntityName,
        /// The consumer group
        #[arg(long, value_name = "GROUP", default_value = ConsumerGroup::DEFAULT)]
        group: String,
        /// Only this partition
        #[arg(long, value_name = "NUMBER")]
        partition: Option<u32>,
        #[command(flatten)]
        connect: Connect,
    },
    /// Move the checkpoints of a consumer group, so that its readers start there
    #[command(after_help = RESET_EXAMPLES)]
    Reset(Reset),
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

/// A checkpoint with the group that it is of.
#[derive(Serialize)]
struct Line<'a> {
    group: &'a str,
    #[serde(flatten)]
    checkpoint: &'a CheckpointInfo,
}

pub(crate) async fn run(arguments: Arguments) -> Result<()> {
    let mut out = Vec::new();
    match arguments.action {
        Action::List { hub, group, connect } => {
            let mut admin = connect.admin()?;
            let groups = match group {
                Some(group) => vec![group],
                None => admin.consumer_groups(&hub).await?.into_iter().map(|group| group.name).collect(),
            };
            let mut found = Vec::new();
            for group in groups {
                let checkpoints = admin.checkpoints(&hub, &group).await?;
                found.push((group, checkpoints));
            }
            tell(&mut out, &found, connect.json)?;
        }
        Action::Show { hub, group, partition, connect } => {
            let mut found = connect.admin()?.checkpoints(&hub, &group).await?;
            let count = found.len();
            found.retain(|checkpoint| partition.is_none_or(|partition| checkpoint.partition == partition));
            if let (Some(partition), true) = (partition, found.is_empty()) {
                bail!(
                    "the hub '{hub}' has no partition {partition}; its {count} partitions are numbered from 0"
                );
            }
            tell(&mut out, &[(group, found)], connect.json)?;
        }
        Action::Reset(arguments) => reset(&mut out, &arguments).await?,
    }
    io::stdout().lock().write_all(&out)?;
    Ok(())
}

fn tell(out: &mut Vec<u8>, found: &[(String, Vec<CheckpointInfo>)], as_json: bool) -> io::Result<()> {
    if as_json {
        let lines = found.iter().flat_map(|(group, checkpoints)| {
            checkpoints.iter().map(move |checkpoint| Line { group, checkpoint })
        });
        return json_lines(out, &lines.collect::<Vec<_>>());
    }
    let table = Table::new().text("GROUP").number("PARTITION").text("OWNER").number("EPOCH");
    let table = table.number("CHECKPOINT").number("LAST").number("LAG").number("LAG SECONDS");
    let mut table = table.text("AT").text("KEPT IN");
    for (group, checkpoint) in found.iter().flat_map(|(group, all)| all.iter().map(move |one| (group, one))) {
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
    table.write(out)
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

async fn reset(out: &mut Vec<u8>, arguments: &Reset) -> Result<()> {
    let mut admin = arguments.connect.admin()?;
    let planned = arguments.ask(&mut admin, true).await?;
    let changed = planned.iter().filter(|planned| planned.before != planned.after).count();
    if arguments.dry_run {
        moves(out, &planned, arguments.connect.json)?;
        if !arguments.connect.json {
            let count = plural(changed as u64, "checkpoint");
            writeln!(
                out,
                "Would move {count} of consumer group '{}'. Nothing was changed.",
                arguments.group
            )?;
        }
        return Ok(());
    }
    if changed > 0 && !arguments.yes {
        arguments.confirm(&planned, changed)?;
    }
    let done = arguments.ask(&mut admin, false).await?;
    moves(out, &done, arguments.connect.json)?;
    if !arguments.connect.json {
        let count = plural(changed as u64, "checkpoint");
        writeln!(out, "Moved {count} of consumer group '{}'.", arguments.group)?;
    }
    Ok(())
}

impl Reset {
    async fn ask(&self, admin: &mut Admin, dry_run: bool) -> Result<Vec<CheckpointMove>> {
        Ok(admin.reset_checkpoints(&self.hub, &self.group, self.partition, &self.to, dry_run).await?)
    }

    /// Asks a person; a script has to say that it means it.
    fn confirm(&self, planned: &[CheckpointMove], changed: usize) -> Result<()> {
        let count = plural(changed as u64, "checkpoint");
        if !io::stdin().is_terminal() {
            bail!("add --yes to move {count} of consumer group '{}', or --dry-run to see which", self.group);
        }
        let mut shown = Vec::new();
        moves(&mut shown, planned, false)?;
        io::stderr().write_all(&shown)?;
        eprint!("Move {count} of consumer group '{}' of '{}'? [y/N] ", self.group, self.hub);
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer)?;
        if !matches!(answer.trim(), "y" | "Y" | "yes") {
            bail!("nothing was changed");
        }
        Ok(())
    }
}

fn moves(out: &mut Vec<u8>, moves: &[CheckpointMove], as_json: bool) -> io::Result<()> {
    if as_json {
        return json_lines(out, moves);
    }
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
    table.write(out)
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
    fn where_to_is_said_in_many_ways() {
        assert_eq!(reset_to("17").unwrap(), ResetTo::Sequence(17));
        for text in ["earliest", "latest", "none", "2026-01-31T18:00:00Z"] {
            assert_eq!(reset_to(text).unwrap(), ResetTo::Text(text.to_owned()));
        }
        let told = reset_to("yesterday").unwrap_err().to_string();
        assert!(told.contains("'yesterday'") && told.contains("sequence number"), "{told}");
    }
}
