//! `peeklock topic`: create, change, list, show and delete topics, and explain which subscriptions get a message.

use anyhow::{Result, bail};
use clap::Subcommand;
use peeklock::admin::Admin;
use peeklock::low_level::{EntityName, TopicInfo, TopicSpec};

use crate::command::{
    Creatable, Create, Deletable, Delete, Entity, List, Listable, Show, Showable, Updatable, Update,
};
use crate::describe::Page;
use crate::explain;
use crate::table::Table;

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
    Create(Create<Topic>),
    /// Change settings of a topic; those not named stay as they are
    #[command(after_help = UPDATE_EXAMPLES)]
    Update(Update<Topic>),
    /// List all topics
    List(List<Topics>),
    /// Show one topic: what differs from the default, and its counts
    Show(Show<Topic>),
    /// Delete a topic with its subscriptions and everything in them
    Delete(Delete<Topic>),
    Explain(Box<explain::Arguments>),
}

#[derive(clap::Args)]
struct Topic {
    /// The topic
    #[arg(value_parser = EntityName::parse)]
    name: EntityName,
}

#[derive(clap::Args)]
struct Topics {}

const CREATE_EXAMPLES: &str = "\
Examples:
  peeklock topic create news
  peeklock topic create news --ttl 1h --duplicate-window 10m";

const UPDATE_EXAMPLES: &str = "\
Examples:
  peeklock topic update news --ttl none
  peeklock topic update news --status send-disabled";

pub(crate) async fn run(arguments: Arguments) -> Result<()> {
    match arguments.action {
        Action::Create(command) => command.run().await,
        Action::Update(command) => command.run().await,
        Action::List(command) => command.run().await,
        Action::Show(command) => command.run().await,
        Action::Delete(command) => command.run().await,
        Action::Explain(arguments) => explain::run(&arguments).await,
    }
}

impl Entity for Topic {
    const KIND: &'static str = "topic";

    fn name(&self) -> &str {
        self.name.as_str()
    }
}

impl Creatable for Topic {
    type Settings = TopicSpec;

    async fn create(&self, admin: &Admin, settings: TopicSpec) -> Result<String> {
        admin.create_topic(self.name.as_str(), settings).await?;
        Ok(String::new())
    }
}

impl Updatable for Topic {
    type Settings = TopicSpec;

    async fn update(&self, admin: &Admin, settings: TopicSpec) -> Result<String> {
        if settings == TopicSpec::default() {
            bail!("nothing to change; name a setting, such as --ttl 1h (see --help)");
        }
        admin.update_topic(self.name.as_str(), settings).await?;
        Ok(String::new())
    }
}

impl Deletable for Topic {
    async fn delete(&self, admin: &Admin) -> Result<String> {
        admin.delete_topic(self.name.as_str()).await?;
        Ok(String::new())
    }
}

impl Listable for Topics {
    type Item = TopicInfo;

    async fn items(&self, admin: &Admin) -> Result<Vec<TopicInfo>> {
        Ok(admin.topics().await?)
    }

    fn table(topics: &[TopicInfo]) -> Table {
        let mut table = Table::new().text("NAME").number("SUBSCRIPTIONS").number("SCHEDULED").number("BYTES");
        for topic in topics {
            let numbers = [topic.subscription_count, topic.scheduled_count, topic.size_bytes];
            table.row(std::iter::once(topic.name.clone()).chain(numbers.map(|number| number.to_string())));
        }
        table
    }
}

impl Showable for Topic {
    type Info = TopicInfo;

    async fn info(&self, admin: &Admin) -> Result<TopicInfo> {
        Ok(admin.topic(self.name.as_str()).await?)
    }

    async fn page(&self, _: &Admin, topic: &TopicInfo, page: &mut Page<'_>) -> Result<()> {
        page.line("Topic", &topic.name)?;
        page.settings(&topic.spec.settings())?;
        page.line("Subscriptions", &topic.subscription_count)?;
        page.line("Scheduled", &topic.scheduled_count)?;
        Ok(page.line("Bytes", &topic.size_bytes)?)
    }
}
