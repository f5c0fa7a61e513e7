//! Management in JSON: what ATOM cannot say, and what the command line uses.

mod checkpoints;
mod consumer_groups;
mod entities;
mod events;
mod explain;
mod groups;
mod hub_schema;
mod hubs;
mod messages;
mod openapi;
mod order_schema;
mod ownerships;
mod policies;
mod reset;
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
use peeklock_types::{ConsumerGroup, EntityKind, EntityName};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::auth::authorize;
use crate::entity;
use crate::problem::Problem;
use crate::request::{Head, read_body, tag};
use crate::state::{HttpState, Namespace};
use route::{Collection, HubOperation, Item, Operation, Route};

pub(crate) use consumer_groups::check_metadata;
pub use explain::check_body as check_sample;

const JSON: &str = "application/json";
/// How many items come to those who do not say.
const PAGE_COUNT_DEFAULT: usize = 100;

pub(crate) async fn answer(state: &HttpState, head: Head, body: Body) -> Response {
    handle(state, &head, body).await.unwrap_or_else(Problem::into_json)
}

async fn handle(state: &HttpState, head: &Head, body: Body) -> Result<Response, Problem> {
    let (route, names) = route::find(head)?;
    let operation = route.operation;
    if operation == Operation::OpenApi {
        return json(StatusCode::OK, None, &openapi::description());
    }
    let names = match operation {
        Operation::Hub(_) => Names::of_hub(route, &names)?,
        _ => Names::read(operation, &names)?,
    };
    let right = right(operation);
    let namespace = state.namespace(head);
    authorize(namespace, head, names.entity.as_ref().map_or("", EntityName::as_str), right)?;
    head.check_query(known_query(operation))?;
    Call { state, namespace, head, names }.run(operation, body).await
}

/// Whoever may read events may also keep its place among them.
fn right(operation: Operation) -> Right {
    match operation {
        Operation::Messages(_) | Operation::ExplainMessage(_) => Right::Listen,
        Operation::Hub(HubOperation::Send) => Right::Send,
        Operation::Hub(
            HubOperation::Partitions
            | HubOperation::ShowPartition
            | HubOperation::Events
            | HubOperation::Checkpoints
            | HubOperation::ShowCheckpoint
            | HubOperation::PutCheckpoint
            | HubOperation::Ownerships
            | HubOperation::ShowOwnership
            | HubOperation::PutOwnership,
        ) => Right::Listen,
        _ => Right::Manage,
    }
}

fn known_query(operation: Operation) -> &'static [&'static str] {
    match operation {
        Operation::Hub(HubOperation::Events) => &["from", "max"],
        Operation::List(_) | Operation::Hub(HubOperation::List | HubOperation::ListGroups) => {
            &["top", "after"]
        }
        Operation::Messages(_) => &["top", "from", "subQueue"],
        _ => &[],
    }
}

/// What policies or messages belong to.
enum Owner {
    Entity(EntityKind),
    Hub,
}

