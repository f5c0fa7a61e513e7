//! `peeklock subscription`: create, change, list, show and delete the subscriptions of a topic.

use std::io::{self, Write};

use anyhow::{Result, bail};
use clap::Subcommand;
use peeklock_client::{Admin, AdminError, EntityName, Named, SubscriptionInfo, SubscriptionSpec};
use peeklock_filter::RuleName;

use crate::connect::Connect;
use crate::describe;
use crate::filter::FilterFlags;
use crate::queue::ATTEMPT_COUNT_MAX;
use crate::said::{said, said_with};
use crate::settings::{Settings, in_short};

/// Create, change, list, show and delete the subscriptions of a topic.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Args)]
struct Name {
    /// The topic
    #[arg(value_parser = EntityName::parse)]
    topic: EntityName,
    /// The subscription
    subscription: String,
}

#[derive(Subcommand)]
enum Action {
    /// Create a subscription; without a filter it gets every message
    #[command(after_help = CREATE_EXAMPLES)]
    Create {
        #[command(flatten)]
        name: Name,
        #[command(flatten)]
        connect: Connect,
        #[command(flatten)]
        filter: FilterFlags,
        #[command(flatten)]
        settings: Box<Settings<SubscriptionSpec>>,
    },
    /// Change settings of a subscription; those not named stay as they are
    #[command(after_help = UPDATE_EXAMPLES)]
    Update {
        #[command(flatten)]
        name: Name,
        #[command(flatten)]
        connect: Connect,
        #[command(flatten)]
        settings: Box<Settings<SubscriptionSpec>>,
    },
    /// List all subscriptions of a topic with their counts
    List {
        /// The topic
        #[arg(value_parser = EntityName::parse)]
        topic: EntityName,
        #[command(flatten)]
        connect: Connect,
    },
    /// Show one subscription: its rules, what differs from the default, and its counts
    Show {
        #[command(flatten)]
        name: Name,
        #[command(flatten)]
        connect: Connect,
    },
    /// Delete a subscription with everything in it
    Delete {
        #[command(flatten)]
        name: Name,
        #[command(flatten)]
        connect: Connect,
    },
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
    let mut out = Vec::new();
    match arguments.action {
        Action::Create { name: Name { topic, subscription }, filter, settings, connect } => {
            let mut spec = settings.spec(None)?;
            spec.rules = filter.rule()?.map(|rule| Named(vec![(RuleName::default_rule(), rule)]));
            let created = connect.admin()?.create_subscription(&topic, &subscription, &spec).await?;
            let short = in_short(&created.spec.settings());
            said_with(&mut out, connect.json, "created", "subscription", &subscription, &short)?;
        }
        Action::Update { name: Name { topic, subscription }, settings, connect } => {
            let updated = update(&mut connect.admin()?, &topic, &subscription, &settings).await?;
            let short = in_short(&updated.spec.settings());
            said_with(&mut out, connect.json, "updated", "subscription", &subscription, &short)?;
        }
        Action::List { topic, connect } => {
            let subscriptions = connect.admin()?.subscriptions(&topic).await?;
            describe::subscriptions(&mut out, &subscriptions, connect.json)?;
        }
        Action::Show { name: Name { topic, subscription }, connect } => {
            let mut admin = connect.admin()?;
            let shown = admin.subscription(&topic, &subscription).await?;
            let rules = admin.rules(&topic, &subscription).await?;
            describe::subscription(&mut out, &shown, &rules, connect.json)?;
        }
        Action::Delete { name: Name { topic, subscription }, connect } => {
            connect.admin()?.delete_subscription(&topic, &subscription).await?;
            said(&mut out, connect.json, "deleted", "subscription", &subscription)?;
        }
    }
    io::stdout().lock().write_all(&out)?;
    Ok(())
}

/// As for queues: nobody else may change the order in between.
async fn update(
    admin: &mut Admin,
    topic: &EntityName,
    name: &str,
    settings: &Settings<SubscriptionSpec>,
) -> Result<SubscriptionInfo> {
    if !settings.order.changes_order() {
        let changes = settings.clone().spec(None)?;
        if changes == SubscriptionSpec::default() {
            bail!("nothing to change; name a setting, such as --lock-duration 30s (see --help)");
        }
        return Ok(admin.update_subscription(topic, name, &changes).await?);
    }
    for _ in 1..ATTEMPT_COUNT_MAX {
        match try_update(admin, topic, name, settings).await? {
            Err(AdminError::Changed { .. }) => {}
            done => return Ok(done?),
        }
    }
    Ok(try_update(admin, topic, name, settings).await??)
}

async fn try_update(
    admin: &mut Admin,
    topic: &EntityName,
    name: &str,
    settings: &Settings<SubscriptionSpec>,
) -> Result<Result<SubscriptionInfo, AdminError>> {
    let current = admin.subscription(topic, name).await?;
    let changes = settings.clone().spec(current.spec.settings().order.as_deref())?;
    Ok(admin.update_subscription_at(topic, name, current.history.revision, &changes).await)
}
