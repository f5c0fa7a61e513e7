//! JSON schemas that cannot be derived from serde's attributes.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value};

use crate::written::{Form, Written};

/// Returns the schema of a table of settings, each of which may be left out. `settings` has the fields in the spelling of Rust.
pub(crate) fn settings(
    description: &str,
    settings: impl IntoIterator<Item = (&'static str, Schema)>,
) -> Schema {
    let properties: Map<String, Value> =
        settings.into_iter().map(|(field, schema)| (camel_case(field), schema.into())).collect();
    json_schema!({
        "type": "object",
        "description": description.trim(),
        "properties": properties,
        "additionalProperties": false
    })
}

/// Returns the schema of one setting, with its help as the description.
pub(crate) fn setting<T: Written>(
    generator: &mut SchemaGenerator,
    field: &'static str,
    help: &str,
) -> (&'static str, Schema) {
    let mut schema = generator.subschema_for::<Form<T>>();
    let form = schema.get("description").and_then(Value::as_str).map(|form| format!("; {form}"));
    let description = format!("{}{}", help.trim(), form.unwrap_or_default());
    schema.insert("description".to_owned(), description.into());
    (field, schema)
}

/// Writes `lock_duration` as `lockDuration`.
fn camel_case(field: &str) -> String {
    let mut parts = field.split('_');
    let mut name = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (first, rest) = part.split_at_checked(1).unwrap_or((part, ""));
        name.push_str(&first.to_ascii_uppercase());
        name.push_str(rest);
    }
    name
}
