//! `peeklock peek`: print messages without changing them.

use std::io::Write;

use anyhow::Result;
use peeklock::SequenceNumber;

use crate::connect::Connect;
use crate::show;

/// Look at the messages of a queue or subscription, in order; nothing is locked, counted or removed.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The queue, or a subscription as TOPIC/subscriptions/NAME
    entity: String,
    /// Start at this sequence number
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    from: u64,
    /// At most this many messages
    #[arg(long, default_value_t = 10)]
    count: u32,
    /// Look at one session only
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Look into the entity's dead-letter queue
    #[arg(long)]
    dead_letter: bool,
    #[command(flatten)]
    connect: Connect,
}

const EXAMPLES: &str = "\
Examples:
  peeklock peek orders
  peeklock peek orders --from 1000 --count 50 --json
  peeklock peek orders --session table-4
  peeklock peek orders --dead-letter
  peeklock peek news/subscriptions/weather";

/// The number of messages that one request specifies; a broker may return fewer.
const REQUEST_COUNT_MAX: u32 = 250;

pub(crate) async fn run(arguments: Arguments) -> Result<()> {
    let client = arguments.connect.open().await?;
    let entity = if arguments.dead_letter {
        format!("{}/$DeadLetterQueue", arguments.entity)
    } else {
        arguments.entity.clone()
    };
    let mut from = SequenceNumber(arguments.from);
    let mut left = arguments.count;
    while left > 0 {
        let count = left.min(REQUEST_COUNT_MAX);
        let messages = match &arguments.session {
            Some(session) => client.peek_session(&entity, session, from, count).await?,
            None => client.peek(&entity, from, count).await?,
        };
        for message in &messages {
            show::message(message, arguments.connect.json)?;
        }
        // Without the number of the last message, the next request would start at the same place again.
        let Some(last) = messages.last().and_then(|message| message.sequence_number()) else { break };
        from = SequenceNumber(last.0.saturating_add(1));
        left = left.saturating_sub(u32::try_from(messages.len()).unwrap_or(u32::MAX));
    }
    client.close().await;
    if left == arguments.count {
        eprintln!("nothing to see in '{entity}' from number {} on", arguments.from);
    }
    std::io::stdout().flush()?;
    Ok(())
}
