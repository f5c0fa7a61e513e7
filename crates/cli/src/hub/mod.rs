//! `peeklock hub`: create, change, list, show and delete event hubs, and their consumer groups.

mod settings;
mod show;

use std::io::{self, Write};

use anyhow::{Result, bail};
use clap::Subcommand;
use peeklock_client::{EntityName, HubSpec};

use crate::connect::Connect;
use crate::describe::json_lines;
use crate::said::{said, said_with};
use crate::table::Table;
use settings::in_short;

/// Create, change, list, show and delete event hubs.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Create a hub
    #[command(after_help = CREATE_EXAMPLES)]
    Create {
        /// The hub
        #[arg(value_parser = EntityName::parse)]
        name: EntityName,
        #[command(flatten)]
        settings: HubSpec,
        #[command(flatten)]
        connect: Connect,
    },
    /// Change settings of a hub; those not named stay as they are
    #[command(after_help = UPDATE_EXAMPLES)]
    Update {
        /// The hub
        #[arg(value_parser = EntityName::parse)]
        name: EntityName,
        #[command(flatten)]
        settings: HubSpec,
        #[command(flatten)]
        connect: Connect,
    },
    /// List all hubs
    List {
        #[command(flatten)]
        connect: Connect,
    },
    /// Show one hub: its settings and partitions, and how far its consumer groups are behind
    Show {
        /// The hub
        #[arg(value_parser = EntityName::parse)]
        name: EntityName,
        #[command(flatten)]
        connect: Connect,
    },
    /// Delete a hub with all its events
    Delete {
        /// The hub
        #[arg(value_parser = EntityName::parse)]
        name: EntityName,
        #[command(flatten)]
        connect: Connect,
    },
    /// Create, list and delete the consumer groups of a hub
    Group {
        #[command(subcommand)]
        action: GroupAction,
    },
}

#[derive(Subcommand)]
enum GroupAction {
    /// Create a consumer group
    Create {
        /// The hub
        #[arg(value_parser = EntityName::parse)]
        hub: EntityName,
        /// The consumer group
        group: String,
        /// Anything that its owner wants to note
        #[arg(long, value_name = "TEXT")]
        user_metadata: Option<String>,
        #[command(flatten)]
        connect: Connect,
    },
    /// List the consumer groups of a hub
    List {
        /// The hub
        #[arg(value_parser = EntityName::parse)]
        hub: EntityName,
        #[command(flatten)]
        connect: Connect,
    },
    /// Delete a consumer group with its checkpoints; its readers are ended
    Delete {
        /// The hub
        #[arg(value_parser = EntityName::parse)]
        hub: EntityName,
        /// The consumer group
        group: String,
        #[command(flatten)]
        connect: Connect,
    },
}

const CREATE_EXAMPLES: &str = "\
Examples:
  peeklock hub create telemetry
  peeklock hub create telemetry --partitions 16 --retention 7d --group billing --group audit
  peeklock hub create clicks --retention none --retention-bytes 10GiB";

const UPDATE_EXAMPLES: &str = "\
Examples:
  peeklock hub update telemetry --partitions 32
  peeklock hub update telemetry --retention 1h --expired-position earliest
Partitions can become more, never fewer. With more of them, the events of a partition key may go to another one than before.";

pub(crate) async fn run(arguments: Arguments) -> Result<()> {
    let mut out = Vec::new();
    match arguments.action {
        Action::Create { name, settings, connect } => {
            let created = connect.admin()?.create_hub(&name, &settings).await?;
            let told = in_short(&created.spec.settings());
            said_with(&mut out, connect.json, "created", "hub", name.as_str(), &told)?;
        }
        Action::Update { name, settings, connect } => {
            if settings == HubSpec::default() {
                bail!("nothing to change; name a setting, such as --retention 7d (see --help)");
            }
            let updated = connect.admin()?.update_hub(&name, &settings).await?;
            let told = in_short(&updated.spec.settings());
            said_with(&mut out, connect.json, "updated", "hub", name.as_str(), &told)?;
        }
        Action::List { connect } => {
            let hubs = connect.admin()?.hubs().await?;
            show::list(&mut out, &hubs, connect.json)?;
        }
        Action::Show { name, connect } => show_hub(&mut out, &name, &connect).await?,
        Action::Delete { name, connect } => {
            connect.admin()?.delete_hub(&name).await?;
            said(&mut out, connect.json, "deleted", "hub", name.as_str())?;
        }
        Action::Group { action } => run_group(&mut out, action).await?,
    }
    io::stdout().lock().write_all(&out)?;
    Ok(())
}

async fn show_hub(out: &mut Vec<u8>, name: &EntityName, connect: &Connect) -> Result<()> {
    let mut admin = connect.admin()?;
    let hub = admin.hub(name).await?;
    if connect.json {
        json_lines(out, std::slice::from_ref(&hub))?;
        return Ok(());
    }
    let mut lags = Vec::new();
    let groups = hub.spec.consumer_groups.iter().flatten().take(show::GROUPS_SHOWN_MAX);
    for group in groups {
        lags.push((group.to_string(), admin.checkpoints(name, group.as_str()).await?));
    }
    Ok(show::hub(out, &hub, &lags)?)
}

async fn run_group(out: &mut Vec<u8>, action: GroupAction) -> Result<()> {
    match action {
        GroupAction::Create { hub, group, user_metadata, connect } => {
            connect.admin()?.create_consumer_group(&hub, &group, user_metadata.as_deref()).await?;
            said_with(out, connect.json, "created", "group", &group, &format!("of hub '{hub}'"))?;
        }
        GroupAction::List { hub, connect } => {
            let groups = connect.admin()?.consumer_groups(&hub).await?;
            if connect.json {
                json_lines(out, &groups)?;
                return Ok(());
            }
            let mut table = Table::new().text("NAME").text("CREATED").text("METADATA");
            for group in groups {
                table.row([group.name, group.created_at, group.user_metadata.unwrap_or_default()]);
            }
            table.write(out)?;
        }
        GroupAction::Delete { hub, group, connect } => {
            connect.admin()?.delete_consumer_group(&hub, &group).await?;
            said_with(out, connect.json, "deleted", "group", &group, &format!("of hub '{hub}'"))?;
        }
    }
    Ok(())
}
