//! The state of the order of a queue: its classes, their targets, and why a message waits.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The current state of a queue or subscription, in addition to its counts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Runtime {
    /// Absent for a queue without an order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<OrderRuntime>,
}

/// The state of an order. Totals count from the start of the broker; the other values describe the current messages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct OrderRuntime {
    /// The classes, the most urgent first.
    pub classes: Vec<ClassRuntime>,
    /// The classes of tenants; empty if the order has no tenants.
    pub tenant_classes: Vec<ClassRuntime>,
    /// The tenants with the most messages, the busiest first.
    pub tenants: Vec<TenantRuntime>,
    /// The number of lanes: one for each class and tenant that has messages.
    pub lane_count: u64,
    /// The number of messages whose priority matched no class. They got the default class.
    pub misfit_count: u64,
    /// The number of messages of tenants that share a lane because the limit of lanes was reached.
    pub crowded_count: u64,
    /// The number of messages that were rejected because of a send rate.
    pub throttled_count: u64,
    /// The time until which all waiting messages exceed a rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limited_until: Option<String>,
}

/// One class of messages, or of tenants.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClassRuntime {
    pub name: String,
    pub waiting: u64,
    pub in_flight: u64,
    /// The age of the message that has waited longest; absent if none waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest_age_seconds: Option<f64>,
    pub enqueued_count: u64,
    /// The number of first deliveries.
    pub started_count: u64,
    /// The number of messages that a receiver completed or dead-lettered.
    pub settled_count: u64,
    /// The rate over the last 30 seconds.
    pub enqueued_per_second: f64,
    pub settled_per_second: f64,
    /// The time until the backlog is empty at the arrival and settlement rates of the last 30 seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_to_drain_seconds: Option<TimeToDrain>,
    /// The time from the availability of a message to its first delivery.
    pub time_in_queue: Percentiles,
    /// The time from the availability of a message to its settlement.
    pub critical_time: Percentiles,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<TargetRuntime>,
}

/// A number of seconds, or the word `never` if messages arrive at least as fast as they are settled.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum TimeToDrain {
    Seconds(f64),
    Never(Never),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Never {
    #[serde(rename = "never")]
    Never,
}

/// Percentiles in seconds; absent if there were no messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Percentiles {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p90: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p999: Option<f64>,
    pub count: u64,
}

/// The performance of a class against its target. A message is bad as soon as it has waited longer than the target,
/// even if it has not been delivered yet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TargetRuntime {
    /// The target, as in the settings: `10s`.
    pub within: String,
    /// The required share of good messages, such as 0.99.
    pub objective: f64,
    pub good: u64,
    pub bad: u64,
    /// The actual share of good messages; absent if there were no messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attainment: Option<f64>,
    /// The windows, the shortest first: 5 min, 30 min, 1 h, 6 h, 3 d.
    pub windows: Vec<WindowRuntime>,
    pub alert: Alert,
}

/// The messages of a recent period.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WindowRuntime {
    /// The length of the period, as in the settings: `5m`.
    pub window: String,
    pub good: u64,
    pub bad: u64,
    /// The rate at which the permitted share of bad messages is consumed; at 1 it is consumed exactly. Absent if there
    /// were no messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burn: Option<f64>,
}

/// The urgency of an alert.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Alert {
    #[default]
    None,
    /// An alert is suppressed because there are too few messages for a reliable result.
    FewMessages,
    /// Attention is needed soon: the permitted share of bad messages is consumed too fast.
    Ticket,
    /// Attention is needed immediately: the share permitted for a month is consumed within days or hours.
    Page,
}

/// The messages of one tenant in one class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TenantRuntime {
    /// Absent for messages without a tenant and for those of tenants that share a lane.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    pub class: String,
    pub tenant_class: String,
    pub waiting: u64,
    pub in_flight: u64,
}

/// The reason why a message has not been received yet, and the messages ahead of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ExplainedMessage {
    pub sequence_number: u64,
    /// One of `waiting`, `limited`, `locked`, `scheduled`, `delayed`, `deferred`, `in-session`.
    pub state: String,
    /// Absent in a queue without an order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant_class: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The reason in one or more sentences.
    pub why: String,
    /// The number of messages that would be delivered first if no others arrived, by class, the most urgent class
    /// first.
    pub ahead: Vec<Ahead>,
    /// The sum over all classes.
    pub ahead_count: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Ahead {
    pub class: String,
    pub count: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_to_drain_is_a_number_or_a_word() {
        for (drain, text) in
            [(TimeToDrain::Seconds(1.5), "1.5"), (TimeToDrain::Never(Never::Never), "\"never\"")]
        {
            assert_eq!(serde_json::to_string(&drain).unwrap(), text);
            assert_eq!(serde_json::from_str::<TimeToDrain>(text).unwrap(), drain);
        }
    }

    #[test]
    fn unknown_and_missing_fields_of_other_versions_are_accepted() {
        let text =
            r#"{"order": {"classes": [{"name": "high", "waiting": 2, "colour": "red"}], "misfitCount": 1}}"#;
        let runtime: Runtime = serde_json::from_str(text).unwrap();
        let order = runtime.order.unwrap();
        assert_eq!((order.classes[0].waiting, order.misfit_count), (2, 1));
        assert_eq!(order.classes[0].target, None);
    }
}
