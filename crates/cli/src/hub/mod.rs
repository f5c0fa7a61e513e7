//! `peeklock hub`: create, change, list, show and delete event hubs, and their consumer groups.

mod consumer_group;
mod show;

use anyhow::{Result, bail};
use clap::Subcommand;
use peeklock::admin::Admin;
use peeklock::low_level::{EntityName, HubInfo, HubSpec};

use crate::command::{
    Creatable, Create, Deletable, Delete, Entity, List, Listable, Show, Showable, Updatable, Update,
};
use crate::describe::Page;
use crate::table::Table;
use consumer_group::{ConsumerGroup, ConsumerGroups};

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
    Create(Create<Hub>),
    /// Change settings of a hub; those not named stay as they are
    #[command(after_help = UPDATE_EXAMPLES)]
    Update(Update<Hub>),
    /// List all hubs
    List(List<Hubs>),
    /// Show one hub: its settings and partitions, and how far its consumer groups are behind
    Show(Show<Hub>),
    /// Delete a hub with all its events
    Delete(Delete<Hub>),
    /// Create, list and delete the consumer groups of a hub
    Group {
        #[command(subcommand)]
        action: GroupAction,
    },
}

#[derive(Subcommand)]
enum GroupAction {
    /// Create a consumer group
    Create(Create<ConsumerGroup>),
    /// List the consumer groups of a hub
    List(List<ConsumerGroups>),
    /// Delete a consumer group with its checkpoints; its readers are ended
    Delete(Delete<ConsumerGroup>),
}

#[derive(clap::Args)]
struct Hub {
    /// The hub
    #[arg(value_parser = EntityName::parse)]
    name: EntityName,
}

#[derive(clap::Args)]
struct Hubs {}

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
    match arguments.action {
        Action::Create(command) => command.run().await,
        Action::Update(command) => command.run().await,
        Action::List(command) => command.run().await,
        Action::Show(command) => command.run().await,
        Action::Delete(command) => command.run().await,
        Action::Group { action: GroupAction::Create(command) } => command.run().await,
        Action::Group { action: GroupAction::List(command) } => command.run().await,
        Action::Group { action: GroupAction::Delete(command) } => command.run().await,
    }
}

impl Entity for Hub {
    const KIND: &'static str = "hub";

    fn name(&self) -> &str {
        self.name.as_str()
    }
}

impl Creatable for Hub {
    type Settings = HubSpec;

    async fn create(&self, admin: &Admin, settings: HubSpec) -> Result<String> {
        let created = admin.create_hub(self.name.as_str(), settings).await?;
        Ok(show::in_short(&created.spec.settings()))
    }
}

impl Updatable for Hub {
    type Settings = HubSpec;

    async fn update(&self, admin: &Admin, settings: HubSpec) -> Result<String> {
        if settings == HubSpec::default() {
            bail!("nothing to change; name a setting, such as --retention 7d (see --help)");
        }
        let updated = admin.update_hub(self.name.as_str(), settings).await?;
        Ok(show::in_short(&updated.spec.settings()))
    }
}

impl Deletable for Hub {
    async fn delete(&self, admin: &Admin) -> Result<String> {
        admin.delete_hub(self.name.as_str()).await?;
        Ok(String::new())
    }
}

impl Listable for Hubs {
    type Item = HubInfo;

    async fn items(&self, admin: &Admin) -> Result<Vec<HubInfo>> {
        Ok(admin.hubs().await?)
    }

    fn table(hubs: &[HubInfo]) -> Table {
        show::table(hubs)
    }
}

impl Showable for Hub {
    type Info = HubInfo;

    async fn info(&self, admin: &Admin) -> Result<HubInfo> {
        Ok(admin.hub(self.name.as_str()).await?)
    }

    async fn page(&self, admin: &Admin, hub: &HubInfo, page: &mut Page<'_>) -> Result<()> {
        let mut lags = Vec::new();
        let groups = hub.spec.consumer_groups.iter().flatten().take(show::GROUPS_SHOWN_MAX);
        for group in groups {
            lags.push((group.to_string(), admin.checkpoints(self.name.as_str(), group.as_str()).await?));
        }
        Ok(show::hub(page.0, hub, &lags)?)
    }
}
