//! The settings of a hub in one line.

use peeklock_spec::{show_duration, show_size, show_status};
use peeklock_types::{HubSettings, QueueStatus};

/// `4 partitions, kept for 1d`.
pub(super) fn in_short(settings: &HubSettings) -> String {
    let partitions = crate::serve::plural(settings.partition_count.into(), "partition");
    let kept = settings
        .retention
        .map_or_else(|| "kept for ever".to_owned(), |span| format!("kept for {}", show_duration(span)));
    let mut parts = vec![partitions, kept];
    if let Some(bytes) = settings.retention_bytes {
        parts.push(format!("up to {} in each", show_size(bytes)));
    }
    if settings.status != QueueStatus::Active {
        parts.push(show_status(settings.status).to_owned());
    }
    parts.join(", ")
}
