//! Management in JSON: what ATOM cannot say, and what the command line uses.

mod entities;
mod explain;
mod groups;
mod messages;
mod openapi;
mod order_schema;
mod policies;
mod route;
mod rules;
mod runtime_schema;
mod shape;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, ETAG};
use http::{HeaderValue, StatusCode};
use peeklock_access::Right;
use peeklock_filter::RuleName;
use peeklock_spec::Document;
use peeklock_types::{EntityKind, EntityName};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::auth::authorize;
use crate::entity;
use crate::problem::Problem;
use crate::request::{Head, read_body, tag};
use crate::state::{HttpState, Namespace};
use route::{Collection, Item, Operation};

pub use explain::check_body as check_sample;

const JSON: &str = "application/json";
/// How many items come to those who do not say.
const PAGE_COUNT_DEFAULT: usize = 100;

pub(crate) async fn answer(state: &HttpState, head: Head, body: Body) -> Response {
    handle(state, &head, body).await.unwrap_or_else(Problem::into_json)
}

async fn handle(state: &HttpState, head: &Head, body: Body) -> Result<Response, Problem> {
    let (operation, names) = route::find(head)?;
    if operation == Operation::OpenApi {
        return json(StatusCode::OK, None, &openapi::description());
    }
    let names = Names::read(operation, &names)?;
    let is_reading = matches!(operation, Operation::Messages(_) | Operation::ExplainMessage(_));
    let right = if is_reading { Right::Listen } else { Right::Manage };
    let namespace = state.namespace(head);
    authorize(namespace, head, names.entity.as_ref().map_or("", EntityName::as_str), right)?;
    head.check_query(known_query(operation))?;
    Call { state, namespace, head, names }.run(operation, body).await
}

fn known_query(operation: Operation) -> &'static [&'static str] {
    match operation {
        Operation::List(_) => &["top", "after"],
        Operation::Messages(_) => &["top", "from", "subQueue"],
        _ => &[],
    }
}

/// The kind of the entity that policies or messages belong to; `None` for the namespace, and for entities themselves.
fn owner(operation: Operation) -> Option<EntityKind> {
    let item = match operation {
        Operation::List(Collection::QueuePolicies) => Item::QueuePolicy,
        Operation::List(Collection::TopicPolicies) => Item::TopicPolicy,
        Operation::Messages(item) | Operation::ExplainMessage(item) => return Some(entities::kind_of(item)),
        Operation::Show(item)
        | Operation::Put(item)
        | Operation::Delete(item)
        | Operation::Regenerate(item) => item,
        Operation::OpenApi | Operation::List(_) | Operation::Explain => return None,
    };
    match item {
        Item::QueuePolicy => Some(EntityKind::Queue),
        Item::TopicPolicy => Some(EntityKind::Topic),
        Item::Queue | Item::Topic | Item::Subscription | Item::Rule | Item::Group | Item::Policy => None,
    }
}

/// What the path names.
#[derive(Default)]
struct Names {
    /// The queue, topic or subscription; `None` for the namespace.
    entity: Option<EntityName>,
    rule: Option<RuleName>,
    policy: Option<String>,
    /// Of a message.
    number: Option<String>,
}

impl Names {
    fn read(operation: Operation, names: &[&str]) -> Result<Self, Problem> {
        let (is_namespace, has_policy) = match operation {
            Operation::OpenApi
            | Operation::List(
                Collection::Queues | Collection::Topics | Collection::Groups | Collection::Policies,
            ) => (true, false),
            Operation::Show(item)
            | Operation::Put(item)
            | Operation::Delete(item)
            | Operation::Regenerate(item) => {
                let has_policy = matches!(item, Item::Policy | Item::QueuePolicy | Item::TopicPolicy);
                (item == Item::Policy, has_policy)
            }
            _ => (false, false),
        };
        let mut read = Names::default();
        let mut names = names;
        if matches!(operation, Operation::ExplainMessage(_))
            && let Some((number, rest)) = names.split_last()
        {
            read.number = Some((*number).to_owned());
            names = rest;
        }
        let mut names = names.iter();
        if !is_namespace && let Some(name) = names.next() {
            read.entity = Some(plain_name(name)?);
        }
        if has_policy {
            read.policy = names.next().map(|name| (*name).to_owned());
        } else if let (Some(topic), Some(name)) = (&read.entity, names.next()) {
            read.entity = Some(EntityName::subscription(topic, name)?);
            read.rule = names.next().map(|name| RuleName::parse(name)).transpose()?;
        }
        Ok(read)
    }
}

