//! `peeklock queue`: create, change, list, show, purge and delete queues.

use std::io::{self, BufRead, IsTerminal, Write};
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Subcommand;
use peeklock_client::{Admin, AdminError, Counts, EntityName, QueueInfo, QueueSpec, SequenceNumber};
use serde_json::json;

use crate::connect::Connect;
use crate::describe;
use crate::order;
use crate::said::{said, said_with};
use crate::serve::plural;
use crate::settings::{Settings, in_short};
use crate::time::now;
use peeklock_spec::{parse_duration, show_duration};

/// How often a change is tried that meets others.
pub(crate) const ATTEMPT_COUNT_MAX: usize = 5;

/// Create, change, list, show, purge and delete queues; explain why a message waits.
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
        settings: Box<Settings<QueueSpec>>,
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
        settings: Box<Settings<QueueSpec>>,
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
    /// Tell why a message has not been received yet, and behind what it waits
    #[command(after_help = EXPLAIN_EXAMPLES)]
    Explain {
        /// The queue, or a subscription as TOPIC/subscriptions/NAME
        #[arg(value_parser = EntityName::parse)]
        name: EntityName,
        /// The message, as `peeklock peek` numbers them
        #[arg(value_name = "SEQUENCE-NUMBER")]
        number: u64,
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
    /// The queue, or a subscription as TOPIC/subscriptions/NAME
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
  peeklock queue create news --ttl 1h --dead-letter-expired
  peeklock queue create jobs --class low=0-3 --class normal=4-6 --class high=7-9
  peeklock queue create jobs --class low=0-4 --class high=5-9,target=10s --class-rule \"high: tier = 'paying'\"
  peeklock queue create jobs --class low=0-4,weight=1 --class high=5-9,weight=4 --order weighted
  peeklock queue create jobs --tenant-key tenant --tenant-class \"paying,weight=4,when=tier = 'paying'\" --tenant-class free,rate=5/s";

const UPDATE_EXAMPLES: &str = "\
Examples:
  peeklock queue update orders --lock-duration 5m
  peeklock queue update orders --status receive-disabled
  peeklock queue update orders --ttl none --forward-to archive
  peeklock queue update jobs --order strict
  peeklock queue update jobs --class high=7-9,target=10s --class urgent,target=1s --no-class low
  peeklock queue update jobs --no-order
What is said of the order changes just that, for messages that wait already as well. A class with priorities (high=7-9) is said as a
whole; one without (urgent,target=1s) keeps the rest.";

const EXPLAIN_EXAMPLES: &str = "\
Examples:
  peeklock queue explain jobs 17
  peeklock queue explain news/subscriptions/audit 17 --json";

const PURGE_EXAMPLES: &str = "\
Examples:
  peeklock queue purge orders
  peeklock queue purge orders --older-than 1h --yes
  peeklock queue purge orders --dead-letters";

pub(crate) async fn run(arguments: Arguments) -> Result<()> {
    let mut out = Vec::new();
    match arguments.action {
        Action::Create { name, settings, connect } => {
            let created = connect.admin()?.create_queue(&name, &settings.spec(None)?).await?;
            said_with(
                &mut out,
                connect.json,
                "created",
                "queue",
                name.as_str(),
                &in_short(&created.spec.settings()),
            )?;
        }
        Action::Update { name, settings, connect } => {
            let updated = update(&mut connect.admin()?, &name, &settings).await?;
            said_with(
                &mut out,
                connect.json,
                "updated",
                "queue",
                name.as_str(),
                &in_short(&updated.spec.settings()),
            )?;
        }
        Action::List { connect } => {
            let queues = connect.admin()?.queues().await?;
            describe::queues(&mut out, &queues, connect.json)?;
        }
        Action::Show { name, connect } => {
            let queue = connect.admin()?.queue(&name).await?;
            describe::queue(&mut out, &queue, connect.json)?;
        }
        Action::Explain { name, number, connect } => {
            let message = connect.admin()?.explain_message(&name, SequenceNumber(number)).await?;
            order::explain(&mut out, &name, &message, connect.json)?;
        }
        Action::Purge(arguments) => purge(&mut out, arguments).await?,
        Action::Delete { name, connect } => {
            connect.admin()?.delete_queue(&name).await?;
            said(&mut out, connect.json, "deleted", "queue", name.as_str())?;
        }
    }
    io::stdout().lock().write_all(&out)?;
    Ok(())
}

/// A change of the order is made from the one that is there, so nobody else may change it in between.
async fn update(admin: &mut Admin, name: &EntityName, settings: &Settings<QueueSpec>) -> Result<QueueInfo> {
    if !settings.order.changes_order() {
        let changes = settings.clone().spec(None)?;
        if changes == QueueSpec::default() {
            bail!("nothing to change; name a setting, such as --lock-duration 30s (see --help)");
        }
        return Ok(admin.update_queue(name, &changes).await?);
    }
    for _ in 1..ATTEMPT_COUNT_MAX {
        match try_update(admin, name, settings).await? {
            Err(AdminError::Changed { .. }) => {}
            done => return Ok(done?),
        }
    }
    Ok(try_update(admin, name, settings).await??)
}

async fn try_update(
    admin: &mut Admin,
    name: &EntityName,
    settings: &Settings<QueueSpec>,
) -> Result<Result<QueueInfo, AdminError>> {
    let current = admin.queue(name).await?;
    let changes = settings.clone().spec(current.spec.settings().order.as_deref())?;
    Ok(admin.update_queue_at(name, current.history.revision, &changes).await)
}

async fn purge(out: &mut Vec<u8>, arguments: Purge) -> Result<()> {
    if !arguments.yes {
        arguments.confirm().await?;
    }
    let client = arguments.connect.open().await?;
    let before = arguments.older_than.map(|age| now() - age);
    let count = client.purge(&arguments.entity(), before).await?;
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

    async fn counts(&self) -> Result<Counts> {
        let mut admin = self.connect.admin()?;
        Ok(match (self.name.topic(), self.name.topic_and_subscription()) {
            (Some(topic), Some((_, name))) => admin.subscription(&topic, name).await?.counts,
            _ => admin.queue(&self.name).await?.counts,
        })
    }

    /// Asks a person; a script has to say that it means it.
    async fn confirm(&self) -> Result<()> {
        if !io::stdin().is_terminal() {
            bail!("purging cannot be undone; add --yes to purge {}", self.place());
        }
        let counts = self.counts().await?;
        let count = if self.dead_letters {
            counts.dead_letter_count
        } else {
            counts.active_count + counts.deferred_count
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
