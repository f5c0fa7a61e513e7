//! The state of the order of a queue: its classes, their targets, and why a message waits.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What happens in a queue or subscription just now, beside its counts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Runtime {
    /// Absent for a plain queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<OrderRuntime>,
}

/// Counts and times are since the start of the broker, but for those of what is there now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct OrderRuntime {
    /// The most urgent first.
    pub classes: Vec<ClassRuntime>,
    /// Empty where there are no tenants.
    pub tenant_classes: Vec<ClassRuntime>,
    /// The busiest first; only those with the most messages.
    pub tenants: Vec<TenantRuntime>,
    /// One for each class and tenant that has messages.
    pub lane_count: u64,
    /// Messages whose priority fitted no class; they went to the default class.
    pub misfit_count: u64,
    /// Messages of tenants that share a lane, because there were too many.
    pub crowded_count: u64,
    /// Messages that were not taken, because of a send rate.
    pub throttled_count: u64,
    /// Everything that waits is over a rate until then.
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
    /// Of the message that has waited longest; absent if none waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest_age_seconds: Option<f64>,
    pub enqueued_count: u64,
    /// First deliveries.
    pub started_count: u64,
    /// Completed or dead-lettered by a receiver.
    pub settled_count: u64,
    /// Of the last half minute.
    pub enqueued_per_second: f64,
    pub settled_per_second: f64,
    /// Until what waits is gone, if messages come and are settled as in the last half minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_to_drain_seconds: Option<TimeToDrain>,
    /// From the time at which a message could be received to its first delivery.
    pub time_in_queue: Percentiles,
    /// The same to its settlement.
    pub critical_time: Percentiles,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<TargetRuntime>,
}

/// A number of seconds, or the word `never`: as many come as are settled, or more.
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

/// Seconds within which so many of a hundred (or a thousand) were done; absent while there was nothing.
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

/// How a class fares against its target. A message is bad as soon as it has waited longer, whether it has started or not.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TargetRuntime {
    /// As settings write it: `10s`.
    pub within: String,
    /// The share that shall make it, like 0.99.
    pub objective: f64,
    pub good: u64,
    pub bad: u64,
    /// The share that made it; absent while there were no messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attainment: Option<f64>,
    /// The shortest first: 5 min, 30 min, 1 h, 6 h, 3 d.
    pub windows: Vec<WindowRuntime>,
    pub alert: Alert,
}

/// The last while.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WindowRuntime {
    /// As settings write it: `5m`.
    pub window: String,
    pub good: u64,
    pub bad: u64,
    /// How fast the allowed share of bad messages is used up: at 1 it is just used. Absent while there were no messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burn: Option<f64>,
}

/// Whether somebody should look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Alert {
    #[default]
    None,
    /// It would be one of the others, if there were not too few messages to tell.
    FewMessages,
    /// Soon: what is allowed is used up faster than it should be.
    Ticket,
    /// Now: what is allowed for a month is gone in a few days, or hours.
    Page,
}

/// Messages of one tenant in one class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TenantRuntime {
    /// Absent: messages of no tenant, or of those that share a lane.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    pub class: String,
    pub tenant_class: String,
    pub waiting: u64,
    pub in_flight: u64,
}

/// Why a message has not been received yet, and behind what it waits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ExplainedMessage {
    pub sequence_number: u64,
    /// One of `waiting`, `limited`, `locked`, `scheduled`, `delayed`, `deferred`, `in-session`.
    pub state: String,
    /// Absent in a plain queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant_class: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// One or more sentences for people.
    pub why: String,
    /// Messages that would be handed out before it if nothing else came, by class, the most urgent class first.
    pub ahead: Vec<Ahead>,
    /// The sum of those.
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
    fn what_a_newer_broker_adds_or_an_older_one_leaves_out_does_no_harm() {
        let text =
            r#"{"order": {"classes": [{"name": "high", "waiting": 2, "colour": "red"}], "misfitCount": 1}}"#;
        let runtime: Runtime = serde_json::from_str(text).unwrap();
        let order = runtime.order.unwrap();
        assert_eq!((order.classes[0].waiting, order.misfit_count), (2, 1));
        assert_eq!(order.classes[0].target, None);
    }
}
