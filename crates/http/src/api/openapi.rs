//! The API's description, made from the table of routes.

use http::Method;
use serde_json::{Map, Value, json};

use super::hub_schema;
use super::order_schema;
use super::route::{Collection, HubOperation, Item, Operation, ROUTES, Route};
use super::runtime_schema;

const SUMMARY_METRICS: &str = "Numbers for Prometheus. On a loopback address without a key; elsewhere with Listen or Manage on the namespace";
const SUMMARY_HEALTH: &str = "Whether the broker works: a message was sent, stored and received";

pub(super) fn description() -> Value {
    let mut paths = Map::new();
    for route in &ROUTES {
        let path =
            paths.entry(route.path).or_insert_with(|| json!({ "parameters": path_parameters(route.path) }));
        path[route.method.as_str().to_lowercase()] = operation(route);
    }
    let healthy = json!({ "description": "It does" });
    let unhealthy = json!({ "description": "It does not, or not yet" });
    paths.insert(
        "/health".to_owned(),
        json!({ "get": { "summary": SUMMARY_HEALTH, "security": [], "responses": { "200": healthy, "503": unhealthy } } }),
    );
    let text = json!({ "text/plain": { "schema": { "type": "string" } } });
    paths.insert(
        "/metrics".to_owned(),
        json!({ "get": {
            "summary": SUMMARY_METRICS,
            "security": [{ "basic": [] }, { "token": [] }],
            "responses": { "200": { "description": "In Prometheus's text format", "content": text } }
        } }),
    );
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Peeklock",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Management of queues, topics, subscriptions, rules, event hubs and shared access policies. \
                Azure's administration clients use the ATOM protocol on the same port."
        },
        "security": [{ "basic": [] }, { "token": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": { "basic": {
                "type": "http", "scheme": "basic", "description": "The name of a key, and the key. Elsewhere than on your own machine, over HTTPS"
            }, "token": {
                "type": "apiKey", "in": "header", "name": "Authorization",
                "description": "A shared access signature for the entity or the namespace, or a bearer token where those are on"
            } },
            "schemas": schemas()
        }
    })
}

/// The names between braces.
fn path_parameters(path: &str) -> Value {
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let parameter = |name: &str| match name {
        "number" => json!({
            "name": name, "in": "path", "required": true, "schema": { "type": "integer" },
            "description": "Sequence number of a message"
        }),
        "partition" => json!({
            "name": name, "in": "path", "required": true, "schema": { "type": "integer" },
            "description": "Number of the partition, from 0"
        }),
        _ => json!({
            "name": name, "in": "path", "required": true, "schema": { "type": "string" },
            "description": format!("Name of the {name}; a '/' in it is written %2F")
        }),
    };
    names.map(parameter).collect()
}

fn operation(route: &Route) -> Value {
    let mut operation = json!({ "summary": summary(route.operation), "responses": responses(route) });
    let query = query_parameters(route.operation);
    if query.as_array().is_some_and(|query| !query.is_empty()) {
        operation["parameters"] = query;
    }
    if let Some(schema) = body_schema(route.operation) {
        operation["requestBody"] = json!({ "content": content(&reference(schema)) });
    }
    if route.operation == Operation::OpenApi {
        operation["security"] = json!([]);
    }
    operation
}

fn summary(operation: Operation) -> String {
    match operation {
        Operation::OpenApi => "This description".to_owned(),
        Operation::List(Collection::Queues) => "All queues, by name".to_owned(),
        Operation::List(Collection::Topics) => "All topics, by name".to_owned(),
        Operation::List(Collection::Subscriptions) => "The subscriptions of a topic, by name".to_owned(),
        Operation::List(Collection::Groups) => "The groups of queues that are configured, by name".to_owned(),
        Operation::List(Collection::Rules) => "The rules of a subscription, by name".to_owned(),
        Operation::List(_) => "The shared access policies here, without their keys".to_owned(),
        Operation::Show(item) => {
            format!("One {}{}", noun(item), if is_policy(item) { ", with its keys" } else { "" })
        }
        Operation::Put(item) => {
            format!(
                "Creates a {0}, or changes one: what is left out keeps its value. May be repeated",
                noun(item)
            )
        }
        Operation::Delete(item) => format!("Deletes a {} with all that belongs to it", noun(item)),
        Operation::Regenerate(_) => "Replaces one of the two keys of a policy".to_owned(),
        Operation::Messages(_) => "Looks at messages without touching them".to_owned(),
        Operation::ExplainMessage(_) => {
            "Why a message has not been received yet, and behind what it waits".to_owned()
        }
        Operation::Hub(operation) => hub_schema::summary(operation).to_owned(),
        Operation::Explain => {
            "Which subscriptions would get a message, and why the others would not".to_owned()
        }
    }
}

