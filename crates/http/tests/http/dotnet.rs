//! Tests management with .NET: replays the requests of `ServiceBusAdministrationClient` and compares the answers by
//! elements.

use http::uri::Scheme;
use peeklock_web::xml::{self, Element};

use crate::common::{Answer, HOST, ROOT, ROOT_KEY, Rig, request, send, token};
use crate::recording::{self, Exchange, header};

/// Elements whose text varies between runs or is specific to the broker.
const ANY_TEXT: [&str; 9] = [
    "published",
    "updated",
    "CreatedAt",
    "UpdatedAt",
    "AccessedAt",
    "CreatedTime",
    "ModifiedTime",
    "SizeInBytes",
    "Detail",
];

/// A recording that is replayed against a broker, exchange by exchange.
pub(crate) struct Replay<'a> {
    rig: &'a Rig,
    exchanges: Vec<Exchange>,
}

impl<'a> Replay<'a> {
    pub(crate) fn new(rig: &'a Rig, text: &str) -> Self {
        Replay { rig, exchanges: recording::read(text) }
    }

    /// Sends every request, in order, and compares each answer.
    pub(crate) async fn run(&self) {
        for exchange in &self.exchanges {
            let answer = self.send(exchange).await;
            assert_eq!(answer.status.as_u16(), exchange.status, "{}: {}", exchange.title, answer.body);
            for name in ["content-type", "etag"] {
                if let Some(wanted) = header(&exchange.answer_headers, name) {
                    assert_eq!(answer.header(name), wanted, "{}: {name}", exchange.title);
                }
            }
            self.compare_body(exchange, &answer).await;
        }
    }

    async fn send(&self, exchange: &Exchange) -> Answer {
        let skipped = ["host", "authorization", "content-length"];
        let headers: Vec<(&str, String)> = exchange
            .headers
            .iter()
            .filter(|(name, _)| !skipped.contains(&name.to_lowercase().as_str()))
            .map(|(name, value)| (name.as_str(), real(value)))
            .collect();
        let headers: Vec<(&str, &str)> =
            headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let authorization = header(&exchange.headers, "authorization").map(real).unwrap_or_default();
        self.call(&exchange.method, &real(&exchange.uri), &authorization, &headers, &real(&exchange.body))
            .await
    }

    /// Sends a request over plain HTTP, which .NET uses with a development emulator.
    async fn call(
        &self,
        method: &str,
        uri: &str,
        token: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let mut request = request(method, uri, token, headers, body);
        request.extensions_mut().insert(Scheme::HTTP);
        self.rig.call(request).await
    }

    async fn compare_body(&self, exchange: &Exchange, answer: &Answer) {
        let Some(wanted) = self.wanted(exchange) else { return };
        if wanted.is_empty() {
            return assert_eq!(answer.body, "", "{}", exchange.title);
        }
        let wanted = xml::read(wanted.as_bytes()).unwrap();
        let found = xml::read(answer.body.as_bytes()).unwrap();
        self.compare(&exchange.title, &wanted, &found).await;
    }

    /// Returns the body of the answer; `None` if the recording omits it.
    fn wanted(&self, exchange: &Exchange) -> Option<String> {
        let text = exchange.answer.as_str();
        if text == "(body left out)" {
            return None;
        }
        let Some(rest) = text.strip_prefix("(the body of ") else { return Some(real(text)) };
        let rest = rest.trim_end_matches(')');
        let (number, changes) = rest.split_once(", but ").unwrap_or((rest, ""));
        let earlier = self.exchanges.iter().find(|one| one.title.split(' ').next() == Some(number)).unwrap();
        let mut body = self.wanted(earlier).unwrap();
        for change in changes.split('<').map(str::trim).filter(|change| !change.is_empty()) {
            let (name, value) = change.split_once('>').unwrap();
            let (before, rest) = body.split_once(&format!("<{name}>")).unwrap();
            let (_, after) = rest.split_once(&format!("</{name}>")).unwrap();
            body = format!("{before}<{name}>{value}</{name}>{after}");
        }
        Some(body)
    }

    /// Compares names, types, texts and the order of elements.
    async fn compare(&self, title: &str, wanted: &Element, found: &Element) {
        let is_feed = wanted.name == "feed";
        let shape =
            |element: &Element| element.children.iter().map(|child| child.name.clone()).collect::<Vec<_>>();
        assert_eq!(shape(found), shape(wanted), "{title}: the elements of {}", wanted.name);
        assert_eq!(
            (&found.name, &found.kind, found.is_nil),
            (&wanted.name, &wanted.kind, wanted.is_nil),
            "{title}"
        );
        if !ANY_TEXT.contains(&wanted.name.as_str()) {
            assert_eq!(found.trimmed(), wanted.trimmed(), "{title}: {}", wanted.name);
        }
        for (wanted, found) in wanted.children.iter().zip(&found.children) {
            match wanted.trimmed().split_once(": as the answer to a GET of it") {
                Some((name, _)) if is_feed && wanted.name == "entry" => {
                    self.compare_entry(title, name.trim_start_matches('('), found).await;
                }
                _ => Box::pin(self.compare(title, wanted, found)).await,
            }
        }
    }

