//! Management requests against a server that answers by a script.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use peeklock_client::{
    Admin, AdminError, EntityName, KeyScope, Options, OrderSpec, QueueSpec, RuleSpec, Sample, SequenceNumber,
    SubscriptionSpec, Target, TopicSpec, WhichKey,
};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

/// The requests so far, one line each: method, path and query, conditions, body.
type Asked = Arc<Mutex<Vec<String>>>;

const QUEUE: &str = r#"{"name":"orders","lockDuration":"30s","activeCount":3,"lockedCount":0,"deferredCount":0,"scheduledCount":0,
    "deadLetterCount":1,"transferCount":0,"transferDeadLetterCount":0,"messageCount":4,"sizeBytes":99,
    "createdAt":"2026-01-01T00:00:00.000Z","updatedAt":"2026-01-01T00:00:00.000Z","accessedAt":"2026-01-01T00:00:00.000Z","revision":1}"#;

/// Returns a client of a server that gives these answers in order, and then repeats the last one.
async fn admin(answers: &[(u16, &'static str)]) -> (Admin, Asked) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let asked = Asked::default();
    let (answers, log) = (answers.to_vec(), Arc::clone(&asked));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (answers, log) = (answers.clone(), Arc::clone(&log));
            let service = service_fn(move |request| answer(request, answers.clone(), Arc::clone(&log)));
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    (connect(&format!("amqp://app:secret@{address}")), asked)
}

fn connect(target: &str) -> Admin {
    Admin::new(&Target::parse(target).unwrap(), &Options::default())
}

async fn answer(
    request: Request<Incoming>,
    answers: Vec<(u16, &'static str)>,
    asked: Asked,
) -> hyper::Result<Response<Full<Bytes>>> {
    let header = |name: &str| request.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
    let token = header("authorization").unwrap();
    assert!(token.starts_with("SharedAccessSignature sr=sb%3A%2F%2F127%2E0%2E0%2E1%3A"), "{token}");
    assert!(token.ends_with("&skn=app"), "{token}");
    let mut line = format!("{} {}", request.method(), request.uri());
    for name in ["if-match", "if-none-match"] {
        line.extend(header(name).map(|value| format!(" {name}:{value}")));
    }
    let body = request.into_body().collect().await?.to_bytes();
    line.push_str(&format!(" {}", String::from_utf8_lossy(&body)));
    let index = {
        let mut asked = asked.lock().unwrap();
        asked.push(line.trim_end().to_owned());
        asked.len() - 1
    };
    let (status, text) = answers[index.min(answers.len() - 1)];
    Ok(Response::builder().status(status).body(Full::new(text.into())).unwrap())
}

fn name(text: &str) -> EntityName {
    EntityName::parse(text).unwrap()
}

#[tokio::test]
async fn a_creation_and_a_change_have_different_conditions() {
    let (mut admin, asked) = admin(&[(201, QUEUE), (200, QUEUE), (200, QUEUE), (204, "")]).await;
    let spec = QueueSpec { max_delivery_count: Some(3), forward_to: Some(None), ..QueueSpec::default() };
    let made = admin.create_queue(&name("shop/orders"), &spec).await.unwrap();
    assert_eq!((made.counts.active_count, made.spec.settings().lock_duration.as_secs()), (3, 30));
    admin.update_queue(&name("orders"), &QueueSpec::default()).await.unwrap();
    admin.queue(&name("orders")).await.unwrap();
    admin.delete_queue(&name("orders")).await.unwrap();
    assert_eq!(
        *asked.lock().unwrap(),
        [
            r#"PUT /api/queues/shop%2Forders if-none-match:* {"maxDeliveryCount":3,"forwardTo":null}"#,
            "PUT /api/queues/orders if-match:* {}",
            "GET /api/queues/orders",
            "DELETE /api/queues/orders",
        ]
    );
}

#[tokio::test]
async fn a_change_of_a_revision_fails_if_the_entity_has_another_one() {
    let (mut admin, asked) =
        admin(&[(200, QUEUE), (412, r#"{"error":{"code":"preconditionFailed"}}"#)]).await;
    let spec = QueueSpec { order: Some(Some(OrderSpec::default())), ..QueueSpec::default() };
    admin.update_queue_at(&name("orders"), 7, &spec).await.unwrap();
    let late = admin.update_subscription_at(&name("news"), "all", 8, &SubscriptionSpec::default()).await;
    assert!(matches!(late, Err(AdminError::Changed { .. })), "{late:?}");
    assert_eq!(
        *asked.lock().unwrap(),
        [
            r#"PUT /api/queues/orders if-match:"7" {"order":{"policy":"aged","maxOutstanding":16}}"#,
            r#"PUT /api/topics/news/subscriptions/all if-match:"8" {}"#,
        ]
    );
}

#[tokio::test]
async fn a_message_is_explained_in_its_queue_or_subscription() {
    let (mut admin, asked) = admin(&[(200, r#"{"state":"waiting","aheadCount":2}"#), (404, "{}")]).await;
    let told = admin.explain_message(&name("jobs"), SequenceNumber(17)).await.unwrap();
    assert_eq!((told.state.as_str(), told.ahead_count), ("waiting", 2));
    let gone = admin.explain_message(&name("news/subscriptions/all"), SequenceNumber(18)).await.unwrap_err();
    assert!(gone.to_string().starts_with("there is no message 18 of 'news/"), "{gone}");
    assert_eq!(
        *asked.lock().unwrap(),
        [
            "GET /api/queues/jobs/messages/17/explain",
            "GET /api/topics/news/subscriptions/all/messages/18/explain"
        ]
    );
}

#[tokio::test]
async fn a_collection_is_read_to_its_end() {
    let pages = [
        (200, r#"{"items":[{"name":"a","sql":"x = 1","createdAt":"t"}],"next":"a b"}"#),
        (200, r#"{"items":[{"name":"b","createdAt":"t"}],"next":null}"#),
    ];
    let (mut admin, asked) = admin(&pages).await;
    let rules = admin.rules(&name("news"), "weather").await.unwrap();
    assert_eq!(rules.len(), 2);
    assert_eq!(rules[0].spec, RuleSpec { sql: Some("x = 1".to_owned()), ..RuleSpec::default() });
    let path = "GET /api/topics/news/subscriptions/weather/rules?top=1000";
    assert_eq!(*asked.lock().unwrap(), [path.to_owned(), format!("{path}&after=a%20b")]);
}

#[tokio::test]
async fn a_server_that_repeats_a_page_does_not_cause_endless_requests() {
    let (mut admin, asked) = admin(&[(200, r#"{"items":[{"name":"a","createdAt":"t"}],"next":"a"}"#)]).await;
    assert_eq!(admin.rules(&name("news"), "weather").await.unwrap().len(), 2);
    assert_eq!(asked.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn keys_and_samples_are_posted() {
    let key = r#"{"name":"app","rights":["Send"],"primaryKey":"p","secondaryKey":"s","isDeclared":false,"createdAt":"t","modifiedAt":"t"}"#;
    let explained = r#"{"items":[{"subscription":"a","copies":1,"rules":[{"name":"r","matched":true,"why":"it is so"}]}]}"#;
    let (mut admin, asked) = admin(&[(200, key), (200, explained)]).await;
    let scope = KeyScope::Queue(name("orders"));
    let rotated = admin.rotate_key(&scope, "app", WhichKey::Secondary).await.unwrap();
    assert_eq!(rotated.primary_key.as_deref(), Some("p"));
    assert!(!format!("{rotated:?}").contains("\"p\""), "secrets are not printed");
    let sample = Sample { label: Some("order".to_owned()), ..Sample::default() };
    assert_eq!(admin.explain(&name("news"), &sample).await.unwrap()[0].copies, 1);
    assert_eq!(
        *asked.lock().unwrap(),
        [
            r#"POST /api/queues/orders/policies/app/regenerate {"key":"secondary"}"#,
            r#"POST /api/topics/news/explain {"properties":{},"label":"order"}"#,
        ]
    );
}

async fn refused(status: u16, body: &'static str) -> String {
    let (mut admin, _) = admin(&[(status, body)]).await;
    admin.create_topic(&name("news"), &TopicSpec::default()).await.unwrap_err().to_string()
}

#[tokio::test]
async fn errors_name_the_subject_and_the_remedy() {
    assert_eq!(
        refused(412, r#"{"error":{"code":"preconditionFailed","message":"exists"}}"#).await,
        "there is already a queue, topic or hub 'news'; change it with `peeklock topic update news`, or choose another name"
    );
    assert_eq!(
        refused(401, r#"{"error":{"code":"unauthorized","message":"the token has expired"}}"#).await,
        "access to topic 'news' is refused: the token has expired"
    );
    let quota = refused(403, r#"{"error":{"code":"quotaExceeded","message":"no more topics"}}"#).await;
    assert!(quota.contains("status 403: no more topics"), "{quota}");
    let strange = refused(500, "<html>oops").await;
    assert!(strange.contains("500") && strange.contains("<html>oops"), "{strange}");
    let (mut admin, _) = admin(&[(404, "{}")]).await;
    let told = admin.rule(&name("news"), "weather", "r").await.unwrap_err().to_string();
    assert!(told.contains("no rule 'r'") && told.contains("peeklock rule list news weather"), "{told}");
    let told = admin.update_queue(&name("q"), &QueueSpec::default()).await.unwrap_err().to_string();
    assert!(told.contains("there is no queue 'q'; create it with `peeklock queue create q`"), "{told}");
}

#[tokio::test]
async fn an_answer_in_another_format_is_an_error() {
    let (mut admin, _) = admin(&[(200, "[1]")]).await;
    let told = admin.queues().await.unwrap_err();
    assert!(matches!(told, AdminError::Malformed { .. }), "{told}");
}

#[tokio::test]
async fn a_server_without_http_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"AMQP\x00\x01\x00\x00").await.unwrap();
        let (_closed, _) = listener.accept().await.unwrap();
    });
    let mut admin = connect(&format!("amqp://a:b@{address}"));
    let told = admin.queues().await.unwrap_err();
    assert!(matches!(told, AdminError::Malformed { .. }), "{told}");
    // The next request reconnects, and the new connection ends at once.
    let told = admin.queues().await.unwrap_err();
    assert!(matches!(told, AdminError::ConnectionLost { .. }), "{told}");
}

#[tokio::test]
async fn a_token_that_is_invalid_in_a_header_is_an_error() {
    let mut admin =
        connect("Endpoint=sb://127.0.0.1:1;SharedAccessSignature=a\u{1}b;UseDevelopmentEmulator=true");
    let told = admin.queues().await.unwrap_err();
    assert!(matches!(told, AdminError::Request { .. }), "{told}");
}
