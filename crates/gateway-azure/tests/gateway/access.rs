//! Claims: the rights of a connection, their expiry, and the end of the links that depend on them.

use std::time::Duration;

use peeklock_access::{Policy, PolicyChange, Right, Rights, Secret, Which, sign};
use peeklock_amqp::connection::{Event, SaslClient};
use peeklock_amqp::{AmqpError, Attach, DeliveryState, Fields, Value};
use peeklock_types::{EntityName, QueueSettings};
use tokio::time::Instant;

use crate::support::{Client, Rig, condition_of, message, receiver, sender};

const UNAUTHORIZED: &str = "amqp:unauthorized-access";

/// Returns a token that expires in this many seconds.
pub(crate) fn token(rig: &Rig, key_name: &str, secret: &Secret, audience: &str, life_s: u64) -> String {
    let resource = audience.replace(':', "%3a").replace('/', "%2f");
    let end = (rig.broker.clock().now().as_millis() / 1000 + life_s).to_string();
    let signature = sign(secret, &resource, &end).replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
    format!("SharedAccessSignature sr={resource}&sig={signature}&se={end}&skn={key_name}")
}

fn orders_token(rig: &Rig, life_s: u64) -> String {
    token(rig, "all", &Secret::new("secret"), "sb://h/orders", life_s)
}

async fn rig() -> Rig {
    let rig = Rig::with_queue("orders", QueueSettings::default()).await;
    rig.queue("invoices", QueueSettings::default()).await;
    rig
}

async fn anonymous(rig: &Rig) -> Client {
    rig.client_with(SaslClient::anonymous()).await
}

async fn closed(client: &mut Client) -> AmqpError {
    client
        .until(|event| match event {
            Event::Closed { error } => Some(error.clone().expect("a close with an error")),
            _ => None,
        })
        .await
}

fn text(error: &AmqpError) -> String {
    error.description.as_ref().map(ToString::to_string).unwrap_or_default()
}

fn rights(rights: &[Right]) -> PolicyChange {
    PolicyChange { rights: Some(Rights::of(rights)), ..PolicyChange::default() }
}

