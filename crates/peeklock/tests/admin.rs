//! Administration repeats requests whose connection was lost, and reports other failures at once. The broker is a script.
#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use peeklock::admin::{Admin, Class, Hub, Queue, Rule, Scope, Subscription, Topic, WhichKey};
use peeklock::{Backoff, Client, Dial, DialError, Kind};
use peeklock_client::{Options, Target};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// One answer of the script: a status and a body, or the end of the connection.
#[derive(Clone, Copy)]
enum Answer {
    Cut,
    Status(u16, &'static str),
}

use Answer::{Cut, Status};

const QUEUE: &str = r#"{"name":"jobs","lockDuration":"30s","activeCount":3,"lockedCount":0,"deferredCount":0,"scheduledCount":0,"deadLetterCount":1,"transferCount":0,"transferDeadLetterCount":0,"messageCount":4,"sizeBytes":10,"createdAt":"","updatedAt":"","accessedAt":"","revision":2}"#;
const REFUSED: &str = r#"{"error":{"code":"invalid","message":"no"}}"#;

/// A broker that answers the requests in the order of a script, and returns their first lines.
struct Script {
    admin: Admin,
    requests: tokio::task::JoinHandle<Vec<String>>,
}

impl Script {
    async fn start(answers: &'static [Answer]) -> Self {
        Script::with(answers, Backoff::exponential(Duration::ZERO, Duration::ZERO).attempts(5)).await
    }

    async fn with(answers: &'static [Answer], backoff: Backoff) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = format!("amqp://a:b@{}", listener.local_addr().unwrap());
        let requests = tokio::spawn(serve(listener, answers));
        let admin = Client::over(Arc::new(Stub(target))).retry(backoff).admin().await.unwrap();
        Script { admin, requests }
    }

    async fn requests(self) -> Vec<String> {
        self.requests.await.unwrap()
    }
}

struct Stub(String);

impl Dial for Stub {
    fn dial(&self) -> BoxFuture<'_, Result<peeklock_client::Client, DialError>> {
        Box::pin(async { Err(DialError::from(Target::parse("").unwrap_err())) })
    }

    fn admin(&self) -> peeklock_client::Admin {
        peeklock_client::Admin::new(&Target::parse(&self.0).unwrap(), &Options::default())
    }

    fn address(&self) -> String {
        self.0.clone()
    }
}

async fn serve(listener: TcpListener, answers: &'static [Answer]) -> Vec<String> {
    let mut requests = Vec::new();
    let mut open: Option<TcpStream> = None;
    for answer in answers {
        let mut stream = match open.take() {
            Some(stream) => stream,
            None => listener.accept().await.unwrap().0,
        };
        requests.push(request(&mut stream).await);
        if let Status(status, body) = answer {
            let length = body.len();
            let head = format!("HTTP/1.1 {status} Status\r\ncontent-length: {length}\r\n\r\n{body}");
            stream.write_all(head.as_bytes()).await.unwrap();
            // After an answer of a busy broker, the client uses another connection.
            open = (*status != 503).then_some(stream);
        }
    }
    requests
}

/// Reads a request and returns its first line.
async fn request(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    let mut byte = [0];
    while !text.ends_with("\r\n\r\n") {
        stream.read_exact(&mut byte).await.unwrap();
        text.push(char::from(byte[0]));
    }
    let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap_or("0");
    let mut body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut body).await.unwrap();
    text.lines().next().unwrap().trim_end_matches(" HTTP/1.1").to_owned()
}

#[tokio::test]
async fn a_read_is_repeated_after_a_lost_connection() {
    let script = Script::start(&[Cut, Cut, Status(200, QUEUE)]).await;
    let queue = script.admin.queue("jobs").await.unwrap();
    assert_eq!((queue.counts.active_count, queue.counts.dead_letter_count), (3, 1));
    assert_eq!(script.requests().await, ["GET /api/queues/jobs"; 3]);
}

#[tokio::test]
async fn a_queue_that_an_unanswered_request_created_counts_as_created() {
    let script = Script::start(&[Cut, Status(412, REFUSED), Status(200, QUEUE)]).await;
    let queue = script.admin.create_queue("jobs", Queue::new()).await.unwrap();
    assert_eq!(queue.name, "jobs");
    let requests = ["PUT /api/queues/jobs", "PUT /api/queues/jobs", "GET /api/queues/jobs"];
    assert_eq!(script.requests().await, requests);
}

#[tokio::test]
async fn a_name_that_is_taken_is_an_error_of_its_kind() {
    let script = Script::start(&[Status(412, REFUSED)]).await;
    let error = script.admin.create_queue("jobs", Queue::new()).await.unwrap_err();
    assert_eq!((error.kind(), error.code(), error.is_transient()), (Kind::Exists, "E-ENT-01", false));
    assert!(error.to_string().contains("'jobs'"), "{error}");
    assert_eq!(script.requests().await.len(), 1);
}

#[tokio::test]
async fn a_queue_that_an_unanswered_request_deleted_counts_as_deleted() {
    let script = Script::start(&[Cut, Status(404, REFUSED)]).await;
    script.admin.delete_queue("jobs").await.unwrap();
    let script = Script::start(&[Status(404, REFUSED)]).await;
    let error = script.admin.delete_queue("jobs").await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (Kind::NotFound, "E-ENT-04"));
}

