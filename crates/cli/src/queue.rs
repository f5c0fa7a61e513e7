//! `peeklock queue`: create, list, show and delete queues.

use std::io::{self, Write};
use std::time::Duration;

use anyhow::Result;
use clap::Subcommand;
use peeklock_client::{EntityName, QueueInfo, QueueSettings};
use serde_json::json;

use crate::connect::Connect;
use crate::text::parse_duration;

/// Create, list, show and delete queues.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Create a queue
    Create {
        #[arg(value_parser = EntityName::parse)]
        name: EntityName,
        /// How long a received message stays locked
        #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
        lock: Duration,
        /// After so many deliveries a message goes to the dead-letter queue
        #[arg(long, value_name = "COUNT", default_value_t = 10)]
        max_delivery: u32,
        #[command(flatten)]
        connect: Connect,
    },
    /// List all queues with their counts
    List {
        #[command(flatten)]
        connect: Connect,
    },
    /// Show one queue
    Show {
        #[arg(value_parser = EntityName::parse)]
        name: EntityName,
        #[command(flatten)]
        connect: Connect,
    },
    /// Delete a queue with everything in it
    Delete {
        #[arg(value_parser = EntityName::parse)]
        name: EntityName,
        #[command(flatten)]
        connect: Connect,
    },
}

pub(crate) async fn run(arguments: Arguments) -> Result<()> {
    let mut out = Vec::new();
    match arguments.action {
        Action::Create { name, lock, max_delivery, connect } => {
            let settings = QueueSettings {
                lock_duration: lock,
                max_delivery_count: max_delivery,
                ..QueueSettings::default()
            };
            settings.check(&name)?;
            let client = connect.open().await?;
            client.admin().create_queue(&name, &settings).await?;
            client.close().await;
            said(&mut out, &connect, "created", &name)?;
        }
        Action::List { connect } => {
            let client = connect.open().await?;
            let queues = client.admin().list_queues().await?;
            client.close().await;
            list(&mut out, &queues, connect.json)?;
        }
        Action::Show { name, connect } => {
            let client = connect.open().await?;
            let queue = client.admin().show_queue(&name).await?;
            client.close().await;
            show(&mut out, &queue, connect.json)?;
        }
        Action::Delete { name, connect } => {
            let client = connect.open().await?;
            client.admin().delete_queue(&name).await?;
            client.close().await;
            said(&mut out, &connect, "deleted", &name)?;
        }
    }
    io::stdout().lock().write_all(&out)?;
    Ok(())
}

fn said(out: &mut Vec<u8>, connect: &Connect, done: &str, name: &EntityName) -> io::Result<()> {
    if connect.json {
        return writeln!(out, "{}", json!({ "queue": name.as_str(), "done": done }));
    }
    let capital = done.get(..1).unwrap_or_default().to_uppercase();
    writeln!(out, "{capital}{} queue '{name}'", done.get(1..).unwrap_or_default())
}

fn list(out: &mut Vec<u8>, queues: &[QueueInfo], as_json: bool) -> io::Result<()> {
    if as_json {
        return queues.iter().try_for_each(|queue| show(out, queue, true));
    }
    let width = queues.iter().map(|queue| queue.name.chars().count()).max().unwrap_or(0).max("NAME".len());
    writeln!(
        out,
        "{:width$}  {:>10}  {:>8}  {:>8}  {:>8}  {:>14}",
        "NAME", "ACTIVE", "LOCKED", "DEFERRED", "DEAD", "BYTES"
    )?;
    for queue in queues {
        let QueueInfo {
            name, active_count, locked_count, deferred_count, dead_letter_count, size_bytes, ..
        } = queue;
        writeln!(
            out,
            "{name:width$}  {active_count:>10}  {locked_count:>8}  {deferred_count:>8}  {dead_letter_count:>8}  {size_bytes:>14}"
        )?;
    }
    Ok(())
}

fn show(out: &mut Vec<u8>, queue: &QueueInfo, as_json: bool) -> io::Result<()> {
    let lock_ms = u64::try_from(queue.settings.lock_duration.as_millis()).unwrap_or(u64::MAX);
    if as_json {
        let object = json!({
            "name": queue.name,
            "lockDurationMs": lock_ms,
            "maxDeliveryCount": queue.settings.max_delivery_count,
            "activeCount": queue.active_count,
            "lockedCount": queue.locked_count,
            "deferredCount": queue.deferred_count,
            "deadLetterCount": queue.dead_letter_count,
            "sizeBytes": queue.size_bytes,
        });
        return writeln!(out, "{object}");
    }
    writeln!(out, "Name            {}", queue.name)?;
    writeln!(out, "Lock duration   {lock_ms} ms")?;
    writeln!(out, "Max deliveries  {}", queue.settings.max_delivery_count)?;
    writeln!(out, "Active          {}", queue.active_count)?;
    writeln!(out, "Locked          {}", queue.locked_count)?;
    writeln!(out, "Deferred        {}", queue.deferred_count)?;
    writeln!(out, "Dead-lettered   {}", queue.dead_letter_count)?;
    writeln!(out, "Bytes           {}", queue.size_bytes)
}