fn noun(item: Item) -> &'static str {
    match item {
        Item::Queue => "queue",
        Item::Topic => "topic",
        Item::Subscription => "subscription",
        Item::Rule => "rule",
        Item::Group => "group of queues",
        Item::Policy | Item::QueuePolicy | Item::TopicPolicy | Item::HubPolicy => "policy",
    }
}

fn is_policy(item: Item) -> bool {
    noun(item) == "policy"
}

fn query_parameters(operation: Operation) -> Value {
    let parameter = |name: &str, kind: &str, text: &str| json!({ "name": name, "in": "query", "schema": { "type": kind }, "description": text });
    let top = || parameter("top", "integer", "How many at most; 100 unless said");
    match operation {
        Operation::List(_) | Operation::Hub(HubOperation::List | HubOperation::ListGroups) => {
            json!([top(), parameter("after", "string", "The 'next' of the page before")])
        }
        Operation::Hub(HubOperation::Events) => json!([
            parameter("max", "integer", "How many at most; 100 unless said"),
            parameter(
                "from",
                "string",
                "earliest, latest, a sequence number or a time; the 'next' of the page before"
            ),
        ]),
        Operation::Messages(_) => json!([
            top(),
            parameter("from", "integer", "The lowest sequence number; the 'next' of the page before"),
            parameter("subQueue", "string", "deadLetter or transferDeadLetter"),
        ]),
        _ => json!([]),
    }
}

fn body_schema(operation: Operation) -> Option<&'static str> {
    match operation {
        Operation::Put(item) => Some(match item {
            Item::Queue => "QueueSettings",
            Item::Topic => "TopicSettings",
            Item::Subscription => "SubscriptionSettings",
            Item::Rule => "RuleSettings",
            Item::Group => "Group",
            Item::Policy | Item::QueuePolicy | Item::TopicPolicy | Item::HubPolicy => "PolicySettings",
        }),
        Operation::Regenerate(_) => Some("Regenerate"),
        Operation::Explain => Some("Sample"),
        Operation::Hub(operation) => hub_schema::body(operation),
        _ => None,
    }
}

fn answer_schema(operation: Operation) -> Option<&'static str> {
    let of_item = |item| match item {
        Item::Queue => "Queue",
        Item::Topic => "Topic",
        Item::Subscription => "Subscription",
        Item::Rule => "Rule",
        Item::Group => "Group",
        Item::Policy | Item::QueuePolicy | Item::TopicPolicy | Item::HubPolicy => "Policy",
    };
    match operation {
        Operation::OpenApi | Operation::Delete(_) => None,
        Operation::Show(item) | Operation::Put(item) | Operation::Regenerate(item) => Some(of_item(item)),
        Operation::List(Collection::Queues) => Some("Queue"),
        Operation::List(Collection::Topics) => Some("Topic"),
        Operation::List(Collection::Subscriptions) => Some("Subscription"),
        Operation::List(Collection::Rules) => Some("Rule"),
        Operation::List(Collection::Groups) => Some("Group"),
        Operation::List(_) => Some("Policy"),
        Operation::Messages(_) => Some("Message"),
        Operation::ExplainMessage(_) => Some("ExplainedMessage"),
        Operation::Explain => Some("Explained"),
        Operation::Hub(operation) => hub_schema::answer(operation),
    }
}

