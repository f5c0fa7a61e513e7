//! Peers that try to exceed their rights.

use peeklock_access::{Right, Secret};
use peeklock_amqp::{Attach, Fields, Role, Source, Target};

use crate::support::{ROOT, ROOT_SECRET, Rig, start, token};
use crate::wire::Wire;

const UNAUTHORIZED: &str = "amqp:unauthorized-access";

async fn attach(
    wire: &mut Wire,
    handle: u32,
    role: Role,
    address: &str,
) -> Result<(), peeklock_amqp::AmqpError> {
    match role {
        Role::Sender => wire.put_sender(handle, address),
        Role::Receiver => wire.put_receiver(handle, address),
    }
    wire.flush().await;
    wire.granted().await
}

/// Returns the status of an HTTP request with a token for one queue.
async fn manage(rig: &Rig, secret: &Secret, method: &str, path: &str, body: &str) -> u16 {
    let token = token("owner", secret, "sb://localhost/orders", 600);
    rig.http_status(method, path, &token, body).await.0
}

#[tokio::test]
async fn a_token_is_valid_for_its_entity_and_its_time_only() {
    let rig = start().await;
    let secret = rig.policy("orders", "owner", &[Right::Manage]);
    let mut wire = Wire::anonymous(&rig).await;
    wire.service("$cbs").await;
    let good = token("owner", &secret, "sb://h/orders", 600);
    let refused = [
        ("sb://h/invoices", good.clone()),
        ("sb://h/", good.clone()),
        ("sb://h/invoices", token("owner", &secret, "sb://h/invoices", 600)),
        ("sb://h/invoices", token("owner", &secret, "sb://h/", 600)),
        ("sb://h/orders", token("owner", &secret, "sb://h/orders", -5)),
        ("sb://h/orders", good.replace("skn=owner", "skn=root")),
        ("sb://h/orders", good.replace("se=", "se=9")),
        ("sb://h/orders", good.replace("orders", "invoices")),
        ("sb://h/orders", format!("{good}&sr=sb%3a%2f%2fh%2finvoices")),
    ];
    for (number, (audience, token)) in (0..).zip(&refused) {
        let status = wire.put_token(number, audience, token).await;
        // The first occurrence of a repeated part counts, so the last case is a valid token.
        let expected = if number == 8 { 202 } else { 401 };
        assert_eq!(status, expected, "token {number}");
    }
    assert_eq!(wire.put_token(20, "sb://h/orders", &good).await, 202);
    attach(&mut wire, 2, Role::Sender, "orders").await.unwrap();
    for (handle, other) in [(3, "invoices"), (4, "own/1")] {
        for (handle, role) in [(handle, Role::Sender), (handle + 10, Role::Receiver)] {
            assert_eq!(attach(&mut wire, handle, role, other).await.unwrap_err().condition, UNAUTHORIZED);
        }
    }
    rig.still_works().await;
}

#[tokio::test]
async fn a_key_without_a_right_cannot_use_it() {
    let rig = start().await;
    let listen = rig.policy("orders", "listener", &[Right::Listen]);
    let mut wire = Wire::open(rig.amqp(), Some(("listener", listen.expose()))).await;
    assert_eq!(attach(&mut wire, 0, Role::Sender, "orders").await.unwrap_err().condition, UNAUTHORIZED);
    attach(&mut wire, 1, Role::Receiver, "orders/$DeadLetterQueue").await.unwrap();
    let send = rig.policy("orders", "sender", &[Right::Send]);
    let mut wire = Wire::open(rig.amqp(), Some(("sender", send.expose()))).await;
    attach(&mut wire, 0, Role::Sender, "orders").await.unwrap();
    for (handle, part) in
        [(1, "orders"), (2, "orders/$DeadLetterQueue"), (3, "orders/$Transfer/$DeadLetterQueue")]
    {
        assert_eq!(
            attach(&mut wire, handle, Role::Receiver, part).await.unwrap_err().condition,
            UNAUTHORIZED,
            "{part}"
        );
    }
    rig.still_works().await;
}

