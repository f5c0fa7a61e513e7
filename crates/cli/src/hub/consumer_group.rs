//! The consumer groups of a hub.

use anyhow::Result;
use peeklock::admin::Admin;
use peeklock::low_level::{ConsumerGroupInfo, EntityName};

use crate::command::{Creatable, Deletable, Entity, Listable};
use crate::table::Table;

#[derive(clap::Args)]
pub(super) struct ConsumerGroup {
    /// The hub
    #[arg(value_parser = EntityName::parse)]
    hub: EntityName,
    /// The consumer group
    group: String,
}

#[derive(clap::Args)]
pub(super) struct NewConsumerGroup {
    /// Anything that its owner wants to note
    #[arg(long, value_name = "TEXT")]
    user_metadata: Option<String>,
}

#[derive(clap::Args)]
pub(super) struct ConsumerGroups {
    /// The hub
    #[arg(value_parser = EntityName::parse)]
    hub: EntityName,
}

impl ConsumerGroup {
    fn summary(&self) -> String {
        format!("of hub '{}'", self.hub)
    }
}

impl Entity for ConsumerGroup {
    const KIND: &'static str = "group";

    fn name(&self) -> &str {
        &self.group
    }
}

impl Creatable for ConsumerGroup {
    type Settings = NewConsumerGroup;

    async fn create(&self, admin: &Admin, new: NewConsumerGroup) -> Result<String> {
        admin.create_consumer_group(self.hub.as_str(), &self.group, new.user_metadata.as_deref()).await?;
        Ok(self.summary())
    }
}

impl Deletable for ConsumerGroup {
    async fn delete(&self, admin: &Admin) -> Result<String> {
        admin.delete_consumer_group(self.hub.as_str(), &self.group).await?;
        Ok(self.summary())
    }
}

impl Listable for ConsumerGroups {
    type Item = ConsumerGroupInfo;

    async fn items(&self, admin: &Admin) -> Result<Vec<ConsumerGroupInfo>> {
        Ok(admin.consumer_groups(self.hub.as_str()).await?)
    }

    fn table(groups: &[ConsumerGroupInfo]) -> Table {
        let mut table = Table::new().text("NAME").text("CREATED").text("METADATA");
        for group in groups {
            let metadata = group.user_metadata.clone().unwrap_or_default();
            table.row([group.name.clone(), group.created_at.clone(), metadata]);
        }
        table
    }
}
