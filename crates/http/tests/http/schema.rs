//! Checks every answer of the JSON API in these tests against the API's own description.

use axum::Router;
use http_body_util::BodyExt;
use serde_json::{Map, Value};
use tokio::sync::OnceCell;
use tower::ServiceExt;

use crate::common::{Answer, request};

static DESCRIPTION: OnceCell<Value> = OnceCell::const_new();

/// Panics if the answer does not match the description.
pub(crate) async fn check(router: &Router, method: &str, uri: &str, answer: &Answer) {
    let path = uri.split('?').next().unwrap_or(uri);
    if !path.starts_with("/api/") || uri.contains("api-version") {
        return;
    }
    let description = DESCRIPTION.get_or_init(|| describe(router)).await;
    let found = description["paths"].as_object().unwrap().iter().find(|(known, _)| is_at(known, path));
    let operation = found.and_then(|(_, item)| item.get(method.to_lowercase()));
    let Some(operation) = operation else {
        assert!(matches!(answer.status.as_u16(), 404 | 405), "{method} {uri} is not described");
        return;
    };
    let responses = &operation["responses"];
    let status = answer.status.as_u16();
    let described = responses.get(status.to_string());
    assert!(described.is_some() || status >= 400, "{method} {uri}: the status {status} is not described");
    let response = described.unwrap_or_else(|| &responses["default"]);
    match response.get("content") {
        Some(content) => {
            let schema = &content["application/json"]["schema"];
            let schemas = description["components"]["schemas"].as_object().unwrap();
            Check { schemas }.value(schema, &answer.json(), &format!("{method} {uri}")).unwrap();
        }
        None => assert_eq!(answer.body, "", "{method} {uri}"),
    }
}

async fn describe(router: &Router) -> Value {
    let response = router.clone().oneshot(request("GET", "/api/openapi.json", "", &[], "")).await.unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    serde_json::from_slice(&body).unwrap()
}

fn is_at(template: &str, path: &str) -> bool {
    let path = path.strip_suffix('/').unwrap_or(path);
    let (mut template, mut path) = (template.split('/'), path.split('/'));
    loop {
        match (template.next(), path.next()) {
            (None, None) => return true,
            (Some(wanted), Some(given)) if wanted.starts_with('{') || wanted == given => {}
            _ => return false,
        }
    }
}

/// A validator for the part of JSON Schema that the description uses. An unknown keyword is an error.
struct Check<'s> {
    schemas: &'s Map<String, Value>,
}

impl Check<'_> {
    fn value(&self, schema: &Value, value: &Value, place: &str) -> Result<(), String> {
        let schema = match schema {
            Value::Bool(true) => return Ok(()),
            Value::Object(schema) => schema,
            other => return Err(format!("{place}: the schema is {other}")),
        };
        for (keyword, rule) in schema {
            self.keyword(schema, keyword, rule, value, place)?;
        }
        Ok(())
    }

    fn keyword(
        &self,
        schema: &Map<String, Value>,
        keyword: &str,
        rule: &Value,
        value: &Value,
        place: &str,
    ) -> Result<(), String> {
        let wrong = || Err(format!("{place}: {value} does not fit {keyword}: {rule}"));
        let fits = |schema: &Value| self.value(schema, value, place);
        let fitting = || rule.as_array().unwrap().iter().filter(|schema| fits(schema).is_ok()).count();
        let number = value.as_f64().zip(rule.as_f64());
        match keyword {
            "description" | "title" | "format" | "default" => Ok(()),
            "$ref" => {
                let name = rule.as_str().unwrap().rsplit('/').next().unwrap();
                fits(self.schemas.get(name).ok_or_else(|| format!("{place}: no schema {name}"))?)
            }
            "type" if is_type(rule, value) => Ok(()),
            "enum" if rule.as_array().unwrap().contains(value) => Ok(()),
            "const" if rule == value => Ok(()),
            "minimum" if number.is_none_or(|(value, limit)| value >= limit) => Ok(()),
            "maximum" if number.is_none_or(|(value, limit)| value <= limit) => Ok(()),
            "exclusiveMinimum" if number.is_none_or(|(value, limit)| value > limit) => Ok(()),
            "exclusiveMaximum" if number.is_none_or(|(value, limit)| value < limit) => Ok(()),
            "anyOf" if fitting() > 0 => Ok(()),
            "oneOf" if fitting() == 1 => Ok(()),
            "allOf" => rule.as_array().unwrap().iter().try_for_each(fits),
            "items" => {
                let mut items = value.as_array().into_iter().flatten();
                items.try_for_each(|item| self.value(rule, item, &format!("{place}[]")))
            }
            "required" => {
                let has = |key: &Value| value.get(key.as_str().unwrap()).is_some();
                if !value.is_object() || rule.as_array().unwrap().iter().all(has) { Ok(()) } else { wrong() }
            }
            "properties" => {
                let known = rule.as_object().unwrap().iter();
                known
                    .filter_map(|(key, rule)| Some((key, rule, value.get(key)?)))
                    .try_for_each(|(key, rule, value)| self.value(rule, value, &format!("{place}.{key}")))
            }
            "additionalProperties" => {
                let is_other =
                    |key: &str| schema.get("properties").and_then(|known| known.get(key)).is_none();
                let others = value.as_object().into_iter().flatten().filter(|(key, _)| is_other(key));
                others.map(|(key, value)| (format!("{place}.{key}"), value)).try_for_each(|(place, value)| {
                    if *rule == Value::Bool(false) {
                        Err(format!("{place} is unknown"))
                    } else {
                        self.value(rule, value, &place)
                    }
                })
            }
            _ => wrong(),
        }
    }
}

fn is_type(rule: &Value, value: &Value) -> bool {
    let is = |kind: &str| match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    };
    match rule {
        Value::Array(kinds) => kinds.iter().any(|kind| is(kind.as_str().unwrap())),
        kind => is(kind.as_str().unwrap()),
    }
}
