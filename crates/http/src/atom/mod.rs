//! Management in the protocol of the Azure SDKs: ATOM entries and feeds over HTTP.

mod change;
mod describe;
mod feed;
mod hub;
mod path;
mod policy;
mod property;
mod rule;
mod version;

use axum::body::Body;
use axum::response::Response;
use http::header::{CONTENT_TYPE, ETAG};
use http::{HeaderValue, Method, StatusCode};
use peeklock_access::Right;
use peeklock_broker::EntityInfo;
use peeklock_types::{EntityKind, EntityName};

use crate::auth::authorize;
use crate::problem::Problem;
use crate::request::{Head, shown, tag};
use crate::state::{HttpState, Namespace};
use describe::{Context, write_entity, write_namespace, write_root};
use path::AtomPath;
use peeklock_web::host_of;
use peeklock_web::xml::Writer;
use rule::write_rule;
use version::Version;

pub use change::check_body;

const ENTRY: &str = "application/atom+xml;type=entry;charset=utf-8";
const FEED: &str = "application/atom+xml;type=feed;charset=utf-8";

pub(crate) async fn answer(state: &HttpState, head: Head, body: Body) -> Response {
    handle(state, &head, body).await.unwrap_or_else(|problem| in_known_words(problem, &head).into_xml())
}

/// Prepends the service's sentence to the broker's text, because some programs search for it.
fn in_known_words(problem: Problem, head: &Head) -> Problem {
    let sentence = |outcome: &str, text: &str| {
        let (host, path) = (host_of(head.authority()), head.segments.join("/"));
        let hint = capitalized(text);
        format!("The messaging entity 'sb://{host}/{}' {outcome}. {hint}", shown(&path))
    };
    match problem {
        Problem::NotFound(text) => Problem::NotFound(sentence("could not be found", &text)),
        Problem::Exists(text) => Problem::Exists(sentence("already exists", &text)),
        other => other,
    }
}

fn capitalized(text: &str) -> String {
    let mut rest = text.chars();
    rest.next().map(|first| first.to_uppercase().chain(rest).collect()).unwrap_or_default()
}

/// Answers requests to the root of a namespace without authorisation: an empty feed, as in the service. People open it
/// to check that the namespace is reachable.
pub(crate) fn answer_root(state: &HttpState, head: &Head) -> Response {
    if head.parts.method != Method::GET && head.parts.method != Method::HEAD {
        return head.not_allowed("GET").into_xml();
    }
    let mut writer = Writer::document();
    write_root(&mut writer, &head.base(), state.namespace(head).now());
    respond(StatusCode::OK, FEED, None, writer)
}

async fn handle(state: &HttpState, head: &Head, body: Body) -> Result<Response, Problem> {
    if head.segments.is_empty() {
        return Ok(answer_root(state, head));
    }
    let version = Version::of(head)?;
    let path = AtomPath::parse(&head.segments)?;
    let namespace = state.namespace(head);
    authorize(namespace, head, &path.token_path(), Right::Manage)?;
    let context = Context {
        base: head.base(),
        authority: head.authority(),
        namespace: &namespace.name,
        version,
        tier: namespace.broker.tier(),
    };
    let call = Call { state, namespace, head, context };
    match (&head.parts.method, path) {
        (&Method::GET, AtomPath::Namespace) => Ok(call.namespace()),
        (&Method::GET, AtomPath::Entity(name) | AtomPath::Subscription(name)) => call.entity(name).await,
        (&Method::GET, AtomPath::Rule { subscription, name }) => call.rule(subscription, &name).await,
        (&Method::GET, AtomPath::ConsumerGroup { hub, group }) => call.consumer_group(hub, group).await,
        (&Method::GET, AtomPath::Partition { hub, group, partition }) => {
            call.partition(hub, group, partition).await
        }
        (&Method::GET, list) => call.list(list).await,
        (&Method::PUT, AtomPath::Entity(name)) => call.put_entity(name, body).await,
        (&Method::PUT, AtomPath::Subscription(name)) => call.put_subscription(name, body).await,
        (&Method::PUT, AtomPath::Rule { subscription, name }) => {
            call.put_rule(subscription, name, body).await
        }
        (&Method::DELETE, AtomPath::Entity(name) | AtomPath::Subscription(name)) => {
            call.delete_entity(name).await
        }
        (&Method::DELETE, AtomPath::Rule { subscription, name }) => {
            call.delete_rule(subscription, name).await
        }
        (&Method::PUT, AtomPath::ConsumerGroup { hub, group }) => {
            call.put_consumer_group(hub, group, body).await
        }
        (&Method::DELETE, AtomPath::ConsumerGroup { hub, group }) => {
            call.delete_consumer_group(hub, group).await
        }
        (_, AtomPath::ConsumerGroup { .. }) => Err(head.not_allowed("GET, PUT, DELETE")),
        (_, AtomPath::Entity(_) | AtomPath::Subscription(_) | AtomPath::Rule { .. }) => {
            Err(head.not_allowed("GET, PUT, DELETE"))
        }
        _ => Err(head.not_allowed("GET")),
    }
}

