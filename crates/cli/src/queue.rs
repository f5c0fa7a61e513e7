//! `peeklock queue`: create, change, list, show, purge and delete queues.

use std::io::{self, BufRead, IsTerminal, Write};
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Subcommand;
use peeklock_client::{Client, EntityName};
use serde_json::json;

use crate::connect::Connect;
use crate::describe::{list, show};
use crate::serve::plural;
use crate::settings::Settings;
use crate::time::now;
use peeklock_spec::{parse_duration, show_duration};

/// Create, change, list, show, purge and delete queues.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Create a queue
    #[command(after_help = CREATE_EXAMPLES)]
    Create {
        /// The queue
        #[arg(value_parser = EntityName::parse)]
        name: EntityName,
        #[command(flatten)]
        connect: Connect,
        #[command(flatten)]
        settings: Box<Settings>,
    },
    /// Change settings of a queue; those not named stay as they are
    #[command(after_help = UPDATE_EXAMPLES)]
    Update {
        /// The queue
        #[arg(value_parser = EntityName::parse)]
        name: EntityName,
        #[command(flatten)]
        connect: Connect,
        #[command(flatten)]
        settings: Box<Settings>,
    },
    /// List all queues with their counts
    List {
        #[command(flatten)]
        connect: Connect,
    },
    /// Show one queue: what differs from the default, and its counts
    Show {
        /// The queue
        #[arg(value_parser = EntityName::parse)]
        name: EntityName,
        #[command(flatten)]
        connect: Connect,
    },
    /// Remove the messages of a queue for good; those locked or scheduled stay
    Purge(Purge),
    /// Delete a queue with everything in it
    Delete {
        /// The queue
        #[arg(value_parser = EntityName::parse)]
        name: EntityName,
        #[command(flatten)]
        connect: Connect,
    },
}

#[derive(clap::Args)]
#[command(after_help = PURGE_EXAMPLES)]
struct Purge {
    /// The queue
    #[arg(value_parser = EntityName::parse)]
    name: EntityName,
    /// Only messages that came longer ago than this
    #[arg(long, value_name = "TIME", visible_alias = "before", value_parser = parse_duration)]
    older_than: Option<Duration>,
    /// Purge the queue's dead-letter queue instead
    #[arg(long)]
    dead_letters: bool,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    connect: Connect,
}

const CREATE_EXAMPLES: &str = "\
Examples:
  peeklock queue create orders
  peeklock queue create orders --sessions --lock-duration 30s --max-delivery-count 5
  peeklock queue create jobs --retry exponential:1s..10m:jitter --duplicate-window 10m
  peeklock queue create news --ttl 1h --dead-letter-expired";

const UPDATE_EXAMPLES: &str = "\
Examples:
  peeklock queue update orders --lock-duration 5m
  peeklock queue update orders --status receive-disabled
  peeklock queue update orders --ttl none --forward-to archive";

const PURGE_EXAMPLES: &str = "\
Examples:
  peeklock queue purge orders
  peeklock queue purge orders --older-than 1h --yes
  peeklock queue purge orders --dead-letters";

pub(crate) async fn run(arguments: Arguments) -> Result<()> {
    let mut out = Vec::new();
    match arguments.action {
        Action::Create { name, settings, connect } => {
            let settings = settings.of_new(&name)?;
            let client = connect.open().await?;
            client.admin().create_queue(&name, &settings).await?;
            client.close().await;
            said(&mut out, &connect, "created", &name)?;
        }
        Action::Update { name, settings, connect } => {
            let changes = settings.said();
            if changes.is_empty() {
                bail!("nothing to change; name a setting, such as --lock-duration 30s (see --help)");
            }
            let client = connect.open().await?;
            client.admin().update_queue(&name, &changes).await?;
            client.close().await;
            said(&mut out, &connect, "updated", &name)?;
        }
        Action::List { connect } => {
            let client = connect.open().await?;
            let queues = client.admin().list_queues().await?;
            client.close().await;
            list(&mut out, &queues, connect.json)?;
        }
        Action::Show { name, connect } => {
            let client = connect.open().await?;
            let queue = client.admin().show_queue(&name).await?;
            client.close().await;
            show(&mut out, &queue, connect.json)?;
        }
        Action::Purge(arguments) => purge(&mut out, arguments).await?,
        Action::Delete { name, connect } => {
            let client = connect.open().await?;
            client.admin().delete_queue(&name).await?;
            client.close().await;
            said(&mut out, &connect, "deleted", &name)?;
        }
    }
    io::stdout().lock().write_all(&out)?;
    Ok(())
}

fn said(out: &mut Vec<u8>, connect: &Connect, done: &str, name: &EntityName) -> io::Result<()> {
    if connect.json {
        return writeln!(out, "{}", json!({ "queue": name.as_str(), "done": done }));
    }
    let capital = done.get(..1).unwrap_or_default().to_uppercase();
    writeln!(out, "{capital}{} queue '{name}'", done.get(1..).unwrap_or_default())
}

async fn purge(out: &mut Vec<u8>, arguments: Purge) -> Result<()> {
    let client = arguments.connect.open().await?;
    if !arguments.yes {
        arguments.confirm(&client).await?;
    }
    let before = arguments.older_than.map(|age| now() - age);
    let count = client.admin().purge(&arguments.entity(), before).await?;
    client.close().await;
    if arguments.connect.json {
        writeln!(out, "{}", json!({ "queue": arguments.name.as_str(), "purged": count }))?;
    } else {
        writeln!(out, "Purged {} from {}", plural(count, "message"), arguments.place())?;
    }
    Ok(())
}

impl Purge {
    fn entity(&self) -> String {
        let sub_queue = if self.dead_letters { "/$DeadLetterQueue" } else { "" };
        format!("{}{sub_queue}", self.name)
    }

    fn place(&self) -> String {
        if self.dead_letters {
            format!("the dead-letter queue of '{}'", self.name)
        } else {
            format!("'{}'", self.name)
        }
    }

    /// Asks a person; a script has to say that it means it.
    async fn confirm(&self, client: &Client) -> Result<()> {
        if !io::stdin().is_terminal() {
            bail!("purging cannot be undone; add --yes to purge {}", self.place());
        }
        let queue = client.admin().show_queue(&self.name).await?;
        let count = if self.dead_letters {
            queue.dead_letter_count
        } else {
            queue.active_count + queue.deferred_count
        };
        let which = match self.older_than {
            Some(age) => {
                format!("those older than {} of up to {}", show_duration(age), plural(count, "message"))
            }
            None => plural(count, "message"),
        };
        eprint!("Purge {which} from {}? This cannot be undone. [y/N] ", self.place());
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer)?;
        if !matches!(answer.trim(), "y" | "Y" | "yes") {
            bail!("nothing was purged");
        }
        Ok(())
    }
}
