//! The OpenAPI description, derived from the routes and the types of their endpoints.

use peeklock_access::Right;
use peeklock_api::{Parameter, Refusal, description};
use schemars::generate::{Contract, SchemaSettings};
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::ROUTES;
use super::call::{Answer, Call};
use super::route::{Route, route};
use crate::problem::Problem;

pub(super) fn routes() -> Vec<Route> {
    vec![route(&description::SHOW, Right::Manage, Call::describe_api).public()]
}

impl Call {
    async fn describe_api(self) -> Result<Answer<Value>, Problem> {
        Ok(Answer::ok(describe(&ROUTES)))
    }
}

/// The schemas of bodies and answers: a body is described as the server parses it, an answer as the server writes it. A
/// type that occurs in both has the same schema in both.
struct Schemas {
    bodies: SchemaGenerator,
    answers: SchemaGenerator,
}

impl Schemas {
    fn new() -> Self {
        let generator = |contract| {
            let mut settings = SchemaSettings::draft2020_12();
            settings.definitions_path = "/components/schemas".into();
            settings.contract = contract;
            settings.into_generator()
        };
        Schemas { bodies: generator(Contract::Deserialize), answers: generator(Contract::Serialize) }
    }

    fn into_components(mut self) -> Map<String, Value> {
        let mut schemas = self.bodies.take_definitions(false);
        schemas.extend(self.answers.take_definitions(false));
        schemas
    }
}

fn describe(routes: &[Route]) -> Value {
    let mut schemas = Schemas::new();
    let mut paths = unrouted();
    for route in routes {
        let operation = operation(route, &mut schemas);
        for path in route.paths {
            let names: Vec<_> = peeklock_api::parameters(path).map(name_parameter).collect();
            let item = paths.entry(*path).or_insert_with(|| json!({ "parameters": names }));
            item[route.method.as_str().to_lowercase()] = operation.clone();
        }
    }
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
                "type": "http", "scheme": "basic",
                "description": "The name of a key, and the key. Use HTTPS if the broker is not on your own machine"
            }, "token": {
                "type": "apiKey", "in": "header", "name": "Authorization",
                "description": "A shared access signature for the entity or the namespace, or a bearer token where they are enabled"
            } },
            "schemas": schemas.into_components()
        }
    })
}

/// Returns the paths that are not part of the JSON API.
fn unrouted() -> Map<String, Value> {
    let text = json!({ "text/plain": { "schema": { "type": "string" } } });
    let health = json!({ "get": {
        "summary": "Checks the broker: it sends, stores and receives a message",
        "security": [],
        "responses": { "200": { "description": "Healthy" }, "503": { "description": "Not healthy, or not yet" } }
    } });
    let metrics = json!({ "get": {
        "summary": "Metrics for Prometheus. A loopback address needs no key; other addresses need Listen or Manage on the namespace",
        "security": [{ "basic": [] }, { "token": [] }],
        "responses": { "200": { "description": "Prometheus's text format", "content": text } }
    } });
    [("/health".to_owned(), health), ("/metrics".to_owned(), metrics)].into_iter().collect()
}

fn operation(route: &Route, schemas: &mut Schemas) -> Value {
    let parameters: Vec<_> = route.parameters.iter().map(query_parameter).collect();
    let mut operation = json!({ "summary": route.summary, "responses": responses(route, schemas) });
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    if let Some(body) = route.body {
        operation["requestBody"] = json!({ "content": content(&body(&mut schemas.bodies)) });
    }
    match route.right {
        Some(right) => operation["description"] = format!("Needs the right {right}.").into(),
        None => operation["security"] = json!([]),
    }
    operation
}

fn responses(route: &Route, schemas: &mut Schemas) -> Value {
    let mut responses = Map::new();
    for status in route.statuses {
        let response = match status {
            204 => json!({ "description": "Deleted" }),
            201 => {
                json!({ "description": "Created", "content": content(&(route.answer)(&mut schemas.answers)) })
            }
            _ => json!({ "description": "Done", "content": content(&(route.answer)(&mut schemas.answers)) }),
        };
        responses.insert(status.to_string(), response);
    }
    if route.right.is_some() {
        let refusal = schemas.answers.subschema_for::<Refusal>();
        let refused =
            json!({ "description": "Refused; the message has the reason", "content": content(&refusal) });
        responses.insert("default".to_owned(), refused);
    }
    responses.into()
}

fn content(schema: &Schema) -> Value {
    json!({ "application/json": { "schema": schema } })
}

fn query_parameter(parameter: &Parameter) -> Value {
    let Parameter { name, kind, description } = parameter;
    json!({ "name": name, "in": "query", "schema": { "type": kind }, "description": description })
}

/// Returns the parameter for a name in the path.
fn name_parameter(name: &str) -> Value {
    let (kind, description) = match name {
        "number" => ("integer", "Sequence number of a message".to_owned()),
        "partition" => ("integer", "Number of the partition, from 0".to_owned()),
        _ => ("string", format!("Name of the {}; a '/' in it is written %2F", in_words(name))),
    };
    json!({
        "name": name, "in": "path", "required": true, "schema": { "type": kind }, "description": description
    })
}

/// Writes `consumerGroup` as `consumer group`.
fn in_words(name: &str) -> String {
    name.chars().fold(String::new(), |mut words, letter| {
        if letter.is_ascii_uppercase() {
            words.push(' ');
        }
        words.push(letter.to_ascii_lowercase());
        words
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_has_the_same_schema_in_bodies_and_answers() {
        let mut schemas = Schemas::new();
        for route in ROUTES.iter() {
            operation(route, &mut schemas);
        }
        let answers = schemas.answers.take_definitions(false);
        for (name, body) in schemas.bodies.take_definitions(false) {
            assert!(answers.get(&name).is_none_or(|answer| *answer == body), "{name}");
        }
    }
}