/// One authorised request.
struct Call<'a> {
    state: &'a HttpState,
    namespace: &'a Namespace,
    head: &'a Head,
    context: Context<'a>,
}

impl Call<'_> {
    fn namespace(&self) -> Response {
        let mut writer = Writer::document();
        write_namespace(&mut writer, &self.context, self.namespace.created_at);
        respond(StatusCode::OK, ENTRY, None, writer)
    }

    async fn entity(&self, name: EntityName) -> Result<Response, Problem> {
        match self.namespace.broker.show(name.clone()).await.map_err(Problem::from) {
            Ok(entity) => Ok(self.show_entity(StatusCode::OK, &entity)),
            // The address of a hub has the same form as that of a queue.
            Err(Problem::NotFound(_)) => match self.namespace.broker.hub(name.clone()).await {
                Ok(hub) => Ok(self.show_hub(StatusCode::OK, &hub)),
                Err(_) => Err(Problem::NotFound(format!(
                    "there is no queue, topic or event hub '{name}'; create it first"
                ))),
            },
            Err(problem) => Err(problem),
        }
    }

    fn show_entity(&self, status: StatusCode, entity: &EntityInfo) -> Response {
        if status == StatusCode::OK
            && self.head.parts.method == Method::GET
            && self.head.has_already(entity.revision)
        {
            return unchanged(entity.revision);
        }
        let mut writer = Writer::document();
        write_entity(&mut writer, &self.context, true, entity, &self.policies(entity));
        respond(status, ENTRY, Some(entity.revision), writer)
    }

    fn policies(&self, entity: &EntityInfo) -> Vec<peeklock_access::Policy> {
        match entity.kind {
            EntityKind::Queue | EntityKind::Topic => self.namespace.access.policies(Some(&entity.name)),
            EntityKind::Subscription => Vec::new(),
        }
    }

    async fn rule(
        &self,
        subscription: EntityName,
        name: &peeklock_filter::RuleName,
    ) -> Result<Response, Problem> {
        let found = self.namespace.broker.rule(subscription.clone(), name.clone()).await?;
        Ok(self.show_rule(StatusCode::OK, &subscription, &found))
    }

    fn show_rule(
        &self,
        status: StatusCode,
        subscription: &EntityName,
        rule: &peeklock_broker::RuleInfo,
    ) -> Response {
        let mut writer = Writer::document();
        write_rule(&mut writer, &self.context, true, subscription, rule);
        respond(status, ENTRY, Some(rule.created_at.as_millis()), writer)
    }
}

fn respond(status: StatusCode, kind: &'static str, revision: Option<u64>, writer: Writer) -> Response {
    let mut response = Response::new(writer.finish().into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    add_tag(&mut response, revision);
    response
}

fn unchanged(revision: u64) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    add_tag(&mut response, Some(revision));
    response
}

fn add_tag(response: &mut Response, revision: Option<u64>) {
    if let Some(tag) = revision.and_then(|revision| HeaderValue::from_str(&tag(revision)).ok()) {
        response.headers_mut().insert(ETAG, tag);
    }
}
