//! A broker over a journal in memory with its router, and requests in the format of the SDKs.

use axum::Router;
use axum::body::Body;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use peeklock_access::{Access, Policy, Right, Secret, sign};
use peeklock_amqp::{Encode, Message, Sections};
use peeklock_broker::engine::Attributes;
use peeklock_broker::request::entities::Find;
use peeklock_broker::request::sending::SendMessages;
use peeklock_broker::{Batch, Broker, Named, Running};
use peeklock_http::{HttpState, Limits, Namespace, router};
use peeklock_journal::MemoryJournal;
use peeklock_message::StoredMessage;
use peeklock_types::{EntityName, SessionId, Tier};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tower::ServiceExt;

pub(crate) const ROOT: &str = "RootManageSharedAccessKey";
pub(crate) const ROOT_KEY: &str = "SAS_KEY_VALUE";
pub(crate) const HOST: &str = "localhost:5300";

pub(crate) struct Rig {
    pub(crate) router: Router,
    pub(crate) broker: Broker,
    pub(crate) access: Access,
    _running: Running,
}

/// An answer with its body.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: String,
}

impl Answer {
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Self {
        assert_eq!(self.status.as_u16(), status, "{}", self.body);
        self
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).unwrap().to_str().unwrap()
    }

    /// Returns the text of the first element with this name.
    #[track_caller]
    pub(crate) fn element(&self, name: &str) -> &str {
        let (_, rest) =
            self.body.split_once(&format!("<{name}>")).unwrap_or_else(|| panic!("{name}: {}", self.body));
        rest.split_once(&format!("</{name}>")).unwrap().0
    }
}

pub(crate) async fn namespace(name: &str, key: &str) -> (Namespace, Running) {
    let (broker, running, _) = Broker::open(&MemoryJournal::new(), peeklock_message::describe).await.unwrap();
    let access = Access::open(None, vec![Policy::with_one_key(ROOT, key, &[Right::Manage])]).unwrap();
    let created_at = broker.clock().now();
    (Namespace { name: name.to_owned(), hosts: Vec::new(), broker, access, created_at }, running)
}

impl Rig {
    pub(crate) async fn start() -> Self {
        Self::start_with(Limits::default()).await
    }

    pub(crate) async fn start_with(limits: Limits) -> Self {
        Self::start_as(limits, Tier::Premium).await
    }

    pub(crate) async fn start_as(limits: Limits, tier: Tier) -> Self {
        let (mut namespace, running) = namespace("sbemulatorns", ROOT_KEY).await;
        namespace.broker = namespace.broker.with_tier(tier);
        let (broker, access) = (namespace.broker.clone(), namespace.access.clone());
        Rig { router: router(HttpState::new(vec![namespace], limits)), broker, access, _running: running }
    }

    pub(crate) async fn call(&self, request: Request<Body>) -> Answer {
        call(&self.router, request).await
    }

    /// Sends a request with the root key's token for the whole namespace, as Python signs it.
    pub(crate) async fn ask(&self, method: &str, uri: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let token = token(ROOT, ROOT_KEY, &format!("https://{HOST}"));
        self.call(request(method, uri, &token, headers, body)).await
    }

    pub(crate) async fn get(&self, uri: &str) -> Answer {
        self.ask("GET", uri, &[], "").await
    }

    pub(crate) async fn put(&self, uri: &str, body: &str) -> Answer {
        self.ask("PUT", uri, &[], body).await
    }

    pub(crate) async fn update(&self, uri: &str, body: &str) -> Answer {
        self.ask("PUT", uri, &[("if-match", "*")], body).await
    }

    pub(crate) async fn delete(&self, uri: &str) -> Answer {
        self.ask("DELETE", uri, &[], "").await
    }

    pub(crate) async fn post(&self, uri: &str, body: &str) -> Answer {
        self.ask("POST", uri, &[], body).await
    }
}

pub(crate) async fn call(router: &Router, request: Request<Body>) -> Answer {
    let (method, uri) = (request.method().to_string(), request.uri().to_string());
    let response = router.clone().oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let body = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
    let answer = Answer { status: parts.status, headers: parts.headers, body };
    crate::schema::check(router, &method, &uri, &answer).await;
    answer
}