fn responses(route: &Route) -> Value {
    let is_page = match route.operation {
        Operation::List(_) | Operation::Messages(_) | Operation::Explain => true,
        Operation::Hub(operation) => hub_schema::is_page(operation),
        _ => false,
    };
    let schema = match answer_schema(route.operation) {
        Some(item) if is_page => json!({
            "type": "object",
            "properties": { "items": { "type": "array", "items": reference(item) }, "next": { "type": "string" } },
            "required": ["items"]
        }),
        Some(item) => reference(item),
        None => json!({ "type": "object" }),
    };
    let told = json!({ "description": "Done", "content": content(&schema) });
    let refused =
        json!({ "description": "Refused; the message says why", "content": content(&reference("Error")) });
    let mut responses = match route.method {
        Method::DELETE => json!({ "204": { "description": "Deleted" } }),
        Method::PUT => json!({ "200": told.clone(), "201": told }),
        Method::POST if route.operation == Operation::Hub(HubOperation::Send) => json!({ "201": told }),
        _ => json!({ "200": told }),
    };
    if route.operation != Operation::OpenApi {
        responses["default"] = refused;
    }
    responses
}

fn content(schema: &Value) -> Value {
    json!({ "application/json": { "schema": schema } })
}

pub(super) fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

/// A field and its type; a type with `?` may be null, and one with `#` is another schema.
pub(super) type Field = (&'static str, &'static str);

const QUEUE: [Field; 21] = [
    ("lockDuration", "string"),
    ("maxDeliveryCount", "integer"),
    ("requiresSession", "boolean"),
    ("deadLetterOnExpiration", "boolean"),
    ("maxMessageSize", "string"),
    ("status", "string"),
    ("retry", "string"),
    ("poisonSession", "string"),
    ("batchedOperations", "boolean"),
    ("supportOrdering", "boolean"),
    ("express", "boolean"),
    ("partitioning", "boolean"),
    ("defaultTimeToLive", "string?"),
    ("autoDeleteOnIdle", "string?"),
    ("duplicateWindow", "string?"),
    ("unusedDuplicateWindow", "string?"),
    ("maxSize", "string?"),
    ("forwardTo", "string?"),
    ("forwardDeadLettersTo", "string?"),
    ("order", "#Order?"),
    ("userMetadata", "string?"),
];
const TOPIC: [Field; 12] = [
    ("maxMessageSize", "string"),
    ("status", "string"),
    ("batchedOperations", "boolean"),
    ("supportOrdering", "boolean"),
    ("express", "boolean"),
    ("partitioning", "boolean"),
    ("defaultTimeToLive", "string?"),
    ("autoDeleteOnIdle", "string?"),
    ("duplicateWindow", "string?"),
    ("unusedDuplicateWindow", "string?"),
    ("maxSize", "string?"),
    ("userMetadata", "string?"),
];
const SUBSCRIPTION: [Field; 15] = [
    ("lockDuration", "string"),
    ("maxDeliveryCount", "integer"),
    ("requiresSession", "boolean"),
    ("deadLetterOnExpiration", "boolean"),
    ("deadLetterOnFilterError", "boolean"),
    ("status", "string"),
    ("retry", "string"),
    ("poisonSession", "string"),
    ("batchedOperations", "boolean"),
    ("defaultTimeToLive", "string?"),
    ("autoDeleteOnIdle", "string?"),
    ("forwardTo", "string?"),
    ("forwardDeadLettersTo", "string?"),
    ("order", "#Order?"),
    ("userMetadata", "string?"),
];
const COUNTS: [Field; 9] = [
    ("activeCount", "integer"),
    ("lockedCount", "integer"),
    ("deferredCount", "integer"),
    ("scheduledCount", "integer"),
    ("deadLetterCount", "integer"),
    ("transferCount", "integer"),
    ("transferDeadLetterCount", "integer"),
    ("messageCount", "integer"),
    ("sizeBytes", "integer"),
];
const TOPIC_COUNTS: [Field; 5] = [
    ("subscriptionCount", "integer"),
    ("sqlRuleCount", "integer"),
    ("correlationRuleCount", "integer"),
    ("scheduledCount", "integer"),
    ("sizeBytes", "integer"),
];
const DATES: [Field; 4] =
    [("createdAt", "string"), ("updatedAt", "string"), ("accessedAt", "string"), ("revision", "integer")];
