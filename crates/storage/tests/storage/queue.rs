//! Tests each call of Queue Storage with virtual time: statuses, headers, documents and rejections.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::Request;
use http_body_util::BodyExt;
use peeklock_broker::{Broker, Running};
use peeklock_journal::MemoryJournal;
use peeklock_storage::{
    Account, AccountKey, Limits, Service, Storage, WELL_KNOWN_ACCOUNT, WELL_KNOWN_KEY, router,
};
use peeklock_types::{EntityKind, EntityName, QueueSettings};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use ring::hmac;
use tower::ServiceExt;

struct Rig {
    router: Router,
    broker: Broker,
    /// The query of each request: a signature that permits everything.
    signature: String,
    _running: Running,
}

struct Answer {
    status: u16,
    headers: http::HeaderMap,
    body: String,
}

impl Answer {
    #[track_caller]
    fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.body);
        self
    }

    /// Asserts that the answer is a rejection in the format of the service.
    #[track_caller]
    fn refused(self, status: u16, code: &str) {
        let answer = self.expect(status);
        assert_eq!(answer.header("x-ms-error-code"), code, "{}", answer.body);
        assert_eq!(answer.element("Code"), code);
        assert!(!answer.element("Message").is_empty());
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).unwrap_or_else(|| panic!("{name}: {}", self.body)).to_str().unwrap()
    }

    /// Returns the texts of all elements with this name.
    fn elements(&self, name: &str) -> Vec<&str> {
        let (begin, end) = (format!("<{name}>"), format!("</{name}>"));
        self.body.split(&begin).skip(1).map(|rest| rest.split_once(&end).unwrap().0).collect()
    }

    #[track_caller]
    fn element(&self, name: &str) -> &str {
        self.elements(name).first().unwrap_or_else(|| panic!("{name}: {}", self.body))
    }

    /// Returns the address of the first message, with its receipt.
    fn address(&self) -> String {
        format!("/jobs/messages/{}?popreceipt={}", self.element("MessageId"), self.element("PopReceipt"))
    }
}

/// Returns an account signature.
fn sign(permissions: &str, resources: &str) -> String {
    let (end, version) = ("2999-01-01T00:00:00Z", "2021-12-02");
    let lines =
        [WELL_KNOWN_ACCOUNT, permissions, "q", resources, "", end, "", "", version, "", ""].join("\n");
    let key = hmac::Key::new(hmac::HMAC_SHA256, &BASE64.decode(WELL_KNOWN_KEY).unwrap());
    let signature = BASE64.encode(hmac::sign(&key, lines.as_bytes()));
    let signature = utf8_percent_encode(&signature, NON_ALPHANUMERIC);
    format!("sv={version}&ss=q&srt={resources}&sp={permissions}&se={end}&sig={signature}")
}

fn document(text: &str) -> String {
    format!("<QueueMessage><MessageText>{text}</MessageText></QueueMessage>")
}

impl Rig {
    async fn start() -> Self {
        Self::open(&MemoryJournal::new()).await
    }

    async fn open(journal: &MemoryJournal) -> Self {
        let (broker, running, _) = Broker::open(journal, peeklock_message::describe).await.unwrap();
        let key = AccountKey::parse(WELL_KNOWN_KEY).unwrap();
        let account = Account { name: WELL_KNOWN_ACCOUNT.to_owned(), key, broker: broker.clone() };
        let router = router(Storage::new(vec![account], Limits::default()), Service::Queue);
        Rig { router, broker, signature: sign("rwdlacup", "sco"), _running: running }
    }

    async fn with_queue() -> Self {
        let rig = Rig::start().await;
        rig.ask("PUT", "/jobs", "").await.expect(201);
        rig
    }

    async fn ask(&self, method: &str, target: &str, body: &str) -> Answer {
        self.ask_with(method, target, &[], body).await
    }

    async fn ask_with(&self, method: &str, target: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let between = if target.contains('?') { '&' } else { '?' };
        let target =
            format!("http://127.0.0.1:10001/{WELL_KNOWN_ACCOUNT}{target}{between}{}", self.signature);
        let mut request = Request::builder().method(method).uri(target).header("x-ms-version", "2021-12-02");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response =
            self.router.clone().oneshot(request.body(Body::from(body.to_owned())).unwrap()).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
        Answer { status: parts.status.as_u16(), headers: parts.headers, body }
    }

