//! What the examples share. Each program in `src/bin` shows one pattern; all run on a broker in memory inside the program, or on the broker
//! that the first argument names:
//!
//! ```text
//! cargo run -p peeklock-examples --bin competing_consumers
//! cargo run -p peeklock-examples --bin competing_consumers amqp://RootManageSharedAccessKey:SAS_KEY_VALUE@127.0.0.1:5672
//! ```

use std::time::Duration;

use peeklock::admin::{Queue, Subscription, Topic};
use peeklock::{Client, Error, Kind};

/// The time in which running handlers may finish when an example stops.
pub const STOP: Duration = Duration::from_secs(30);

/// Connects to the broker that the first argument names. Without an argument it is in memory.
pub async fn connect() -> Result<Client, Error> {
    let target = std::env::args().nth(1).unwrap_or_else(|| "embedded:".to_owned());
    Client::connect(&target).await
}

/// Creates a queue in place of an earlier one.
pub async fn new_queue(client: &Client, name: &str, queue: Queue) -> Result<(), Error> {
    unless_missing(client.admin().delete_queue(name).await)?;
    client.admin().create_queue(name, queue).await.map(|_| ())
}

/// Creates a topic with subscriptions in place of an earlier one.
pub async fn new_topic<const N: usize>(
    client: &Client,
    name: &str,
    subscriptions: [(&str, Subscription); N],
) -> Result<(), Error> {
    unless_missing(client.admin().delete_topic(name).await)?;
    client.admin().create_topic(name, Topic::new()).await?;
    for (subscription, settings) in subscriptions {
        client.admin().create_subscription(name, subscription, settings).await?;
    }
    Ok(())
}

fn unless_missing(result: Result<(), Error>) -> Result<(), Error> {
    match result {
        Err(error) if error.kind() == Kind::NotFound => Ok(()),
        other => other,
    }
}

/// The samples of the guide, which the documentation tests compile.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/rust-sdk.md")]
mod guide {}

#[cfg(doctest)]
#[doc = include_str!("../../../crates/peeklock/README.md")]
mod readme {}