fn policy(rig: &Rig, scope: Option<&str>, name: &str, given: &[Right]) -> Policy {
    let scope = scope.map(|scope| EntityName::parse(scope).unwrap());
    rig.access.put(scope.as_ref(), name, rights(given), rig.broker.clock().now()).unwrap().0
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_a_token_ends_after_twenty_seconds() {
    let rig = rig().await;
    let mut client = anonymous(&rig).await;
    let began = Instant::now();
    let error = closed(&mut client).await;
    assert_eq!(error.condition, "amqp:connection:forced");
    assert!(text(&error).contains("unauthorized: no valid token"), "{error:?}");
    assert!((19..22).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn the_input_of_a_connection_without_a_token_is_limited() {
    let rig = rig().await;
    let mut client = anonymous(&rig).await;
    let tokens = client.tokens().await;
    let began = Instant::now();
    for _ in 0..40 {
        let bad = format!("SharedAccessSignature sr=a&sig=b&se=1&skn={}", "x".repeat(8000));
        let request = message("put").with_property("operation", "put-token").with_property("name", bad);
        client.start_send(tokens.requests, &request, None);
    }
    let error = closed(&mut client).await;
    assert!(text(&error).contains("unauthorized: more than 262144 bytes"), "{error:?}");
    assert!(began.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn links_end_with_their_token_and_other_links_continue() {
    let rig = rig().await;
    let mut client = anonymous(&rig).await;
    let tokens = client.tokens().await;
    assert_eq!(client.attach(sender("orders")).await.unwrap_err().condition, UNAUTHORIZED);
    assert_eq!(client.put_token(&tokens, "sb://h/orders", orders_token(&rig, 60)).await, 202);
    let longer = token(&rig, "all", &Secret::new("secret"), "sb://h/invoices", 300);
    assert_eq!(client.put_token(&tokens, "sb://h/invoices", longer).await, 202);
    let (orders, invoices) = (client.sender("orders").await, client.sender("invoices").await);
    let listening = client.receiver("orders").await;
    let began = Instant::now();
    for link in [orders, listening] {
        let error = client.detached(link).await;
        assert_eq!(error.condition, UNAUTHORIZED);
        assert!(text(&error).contains("ExpiredToken"), "{error:?}");
    }
    assert!((59..62).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    assert_eq!(client.send(invoices, &message("one")).await, DeliveryState::Accepted);
    assert_eq!(client.attach(sender("orders")).await.unwrap_err().condition, UNAUTHORIZED);
    let mut management = client.management("invoices").await;
    assert_eq!(client.count(&management).await, 1);
    management = client.management("orders").await;
    let body = vec![("from-sequence-number", 0_i64.into()), ("message-count", 1.into())];
    let response = client.request(&management, "com.microsoft:peek-message", body).await;
    assert_eq!(response.status, 401);
}

#[tokio::test(start_paused = true)]
async fn locked_messages_of_a_detached_receiver_go_to_others() {
    let rig = rig().await;
    let mut good = rig.client().await;
    let mut client = anonymous(&rig).await;
    let tokens = client.tokens().await;
    assert_eq!(client.put_token(&tokens, "sb://h/orders", orders_token(&rig, 10)).await, 202);
    let listening = client.receiver("orders").await;
    client.connection.set_credit(listening, 10);
    client.detached(listening).await;
    // Whether or not the peer has answered the detach, its credit gets no more messages.
    let sender = good.sender("orders").await;
    good.send(sender, &message("one")).await;
    let receiver = good.receiver("orders").await;
    assert_eq!(good.receive(receiver).await.1.properties.message_id, message("one").properties.message_id);
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_put_again_renews_the_claim() {
    let rig = rig().await;
    let mut client = anonymous(&rig).await;
    let tokens = client.tokens().await;
    assert_eq!(client.put_token(&tokens, "sb://h/orders", orders_token(&rig, 60)).await, 202);
    let orders = client.sender("orders").await;
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_secs(50)).await;
        assert_eq!(
            client.put_token(&tokens, "amqps://h/Orders/$management", orders_token(&rig, 60)).await,
            202
        );
        assert_eq!(client.send(orders, &message("on and on")).await, DeliveryState::Accepted);
    }
}

#[tokio::test(start_paused = true)]
async fn a_replaced_or_removed_key_ends_its_links() {
    let rig = rig().await;
    let app = policy(&rig, None, "app", &[Right::Send]);
    let (mut first, mut second) = (anonymous(&rig).await, anonymous(&rig).await);
    let mut links = Vec::new();
    for (client, secret) in [(&mut first, &app.primary), (&mut second, &app.secondary)] {
        let tokens = client.tokens().await;
        let token = token(&rig, "app", secret, "sb://h/orders", 3600);
        assert_eq!(client.put_token(&tokens, "sb://h/orders", token).await, 202);
        links.push(client.sender("orders").await);
    }
    let now = rig.broker.clock().now();
    rig.access.regenerate(None, "app", Which::Primary, now).unwrap();
    let error = first.detached(links[0]).await;
    assert_eq!(error.condition, UNAUTHORIZED);
    assert!(text(&error).contains("removed, replaced"), "{error:?}");
    assert_eq!(second.send(links[1], &message("still")).await, DeliveryState::Accepted);
    rig.access.remove(None, "app").unwrap();
    assert_eq!(second.detached(links[1]).await.condition, UNAUTHORIZED);
    // A connection without any claim is closed after a short time.
    assert!(text(&closed(&mut second).await).contains("no valid token"));
}

/// The message is there before the gateway can run, so it is handled after the end of the claim although input comes before timers.
#[tokio::test(start_paused = true)]
async fn input_that_follows_the_end_of_a_claim_has_no_effect() {
    let rig = rig().await;
    let app = policy(&rig, None, "app", &[Right::Send]);
    let waiting = async || {
        let found = rig.broker.show(EntityName::parse("orders").unwrap()).await.unwrap();
        found.counts.active_count
    };
    let mut client = anonymous(&rig).await;
    let tokens = client.tokens().await;
    let signed = token(&rig, "app", &app.primary, "sb://h/orders", 3600);
    assert_eq!(client.put_token(&tokens, "sb://h/orders", signed).await, 202);
    let link = client.sender("orders").await;
    assert_eq!(client.send(link, &message("in time")).await, DeliveryState::Accepted);
    rig.access.remove(None, "app").unwrap();
    client.start_send(link, &message("too late"), None);
    client.flush().await;
    assert_eq!(client.detached(link).await.condition, UNAUTHORIZED);
    assert_eq!(waiting().await, 1, "the key was removed before the message arrived");

    let mut client = anonymous(&rig).await;
    let tokens = client.tokens().await;
    assert_eq!(client.put_token(&tokens, "sb://h/orders", orders_token(&rig, 10)).await, 202);
    let link = client.sender("orders").await;
    assert_eq!(client.send(link, &message("in time")).await, DeliveryState::Accepted);
    client.start_send(link, &message("too late"), None);
    client.flush().await;
    tokio::time::advance(Duration::from_secs(11)).await;
    assert_eq!(client.detached(link).await.condition, UNAUTHORIZED);
    assert_eq!(waiting().await, 2, "the token expired before the message arrived");
}

#[tokio::test(start_paused = true)]
async fn a_policy_change_ends_links_of_a_sasl_plain_connection() {
    let rig = rig().await;
    let app = policy(&rig, Some("orders"), "app", &[Right::Listen]);
    let mut client = rig.client_with(SaslClient::plain("app", app.primary.expose())).await;
    assert_eq!(client.attach(sender("orders")).await.unwrap_err().condition, UNAUTHORIZED);
    assert_eq!(client.attach(receiver("invoices", None)).await.unwrap_err().condition, UNAUTHORIZED);
    let link = client.receiver("orders").await;
    policy(&rig, Some("orders"), "app", &[Right::Send]);
    assert_eq!(client.detached(link).await.condition, UNAUTHORIZED);
}

#[tokio::test(start_paused = true)]
async fn sending_by_way_of_another_entity_requires_a_right_on_both() {
    let rig = rig().await;
    let via = |to: &'static str| {
        let properties = Some(Fields::new().with("com.microsoft:transfer-destination-address", to));
        Attach { properties, ..sender("orders") }
    };
    let app = policy(&rig, Some("orders"), "app", &[Right::Manage]);
    let mut client = rig.client_with(SaslClient::plain("app", app.primary.expose())).await;
    assert_eq!(client.attach(via("invoices")).await.unwrap_err().condition, UNAUTHORIZED);
    let tokens = client.tokens().await;
    let other = policy(&rig, Some("invoices"), "other", &[Right::Send]);
    let token = token(&rig, "other", &other.primary, "sb://h/invoices", 60);
    assert_eq!(client.put_token(&tokens, "sb://h/invoices", token).await, 202);
    let link = client.attach(via("invoices")).await.unwrap().0;
    assert_eq!(client.send(link, &message("one")).await, DeliveryState::Accepted);
    let error = client.detached(link).await;
    assert!(text(&error).contains("'invoices'"), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_transaction_cannot_outlive_the_token_of_its_steps() {
    let rig = rig().await;
    let mut client = rig.client_with(SaslClient::plain("listener", "secret")).await;
    let tokens = client.tokens().await;
    assert_eq!(client.put_token(&tokens, "sb://h/orders", orders_token(&rig, 30)).await, 202);
    let orders = client.sender("orders").await;
    let (control, _) = client.coordinator().await;
    let txn = client.declare(control).await;
    client.send_in(orders, &message("one"), Some(&txn)).await;
    client.detached(orders).await;
    let refused = client.discharge(control, &txn, false).await;
    assert_eq!(condition_of(&refused), "amqp:transaction:rollback");
    let management = client.management("orders").await;
    assert_eq!(client.count(&management).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_token_for_one_entity_permits_no_other() {
    let rig = rig().await;
    rig.queue("orders/2024", QueueSettings::default()).await;
    let app = policy(&rig, Some("orders"), "app", &[Right::Manage]);
    let mut client = anonymous(&rig).await;
    let tokens = client.tokens().await;
    let put = |audience: &str, signed_for: &str| {
        (audience.to_owned(), token(&rig, "app", &app.primary, signed_for, 3600))
    };
    for (audience, signed_for) in [
        ("sb://h/invoices", "sb://h/orders"),
        ("sb://h/invoices", "sb://h/"),
        ("sb://h/", "sb://h/"),
        ("sb://h/orders/../invoices", "sb://h/orders"),
        ("sb://h/orders%2f..%2finvoices", "sb://h/orders"),
        ("sb://h/orders/2024", "sb://h/orders"),
        ("sb://h//", "sb://h/orders"),
    ] {
        let (audience, token) = put(audience, signed_for);
        let status = client.put_token(&tokens, &audience, token).await;
        assert!(status == 401, "{audience} by {signed_for}");
    }
    let (audience, token) = put("sb://h/orders", "sb://h/");
    assert_eq!(client.put_token(&tokens, &audience, token).await, 202);
    client.sender("orders").await;
    for other in ["invoices", "orders/2024", "orders/../invoices", "orders%2f..%2finvoices"] {
        assert!(client.attach(sender(other)).await.is_err(), "{other}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_for_an_entity_that_does_not_exist_is_answered_with_404() {
    let rig = rig().await;
    rig.topic("news").await;
    rig.subscription("news/Subscriptions/audit", None).await;
    let mut client = anonymous(&rig).await;
    let tokens = client.tokens().await;
    let good = |audience: &str| token(&rig, "all", &Secret::new("secret"), audience, 60);
    let wrong = |audience: &str| token(&rig, "all", &Secret::new("other"), audience, 60);
    for audience in [
        "sb://h/",
        "amqp://h:5672/orders/",
        "http://h/Orders/$DeadLetterQueue",
        "https://h/news/subscriptions/audit/$management",
        "sb://h/%6frders",
        "sb://h/$management",
    ] {
        assert_eq!(client.put_token(&tokens, audience, good(audience)).await, 202, "{audience}");
    }
    for (audience, name) in [
        ("amqp://h:5672/nope/", "nope"),
        ("sb://h/nope/$DeadLetterQueue", "nope"),
        ("http://h/news/Subscriptions/nope/$management", "news/Subscriptions/nope"),
        ("amqps://h/nohub/ConsumerGroups/$Default/Partitions/0", "nohub"),
    ] {
        // A peer without the right cannot find out which entities exist.
        assert_eq!(client.put_token(&tokens, audience, wrong(audience)).await, 401, "{audience}");
        let response = client.put_token_response(&tokens, audience, good(audience)).await;
        assert_eq!(response.property("status-code").and_then(Value::as_i32), Some(404), "{audience}");
        let said = response.property("status-description").and_then(Value::as_str).unwrap();
        let sentence = format!("/{name}' could not be found. Create it with: peeklock ");
        assert!(said.starts_with("The messaging entity 'sb://") && said.contains(&sentence), "{said}");
        assert_eq!(
            response.property("error-condition"),
            None,
            "Python shows the description only without a condition"
        );
    }
    rig.queue("nope", QueueSettings::default()).await;
    assert_eq!(client.put_token(&tokens, "amqp://h/nope", good("amqp://h/nope")).await, 202);
}