#[tokio::test]
async fn a_request_whose_repetition_has_another_effect_is_not_repeated() {
    let script = Script::start(&[Cut]).await;
    let error = script.admin.rotate_key(Scope::Queue("jobs"), "app", WhichKey::Primary).await.unwrap_err();
    assert_eq!((error.kind(), error.is_transient()), (Kind::Connection, true));
    let requests = script.requests().await;
    assert_eq!(requests, ["POST /api/queues/jobs/policies/app/regenerate"]);
}

#[tokio::test]
async fn a_busy_broker_is_asked_again_until_the_retries_are_used_up() {
    let script = Script::start(&[Status(503, REFUSED), Status(200, QUEUE)]).await;
    script.admin.queue("jobs").await.unwrap();
    let twice = Backoff::exponential(Duration::ZERO, Duration::ZERO).attempts(2);
    let script = Script::with(&[Status(503, REFUSED), Status(503, REFUSED)], twice).await;
    assert_eq!(script.admin.queue("jobs").await.unwrap_err().kind(), Kind::Busy);
}

#[tokio::test]
async fn a_missing_right_and_a_change_in_the_meantime_have_their_kinds() {
    let script = Script::start(&[Status(401, REFUSED), Status(412, REFUSED)]).await;
    assert_eq!(script.admin.queue("jobs").await.unwrap_err().kind(), Kind::Unauthorized);
    let error = script.admin.update_queue_at("jobs", 7, Queue::new().max_count(5)).await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (Kind::Changed, "E-ENT-02"));
}

#[tokio::test]
async fn requests_of_several_tasks_do_not_wait_for_each_other() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = format!("amqp://a:b@{}", listener.local_addr().unwrap());
    let admin = Client::over(Arc::new(Stub(target))).admin().await.unwrap();
    let (one, other) = (admin.clone(), admin);
    let one = tokio::spawn(async move { one.queue("one").await });
    let other = tokio::spawn(async move { other.queue("other").await });
    // Both requests are there before either has an answer.
    let (mut first, mut second) = (listener.accept().await.unwrap().0, listener.accept().await.unwrap().0);
    let mut requests = [request(&mut first).await, request(&mut second).await];
    requests.sort();
    assert_eq!(requests, ["GET /api/queues/one", "GET /api/queues/other"]);
    for stream in [&mut first, &mut second] {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{QUEUE}", QUEUE.len());
        stream.write_all(head.as_bytes()).await.unwrap();
    }
    assert!(one.await.unwrap().is_ok() && other.await.unwrap().is_ok());
}

/// Returns the error of settings that are rejected before any request: nothing answers.
async fn rejected<T>(call: impl AsyncFnOnce(Admin) -> Result<T, peeklock::Error>) -> String {
    let admin = Client::over(Arc::new(Stub("amqp://a:b@127.0.0.1:1".to_owned()))).admin().await.unwrap();
    let error = call(admin).await.err().unwrap();
    assert_eq!((error.kind(), error.code()), (Kind::Invalid, "E-ADMIN-01"), "{error}");
    error.to_string()
}

#[tokio::test]
async fn settings_are_validated_before_they_are_sent() {
    let queue = async |queue: Queue| rejected(async |admin| admin.create_queue("jobs", queue).await).await;
    assert!(queue(Queue::new().lock_duration(Duration::from_secs(3600))).await.contains("lock duration"));
    assert!(queue(Queue::new().forward_to("no such*name")).await.contains('*'));
    assert!(queue(Queue::new().classes(["high", "high"])).await.contains("'high'"));
    assert!(queue(Queue::new().classes(["1st"])).await.contains('1'));
    assert!(queue(Queue::new().class(Class::new("a").objective(0.9))).await.contains("target"));
    assert!(queue(Queue::new().class("a").class_rule("tier = ", "a")).await.contains("order.rules"));
    assert!(queue(Queue::new().default_class("none")).await.contains("'none'"));
    let hub = rejected(async |admin| admin.create_hub("telemetry", Hub::new().partitions(0)).await).await;
    assert!(hub.contains("partitions"), "{hub}");
    let rule = Subscription::new().rule("large", Rule::sql("amount >"));
    let rule = rejected(async |admin| admin.create_subscription("orders", "audit", rule).await).await;
    assert!(rule.contains("'large'"), "{rule}");
    let topic = Topic::new().user_metadata("x".repeat(2000).as_str());
    let topic = rejected(async |admin| admin.create_topic("orders", topic).await).await;
    assert!(topic.contains("metadata"), "{topic}");
    let name = rejected(async |admin| admin.queue("a b").await).await;
    assert!(name.contains("' '"), "{name}");
}

#[test]
fn requests_can_be_spawned() {
    fn is_send<T: Send>(_: T) {}
    fn check(admin: &Admin) {
        is_send(admin.create_queue("jobs", Queue::new()));
        is_send(admin.create_subscription("a", "b", Subscription::new()));
        is_send(admin.reset_checkpoints("a", "b", None, &peeklock::admin::ResetTo::Sequence(1), true));
    }
    let _ = check;
}