/// `None` for the namespace, and for entities themselves.
fn owner(operation: Operation) -> Option<Owner> {
    let item = match operation {
        Operation::List(Collection::QueuePolicies) => Item::QueuePolicy,
        Operation::List(Collection::TopicPolicies) => Item::TopicPolicy,
        Operation::List(Collection::HubPolicies) => Item::HubPolicy,
        Operation::Messages(item) | Operation::ExplainMessage(item) => {
            return Some(Owner::Entity(entities::kind_of(item)));
        }
        Operation::Show(item)
        | Operation::Put(item)
        | Operation::Delete(item)
        | Operation::Regenerate(item) => item,
        Operation::OpenApi | Operation::List(_) | Operation::Explain | Operation::Hub(_) => return None,
    };
    match item {
        Item::QueuePolicy => Some(Owner::Entity(EntityKind::Queue)),
        Item::TopicPolicy => Some(Owner::Entity(EntityKind::Topic)),
        Item::HubPolicy => Some(Owner::Hub),
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
    /// Of a hub.
    group: Option<ConsumerGroup>,
    partition: Option<String>,
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
                let has_policy =
                    matches!(item, Item::Policy | Item::QueuePolicy | Item::TopicPolicy | Item::HubPolicy);
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

    fn of_hub(route: &Route, names: &[&str]) -> Result<Self, Problem> {
        let mut read = Names::default();
        for (part, name) in route.path.split('/').filter(|part| part.starts_with('{')).zip(names) {
            match part {
                "{hub}" => read.entity = Some(plain_name(name)?),
                "{group}" => {
                    let group = ConsumerGroup::parse(name);
                    read.group = Some(group.map_err(|error| Problem::bad(error.to_string()))?);
                }
                _ => read.partition = Some((*name).to_owned()),
            }
        }
        Ok(read)
    }
}

/// The name of a queue, topic or hub.
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
        // What belongs to an entity is at the address of its kind only.
        match owner(operation) {
            Some(Owner::Entity(kind)) => {
                entity::show(&self.namespace.broker, self.entity()?, kind).await?;
            }
            Some(Owner::Hub) => {
                self.namespace.broker.hub(self.entity()?).await?;
            }
            None => {}
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
                Item::Policy | Item::QueuePolicy | Item::TopicPolicy | Item::HubPolicy => {
                    self.show_policy().await
                }
            },
            Operation::Put(item) => match item {
                Item::Queue | Item::Topic | Item::Subscription => self.put_entity(item, body).await,
                Item::Rule => self.put_rule(body).await,
                Item::Group => Err(groups::is_configured()),
                Item::Policy | Item::QueuePolicy | Item::TopicPolicy | Item::HubPolicy => {
                    self.put_policy(body).await
                }
            },
            Operation::Delete(item) => match item {
                Item::Queue | Item::Topic | Item::Subscription => self.delete_entity(item).await,
                Item::Rule => self.delete_rule().await,
                Item::Group => Err(groups::is_configured()),
                Item::Policy | Item::QueuePolicy | Item::TopicPolicy | Item::HubPolicy => {
                    self.delete_policy().await
                }
            },
            Operation::Regenerate(_) => self.regenerate(body).await,
            Operation::Messages(item) => self.messages(item).await,
            Operation::ExplainMessage(_) => self.explain_message().await,
            Operation::Explain => self.explain(body).await,
            Operation::Hub(operation) => self.run_hub(operation, body).await,
        }
    }

    async fn run_hub(self, operation: HubOperation, body: Body) -> Result<Response, Problem> {
        match operation {
            HubOperation::List => self.list_hubs().await,
            HubOperation::Show => self.show_hub().await,
            HubOperation::Put => self.put_hub(body).await,
            HubOperation::Delete => self.delete_hub().await,
            HubOperation::Send => self.send_events(body).await,
            HubOperation::Partitions => self.list_partitions().await,
            HubOperation::ShowPartition => self.show_partition().await,
            HubOperation::Events => self.events().await,
            HubOperation::ListGroups => self.list_consumer_groups().await,
            HubOperation::ShowGroup => self.show_consumer_group().await,
            HubOperation::PutGroup => self.put_consumer_group(body).await,
            HubOperation::DeleteGroup => self.delete_consumer_group().await,
            HubOperation::Checkpoints => self.list_checkpoints().await,
            HubOperation::ShowCheckpoint => self.show_checkpoint().await,
            HubOperation::PutCheckpoint => self.put_checkpoint(body).await,
            HubOperation::ResetCheckpoints => self.reset_checkpoints(body).await,
            HubOperation::Ownerships => self.list_ownerships().await,
            HubOperation::ShowOwnership => self.show_ownership().await,
            HubOperation::PutOwnership => self.put_ownership(body).await,
        }
    }

    /// The entity in the path.
    fn entity(&self) -> Result<EntityName, Problem> {
        self.names.entity.clone().ok_or_else(|| Problem::bad("the path names no entity"))
    }

    fn group(&self) -> Result<ConsumerGroup, Problem> {
        self.names.group.clone().ok_or_else(|| Problem::bad("the path names no consumer group"))
    }

    fn partition(&self) -> Result<u32, Problem> {
        let text =
            self.names.partition.as_deref().ok_or_else(|| Problem::bad("the path names no partition"))?;
        text.parse().map_err(|_| {
            let given = crate::request::shown(text);
            Problem::NotFound(format!("there is no partition '{given}'; they are numbered from 0"))
        })
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
