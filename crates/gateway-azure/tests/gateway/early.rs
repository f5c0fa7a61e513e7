//! Microsoft's AMQP library loses an outcome that arrives within approximately 100 µs: such outcomes are delayed by 1
//! to 2 ms, and nothing else is.

use std::time::Duration;

use peeklock_amqp::connection::{Config, SaslClient};
use peeklock_amqp::{DeliveryState, Fields, condition};
use peeklock_types::QueueSettings;
use tokio::time::Instant;

use crate::support::{Client, Rig, condition_of, in_session, message, sessions};

/// Returns a configuration with the open properties of Azure.Messaging.ServiceBus.
fn dotnet() -> Config {
    let properties = Fields::new()
        .with("product", "Messaging.ServiceBus")
        .with("user-agent", "azsdk-net-Messaging.ServiceBus/7.21.0-beta.1 (.NET 8.0.11; Ubuntu 24.04)")
        .with("framework", ".NETCoreApp,Version=v8.0");
    Config { properties: Some(properties), ..Config::client("amqp://localhost/-1cece96e", "localhost") }
}

async fn rig() -> Rig {
    let rig = Rig::with_queue("plain", QueueSettings::default()).await;
    rig.queue("talks", sessions()).await;
    rig
}

/// Returns the durations of a declare, a rejected send, a send and a receiver's settlement.
async fn delays(mut client: Client) -> [Duration; 4] {
    let (plain, talks) = (client.sender("plain").await, client.sender("talks").await);
    let control = client.coordinator().await.0;
    client.send(talks, &in_session("before", "alpha")).await;

    let start = Instant::now();
    client.declare(control).await;
    let declared = start.elapsed();
    let start = Instant::now();
    assert_eq!(condition_of(&client.send(talks, &message("no session")).await), condition::NOT_ALLOWED);
    let refused = start.elapsed();
    let start = Instant::now();
    assert_eq!(client.send(plain, &message("m")).await, DeliveryState::Accepted);
    let accepted = start.elapsed();
    let link = client.receiver("plain").await;
    let (delivery, _) = client.receive(link).await;
    let start = Instant::now();
    client.settle(link, delivery.id, DeliveryState::Rejected { error: None }).await;
    [declared, refused, accepted, start.elapsed()]
}

#[tokio::test(start_paused = true)]
async fn outcomes_other_than_accepted_are_delayed_for_this_library_only() {
    let rig = rig().await;
    assert_eq!(delays(rig.client().await).await, [Duration::ZERO; 4]);
    let client = rig.client_as(dotnet(), SaslClient::plain("all", "secret")).await;
    let [declared, refused, accepted, settled] = delays(client).await;
    let span = Duration::from_millis(1)..=Duration::from_millis(3);
    assert!(span.contains(&declared) && span.contains(&refused), "{declared:?} {refused:?}");
    assert_eq!((accepted, settled), (Duration::ZERO, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn nothing_else_on_the_connection_is_delayed() {
    let rig = rig().await;
    let mut client = rig.client_as(dotnet(), SaslClient::plain("all", "secret")).await;
    let (plain, talks) = (client.sender("plain").await, client.sender("talks").await);
    client.send(plain, &message("credit has come")).await;
    client.send(talks, &in_session("here too", "alpha")).await;
    let start = Instant::now();
    let refused = client.start_send(talks, &message("no session"), None);
    let behind = client.start_send(talks, &in_session("behind", "alpha"), None);
    assert_eq!(client.send(plain, &message("m")).await, DeliveryState::Accepted);
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(client.outcome(talks, behind).await, DeliveryState::Accepted);
    assert!(start.elapsed() >= Duration::from_millis(1), "the outcomes of a link stay in order");
    assert_eq!(condition_of(&client.outcome(talks, refused).await), condition::NOT_ALLOWED);
}
