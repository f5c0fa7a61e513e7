//! `peeklock queue`: create, change, list, show, purge and delete queues.

use std::io::Write;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Subcommand;
use peeklock::Error;
use peeklock::admin::Admin;
use peeklock::low_level::{Counts, EntityName, QueueInfo, QueueSettings, QueueSpec, SequenceNumber};
use peeklock_spec::{parse_duration, show_duration};
use serde_json::json;

use crate::command::{
    Creatable, Create, Deletable, Delete, Entity, List, Listable, Show, Showable, Updatable, Update,
};
use crate::connect::{Connect, confirm, is_interactive};
use crate::describe::{Page, order_of};
use crate::order;
use crate::serve::plural;
use crate::settings::{Ordered, Settings, in_short};
use crate::table::Table;
use crate::time::now;

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
    Create(Create<Queue>),
    /// Change settings of a queue; those not named stay as they are
    #[command(after_help = UPDATE_EXAMPLES)]
    Update(Update<Queue>),
    /// List all queues with their counts
    List(List<Queues>),
    /// Show one queue: what differs from the default, and its counts
    Show(Show<Queue>),
    /// Tell why a message has not been received yet, and behind what it waits
    #[command(after_help = EXPLAIN_EXAMPLES)]
    Explain(Explain),
    /// Remove the messages of a queue for good; those locked or scheduled stay
    Purge(Purge),
    /// Delete a queue with everything in it
    Delete(Delete<Queue>),
}

#[derive(clap::Args)]
struct Queue {
    /// The queue
    #[arg(value_parser = EntityName::parse)]
    name: EntityName,
}

#[derive(clap::Args)]
struct Queues {}

#[derive(clap::Args)]
struct Explain {
    /// The queue, or a subscription as TOPIC/subscriptions/NAME
    #[arg(value_parser = EntityName::parse)]
    name: EntityName,
    /// The message, as `peeklock peek` numbers them
    #[arg(value_name = "SEQUENCE-NUMBER")]
    number: u64,
    #[command(flatten)]
    connect: Connect,
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
    match arguments.action {
        Action::Create(command) => command.run().await,
        Action::Update(command) => command.run().await,
        Action::List(command) => command.run().await,
        Action::Show(command) => command.run().await,
        Action::Explain(command) => command.run().await,
        Action::Purge(command) => command.run().await,
        Action::Delete(command) => command.run().await,
    }
}

impl Entity for Queue {
    const KIND: &'static str = "queue";

    fn name(&self) -> &str {
        self.name.as_str()
    }
}

impl Creatable for Queue {
    type Settings = Settings<QueueSpec>;

    async fn create(&self, admin: &Admin, settings: Self::Settings) -> Result<String> {
        let created = admin.create_queue(self.name.as_str(), settings.spec(None)?).await?;
        Ok(in_short(&created.spec.settings()))
    }
}

impl Updatable for Queue {
    type Settings = Settings<QueueSpec>;

    async fn update(&self, admin: &Admin, settings: Self::Settings) -> Result<String> {
        settings.update(admin, self).await
    }
}

impl Ordered for Queue {
    type Spec = QueueSpec;

    async fn current(&self, admin: &Admin) -> Result<(u64, QueueSettings), Error> {
        let queue = admin.queue(self.name.as_str()).await?;
        Ok((queue.history.revision, queue.spec.settings()))
    }

    async fn change(
        &self,
        admin: &Admin,
        revision: Option<u64>,
        changes: &QueueSpec,
    ) -> Result<QueueSettings, Error> {
        let changed = match revision {
            Some(revision) => admin.update_queue_at(self.name.as_str(), revision, changes.clone()).await?,
            None => admin.update_queue(self.name.as_str(), changes.clone()).await?,
        };
        Ok(changed.spec.settings())
    }
}

impl Deletable for Queue {
    async fn delete(&self, admin: &Admin) -> Result<String> {
        admin.delete_queue(self.name.as_str()).await?;
        Ok(String::new())
    }
}

impl Listable for Queues {
    type Item = QueueInfo;

    async fn items(&self, admin: &Admin) -> Result<Vec<QueueInfo>> {
        Ok(admin.queues().await?)
    }

    fn table(queues: &[QueueInfo]) -> Table {
        let table = Table::new().text("NAME").number("ACTIVE").number("LOCKED").number("DEFERRED");
        let mut table = table.number("SCHEDULED").number("DEAD").number("BYTES").text("ORDER");
        for QueueInfo { name, counts, spec, .. } in queues {
            let numbers = [
                counts.active_count,
                counts.locked_count,
                counts.deferred_count,
                counts.scheduled_count,
                counts.dead_letter_count,
                counts.size_bytes,
            ];
            let numbers = numbers.map(|number| number.to_string());
            table.row(std::iter::once(name.clone()).chain(numbers).chain([order_of(&spec.settings())]));
        }
        table
    }
}

impl Showable for Queue {
    type Info = QueueInfo;

    async fn info(&self, admin: &Admin) -> Result<QueueInfo> {
        Ok(admin.queue(self.name.as_str()).await?)
    }

    async fn page(&self, _: &Admin, queue: &QueueInfo, page: &mut Page<'_>) -> Result<()> {
        page.line("Queue", &queue.name)?;
        let settings = queue.spec.settings();
        page.settings(&settings)?;
        page.counts(&queue.counts)?;
        Ok(page.order(&settings, queue.runtime.as_ref())?)
    }
}

impl Explain {
    async fn run(self) -> Result<()> {
        let message = self
            .connect
            .admin()
            .await?
            .explain_message(self.name.as_str(), SequenceNumber(self.number))
            .await?;
        self.connect.print(std::slice::from_ref(&message), |out| order::explain(out, &self.name, &message))
    }
}

impl Purge {
    async fn run(self) -> Result<()> {
        if !self.yes {
            self.confirm().await?;
        }
        let client = self.connect.open().await?;
        let before = self.older_than.map(|age| now() - age);
        let count = client.purge(&self.entity(), before).await?;
        client.close().await;
        let purged = json!({ "queue": self.name.as_str(), "purged": count });
        self.connect.print(&[purged], |out| {
            writeln!(out, "Purged {} from {}", plural(count, "message"), self.place())
        })
    }

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
        let admin = self.connect.admin().await?;
        Ok(match (self.name.topic(), self.name.topic_and_subscription()) {
            (Some(topic), Some((_, name))) => admin.subscription(topic.as_str(), name).await?.counts,
            _ => admin.queue(self.name.as_str()).await?.counts,
        })
    }

    /// Asks for confirmation on a terminal; a script has to pass `--yes`.
    async fn confirm(&self) -> Result<()> {
        if !is_interactive() {
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
        if !confirm(&format!("Purge {which} from {}? This cannot be undone.", self.place()))? {
            bail!("nothing was purged");
        }
        Ok(())
    }
}
