//! `peeklock receive`: receive, print and settle messages.

use std::time::Duration;

use anyhow::Result;
use peeklock::{Delivery, Kind, ReceiveMode, Receiver};

use crate::connect::Connect;
use crate::show;
use peeklock_spec::{parse_duration, show_duration};

/// Receive messages from a queue or subscription, print each, and complete it.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The queue, or a subscription as TOPIC/subscriptions/NAME
    entity: String,
    /// At most this many messages
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    count: u32,
    /// How long to wait for the next message
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_duration)]
    wait: Duration,
    /// Let the broker delete each message as it sends it: quicker, but a message is lost if this command is
    #[arg(long, conflicts_with_all = ["abandon", "keep"])]
    delete: bool,
    /// Receive from the entity's dead-letter queue
    #[arg(long)]
    dead_letter: bool,
    /// Receive the messages of this session, for an entity with sessions
    #[arg(long, value_name = "ID", conflicts_with_all = ["next_session", "dead_letter"])]
    session: Option<String>,
    /// Receive the messages of the next session that has some and that nobody holds
    #[arg(long, conflicts_with = "dead_letter")]
    next_session: bool,
    /// Give each message back after printing; its delivery counts
    #[arg(long, conflicts_with = "keep")]
    abandon: bool,
    /// How long a message that is given back stays away
    #[arg(long, value_name = "TIME", requires = "abandon", value_parser = parse_duration)]
    delay: Option<Duration>,
    /// Leave each message locked after printing; it comes back when its lock runs out (in a session at once)
    #[arg(long)]
    keep: bool,
    #[command(flatten)]
    connect: Connect,
}

const EXAMPLES: &str = "\
Examples:
  peeklock receive orders
  peeklock receive orders --count 100 --wait 1s --json
  peeklock receive orders --next-session --count 100
  peeklock receive orders --abandon --delay 5m
  peeklock receive orders --dead-letter --keep
  peeklock receive news/subscriptions/weather";

pub(crate) async fn run(arguments: Arguments) -> Result<()> {
    let client = arguments.connect.open().await?;
    let mode = if arguments.delete { ReceiveMode::ReceiveAndDelete } else { ReceiveMode::PeekLock };
    let mut builder = client.receiver(&arguments.entity).mode(mode).manual_credit();
    if arguments.dead_letter {
        builder = builder.dead_letter();
    }
    if let Some(session) = &arguments.session {
        builder = builder.session(session.clone());
    }
    if arguments.next_session {
        builder = builder.next_session(arguments.wait);
    }
    let mut receiver = match builder.open().await {
        Err(error) if error.kind() == Kind::NoSession && arguments.next_session => {
            eprintln!(
                "no session to receive in '{}' within {}",
                arguments.entity,
                show_duration(arguments.wait)
            );
            return Ok(());
        }
        opened => opened?,
    };
    receiver.add_credit(arguments.count).await?;
    let received_count = receive(&arguments, &mut receiver).await?;
    receiver.close().await?;
    client.close().await;
    if received_count == 0 {
        let place = if arguments.dead_letter { "the dead-letter queue of " } else { "" };
        eprintln!(
            "nothing to receive in {place}'{}' within {}",
            arguments.entity,
            show_duration(arguments.wait)
        );
    }
    Ok(())
}

async fn receive(arguments: &Arguments, receiver: &mut Receiver) -> Result<u32> {
    let mut received_count = 0;
    while received_count < arguments.count {
        match tokio::time::timeout(arguments.wait, receiver.next()).await {
            Ok(next) => match next? {
                Some(delivery) => handle(arguments, delivery).await?,
                None => return Ok(received_count),
            },
            Err(_) => break,
        }
        received_count += 1;
    }
    // Messages that the broker sent before it received the stop are handled as well. Otherwise they would be lost or stay locked.
    receiver.stop().await?;
    while let Some(delivery) = receiver.next().await? {
        handle(arguments, delivery).await?;
        received_count += 1;
    }
    Ok(received_count)
}

async fn handle(arguments: &Arguments, delivery: Delivery) -> Result<()> {
    // The message is printed before it is completed, so that one that cannot be printed is not completed.
    show::message(delivery.message(), arguments.connect.json)?;
    if arguments.keep {
        // A delivery that is dropped is given back.
        std::mem::forget(delivery);
        return Ok(());
    }
    match arguments.delay {
        Some(delay) => delivery.abandon_after(delay).await?,
        None if arguments.abandon => delivery.abandon().await?,
        None => delivery.complete().await?,
    }
    Ok(())
}
