//! `peeklock topic`: create, change, list, show and delete topics, and tell what one would do with a message.

use std::io::{self, Write};

use anyhow::{Result, bail};
use clap::Subcommand;
use peeklock_client::{EntityName, TopicSpec};

use crate::connect::Connect;
use crate::describe;
use crate::explain;
use crate::said::said;

/// Create, change, list, show and delete topics; explain who gets a message.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Create a topic
    #[command(after_help = CREATE_EXAMPLES)]
    Create {
        /// The topic
        #[arg(value_parser = EntityName::parse)]
        name: EntityName,
        #[command(flatten)]
        connect: Connect,
        #[command(flatten)]
        settings: Box<TopicSpec>,
    },
    /// Change settings of a topic; those not named stay as they are
    #[command(after_help = UPDATE_EXAMPLES)]
    Update {
        /// The topic
        #[arg(value_parser = EntityName::parse)]
        name: EntityName,
        #[command(flatten)]
        connect: Connect,
        #[command(flatten)]
        settings: Box<TopicSpec>,
    },
    /// List all topics
    List {
        #[command(flatten)]
        connect: Connect,
    },
    /// Show one topic: what differs from the default, and its counts
    Show {
        /// The topic
        #[arg(value_parser = EntityName::parse)]
        name: EntityName,
        #[command(flatten)]
        connect: Connect,
    },
    /// Delete a topic with its subscriptions and everything in them
    Delete {
        /// The topic
        #[arg(value_parser = EntityName::parse)]
        name: EntityName,
        #[command(flatten)]
        connect: Connect,
    },
    Explain(Box<explain::Arguments>),
}

const CREATE_EXAMPLES: &str = "\
Examples:
  peeklock topic create news
  peeklock topic create news --ttl 1h --duplicate-window 10m";

const UPDATE_EXAMPLES: &str = "\
Examples:
  peeklock topic update news --ttl none
  peeklock topic update news --status send-disabled";

pub(crate) async fn run(arguments: Arguments) -> Result<()> {
    let mut out = Vec::new();
    match arguments.action {
        Action::Create { name, settings, connect } => {
            connect.admin()?.create_topic(&name, &settings).await?;
            said(&mut out, connect.json, "created", "topic", name.as_str())?;
        }
        Action::Update { name, settings, connect } => {
            if *settings == TopicSpec::default() {
                bail!("nothing to change; name a setting, such as --ttl 1h (see --help)");
            }
            connect.admin()?.update_topic(&name, &settings).await?;
            said(&mut out, connect.json, "updated", "topic", name.as_str())?;
        }
        Action::List { connect } => {
            let topics = connect.admin()?.topics().await?;
            describe::topics(&mut out, &topics, connect.json)?;
        }
        Action::Show { name, connect } => {
            let topic = connect.admin()?.topic(&name).await?;
            describe::topic(&mut out, &topic, connect.json)?;
        }
        Action::Delete { name, connect } => {
            connect.admin()?.delete_topic(&name).await?;
            said(&mut out, connect.json, "deleted", "topic", name.as_str())?;
        }
        Action::Explain(arguments) => explain::run(&mut out, *arguments).await?,
    }
    io::stdout().lock().write_all(&out)?;
    Ok(())
}