    /// Compares an entry of a feed with the answer to a GET of its address.
    async fn compare_entry(&self, title: &str, name: &str, found: &Element) {
        let text = |name: &str| found.child(name).unwrap().trimmed();
        assert_eq!(text("title"), name, "{title}");
        let uri = text("id").strip_prefix(&format!("http://{HOST}")).unwrap().to_owned();
        let token = token(ROOT, ROOT_KEY, "https://localhost/");
        let answer = self.call("GET", &uri, &token, &[], "").await.expect(200);
        let wanted = xml::read(answer.body.as_bytes()).unwrap();
        Box::pin(self.compare(title, &wanted, found)).await;
    }
}

/// Replaces the placeholders of a recording by actual values.
fn real(text: &str) -> String {
    const TOKEN: &str =
        "SharedAccessSignature sr=https%3A%2F%2FHOST%2F&sig=SIG&se=EXPIRY&skn=RootManageSharedAccessKey";
    text.replace(TOKEN, &token(ROOT, ROOT_KEY, "https://localhost/"))
        .replace("HOST:PORT", HOST)
        .replace("HOST", "localhost")
        .replace(">KEY<", ">bmV2ZXIgYSByZWFsIGtleQ==<")
}

#[tokio::test]
async fn dotnet_manages_queues() {
    let rig = Rig::start().await;
    Replay::new(&rig, include_str!("../dotnet/atom-queue.txt")).run().await;
}

#[tokio::test]
async fn dotnet_manages_topics() {
    let rig = Rig::start().await;
    Replay::new(&rig, include_str!("../dotnet/atom-topic.txt")).run().await;
}

#[tokio::test]
async fn dotnet_manages_subscriptions() {
    let rig = Rig::start().await;
    rig.put("/api/topics/news", "{}").await.expect(201);
    rig.put("/api/topics/news/subscriptions/first", "{}").await.expect(201);
    Replay::new(&rig, include_str!("../dotnet/atom-subscription.txt")).run().await;
}

#[tokio::test]
async fn dotnet_configures_forwarding() {
    let rig = Rig::start().await;
    Replay::new(&rig, include_str!("../dotnet/atom-forward.txt")).run().await;
}

#[tokio::test]
async fn dotnet_reads_counts_and_the_namespace() {
    let rig = Rig::start().await;
    rig.put("/api/queues/orders", r#"{"maxSize": "1GiB"}"#).await.expect(201);
    rig.put("/api/topics/news", r#"{"maxSize": "1GiB"}"#).await.expect(201);
    rig.put("/api/topics/news/subscriptions/s", "{}").await.expect(201);
    send(&rig, "orders", 2).await;
    Replay::new(&rig, include_str!("../dotnet/atom-runtime.txt")).run().await;
}

#[tokio::test]
async fn dotnet_reads_with_an_old_version() {
    let rig = Rig::start().await;
    rig.put("/api/queues/orders", "{}").await.expect(201);
    Replay::new(&rig, include_str!("../dotnet/atom-old-version.txt")).run().await;
}

#[tokio::test]
async fn dotnet_manages_rules_and_receives_their_values() {
    let rig = Rig::start().await;
    rig.put("/api/topics/news", "{}").await.expect(201);
    rig.put("/api/topics/news/subscriptions/s", "{}").await.expect(201);
    Replay::new(&rig, include_str!("../dotnet/atom-rules-correlation.txt")).run().await;
    Replay::new(&rig, include_str!("../dotnet/atom-rules-sql.txt")).run().await;
}

#[tokio::test]
async fn dotnet_receives_rejections() {
    let rig = Rig::start().await;
    rig.put("/api/queues/orders", "{}").await.expect(201);
    rig.put("/api/topics/news", "{}").await.expect(201);
    rig.put("/api/topics/news/subscriptions/s", "{}").await.expect(201);
    Replay::new(&rig, include_str!("../dotnet/atom-errors.txt")).run().await;
    let detail = |answer: Answer| answer.element("Detail").to_owned();
    let missing = detail(rig.get("/news/Subscriptions/nope?api-version=2021-05").await.expect(404));
    let sentence = "The messaging entity 'sb://localhost/news/Subscriptions/nope' could not be found. ";
    assert!(missing.starts_with(sentence), "{missing}");
    let topic = "<entry xmlns=\"http://www.w3.org/2005/Atom\"><content type=\"application/xml\"><TopicDescription \
        xmlns=\"http://schemas.microsoft.com/netservices/2010/10/servicebus/connect\"/></content></entry>";
    let there = detail(rig.put("/news?api-version=2021-05", topic).await.expect(409));
    assert!(there.starts_with("The messaging entity 'sb://localhost/news' already exists. "), "{there}");
}