pub(crate) fn request(
    method: &str,
    uri: &str,
    token: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Request<Body> {
    let mut request = Request::builder().method(method).uri(uri).header("host", HOST);
    if !token.is_empty() {
        request = request.header("authorization", token);
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let mut request = request.body(Body::from(body.to_owned())).unwrap();
    request.extensions_mut().insert(http::uri::Scheme::HTTPS);
    request
}

/// Returns a token in Python's format.
pub(crate) fn token(name: &str, key: &str, resource: &str) -> String {
    token_until(name, key, resource, 4_000_000_000)
}

pub(crate) fn token_until(name: &str, key: &str, resource: &str, expiry: u64) -> String {
    let resource = utf8_percent_encode(resource, NON_ALPHANUMERIC).to_string();
    let signature = sign(&Secret::new(key), &resource, &expiry.to_string());
    let signature = utf8_percent_encode(&signature, NON_ALPHANUMERIC);
    format!("SharedAccessSignature sr={resource}&sig={signature}&se={expiry}&skn={name}")
}

/// Returns a token in JavaScript's format: for the address of the request, in lower case, with the parts in another
/// order.
pub(crate) fn js_token(name: &str, key: &str, uri: &str) -> String {
    let resource = format!("https://{HOST}{uri}").to_lowercase();
    let resource = utf8_percent_encode(&resource, NON_ALPHANUMERIC).to_string().to_lowercase();
    let expiry = "4000000000";
    let signature = sign(&Secret::new(key), &resource, expiry);
    let signature = utf8_percent_encode(&signature, NON_ALPHANUMERIC);
    format!("SharedAccessSignature sig={signature}&se={expiry}&skn={name}&sr={resource}")
}

/// Returns an entry in Python's style, with the elements of Service Bus in the default namespace.
pub(crate) fn python(description: &str) -> String {
    format!(
        "<?xml version='1.0' encoding='utf-8'?>\n<ns0:entry xmlns:i=\"http://www.w3.org/2001/XMLSchema-instance\" \
         xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" xmlns:ns0=\"http://www.w3.org/2005/Atom\" \
         xmlns=\"http://schemas.microsoft.com/netservices/2010/10/servicebus/connect\">\
         <ns0:content type=\"application/xml\">{description}</ns0:content></ns0:entry>"
    )
}

/// Returns an entry in JavaScript's style, with the elements of ATOM in the default namespace.
pub(crate) fn js(root: &str, content: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\" standalone=\"yes\"?><entry xmlns=\"http://www.w3.org/2005/Atom\">\
         <updated>2026-11-16T03:57:27.041Z</updated><content type=\"application/xml\"><{root} \
         xmlns=\"http://schemas.microsoft.com/netservices/2010/10/servicebus/connect\" \
         xmlns:i=\"http://www.w3.org/2001/XMLSchema-instance\">{content}</{root}></content></entry>"
    )
}

/// Sends messages with a text as body, an id and a property.
pub(crate) async fn send(rig: &Rig, queue: &str, count: usize) {
    let message = |number| {
        Message::data(format!("m{number}"))
            .with_message_id(format!("id{number}"))
            .with_property("number", i32::try_from(number).unwrap())
    };
    send_all(rig, queue, (0..count).map(|number| (message(number), Attributes::default()))).await;
}

/// Sends one message to a session.
pub(crate) async fn send_to_session(rig: &Rig, queue: &str, session: &str) {
    let session = Some(SessionId::parse(session).unwrap());
    send_all(rig, queue, [(Message::data("m"), Attributes { session, ..Attributes::default() })]).await;
}

async fn send_all(rig: &Rig, queue: &str, sent: impl IntoIterator<Item = (Message, Attributes)>) {
    let name = EntityName::parse(queue).unwrap();
    let shard = rig.broker.place(&name);
    let Named::Entity(found) = rig.broker.ask_at(&name.clone(), Find { name }).await.unwrap() else {
        panic!("the queue does not exist")
    };
    let mut batch = Batch::default();
    let mut messages = batch.messages();
    for (message, attributes) in sent {
        let message = message.to_bytes();
        let write = |out: &mut bytes::BytesMut| {
            StoredMessage::encode(out, &Sections::scan(&message).unwrap(), None)
                .map(|()| Some(Box::new(attributes)))
        };
        messages.add(write).unwrap();
    }
    let (entity, messages) = (found.entity, messages.keep());
    rig.broker.ask_with(shard, batch, SendMessages { entity, messages }).await.unwrap();
}
