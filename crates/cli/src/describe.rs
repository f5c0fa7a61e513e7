//! Queues for people and for programs.

use std::io::{self, Write};
use std::time::Duration;

use peeklock_client::{EntityName, QueueInfo, Setting};
use serde_json::{Value, json};

use crate::settings;

pub(crate) fn list(out: &mut Vec<u8>, queues: &[QueueInfo], as_json: bool) -> io::Result<()> {
    if as_json {
        return queues.iter().try_for_each(|queue| writeln!(out, "{}", to_json(queue)));
    }
    let width = queues.iter().map(|queue| queue.name.chars().count()).max().unwrap_or(0).max("NAME".len());
    writeln!(
        out,
        "{:width$}  {:>10}  {:>8}  {:>8}  {:>9}  {:>8}  {:>14}",
        "NAME", "ACTIVE", "LOCKED", "DEFERRED", "SCHEDULED", "DEAD", "BYTES"
    )?;
    for queue in queues {
        writeln!(
            out,
            "{:width$}  {:>10}  {:>8}  {:>8}  {:>9}  {:>8}  {:>14}",
            queue.name,
            queue.active_count,
            queue.locked_count,
            queue.deferred_count,
            queue.scheduled_count,
            queue.dead_letter_count,
            queue.size_bytes
        )?;
    }
    Ok(())
}

/// The settings that are not as usual, in the words of the flags that set them, and all counts.
pub(crate) fn show(out: &mut Vec<u8>, queue: &QueueInfo, as_json: bool) -> io::Result<()> {
    if as_json {
        return writeln!(out, "{}", to_json(queue));
    }
    let mut line = |label: &str, value: &dyn std::fmt::Display| writeln!(out, "{label:<24} {value}");
    line("Queue", &queue.name)?;
    let unusual = Setting::unusual(&queue.settings);
    line("Settings", &if unusual.is_empty() { "all as by default" } else { "as by default, but" })?;
    for setting in &unusual {
        let (key, value) = settings::describe(setting);
        line(&format!("  {key}"), &value)?;
    }
    line("Active", &queue.active_count)?;
    line("Locked", &queue.locked_count)?;
    line("Deferred", &queue.deferred_count)?;
    line("Scheduled", &queue.scheduled_count)?;
    line("Dead-lettered", &queue.dead_letter_count)?;
    line("Being forwarded", &queue.transfer_count)?;
    line("Not forwardable", &queue.transfer_dead_letter_count)?;
    line("Bytes", &queue.size_bytes)
}

fn to_json(queue: &QueueInfo) -> Value {
    let mut object = json!({
        "name": queue.name,
        "activeCount": queue.active_count,
        "lockedCount": queue.locked_count,
        "deferredCount": queue.deferred_count,
        "scheduledCount": queue.scheduled_count,
        "deadLetterCount": queue.dead_letter_count,
        "transferCount": queue.transfer_count,
        "transferDeadLetterCount": queue.transfer_dead_letter_count,
        "sizeBytes": queue.size_bytes,
    });
    if let Some(object) = object.as_object_mut() {
        object.extend(Setting::all(&queue.settings).iter().map(setting_json));
    }
    object
}

fn setting_json(setting: &Setting) -> (String, Value) {
    let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    let name = |name: &Option<EntityName>| json!(name.as_ref().map(EntityName::as_str));
    // Words are told as the command line takes them.
    let said = || settings::describe(setting).1;
    let (key, value) = match setting {
        Setting::RequiresSession(value) => ("requiresSession", json!(value)),
        Setting::LockDuration(value) => ("lockDurationMs", json!(millis(*value))),
        Setting::MaxDeliveryCount(value) => ("maxDeliveryCount", json!(value)),
        Setting::DefaultTimeToLive(value) => ("defaultTimeToLiveMs", json!(value.map(millis))),
        Setting::DeadLetterOnExpiration(value) => ("deadLetterOnExpiration", json!(value)),
        Setting::AutoDeleteOnIdle(value) => ("autoDeleteOnIdleMs", json!(value.map(millis))),
        Setting::DuplicateWindow(value) => ("duplicateWindowMs", json!(value.map(millis))),
        Setting::MaxSizeBytes(value) => ("maxSizeBytes", json!(value)),
        Setting::MaxMessageSizeBytes(value) => ("maxMessageSizeBytes", json!(value)),
        Setting::Status(_) => ("status", json!(said())),
        Setting::ForwardTo(value) => ("forwardTo", name(value)),
        Setting::ForwardDeadLettersTo(value) => ("forwardDeadLettersTo", name(value)),
        Setting::Retry(_) => ("retry", json!(said())),
        Setting::PoisonSession(_) => ("poisonSession", json!(said())),
    };
    (key.to_owned(), value)
}
