//! The figures for operators: classes in the JSON API and for Prometheus, over real sockets.

use std::net::SocketAddr;
use std::time::Duration;

use peeklock_amqp::Message;
use peeklock_client::{Admin, ClassRuntime, Client, Header, SequenceNumber, Target};
use peeklock_server::{Addresses, Options, Policy, Right, Server};
use peeklock_types::{ClassName, ClassSettings, EntityName, OrderPolicy, OrderSettings, QueueSettings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(20);
const KEY: &str = "a-key-of-our-own-for-this-test";

fn jobs() -> (EntityName, QueueSettings) {
    let class = |name: &str, from, to| ClassSettings::new(ClassName::parse(name).unwrap(), (from, to));
    let mut high = class("high", 7, 9);
    let within = Duration::from_secs(3600);
    high.target = Some(peeklock_types::Target { within, objective_ppm: 990_000 });
    let classes = vec![high, class("normal", 4, 6), class("low", 0, 3)];
    let order = OrderSettings { policy: OrderPolicy::Strict, classes, ..OrderSettings::default() };
    let settings = QueueSettings { order: Some(Box::new(order)), ..QueueSettings::default() };
    (EntityName::parse("jobs").unwrap(), settings)
}

async fn start(data: &tempfile::TempDir, listen: &str) -> Server {
    let listen: SocketAddr = listen.parse().unwrap();
    let options = Options {
        data: data.path().to_owned(),
        listen: Addresses { amqp: Some(listen), ..Addresses::default() },
        keys: vec![Policy::with_one_key("root", KEY, &[Right::Manage])],
        entities: [jobs()].into_iter().collect(),
        ..Options::default()
    };
    Server::start(options).await.unwrap()
}

fn target(server: &Server) -> Target {
    let port = server.addresses.amqp.unwrap().port();
    Target::parse(&format!("amqp://root:{KEY}@127.0.0.1:{port}")).unwrap()
}

async fn scrape(server: &Server, headers: &str) -> String {
    let port = server.addresses.amqp.unwrap().port();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let request =
        format!("GET /metrics HTTP/1.1\r\nHost: localhost:{port}\r\n{headers}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("the connection ends").unwrap();
    String::from_utf8(answer).unwrap()
}

#[track_caller]
fn assert_has(text: &str, line: &str) {
    assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
}

async fn classes(admin: &mut Admin) -> Vec<ClassRuntime> {
    let queue = admin.queue(&jobs().0).await.unwrap();
    queue.runtime.unwrap().order.unwrap().classes
}

#[tokio::test]
async fn classes_are_visible_in_the_api_and_for_prometheus() {
    let data = tempfile::tempdir().unwrap();
    let server = start(&data, "127.0.0.1:0").await;
    let client = Client::connect_with(&target(&server), &peeklock_client::Options::default()).await.unwrap();
    let sender = client.sender("jobs").await.unwrap();
    let by_header = |priority| Message {
        header: Some(Header { priority: Some(priority), ..Header::default() }),
        ..Message::data("by header")
    };
    for message in [
        Message::data("says nothing"),
        by_header(2),
        Message::data("by property").with_property("Priority", "high"),
        by_header(1),
    ] {
        sender.send(&message).await.unwrap();
    }
    let mut admin = Admin::new(&target(&server), &peeklock_client::Options::default());
    let waiting: Vec<_> =
        classes(&mut admin).await.into_iter().map(|class| (class.name, class.waiting)).collect();
    let counts = [("high", 1), ("normal", 1), ("low", 2)].map(|(name, count)| (name.to_owned(), count));
    assert_eq!(waiting, counts);
    let explained = admin.explain_message(&jobs().0, SequenceNumber(4)).await.unwrap();
    assert_eq!((explained.class.as_deref(), explained.ahead_count), (Some("low"), 3));

    let mut receiver = client.receiver("jobs").credit(1).open().await.unwrap();
    let delivery = timeout(PATIENCE, receiver.next()).await.unwrap().unwrap().unwrap();
    assert_eq!(delivery.message().unwrap().body_text(), "by property");
    delivery.complete().await.unwrap();
    receiver.close().await.unwrap();

    let high = classes(&mut admin).await.swap_remove(0);
    assert_eq!((high.waiting, high.started_count, high.settled_count), (0, 1, 1));
    assert_eq!((high.time_in_queue.count, high.critical_time.count), (1, 1));
    assert_eq!(high.target.unwrap().attainment, Some(1.0));
    let text = scrape(&server, "").await;
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    assert_has(&text, r#"peeklock_class_settled_total{queue="jobs",class="high"} 1"#);
    assert_has(&text, r#"peeklock_class_critical_time_seconds_count{queue="jobs",class="high"} 1"#);
    assert_has(&text, r#"peeklock_class_target_good_total{queue="jobs",class="high"} 1"#);
    assert_has(&text, r#"peeklock_class_enqueued_total{queue="jobs",class="low"} 2"#);
    let connections = text.lines().find_map(|line| line.strip_prefix("peeklock_connections ")).unwrap();
    assert!(connections.parse::<u32>().unwrap() >= 2, "the connections of the client and of the request");
    client.close().await;
    drop(admin);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_listener_for_other_machines_requires_a_key() {
    let data = tempfile::tempdir().unwrap();
    let server = start(&data, "0.0.0.0:0").await;
    let refused = scrape(&server, "").await;
    assert!(refused.starts_with("HTTP/1.1 401"), "{refused}");
    assert!(refused.to_lowercase().contains("www-authenticate: basic "), "{refused}");
    // root:a-key-of-our-own-for-this-test
    let basic = "Authorization: Basic cm9vdDphLWtleS1vZi1vdXItb3duLWZvci10aGlzLXRlc3Q=\r\n";
    let text = scrape(&server, basic).await;
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    server.stop().await.unwrap();
}
