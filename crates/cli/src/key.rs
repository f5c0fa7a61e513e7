//! `peeklock key`: the access keys of a namespace, a queue, a topic or a hub.

use std::io::{self, Write};

use anyhow::Result;
use clap::{Subcommand, ValueEnum};
use peeklock_client::{EntityName, KeyInfo, KeyScope, Right, WhichKey};

use crate::connect::Connect;
use crate::describe::{Page, json_lines};
use crate::said::said;
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
    fn scope(self) -> KeyScope {
        match (self.queue, self.topic, self.hub) {
            (Some(queue), _, _) => KeyScope::Queue(queue),
            (_, Some(topic), _) => KeyScope::Topic(topic),
            (_, _, Some(hub)) => KeyScope::Hub(hub),
            (None, None, None) => KeyScope::Namespace,
        }
    }
}

#[derive(Subcommand)]
enum Action {
    /// List keys with their rights; secrets are not shown
    List {
        #[command(flatten)]
        scope: Scope,
        #[command(flatten)]
        connect: Connect,
    },
    /// Show one key with its secrets
    Show {
        /// The key
        name: String,
        #[command(flatten)]
        scope: Scope,
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
    Remove {
        /// The key
        name: String,
        #[command(flatten)]
        scope: Scope,
        #[command(flatten)]
        connect: Connect,
    },
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
    let mut out = Vec::new();
    match arguments.action {
        Action::List { scope, connect } => {
            let keys = connect.admin()?.keys(&scope.scope()).await?;
            list(&mut out, &keys, connect.json)?;
        }
        Action::Show { name, scope, connect } => {
            let scope = scope.scope();
            let key = connect.admin()?.key(&scope, &name).await?;
            show(&mut out, &connect, &scope, &key)?;
        }
        Action::Create { name, rights, scope, connect } => {
            let scope = scope.scope();
            let rights = rights.into_iter().map(RightName::right).collect();
            let key = connect.admin()?.create_key(&scope, &name, rights).await?;
            show(&mut out, &connect, &scope, &key)?;
        }
        Action::Rotate { name, secondary, scope, connect } => {
            let scope = scope.scope();
            let which = if secondary { WhichKey::Secondary } else { WhichKey::Primary };
            let key = connect.admin()?.rotate_key(&scope, &name, which).await?;
            show(&mut out, &connect, &scope, &key)?;
        }
        Action::Remove { name, scope, connect } => {
            connect.admin()?.remove_key(&scope.scope(), &name).await?;
            said(&mut out, connect.json, "removed", "key", &name)?;
        }
    }
    io::stdout().lock().write_all(&out)?;
    Ok(())
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

fn list(out: &mut Vec<u8>, keys: &[KeyInfo], as_json: bool) -> io::Result<()> {
    let without_secrets: Vec<_> =
        keys.iter().map(|key| KeyInfo { primary_key: None, secondary_key: None, ..key.clone() }).collect();
    if as_json {
        return json_lines(out, &without_secrets);
    }
    let mut table = Table::new().text("NAME").text("RIGHTS").text("FROM");
    for key in without_secrets {
        let from = if key.is_declared { "configuration" } else { "here" };
        table.row([key.name, key.rights.join(","), from.to_owned()]);
    }
    table.write(out)
}

fn show(out: &mut Vec<u8>, connect: &Connect, scope: &KeyScope, key: &KeyInfo) -> Result<()> {
    if connect.json {
        return Ok(json_lines(out, std::slice::from_ref(key))?);
    }
    let mut page = Page(out);
    page.line("Key", &key.name)?;
    page.line("Of", scope)?;
    page.line("Rights", &key.rights.join(","))?;
    let secrets = [("Primary secret", &key.primary_key), ("Secondary secret", &key.secondary_key)];
    for (label, secret) in secrets {
        page.line(label, &secret.as_deref().unwrap_or("not told"))?;
    }
    if let Some(secret) = &key.primary_key {
        page.line("Connection string", &connect.target()?.connection_string(&key.name, secret))?;
    }
    Ok(())
}