const RULE: [Field; 6] = [
    ("sql", "string"),
    ("correlation", "object"),
    ("match", "string"),
    ("action", "string"),
    ("parameters", "object"),
    ("actionParameters", "object"),
];
const POLICY: [Field; 3] = [("rights", "array"), ("primaryKey", "string"), ("secondaryKey", "string")];
pub(super) const IDENTITIES: [Field; 7] = [
    ("messageId", "string"),
    ("correlationId", "string"),
    ("sessionId", "string"),
    ("replyToSessionId", "string"),
    ("to", "string"),
    ("replyTo", "string"),
    ("contentType", "string"),
];

fn schemas() -> Value {
    let mut schemas = entity_schemas();
    if let Value::Object(schemas) = &mut schemas {
        schemas.extend(order_schema::schemas());
        schemas.extend(runtime_schema::schemas());
        schemas.extend(hub_schema::schemas());
    }
    schemas
}

fn with_runtime(mut schema: Value) -> Value {
    schema["properties"]["runtime"] = reference("Runtime");
    schema
}

fn entity_schemas() -> Value {
    let name: &[Field] = &[("name", "string")];
    json!({
        "QueueSettings": closed(&[&QUEUE]),
        "TopicSettings": closed(&[&TOPIC]),
        "SubscriptionSettings": closed(&[&SUBSCRIPTION, &[("rules", "object")]]),
        "RuleSettings": closed(&[&RULE]),
        "PolicySettings": closed(&[&POLICY]),
        "Regenerate": {
            "type": "object", "required": ["key"], "additionalProperties": false,
            "properties": { "key": { "enum": ["primary", "secondary"] } }
        },
        "Sample": closed(&[&IDENTITIES, &[("label", "string"), ("partitionKey", "string"), ("properties", "object")]]),
        "Queue": with_runtime(object(&[name, &QUEUE, &COUNTS, &DATES])),
        "Topic": object(&[name, &TOPIC, &TOPIC_COUNTS, &DATES]),
        "Subscription": with_runtime(object(&[name, &[("topic", "string"), ("ruleCount", "integer")], &SUBSCRIPTION, &COUNTS, &DATES])),
        "Rule": object(&[name, &RULE, &[("createdAt", "string")]]),
        "Group": object(&[name, &[("members", "array"), ("order", "string"), ("maxOutstanding", "integer")]]),
        "Policy": object(&[name, &POLICY, &[("isDeclared", "boolean"), ("createdAt", "string"), ("modifiedAt", "string")]]),
        "Message": object(&[
            &[("sequenceNumber", "integer"), ("state", "string"), ("enqueuedAt", "string"), ("deliveryCount", "integer")],
            &[("sizeBytes", "integer"), ("lockedUntil", "string"), ("scheduledFor", "string"), ("expiresAt", "string")],
            &[("priority", "integer"), ("class", "string"), ("tenant", "string")],
            &IDENTITIES,
            &[("subject", "string"), ("properties", "object"), ("body", "object")],
        ]),
        "Explained": object(&[
            &[("subscription", "string"), ("copies", "integer"), ("deadLetters", "string"), ("rules", "array")],
        ]),
        "Error": {
            "type": "object", "required": ["error"],
            "properties": { "error": object(&[&[("code", "string"), ("message", "string")]]) }
        }
    })
}

pub(super) fn object(fields: &[&[Field]]) -> Value {
    let property = |(name, kind): &Field| {
        let schema = match (kind.strip_prefix('#'), kind.strip_suffix('?')) {
            (Some(other), _) => {
                json!({ "anyOf": [reference(other.trim_end_matches('?')), { "type": "null" }] })
            }
            (None, Some(kind)) => json!({ "type": [kind, "null"] }),
            (None, None) => json!({ "type": kind }),
        };
        ((*name).to_owned(), schema)
    };
    let properties: Map<String, Value> = fields.iter().copied().flatten().map(property).collect();
    json!({ "type": "object", "properties": properties })
}

/// What is taken: anything else is refused.
pub(super) fn closed(fields: &[&[Field]]) -> Value {
    let mut schema = object(fields);
    schema["additionalProperties"] = json!(false);
    schema
}
