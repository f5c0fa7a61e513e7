//! `peeklock key`: the access keys of a namespace, a queue, a topic or a hub.

use std::io;

use anyhow::Result;
use clap::{Subcommand, ValueEnum};
use peeklock::admin::Admin;
use peeklock::low_level::{EntityName, KeyInfo, KeyScope, Right, WhichKey};

use crate::command::{Deletable, Delete, Entity, List, Listable};
use crate::connect::Connect;
use crate::describe::Page;
use crate::table::Table;

/// List, show, create, rotate and remove access keys.
///
/// A key belongs to the namespace, or to one queue, topic or hub. It has two secrets that both work, so that one can be changed while clients
/// use the other.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Args)]
struct Scope {
    /// A key of this queue instead of the namespace
    #[arg(long, value_name = "QUEUE", value_parser = EntityName::parse, conflicts_with = "topic")]
    queue: Option<EntityName>,
    /// A key of this topic instead of the namespace
    #[arg(long, value_name = "TOPIC", value_parser = EntityName::parse)]
    topic: Option<EntityName>,
    /// A key of this hub instead of the namespace
    #[arg(long, value_name = "HUB", value_parser = EntityName::parse, conflicts_with_all = ["queue", "topic"])]
    hub: Option<EntityName>,
}

impl Scope {
    fn scope(&self) -> KeyScope {
        match (&self.queue, &self.topic, &self.hub) {
            (Some(queue), _, _) => KeyScope::Queue(queue.clone()),
            (_, Some(topic), _) => KeyScope::Topic(topic.clone()),
            (_, _, Some(hub)) => KeyScope::Hub(hub.clone()),
            (None, None, None) => KeyScope::Namespace,
        }
    }
}

#[derive(Subcommand)]
enum Action {
    /// List keys with their rights; secrets are not shown
    List(List<Scope>),
    /// Show one key with its secrets
    Show {
        #[command(flatten)]
        key: Key,
        #[command(flatten)]
        connect: Connect,
    },
    /// Create a key with new secrets, and show it
    #[command(after_help = CREATE_EXAMPLES)]
    Create {
        /// The key
        name: String,
        /// What the key allows: Send, Listen, Manage (which includes both), separated by ','
        #[arg(long, value_name = "RIGHTS", required = true, value_delimiter = ',', ignore_case = true)]
        rights: Vec<RightName>,
        #[command(flatten)]
        scope: Scope,
        #[command(flatten)]
        connect: Connect,
    },
    /// Give a key a new secret, and show it; what was signed with the old one is refused from then on
    #[command(after_help = ROTATE_EXAMPLES)]
    Rotate {
        /// The key
        name: String,
        /// Change the secondary secret; otherwise the primary one is changed
        #[arg(long)]
        secondary: bool,
        #[command(flatten)]
        scope: Scope,
        #[command(flatten)]
        connect: Connect,
    },
    /// Remove a key; connections that use it end
    Remove(Delete<Key>),
}

#[derive(clap::Args)]
struct Key {
    /// The key
    name: String,
    #[command(flatten)]
    scope: Scope,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RightName {
    #[value(name = "Send")]
    Send,
    #[value(name = "Listen")]
    Listen,
    #[value(name = "Manage")]
    Manage,
}

const CREATE_EXAMPLES: &str = "\
Examples:
  peeklock key create app --rights Send,Listen
  peeklock key create till-4 --rights Send --queue orders";

const ROTATE_EXAMPLES: &str = "\
Without downtime:
  peeklock key rotate app --secondary         then give clients the secondary secret, and when all have it:
  peeklock key rotate app";

pub(crate) async fn run(arguments: Arguments) -> Result<()> {
    match arguments.action {
        Action::List(command) => command.run().await,
        Action::Show { key: Key { name, scope }, connect } => {
            let key = connect.admin().await?.key((&scope.scope()).into(), &name).await?;
            show(&connect, &scope.scope(), &key)
        }
        Action::Create { name, rights, scope, connect } => {
            let rights = rights.into_iter().map(RightName::right);
            let key = connect.admin().await?.create_key((&scope.scope()).into(), &name, rights).await?;
            show(&connect, &scope.scope(), &key)
        }
        Action::Rotate { name, secondary, scope, connect } => {
            let which = if secondary { WhichKey::Secondary } else { WhichKey::Primary };
            let key = connect.admin().await?.rotate_key((&scope.scope()).into(), &name, which).await?;
            show(&connect, &scope.scope(), &key)
        }
        Action::Remove(command) => command.run().await,
    }
}

impl RightName {
    fn right(self) -> Right {
        match self {
            RightName::Send => Right::Send,
            RightName::Listen => Right::Listen,
            RightName::Manage => Right::Manage,
        }
    }
}

impl Entity for Key {
    const KIND: &'static str = "key";

    fn name(&self) -> &str {
        &self.name
    }
}

impl Deletable for Key {
    const DELETED: &'static str = "removed";

    async fn delete(&self, admin: &Admin) -> Result<String> {
        admin.remove_key((&self.scope.scope()).into(), &self.name).await?;
        Ok(String::new())
    }
}

impl Listable for Scope {
    type Item = KeyInfo;

    /// Returns the keys without their secrets.
    async fn items(&self, admin: &Admin) -> Result<Vec<KeyInfo>> {
        let keys = admin.keys((&self.scope()).into()).await?;
        Ok(keys.into_iter().map(|key| KeyInfo { primary_key: None, secondary_key: None, ..key }).collect())
    }

    fn table(keys: &[KeyInfo]) -> Table {
        let mut table = Table::new().text("NAME").text("RIGHTS").text("FROM");
        for key in keys {
            let from = if key.is_declared { "configuration" } else { "here" };
            table.row([key.name.clone(), key.rights.join(","), from.to_owned()]);
        }
        table
    }
}

fn show(connect: &Connect, scope: &KeyScope, key: &KeyInfo) -> Result<()> {
    let target = connect.target()?;
    let connection_string =
        key.primary_key.as_ref().map(|secret| target.connection_string(&key.name, secret));
    connect.print(std::slice::from_ref(key), |out| describe(&mut Page(out), scope, key, connection_string))
}

fn describe(
    page: &mut Page<'_>,
    scope: &KeyScope,
    key: &KeyInfo,
    connection_string: Option<String>,
) -> io::Result<()> {
    page.line("Key", &key.name)?;
    page.line("Of", scope)?;
    page.line("Rights", &key.rights.join(","))?;
    let secrets = [("Primary secret", &key.primary_key), ("Secondary secret", &key.secondary_key)];
    for (label, secret) in secrets {
        page.line(label, &secret.as_deref().unwrap_or("not told"))?;
    }
    connection_string.map_or(Ok(()), |text| page.line("Connection string", &text))
}
