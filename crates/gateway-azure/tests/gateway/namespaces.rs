//! Several namespaces behind one gateway.

use peeklock_access::{Access, Policy, Right, Secret};
use peeklock_amqp::DeliveryState;
use peeklock_amqp::connection::SaslClient;
use peeklock_gateway_azure::{Gateway, Namespace};
use peeklock_types::QueueSettings;

use crate::access::token;
use crate::support::{Rig, message, sender};

/// Returns two namespaces with a queue each. Both have the default keys of a rig; the second has an additional key.
async fn two() -> (Rig, Rig) {
    let first = Rig::with_queue("orders", QueueSettings::default()).await;
    let second = Rig::with_queue("invoices", QueueSettings::default()).await;
    let all = |secret: &str| Policy::with_one_key("all", secret, &[Right::Manage]);
    let own = Policy::with_one_key("own", "mine", &[Right::Manage]);
    let of = |name: &str, rig: &Rig, policies| Namespace {
        name: name.to_owned(),
        hosts: vec![format!("{name}.example.org")],
        broker: rig.broker.clone(),
        access: Access::open(None, policies).unwrap(),
    };
    let gateway = Gateway::with_namespaces(
        of("shop", &first, vec![all("secret")]),
        vec![of("bank", &second, vec![all("other"), own])],
    );
    (first.behind(gateway), second)
}

#[tokio::test(start_paused = true)]
async fn a_host_name_selects_the_namespace() {
    let (rig, _second) = two().await;
    for host in ["bank", "BANK.servicebus.windows.net", "bank.example.org", "bank:5671"] {
        let mut client = rig.client_of(host, SaslClient::plain("all", "other")).await;
        assert!(client.attach(sender("orders")).await.is_err(), "{host}");
        let link = client.sender("invoices").await;
        assert_eq!(client.send(link, &message("one")).await, DeliveryState::Accepted);
    }
    for host in ["shop.anything", "localhost", "127.0.0.1:5672"] {
        let mut client = rig.client_of(host, SaslClient::plain("all", "secret")).await;
        assert!(client.attach(sender("invoices")).await.is_err(), "{host}");
        client.sender("orders").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_name_of_only_one_namespace_selects_it() {
    let (rig, second) = two().await;
    let mut client = rig.client_of("localhost", SaslClient::plain("own", "mine")).await;
    client.sender("invoices").await;
    let mut client = rig.client_of("localhost", SaslClient::anonymous()).await;
    let tokens = client.tokens().await;
    let own = token(&second, "own", &Secret::new("mine"), "sb://h/invoices", 60);
    assert_eq!(client.put_token(&tokens, "sb://h/invoices", own).await, 202);
    let link = client.sender("invoices").await;
    assert_eq!(client.send(link, &message("one")).await, DeliveryState::Accepted);
    // The connection has used its namespace; a token of the other namespace is invalid here.
    let foreign = token(&second, "all", &Secret::new("secret"), "sb://h/orders", 60);
    assert_eq!(client.put_token(&tokens, "sb://h/orders", foreign).await, 401);
}

#[tokio::test(start_paused = true)]
async fn a_key_of_another_namespace_is_invalid() {
    let (rig, second) = two().await;
    let mut client = rig.client_of("shop", SaslClient::anonymous()).await;
    let tokens = client.tokens().await;
    for (name, secret) in [("own", "mine"), ("all", "other")] {
        let token = token(&second, name, &Secret::new(secret), "sb://h/invoices", 60);
        assert_eq!(client.put_token(&tokens, "sb://h/invoices", token).await, 401, "{name}");
    }
    assert!(client.attach(sender("invoices")).await.is_err());
}
