//! Runs a test over each transport: the embedded broker in memory, the embedded broker in a directory, and AMQP over loopback.

use peeklock::Client;
use peeklock::embedded::Broker;

/// Runs the test with a client of a new broker, once for each transport. The output names the transport, so that a failure shows it.
pub(crate) async fn for_each_transport(test: impl AsyncFn(Client)) {
    println!("embedded in memory");
    test(Client::connect("embedded:").await.unwrap()).await;

    println!("embedded in a directory");
    let directory = tempfile::tempdir().unwrap();
    test(Client::connect(&format!("embedded:{}", directory.path().display())).await.unwrap()).await;

    println!("AMQP over loopback");
    let broker = Broker::in_memory().await.unwrap();
    let address = broker.serve("127.0.0.1:0").await.unwrap();
    let target = format!("amqp://RootManageSharedAccessKey:SAS_KEY_VALUE@{address}");
    test(Client::connect(&target).await.unwrap()).await;
    broker.stop().await.unwrap();
}
