//! `peeklock subscription`: create, change, list, show and delete the subscriptions of a topic.

use anyhow::Result;
use clap::Subcommand;
use peeklock::Error;
use peeklock::admin::Admin;
use peeklock::low_level::{EntityName, Named, QueueSettings, SubscriptionInfo, SubscriptionSpec};
use peeklock_filter::RuleName;

use crate::command::{
    Creatable, Create, Deletable, Delete, Entity, List, Listable, Show, Showable, Updatable, Update,
};
use crate::describe::{Page, order_of};
use crate::filter::FilterFlags;
use crate::rule::filter_text;
use crate::settings::{Ordered, Settings, in_short};
use crate::table::Table;

/// Create, change, list, show and delete the subscriptions of a topic.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Create a subscription; without a filter it gets every message
    #[command(after_help = CREATE_EXAMPLES)]
    Create(Create<Subscription>),
    /// Change settings of a subscription; those not named stay as they are
    #[command(after_help = UPDATE_EXAMPLES)]
    Update(Update<Subscription>),
    /// List all subscriptions of a topic with their counts
    List(List<Subscriptions>),
    /// Show one subscription: its rules, what differs from the default, and its counts
    Show(Show<Subscription>),
    /// Delete a subscription with everything in it
    Delete(Delete<Subscription>),
}

#[derive(clap::Args)]
pub(crate) struct Subscription {
    /// The topic
    #[arg(value_parser = EntityName::parse)]
    pub(crate) topic: EntityName,
    /// The subscription
    pub(crate) subscription: String,
}

#[derive(clap::Args)]
struct Subscriptions {
    /// The topic
    #[arg(value_parser = EntityName::parse)]
    topic: EntityName,
}

#[derive(clap::Args)]
pub(crate) struct NewSubscription {
    #[command(flatten)]
    filter: FilterFlags,
    #[command(flatten)]
    settings: Settings<SubscriptionSpec>,
}

const CREATE_EXAMPLES: &str = "\
Examples:
  peeklock subscription create news archive
  peeklock subscription create orders high --sql \"Priority = 'High'\" --max-delivery-count 3
  peeklock subscription create orders rome --correlation city=Rome --correlation sys.Label=order --sessions
  peeklock subscription create orders all --class low=0-4 --class high=5-9 --order strict";

const UPDATE_EXAMPLES: &str = "\
Examples:
  peeklock subscription update orders high --lock-duration 5m
  peeklock subscription update orders high --forward-to none
  peeklock subscription update orders all --order aged --class high=5-9,target=10s
The filters of a subscription are its rules: see `peeklock rule`.";

pub(crate) async fn run(arguments: Arguments) -> Result<()> {
    match arguments.action {
        Action::Create(command) => command.run().await,
        Action::Update(command) => command.run().await,
        Action::List(command) => command.run().await,
        Action::Show(command) => command.run().await,
        Action::Delete(command) => command.run().await,
    }
}

impl Entity for Subscription {
    const KIND: &'static str = "subscription";

    fn name(&self) -> &str {
        &self.subscription
    }
}

impl Creatable for Subscription {
    type Settings = NewSubscription;

    async fn create(&self, admin: &Admin, new: NewSubscription) -> Result<String> {
        let mut spec = new.settings.spec(None)?;
        spec.rules = new.filter.rule()?.map(|rule| Named(vec![(RuleName::default_rule(), rule)]));
        let created = admin.create_subscription(self.topic.as_str(), &self.subscription, spec).await?;
        Ok(in_short(&created.spec.settings()))
    }
}

impl Updatable for Subscription {
    type Settings = Settings<SubscriptionSpec>;

    async fn update(&self, admin: &Admin, settings: Self::Settings) -> Result<String> {
        settings.update(admin, self).await
    }
}

impl Ordered for Subscription {
    type Spec = SubscriptionSpec;

    async fn current(&self, admin: &Admin) -> Result<(u64, QueueSettings), Error> {
        let subscription = admin.subscription(self.topic.as_str(), &self.subscription).await?;
        Ok((subscription.history.revision, subscription.spec.settings()))
    }

    async fn change(
        &self,
        admin: &Admin,
        revision: Option<u64>,
        changes: &SubscriptionSpec,
    ) -> Result<QueueSettings, Error> {
        let Subscription { topic, subscription } = self;
        let changed = match revision {
            Some(revision) => {
                admin.update_subscription_at(topic.as_str(), subscription, revision, changes.clone()).await?
            }
            None => admin.update_subscription(topic.as_str(), subscription, changes.clone()).await?,
        };
        Ok(changed.spec.settings())
    }
}

impl Deletable for Subscription {
    async fn delete(&self, admin: &Admin) -> Result<String> {
        admin.delete_subscription(self.topic.as_str(), &self.subscription).await?;
        Ok(String::new())
    }
}

impl Listable for Subscriptions {
    type Item = SubscriptionInfo;

    async fn items(&self, admin: &Admin) -> Result<Vec<SubscriptionInfo>> {
        Ok(admin.subscriptions(self.topic.as_str()).await?)
    }

    fn table(subscriptions: &[SubscriptionInfo]) -> Table {
        let table = Table::new().text("NAME").number("RULES").number("ACTIVE").number("LOCKED");
        let mut table = table.number("DEFERRED").number("DEAD").number("BYTES").text("ORDER");
        for SubscriptionInfo { name, counts, rule_count, spec, .. } in subscriptions {
            let numbers = [
                *rule_count,
                counts.active_count,
                counts.locked_count,
                counts.deferred_count,
                counts.dead_letter_count,
                counts.size_bytes,
            ];
            let numbers = numbers.map(|number| number.to_string());
            table.row(std::iter::once(name.clone()).chain(numbers).chain([order_of(&spec.settings())]));
        }
        table
    }
}

impl Showable for Subscription {
    type Info = SubscriptionInfo;

    async fn info(&self, admin: &Admin) -> Result<SubscriptionInfo> {
        Ok(admin.subscription(self.topic.as_str(), &self.subscription).await?)
    }

    async fn page(&self, admin: &Admin, info: &SubscriptionInfo, page: &mut Page<'_>) -> Result<()> {
        let rules = admin.rules(self.topic.as_str(), &self.subscription).await?;
        page.line("Subscription", &info.name)?;
        page.line("Rules", &if rules.is_empty() { "none, so it gets nothing" } else { "" })?;
        for rule in rules {
            page.line(&format!("  {}", rule.name), &filter_text(&rule.spec))?;
        }
        let settings = info.spec.settings();
        page.settings(&settings)?;
        page.counts(&info.counts)?;
        Ok(page.order(&settings, info.runtime.as_ref())?)
    }
}
