//! What the API's description says of how the order of a queue is set.

use serde_json::{Map, Value, json};

const ORDER_KEYS: &str =
    "How messages are handed out. Said as a whole: what is left out is as by default. Null: as they came";
const RATE_TEXT: &str = "Such as 5/s, 300/m or '5/s burst 10'";

pub(super) fn schemas() -> Map<String, Value> {
    let schemas = [
        ("Order", order()),
        ("OrderClass", class()),
        ("OrderRule", rule()),
        ("OrderTenants", tenants()),
        ("OrderTenantClass", tenant_class()),
    ];
    schemas.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect()
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn table(description: &str, required: &[&str], properties: &Value) -> Value {
    json!({
        "type": "object", "description": description, "additionalProperties": false,
        "required": required, "properties": properties
    })
}

fn text(description: &str) -> Value {
    json!({ "type": "string", "description": description })
}

fn rate() -> Value {
    text(RATE_TEXT)
}

fn condition() -> Value {
    text("A condition of the filter language, such as tier = 'paying'")
}

fn by_name(item: &str) -> Value {
    json!({ "type": "object", "additionalProperties": reference(item) })
}

fn order() -> Value {
    let policies = peeklock_spec::ORDER_POLICIES.map(|(word, _)| word);
    let properties = json!({
        "policy": { "enum": policies, "default": "aged" },
        "classes": by_name("OrderClass"),
        "defaultClass": text("Of messages that say nothing, or something that fits no class"),
        "rules": { "type": "array", "items": reference("OrderRule"), "description": "The first that is true decides" },
        "tenants": reference("OrderTenants"),
        "rate": rate(),
        "sendRate": rate(),
        "maxOutstanding": {
            "type": "integer", "minimum": 1, "maximum": peeklock_types::limits::OUTSTANDING_MAX,
            "default": peeklock_types::OrderSettings::MAX_OUTSTANDING,
            "description": "What one receiver may hold unsettled, or what it settles in 100 ms if that is more"
        }
    });
    table(ORDER_KEYS, &[], &properties)
}

fn class() -> Value {
    let properties = json!({
        "priorities": text("The first and the last, such as 7-9"),
        "target": text("Within which time its messages shall start, such as 10s"),
        "objective": { "type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1, "default": 0.99 },
        "offset": text("For the policy aged: how much later others may come and still go first, such as 30s"),
        "weight": { "type": "integer", "minimum": 1, "maximum": peeklock_types::limits::WEIGHT_MAX },
        "rate": rate(),
        "sendRate": rate()
    });
    table("A class of messages", &["priorities"], &properties)
}

fn rule() -> Value {
    let properties = json!({ "when": condition(), "class": { "type": "string" } });
    table("Puts messages into a class", &["when", "class"], &properties)
}

fn tenants() -> Value {
    let properties = json!({
        "key": text("A property, or an expression: its value names the tenant"),
        "classes": by_name("OrderTenantClass"),
        "defaultClass": text("Of tenants that no condition fits; the last one unless said")
    });
    table("Whose messages share the workers' time", &["key"], &properties)
}

fn tenant_class() -> Value {
    let properties = json!({
        "when": condition(),
        "weight": { "type": "number", "exclusiveMinimum": 0, "maximum": peeklock_types::limits::WEIGHT_MAX, "default": 1 },
        "maxShare": { "type": "number", "exclusiveMinimum": 0, "maximum": 1 },
        "hard": { "type": "boolean", "default": false },
        "rate": rate(),
        "sendRate": rate()
    });
    table("A class of tenants; classes are asked in the order in which they are written", &[], &properties)
}
