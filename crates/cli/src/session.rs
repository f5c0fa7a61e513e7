//! `peeklock session`: the sessions of a queue or subscription.

use std::io::{self, Write};

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
    let mut out = Vec::new();
    for session in sessions {
        if connect.json {
            writeln!(out, "{}", json!({ "session": session }))?;
        } else {
            writeln!(out, "{session}")?;
        }
    }
    io::stdout().lock().write_all(&out)?;
    Ok(())
}