/// The name of a queue or topic.
fn plain_name(text: &str) -> Result<EntityName, Problem> {
    let name = EntityName::parse(text)?;
    if name.is_subscription() {
        let text = format!("'{name}' is a subscription; its address is /api/topics/TOPIC/subscriptions/NAME");
        return Err(Problem::NotFound(text));
    }
    Ok(name)
}

/// One request of somebody who may ask it.
struct Call<'a> {
    state: &'a HttpState,
    namespace: &'a Namespace,
    head: &'a Head,
    names: Names,
}

impl Call<'_> {
    async fn run(self, operation: Operation, body: Body) -> Result<Response, Problem> {
        if let Some(kind) = owner(operation) {
            // What belongs to an entity is at the address of its kind only.
            entity::show(&self.namespace.broker, self.entity()?, kind).await?;
        }
        match operation {
            Operation::OpenApi => json(StatusCode::OK, None, &openapi::description()),
            Operation::List(Collection::Queues | Collection::Topics | Collection::Subscriptions) => {
                self.list_entities(operation).await
            }
            Operation::List(Collection::Groups) => self.list_groups(),
            Operation::List(Collection::Rules) => self.list_rules().await,
            Operation::List(_) => self.list_policies().await,
            Operation::Show(item) => match item {
                Item::Queue | Item::Topic | Item::Subscription => self.show_entity(item).await,
                Item::Rule => self.show_rule().await,
                Item::Group => self.show_group(),
                Item::Policy | Item::QueuePolicy | Item::TopicPolicy => self.show_policy().await,
            },
            Operation::Put(item) => match item {
                Item::Queue | Item::Topic | Item::Subscription => self.put_entity(item, body).await,
                Item::Rule => self.put_rule(body).await,
                Item::Group => Err(groups::is_configured()),
                Item::Policy | Item::QueuePolicy | Item::TopicPolicy => self.put_policy(body).await,
            },
            Operation::Delete(item) => match item {
                Item::Queue | Item::Topic | Item::Subscription => self.delete_entity(item).await,
                Item::Rule => self.delete_rule().await,
                Item::Group => Err(groups::is_configured()),
                Item::Policy | Item::QueuePolicy | Item::TopicPolicy => self.delete_policy().await,
            },
            Operation::Regenerate(_) => self.regenerate(body).await,
            Operation::Messages(item) => self.messages(item).await,
            Operation::ExplainMessage(_) => self.explain_message().await,
            Operation::Explain => self.explain(body).await,
        }
    }

    /// The entity in the path.
    fn entity(&self) -> Result<EntityName, Problem> {
        self.names.entity.clone().ok_or_else(|| Problem::bad("the path names no entity"))
    }

    async fn body<T: DeserializeOwned>(&self, body: Body) -> Result<T, Problem> {
        self.document(body).await?.read().map_err(wrong_body)
    }

    /// The body, not yet read as anything, for what needs its places later.
    async fn document(&self, body: Body) -> Result<Document, Problem> {
        self.head.check_content_type(&[JSON], JSON)?;
        let limits = self.state.limits();
        document(&read_body(body, limits.body_size_bytes_max, limits.body_time_max).await?)
    }

    fn top(&self) -> Result<usize, Problem> {
        let top = self.head.query_number("top")?;
        let top = top.map_or(PAGE_COUNT_DEFAULT, |top| usize::try_from(top).unwrap_or(usize::MAX));
        Ok(top.clamp(1, self.state.limits().page_count_max))
    }
}

fn parse<T: DeserializeOwned>(body: &Bytes) -> Result<T, Problem> {
    document(body)?.read().map_err(wrong_body)
}

/// An empty body says nothing, as `{}` does.
fn document(body: &Bytes) -> Result<Document, Problem> {
    let body: &[u8] = if body.is_empty() { b"{}" } else { body };
    peeklock_spec::utf8(body).and_then(Document::json).map_err(wrong_body)
}

fn wrong_body(error: peeklock_spec::Problem) -> Problem {
    Problem::bad(format!("the body is not as it should be: {error}"))
}

fn json(status: StatusCode, revision: Option<u64>, body: &impl Serialize) -> Result<Response, Problem> {
    let body = serde_json::to_vec(body).map_err(|error| Problem::Unavailable(error.to_string()))?;
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
    if let Some(tag) = revision.and_then(|revision| HeaderValue::from_str(&tag(revision)).ok()) {
        response.headers_mut().insert(ETAG, tag);
    }
    Ok(response)
}

fn done() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}
