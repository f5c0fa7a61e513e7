//! The addresses of the JSON API: one table, which requests are matched against and which the OpenAPI description is made from.

use http::Method;

use crate::problem::Problem;
use crate::request::Head;

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    OpenApi,
    List(Collection),
    Show(Item),
    Put(Item),
    Delete(Item),
    Regenerate(Item),
    Messages(Item),
    /// Why one message waits.
    ExplainMessage(Item),
    Explain,
    Hub(HubOperation),
}

/// What a request asks of a hub, its consumer groups or its partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HubOperation {
    List,
    Show,
    Put,
    Delete,
    Send,
    Partitions,
    ShowPartition,
    Events,
    ListGroups,
    ShowGroup,
    PutGroup,
    DeleteGroup,
    Checkpoints,
    ShowCheckpoint,
    PutCheckpoint,
    ResetCheckpoints,
    Ownerships,
    ShowOwnership,
    PutOwnership,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Collection {
    Queues,
    Topics,
    Subscriptions,
    Rules,
    Groups,
    Policies,
    QueuePolicies,
    TopicPolicies,
    HubPolicies,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Item {
    Queue,
    Topic,
    Subscription,
    Rule,
    Group,
    Policy,
    QueuePolicy,
    TopicPolicy,
    HubPolicy,
}

/// A method and a path, with `{…}` for each name in it.
pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) operation: Operation,
}

const QUEUE: &str = "/api/queues/{queue}";
const TOPIC: &str = "/api/topics/{topic}";
const SUBSCRIPTION: &str = "/api/topics/{topic}/subscriptions/{subscription}";
const RULE: &str = "/api/topics/{topic}/subscriptions/{subscription}/rules/{rule}";
const POLICY: &str = "/api/policies/{policy}";
const QUEUE_POLICY: &str = "/api/queues/{queue}/policies/{policy}";
const TOPIC_POLICY: &str = "/api/topics/{topic}/policies/{policy}";
const HUB: &str = "/api/hubs/{hub}";
const HUB_POLICY: &str = "/api/hubs/{hub}/policies/{policy}";
const CONSUMER_GROUP: &str = "/api/hubs/{hub}/consumer-groups/{group}";
const CHECKPOINT: &str = "/api/hubs/{hub}/consumer-groups/{group}/checkpoints/{partition}";
const OWNERSHIP: &str = "/api/hubs/{hub}/consumer-groups/{group}/ownerships/{partition}";

const fn route(method: Method, path: &'static str, operation: Operation) -> Route {
    Route { method, path, operation }
}

const fn hub(method: Method, path: &'static str, operation: HubOperation) -> Route {
    Route { method, path, operation: Operation::Hub(operation) }
}