#[tokio::test]
async fn a_removed_key_is_rejected_at_once() {
    let rig = start().await;
    let secret = rig.policy("orders", "owner", &[Right::Manage]);
    let mut wire = Wire::open(rig.amqp(), Some(("owner", secret.expose()))).await;
    attach(&mut wire, 0, Role::Receiver, "orders").await.unwrap();
    let orders = peeklock_types::EntityName::parse("orders").unwrap();
    rig.server.access.remove(Some(&orders), "owner").unwrap();
    assert_eq!(wire.refusal().await.condition, UNAUTHORIZED);
    assert_eq!(attach(&mut wire, 1, Role::Receiver, "orders").await.unwrap_err().condition, UNAUTHORIZED);
    rig.still_works().await;
}

#[tokio::test]
async fn a_send_through_an_own_queue_requires_rights_on_its_destination() {
    let rig = start().await;
    let secret = rig.policy("orders", "owner", &[Right::Manage]);
    let mut wire = Wire::open(rig.amqp(), Some(("owner", secret.expose()))).await;
    let via = Fields::new().with("com.microsoft:transfer-destination-address", "invoices");
    wire.put(&Attach {
        source: Some(Source::default()),
        target: Some(Target::with_address("orders")),
        properties: Some(via),
        initial_delivery_count: Some(0),
        ..Attach::new("via", 0, Role::Sender)
    });
    wire.flush().await;
    assert_eq!(wire.granted().await.unwrap_err().condition, UNAUTHORIZED);
    rig.still_works().await;
}

#[tokio::test]
async fn a_control_link_gives_no_rights() {
    let rig = start().await;
    let secret = rig.policy("orders", "owner", &[Right::Manage]);
    let mut wire = Wire::open(rig.amqp(), Some(("owner", secret.expose()))).await;
    let control = Target::Coordinator(peeklock_amqp::Coordinator::default());
    wire.put(&Attach {
        source: Some(Source::default()),
        target: Some(control),
        initial_delivery_count: Some(0),
        ..Attach::new("control", 0, Role::Sender)
    });
    wire.flush().await;
    wire.granted().await.unwrap();
    assert_eq!(attach(&mut wire, 1, Role::Sender, "invoices").await.unwrap_err().condition, UNAUTHORIZED);
    rig.still_works().await;
}

/// The owner of one queue sets it to forward to another queue.
#[tokio::test]
async fn forwarding_does_not_bypass_rights() {
    let rig = start().await;
    let secret = rig.policy("orders", "owner", &[Right::Manage]);
    assert_eq!(manage(&rig, &secret, "GET", "/api/queues/orders", "").await, 200);
    let own = r#"{"maxDeliveryCount":7}"#;
    assert_eq!(manage(&rig, &secret, "PUT", "/api/queues/orders", own).await, 200);
    for property in ["forwardTo", "forwardDeadLettersTo"] {
        let body = format!(r#"{{"{property}":"invoices"}}"#);
        let status = manage(&rig, &secret, "PUT", "/api/queues/orders", &body).await;
        assert!(matches!(status, 401 | 403), "{property}: {status}");
    }
    for (method, path) in [
        ("GET", "/api/queues/invoices"),
        ("DELETE", "/api/queues/invoices"),
        ("GET", "/api/queues"),
        ("GET", "/api/policies"),
    ] {
        let status = manage(&rig, &secret, method, path, "").await;
        assert!(matches!(status, 401 | 403), "{method} {path}: {status}");
    }
    let status = manage(&rig, &secret, "PUT", "/api/policies/more", r#"{"rights":["Manage"]}"#).await;
    assert!(matches!(status, 401 | 403), "{status}");
    rig.still_works().await;
}

#[tokio::test]
async fn secrets_in_the_wrong_place_do_not_reach_the_log() {
    let rig = start().await;
    let good = token(ROOT, &Secret::new(ROOT_SECRET), "sb://h/", 600);
    // The secrets are in an address, a name, a path, and the first bytes of a connection.
    let mut wire = Wire::root(&rig).await;
    assert!(attach(&mut wire, 0, Role::Sender, &good).await.is_err());
    rig.http_text(&format!(
        "GET /{} HTTP/1.1\r\nHost: {ROOT_SECRET}\r\nAuthorization: {good}\r\nConnection: close\r\n\r\n",
        "x"
    ))
    .await;
    let mut stream = tokio::net::TcpStream::connect(rig.amqp()).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut stream, format!("{good}\r\n\r\n").as_bytes()).await.unwrap();
    drop(stream);
    rig.still_works().await;
}
