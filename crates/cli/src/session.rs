//! `peeklock session`: the sessions of a queue or subscription.

use std::io::Write;

use anyhow::Result;
use clap::Subcommand;
use serde_json::json;

use crate::connect::Connect;

/// See the sessions of a queue or subscription.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// List the sessions that have messages, one per line
    List {
        /// The queue, or a subscription as TOPIC/subscriptions/NAME
        entity: String,
        #[command(flatten)]
        connect: Connect,
    },
}

pub(crate) async fn run(arguments: Arguments) -> Result<()> {
    let Action::List { entity, connect } = arguments.action;
    let client = connect.open().await?;
    let sessions = client.list_sessions(&entity, None).await?;
    client.close().await;
    if sessions.is_empty() {
        eprintln!("no session of '{entity}' has messages");
    }
    let lines: Vec<_> = sessions.iter().map(|session| json!({ "session": session })).collect();
    connect.print(&lines, |out| sessions.iter().try_for_each(|session| writeln!(out, "{session}")))
}