pub(crate) static ROUTES: [Route; 64] = [
    route(Method::GET, "/api/openapi.json", Operation::OpenApi),
    route(Method::GET, "/api/queues", Operation::List(Collection::Queues)),
    route(Method::GET, QUEUE, Operation::Show(Item::Queue)),
    route(Method::PUT, QUEUE, Operation::Put(Item::Queue)),
    route(Method::DELETE, QUEUE, Operation::Delete(Item::Queue)),
    route(Method::GET, "/api/queues/{queue}/messages", Operation::Messages(Item::Queue)),
    route(
        Method::GET,
        "/api/queues/{queue}/messages/{number}/explain",
        Operation::ExplainMessage(Item::Queue),
    ),
    route(Method::GET, "/api/queues/{queue}/policies", Operation::List(Collection::QueuePolicies)),
    route(Method::GET, QUEUE_POLICY, Operation::Show(Item::QueuePolicy)),
    route(Method::PUT, QUEUE_POLICY, Operation::Put(Item::QueuePolicy)),
    route(Method::DELETE, QUEUE_POLICY, Operation::Delete(Item::QueuePolicy)),
    route(
        Method::POST,
        "/api/queues/{queue}/policies/{policy}/regenerate",
        Operation::Regenerate(Item::QueuePolicy),
    ),
    route(Method::GET, "/api/topics", Operation::List(Collection::Topics)),
    route(Method::GET, TOPIC, Operation::Show(Item::Topic)),
    route(Method::PUT, TOPIC, Operation::Put(Item::Topic)),
    route(Method::DELETE, TOPIC, Operation::Delete(Item::Topic)),
    route(Method::GET, "/api/topics/{topic}/messages", Operation::Messages(Item::Topic)),
    route(Method::POST, "/api/topics/{topic}/explain", Operation::Explain),
    route(Method::GET, "/api/topics/{topic}/policies", Operation::List(Collection::TopicPolicies)),
    route(Method::GET, TOPIC_POLICY, Operation::Show(Item::TopicPolicy)),
    route(Method::PUT, TOPIC_POLICY, Operation::Put(Item::TopicPolicy)),
    route(Method::DELETE, TOPIC_POLICY, Operation::Delete(Item::TopicPolicy)),
    route(
        Method::POST,
        "/api/topics/{topic}/policies/{policy}/regenerate",
        Operation::Regenerate(Item::TopicPolicy),
    ),
    route(Method::GET, "/api/topics/{topic}/subscriptions", Operation::List(Collection::Subscriptions)),
    route(Method::GET, SUBSCRIPTION, Operation::Show(Item::Subscription)),
    route(Method::PUT, SUBSCRIPTION, Operation::Put(Item::Subscription)),
    route(Method::DELETE, SUBSCRIPTION, Operation::Delete(Item::Subscription)),
    route(
        Method::GET,
        "/api/topics/{topic}/subscriptions/{subscription}/messages",
        Operation::Messages(Item::Subscription),
    ),
    route(
        Method::GET,
        "/api/topics/{topic}/subscriptions/{subscription}/messages/{number}/explain",
        Operation::ExplainMessage(Item::Subscription),
    ),
    route(
        Method::GET,
        "/api/topics/{topic}/subscriptions/{subscription}/rules",
        Operation::List(Collection::Rules),
    ),
    route(Method::GET, RULE, Operation::Show(Item::Rule)),
    route(Method::PUT, RULE, Operation::Put(Item::Rule)),
    route(Method::DELETE, RULE, Operation::Delete(Item::Rule)),
    hub(Method::GET, "/api/hubs", HubOperation::List),
    hub(Method::GET, HUB, HubOperation::Show),
    hub(Method::PUT, HUB, HubOperation::Put),
    hub(Method::DELETE, HUB, HubOperation::Delete),
    hub(Method::POST, "/api/hubs/{hub}/events", HubOperation::Send),
    hub(Method::GET, "/api/hubs/{hub}/partitions", HubOperation::Partitions),
    hub(Method::GET, "/api/hubs/{hub}/partitions/{partition}", HubOperation::ShowPartition),
    hub(Method::GET, "/api/hubs/{hub}/partitions/{partition}/events", HubOperation::Events),
    hub(Method::GET, "/api/hubs/{hub}/consumer-groups", HubOperation::ListGroups),
    hub(Method::GET, CONSUMER_GROUP, HubOperation::ShowGroup),
    hub(Method::PUT, CONSUMER_GROUP, HubOperation::PutGroup),
    hub(Method::DELETE, CONSUMER_GROUP, HubOperation::DeleteGroup),
    hub(Method::GET, "/api/hubs/{hub}/consumer-groups/{group}/checkpoints", HubOperation::Checkpoints),
    hub(Method::POST, "/api/hubs/{hub}/consumer-groups/{group}/reset", HubOperation::ResetCheckpoints),
    hub(Method::GET, CHECKPOINT, HubOperation::ShowCheckpoint),
    hub(Method::PUT, CHECKPOINT, HubOperation::PutCheckpoint),
    hub(Method::GET, "/api/hubs/{hub}/consumer-groups/{group}/ownerships", HubOperation::Ownerships),
    hub(Method::GET, OWNERSHIP, HubOperation::ShowOwnership),
    hub(Method::PUT, OWNERSHIP, HubOperation::PutOwnership),
    route(Method::GET, "/api/hubs/{hub}/policies", Operation::List(Collection::HubPolicies)),
    route(Method::GET, HUB_POLICY, Operation::Show(Item::HubPolicy)),
    route(Method::PUT, HUB_POLICY, Operation::Put(Item::HubPolicy)),
    route(Method::DELETE, HUB_POLICY, Operation::Delete(Item::HubPolicy)),
    route(
        Method::POST,
        "/api/hubs/{hub}/policies/{policy}/regenerate",
        Operation::Regenerate(Item::HubPolicy),
    ),
    route(Method::GET, "/api/groups", Operation::List(Collection::Groups)),
    route(Method::GET, "/api/groups/{group}", Operation::Show(Item::Group)),
    route(Method::GET, "/api/policies", Operation::List(Collection::Policies)),
    route(Method::GET, POLICY, Operation::Show(Item::Policy)),
    route(Method::PUT, POLICY, Operation::Put(Item::Policy)),
    route(Method::DELETE, POLICY, Operation::Delete(Item::Policy)),
    route(Method::POST, "/api/policies/{policy}/regenerate", Operation::Regenerate(Item::Policy)),
];

/// The route, and the names in the path from left to right.
pub(crate) fn find(head: &Head) -> Result<(&'static Route, Vec<&str>), Problem> {
    let mut allowed: Vec<&str> = Vec::new();
    for route in &ROUTES {
        let Some(names) = match_path(route.path, &head.segments) else { continue };
        if route.method == head.parts.method {
            return Ok((route, names));
        }
        allowed.push(route.method.as_str());
    }
    if allowed.is_empty() {
        let path = crate::request::shown(head.parts.uri.path());
        return Err(Problem::NotFound(format!(
            "nothing is at '{path}'; /api/openapi.json tells what there is. A '/' in a name is written %2F"
        )));
    }
    Err(head.not_allowed(&allowed.join(", ")))
}

fn match_path<'h>(path: &str, segments: &'h [String]) -> Option<Vec<&'h str>> {
    let mut names = Vec::new();
    let mut given = segments.iter();
    for wanted in path.trim_start_matches('/').split('/') {
        let given = given.next()?;
        if wanted.starts_with('{') {
            names.push(given.as_str());
        } else if wanted != given {
            return None;
        }
    }
    given.next().is_none().then_some(names)
}