    async fn put(&self, text: &str) -> Answer {
        self.ask("POST", "/jobs/messages", &document(text)).await.expect(201)
    }

    async fn take(&self) -> Answer {
        self.ask("GET", "/jobs/messages", "").await.expect(200)
    }

    async fn count(&self) -> String {
        let shown = self.ask("GET", "/jobs?comp=metadata", "").await.expect(200);
        shown.header("x-ms-approximate-messages-count").to_owned()
    }
}

async fn wait(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn a_queue_is_created_again_only_with_the_same_metadata() {
    let rig = Rig::start().await;
    let make = async |value| rig.ask_with("PUT", "/jobs", &[("x-ms-meta-owner", value)], "").await;
    assert_eq!(make("anna").await.expect(201).body, "");
    make("anna").await.expect(204);
    make("ben").await.refused(409, "QueueAlreadyExists");
    rig.ask("PUT", "/jobs", "").await.refused(409, "QueueAlreadyExists");
    let shown = rig.ask("HEAD", "/jobs?comp=metadata", "").await.expect(200);
    assert_eq!(shown.header("x-ms-meta-owner"), "anna");
    assert_eq!(shown.header("x-ms-approximate-messages-count"), "0");
    rig.ask_with("PUT", "/jobs?comp=metadata", &[("x-ms-meta-size", "3")], "").await.expect(204);
    let shown = rig.ask("GET", "/jobs?comp=metadata", "").await.expect(200);
    assert!(shown.header("x-ms-meta-size") == "3" && !shown.headers.contains_key("x-ms-meta-owner"));
    rig.ask("DELETE", "/jobs", "").await.expect(204);
    rig.ask("DELETE", "/jobs", "").await.refused(404, "QueueNotFound");
    rig.ask("GET", "/jobs?comp=metadata", "").await.refused(404, "QueueNotFound");
    rig.ask("POST", "/jobs/messages", &document("x")).await.refused(404, "QueueNotFound");
}

#[tokio::test(start_paused = true)]
async fn names_and_metadata_follow_the_rules_of_the_service() {
    let rig = Rig::start().await;
    for name in ["ab", &"a".repeat(64)] {
        rig.ask("PUT", &format!("/{name}"), "").await.refused(400, "OutOfRangeInput");
    }
    for name in ["Jobs", "a--b", "j_bs", "jobs.x", "%20jobs", "-jobs", "jobs-"] {
        rig.ask("PUT", &format!("/{name}"), "").await.refused(400, "InvalidResourceName");
    }
    let make = async |name: &str, value: &str| rig.ask_with("PUT", "/jobs", &[(name, value)], "").await;
    make("x-ms-meta-", "x").await.refused(400, "EmptyMetadataKey");
    make("x-ms-meta-1st", "x").await.refused(400, "InvalidMetadata");
    make("x-ms-meta-a-b", "x").await.refused(400, "InvalidMetadata");
    make("x-ms-meta-long", &"x".repeat(9000)).await.refused(400, "MetadataTooLarge");
    make("x-ms-meta-a", "ä").await.expect(201);
}

#[tokio::test(start_paused = true)]
async fn queues_are_listed_page_by_page() {
    let rig = Rig::start().await;
    for number in 0..5 {
        rig.ask_with("PUT", &format!("/many-{number}"), &[("x-ms-meta-n", "<1>")], "").await.expect(201);
    }
    rig.ask("PUT", "/other", "").await.expect(201);
    let nested = EntityName::parse("many/parts").unwrap();
    rig.broker.create_queue(nested, QueueSettings::default()).await.unwrap();
    let first = rig.ask("GET", "/?comp=list&prefix=many&maxresults=3&include=metadata", "").await.expect(200);
    assert_eq!(first.elements("Name"), ["many-0", "many-1", "many-2"]);
    assert_eq!(first.element("n"), "&lt;1&gt;");
    assert!(first.body.contains("ServiceEndpoint=\"http://127.0.0.1:10001/devstoreaccount1\""));
    assert_eq!((first.element("Prefix"), first.element("MaxResults")), ("many", "3"));
    let next = format!("/?comp=list&prefix=many&maxresults=3&marker={}", first.element("NextMarker"));
    let second = rig.ask("GET", &next, "").await.expect(200);
    assert_eq!(second.elements("Name"), ["many-3", "many-4"]);
    assert!(second.elements("n").is_empty() && second.element("NextMarker").is_empty());
    rig.ask("GET", "/?comp=list&marker=%3F%3F", "").await.refused(400, "InvalidMarker");
    rig.ask("GET", "/?comp=list&maxresults=0", "").await.refused(400, "OutOfRangeQueryParameterValue");
}

#[tokio::test(start_paused = true)]
async fn a_message_is_put_received_and_deleted() {
    let rig = Rig::with_queue().await;
    let put = rig.put("a &lt;b&gt;&#13;\nc").await;
    assert_eq!(put.element("InsertionTime"), put.element("TimeNextVisible"));
    let taken = rig.take().await;
    assert_eq!(taken.element("MessageText"), "a &lt;b&gt;&#xD;\nc");
    assert_eq!((taken.element("MessageId"), taken.element("DequeueCount")), (put.element("MessageId"), "1"));
    assert_ne!(taken.element("TimeNextVisible"), taken.element("InsertionTime"));
    assert!(rig.take().await.elements("QueueMessage").is_empty());
    assert_eq!(rig.count().await, "1", "hidden messages count");
    rig.ask("DELETE", &put.address(), "").await.refused(400, "PopReceiptMismatch");
    let other = taken.address().replace(taken.element("MessageId"), "c8847220-5552-4956-b654-0a7c845e0ff9");
    rig.ask("DELETE", &other, "").await.refused(404, "MessageNotFound");
    rig.ask("DELETE", &taken.address(), "").await.expect(204);
    rig.ask("DELETE", &taken.address(), "").await.refused(404, "MessageNotFound");
    assert_eq!(rig.count().await, "0");
}

#[tokio::test(start_paused = true)]
async fn a_receipt_is_valid_until_another_receiver_gets_the_message() {
    let rig = Rig::with_queue().await;
    let put = rig.put("x").await;
    rig.ask("DELETE", &put.address(), "").await.expect(204);
    rig.put("y").await;
    let first = rig.take().await;
    wait(31).await;
    assert_eq!(rig.ask("GET", "/jobs/messages?peekonly=true", "").await.element("DequeueCount"), "1");
    let second = rig.take().await;
    assert_eq!(second.element("DequeueCount"), "2");
    rig.ask("DELETE", &first.address(), "").await.refused(400, "PopReceiptMismatch");
    wait(31).await;
    rig.ask("DELETE", &second.address(), "").await.expect(204);
}

#[tokio::test(start_paused = true)]
async fn an_update_keeps_the_position_and_the_id() {
    let rig = Rig::with_queue().await;
    for text in ["one", "two"] {
        rig.put(text).await;
    }
    let taken = rig.take().await;
    let change = format!("{}&visibilitytimeout=100", taken.address());
    let changed = rig.ask("PUT", &change, &document("uno")).await.expect(204);
    assert!(changed.body.is_empty());
    let receipt = changed.header("x-ms-popreceipt").to_owned();
    assert!(changed.header("x-ms-time-next-visible").ends_with("GMT"));
    rig.ask("PUT", &change, "").await.refused(400, "PopReceiptMismatch");
    wait(60).await;
    assert_eq!(rig.ask("GET", "/jobs/messages?peekonly=true", "").await.element("MessageText"), "two");
    let show =
        format!("/jobs/messages/{}?popreceipt={receipt}&visibilitytimeout=0", taken.element("MessageId"));
    rig.ask("PUT", &show, "").await.expect(204);
    let all = rig.ask("GET", "/jobs/messages?numofmessages=32&visibilitytimeout=604800", "").await;
    assert_eq!(all.elements("MessageText"), ["uno", "two"]);
    assert_eq!(all.elements("DequeueCount"), ["2", "1"]);
    assert_eq!(all.element("MessageId"), taken.element("MessageId"));
    wait(3600).await;
    assert!(rig.take().await.elements("QueueMessage").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_message_can_be_hidden_initially_and_expires() {
    let rig = Rig::with_queue().await;
    let put = |target: &'static str| {
        rig.ask("POST", target, "<QueueMessage><MessageText>x</MessageText></QueueMessage>")
    };
    let later = put("/jobs/messages?visibilitytimeout=10&messagettl=20").await.expect(201);
    assert_ne!(later.element("TimeNextVisible"), later.element("InsertionTime"));
    assert!(rig.take().await.elements("QueueMessage").is_empty());
    wait(11).await;
    assert_eq!(
        rig.ask("GET", "/jobs/messages?visibilitytimeout=1", "").await.elements("QueueMessage").len(),
        1
    );
    wait(10).await;
    assert!(rig.take().await.elements("QueueMessage").is_empty(), "the message has expired");
    let forever = put("/jobs/messages?messagettl=-1").await.expect(201);
    assert_eq!(forever.element("ExpirationTime"), "Fri, 31 Dec 9999 23:59:59 GMT");
    for (target, code) in [
        ("/jobs/messages?visibilitytimeout=604801", "OutOfRangeQueryParameterValue"),
        ("/jobs/messages?visibilitytimeout=20&messagettl=20", "OutOfRangeQueryParameterValue"),
        ("/jobs/messages?visibilitytimeout=soon", "InvalidQueryParameterValue"),
        ("/jobs/messages?messagettl=0", "OutOfRangeQueryParameterValue"),
        ("/jobs/messages?messagettl=-2", "InvalidQueryParameterValue"),
    ] {
        put(target).await.refused(400, code);
    }
    for target in ["numofmessages=0", "numofmessages=33", "visibilitytimeout=0"] {
        let target = format!("/jobs/messages?{target}");
        rig.ask("GET", &target, "").await.refused(400, "OutOfRangeQueryParameterValue");
    }
}

#[tokio::test(start_paused = true)]
async fn clear_also_removes_hidden_messages() {
    let rig = Rig::with_queue().await;
    for text in ["one", "two"] {
        rig.put(text).await;
    }
    let taken = rig.take().await;
    rig.ask("DELETE", "/jobs/messages", "").await.expect(204);
    assert_eq!(rig.count().await, "0");
    rig.ask("DELETE", &taken.address(), "").await.refused(404, "MessageNotFound");
    rig.ask("DELETE", "/jobs/messages", "").await.expect(204);
}

#[tokio::test(start_paused = true)]
async fn invalid_message_documents_are_rejected() {
    let rig = Rig::with_queue().await;
    let put = async |body: &str| rig.ask("POST", "/jobs/messages", body).await;
    put("").await.refused(400, "InvalidXmlDocument");
    put("<QueueMessage>").await.refused(400, "InvalidXmlDocument");
    put("<Message><MessageText>x</MessageText></Message>").await.refused(400, "MissingRequiredXmlNode");
    put("<QueueMessage/>").await.refused(400, "MissingRequiredXmlNode");
    put(&document("a<b/>c")).await.refused(400, "InvalidXmlNodeValue");
    put(&document(&"x".repeat(65_537))).await.refused(413, "RequestBodyTooLarge");
    put(&"x".repeat(500_000)).await.refused(413, "RequestBodyTooLarge");
    put(&document(&"&amp;".repeat(65_536))).await.expect(201);
    assert_eq!(rig.take().await.element("MessageText").len(), 5 * 65_536);
    put(&document("")).await.expect(201);
    let taken = rig.take().await;
    assert_eq!(taken.element("MessageText"), "");
    rig.ask("PUT", &taken.address(), "").await.refused(400, "MissingRequiredQueryParameter");
    rig.ask("PUT", &format!("{}&visibilitytimeout=1", taken.address()), "x")
        .await
        .refused(400, "InvalidXmlDocument");
    let plain = format!("/jobs/messages/{}", taken.element("MessageId"));
    rig.ask("DELETE", &plain, "").await.refused(400, "MissingRequiredQueryParameter");
    rig.ask("DELETE", &format!("{plain}?popreceipt=nonsense"), "").await.refused(400, "PopReceiptMismatch");
}

#[tokio::test(start_paused = true)]
async fn topics_and_queues_with_sessions_are_rejected() {
    let rig = Rig::start().await;
    let name = |name: &str| EntityName::parse(name).unwrap();
    rig.broker.create(name("news"), EntityKind::Topic, QueueSettings::default(), None).await.unwrap();
    let sessions = QueueSettings { requires_session: true, ..QueueSettings::default() };
    rig.broker.create_queue(name("chats"), sessions).await.unwrap();
    for queue in ["news", "chats"] {
        let target = format!("/{queue}/messages");
        rig.ask("POST", &target, &document("x")).await.refused(409, "ResourceTypeMismatch");
        rig.ask("GET", &target, "").await.refused(409, "ResourceTypeMismatch");
        rig.ask("DELETE", &target, "").await.refused(409, "ResourceTypeMismatch");
    }
    rig.ask("PUT", "/news", "").await.refused(409, "QueueAlreadyExists");
    rig.ask("GET", "/news?comp=metadata", "").await.refused(404, "QueueNotFound");
    rig.ask("DELETE", "/news", "").await.refused(404, "QueueNotFound");
}

#[tokio::test(start_paused = true)]
async fn properties_are_returned_and_read_only() {
    let rig = Rig::with_queue().await;
    let target = "/?restype=service&comp=properties";
    let shown = rig.ask("GET", target, "").await.expect(200);
    assert_eq!(shown.elements("Enabled"), ["false"; 5]);
    rig.ask("PUT", target, &shown.body).await.expect(202);
    rig.ask("PUT", target, &shown.body.replace("false", "true")).await.refused(501, "NotImplemented");
    let cors = "<StorageServiceProperties><Cors><CorsRule/></Cors></StorageServiceProperties>";
    rig.ask("PUT", target, cors).await.refused(501, "NotImplemented");
    let stats = rig.ask("GET", "/?restype=service&comp=stats", "").await.expect(200);
    assert_eq!(stats.element("Status"), "live");
    rig.ask("GET", "/?comp=nothing", "").await.refused(501, "NotImplemented");
    rig.ask("GET", "/jobs?comp=nothing", "").await.refused(501, "NotImplemented");
    rig.ask("PATCH", "/jobs/messages", "").await.refused(405, "UnsupportedHttpVerb");
    rig.ask("GET", "/jobs/letters", "").await.refused(400, "InvalidUri");
}

#[tokio::test(start_paused = true)]
async fn each_call_requires_its_own_permission() {
    let mut rig = Rig::with_queue().await;
    rig.put("x").await;
    let put = document("y");
    let calls: [(&str, &str, &str, &str); 8] = [
        ("POST", "/jobs/messages", &put, "a"),
        ("GET", "/jobs/messages?peekonly=true", "", "r"),
        ("GET", "/jobs/messages", "", "p"),
        ("DELETE", "/jobs/messages", "", "d"),
        ("GET", "/jobs?comp=metadata", "", "r"),
        ("PUT", "/jobs?comp=metadata", "", "w"),
        ("GET", "/?comp=list", "", "l"),
        ("DELETE", "/jobs", "", "d"),
    ];
    for (method, target, body, permission) in calls {
        let others: String = "rwdlacup".chars().filter(|letter| !permission.contains(*letter)).collect();
        rig.signature = sign(&others, "sco");
        rig.ask(method, target, body).await.refused(403, "AuthorizationPermissionMismatch");
        rig.signature = sign(permission, "");
        rig.ask(method, target, body).await.refused(403, "AuthorizationResourceTypeMismatch");
        rig.signature = sign(permission, "sco");
        assert!(rig.ask(method, target, body).await.status < 300, "{method} {target}");
    }
    rig.signature = sign("rwdlacup", "sco").replace("rwdlacup", "rwdlacupx");
    rig.ask("GET", "/?comp=list", "").await.refused(403, "AuthenticationFailed");
}

#[tokio::test(start_paused = true)]
async fn queues_and_messages_survive_a_restart() {
    let journal = MemoryJournal::new();
    let rig = Rig::open(&journal).await;
    rig.ask_with("PUT", "/jobs", &[("x-ms-meta-owner", "anna")], "").await.expect(201);
    rig.put("changed").await;
    rig.put("waits").await;
    let taken = rig.ask("GET", "/jobs/messages?visibilitytimeout=3000", "").await.expect(200);
    let changed = format!("{}&visibilitytimeout=4000", taken.address());
    let changed = rig.ask("PUT", &changed, &document("new text")).await.expect(204);
    let receipt = changed.header("x-ms-popreceipt").to_owned();
    drop(rig);
    let rig = Rig::open(&journal).await;
    assert_eq!(rig.ask("GET", "/jobs?comp=metadata", "").await.header("x-ms-meta-owner"), "anna");
    assert_eq!(rig.take().await.elements("MessageText"), ["waits"]);
    rig.ask("DELETE", &taken.address(), "").await.refused(400, "PopReceiptMismatch");
    let target = format!("/jobs/messages/{}?popreceipt={receipt}", taken.element("MessageId"));
    rig.ask("PUT", &format!("{target}&visibilitytimeout=0"), "").await.expect(204);
    let again = rig.take().await;
    assert_eq!((again.element("MessageText"), again.element("DequeueCount")), ("new text", "2"));
}
