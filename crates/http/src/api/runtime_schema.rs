//! What the API's description says of the order of a queue.

use serde_json::{Map, Value, json};

use super::openapi::{Field, object, reference};

const ORDER: [Field; 5] = [
    ("laneCount", "integer"),
    ("misfitCount", "integer"),
    ("crowdedCount", "integer"),
    ("throttledCount", "integer"),
    ("limitedUntil", "string"),
];
const CLASS: [Field; 9] = [
    ("name", "string"),
    ("waiting", "integer"),
    ("inFlight", "integer"),
    ("oldestAgeSeconds", "number"),
    ("enqueuedCount", "integer"),
    ("startedCount", "integer"),
    ("settledCount", "integer"),
    ("enqueuedPerSecond", "number"),
    ("settledPerSecond", "number"),
];
const PERCENTILES: [Field; 5] =
    [("p50", "number"), ("p90", "number"), ("p99", "number"), ("p999", "number"), ("count", "integer")];
const TARGET: [Field; 5] = [
    ("within", "string"),
    ("objective", "number"),
    ("good", "integer"),
    ("bad", "integer"),
    ("attainment", "number"),
];
const WINDOW: [Field; 4] =
    [("window", "string"), ("good", "integer"), ("bad", "integer"), ("burn", "number")];
const TENANT: [Field; 5] = [
    ("tenant", "string"),
    ("class", "string"),
    ("tenantClass", "string"),
    ("waiting", "integer"),
    ("inFlight", "integer"),
];
const EXPLAINED: [Field; 7] = [
    ("sequenceNumber", "integer"),
    ("state", "string"),
    ("class", "string"),
    ("tenantClass", "string"),
    ("tenant", "string"),
    ("why", "string"),
    ("aheadCount", "integer"),
];

pub(super) fn schemas() -> Map<String, Value> {
    let list = |name| json!({ "type": "array", "items": reference(name) });
    let with = |fields: &[Field], more: Vec<(&str, Value)>| {
        let mut schema = object(&[fields]);
        for (name, property) in more {
            schema["properties"][name] = property;
        }
        schema
    };
    let drain = json!({ "oneOf": [{ "type": "number" }, { "const": "never" }] });
    let alert = json!({ "enum": ["none", "fewMessages", "ticket", "page"] });
    let schemas = [
        ("Runtime", with(&[], vec![("order", reference("OrderRuntime"))])),
        (
            "OrderRuntime",
            with(
                &ORDER,
                vec![
                    ("classes", list("ClassRuntime")),
                    ("tenantClasses", list("ClassRuntime")),
                    ("tenants", list("TenantRuntime")),
                ],
            ),
        ),
        (
            "ClassRuntime",
            with(
                &CLASS,
                vec![
                    ("timeToDrainSeconds", drain),
                    ("timeInQueue", reference("Percentiles")),
                    ("criticalTime", reference("Percentiles")),
                    ("target", reference("TargetRuntime")),
                ],
            ),
        ),
        ("Percentiles", with(&PERCENTILES, Vec::new())),
        ("TargetRuntime", with(&TARGET, vec![("windows", list("WindowRuntime")), ("alert", alert)])),
        ("WindowRuntime", with(&WINDOW, Vec::new())),
        ("TenantRuntime", with(&TENANT, Vec::new())),
        ("ExplainedMessage", with(&EXPLAINED, vec![("ahead", list("Ahead"))])),
        ("Ahead", with(&[("class", "string"), ("count", "integer")], Vec::new())),
    ];
    schemas.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect()
}

#[cfg(test)]
mod tests {
    use peeklock_api::{
        Ahead, ClassRuntime, ExplainedMessage, OrderRuntime, Percentiles, TargetRuntime, TenantRuntime,
        TimeToDrain, WindowRuntime,
    };
    use serde::Serialize;

    use super::*;

    #[track_caller]
    fn check(name: &str, full: &impl Serialize) {
        let keys = |value: &Value| {
            let mut keys: Vec<_> = value.as_object().unwrap().keys().cloned().collect();
            keys.sort();
            keys
        };
        let told = serde_json::to_value(full).unwrap();
        assert_eq!(keys(&schemas()[name]["properties"]), keys(&told), "{name}");
    }

    #[test]
    fn everything_that_is_told_is_described() {
        let text = || Some("x".to_owned());
        check("OrderRuntime", &OrderRuntime { limited_until: text(), ..OrderRuntime::default() });
        let class = ClassRuntime {
            oldest_age_seconds: Some(1.0),
            time_to_drain_seconds: Some(TimeToDrain::Seconds(1.0)),
            target: Some(TargetRuntime::default()),
            ..ClassRuntime::default()
        };
        check("ClassRuntime", &class);
        let one = Some(1.0);
        check("Percentiles", &Percentiles { p50: one, p90: one, p99: one, p999: one, count: 1 });
        check("TargetRuntime", &TargetRuntime { attainment: one, ..TargetRuntime::default() });
        check("WindowRuntime", &WindowRuntime { burn: one, ..WindowRuntime::default() });
        check("TenantRuntime", &TenantRuntime { tenant: text(), ..TenantRuntime::default() });
        let explained = ExplainedMessage {
            class: text(),
            tenant_class: text(),
            tenant: text(),
            ..ExplainedMessage::default()
        };
        check("ExplainedMessage", &explained);
        check("Ahead", &Ahead::default());
    }
}
